import { type HeaderReader, MAX_ORIGIN } from './peer.ts';

/** The web page that a request comes from, as the browser says. `isOwn`: this relay has served it under the same name. */
export interface WebPage {
  origin: string;
  isOwn: boolean;
}

/** Reads `Origin`; undefined for a request without it. An origin that cannot be read counts as that of a foreign page. */
export function pageOf(headers: HeaderReader): WebPage | undefined {
  const origin = headers.get('origin');
  if (origin === null) return undefined;
  if (origin.length > MAX_ORIGIN || !/^https?:/.test(origin) || !URL.canParse(origin)) {
    return { origin: 'null', isOwn: false };
  }
  const url = new URL(origin);
  return { origin: url.origin, isOwn: url.host === headers.get('host')?.toLowerCase() };
}
