/** A pairing code, and the secret of its link, with which other people's wrong codes do not block the pairing. */
export interface LinkCode {
  code: string;
  secret?: string;
}

/** The code of a pairing link, `app/#code=ABC123&secret=…`, removed from the address and the history at once. */
export function takeCode(): LinkCode | null {
  const { hash } = location;
  if (!hash.startsWith('#code=')) return null;
  history.replaceState(null, '', `${location.pathname}${location.search}`);
  return readCode(hash);
}

/** The pairing code in a typed, scanned or opened text: the code alone, or a link that ends in it. */
export function readCode(text: string): LinkCode | null {
  const [, linked, secret] = /#code=([^&\s]*)(?:&secret=([\w-]+))?/.exec(text) ?? [];
  const code = (linked ?? text).replace(/[\s-]/g, '').toUpperCase();
  return /^[A-Z0-9]{6}$/.test(code) ? { code, secret } : null;
}

const SYSTEMS = [
  [/android/i, 'Android'],
  [/iphone|ipad|ipod/i, 'iOS'],
  [/mac os/i, 'macOS'],
  [/windows/i, 'Windows'],
  [/cros/i, 'ChromeOS'],
  [/linux/i, 'Linux'],
] as const;
const BROWSERS = [
  [/edg/i, 'Edge'],
  [/firefox|fxios/i, 'Firefox'],
  [/samsungbrowser/i, 'Samsung Internet'],
  [/chrome|crios|chromium/i, 'Chrome'],
  [/safari/i, 'Safari'],
] as const;

/** This browser as listed by the relay: `Firefox on Android`. */
export function describeBrowser(agent = navigator.userAgent): string {
  const find = (table: typeof SYSTEMS | typeof BROWSERS) => table.find(([pattern]) => pattern.test(agent))?.[1];
  return `${find(BROWSERS) ?? 'Browser'} on ${find(SYSTEMS) ?? 'an unknown system'}`;
}
