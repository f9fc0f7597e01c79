/** The code of a pairing link, `app/#code=ABC123`, taken out of the address and the history at once. */
export function takeCode(): string | null {
  const match = /^#code=([^&]*)/.exec(location.hash);
  if (!match) return null;
  history.replaceState(null, '', `${location.pathname}${location.search}`);
  return readCode(match[1] ?? '');
}

/** The pairing code in what was typed, scanned or opened: the code alone, or a link that ends in it. */
export function readCode(text: string): string | null {
  const code = (/#code=([^&\s]*)/.exec(text)?.[1] ?? text).replace(/[\s-]/g, '').toUpperCase();
  return /^[A-Z0-9]{6}$/.test(code) ? code : null;
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

/** This browser as the relay lists it: `Firefox on Android`. */
export function describeBrowser(agent = navigator.userAgent): string {
  const find = (table: typeof SYSTEMS | typeof BROWSERS) => table.find(([pattern]) => pattern.test(agent))?.[1];
  return `${find(BROWSERS) ?? 'Browser'} on ${find(SYSTEMS) ?? 'an unknown system'}`;
}
