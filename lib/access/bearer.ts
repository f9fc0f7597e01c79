import type { HeaderReader } from './peer.ts';

/**
 * The value of an `Authorization: Bearer` header: scheme in any case, value trimmed (contract 01 §1.2).
 * Null for another scheme or an empty value.
 */
export function bearerOf(authorization: string | null): string | null {
  const match = authorization === null ? null : /^bearer +(.*)$/i.exec(authorization.trim());
  return match?.[1]?.trim() || null;
}

/** Subprotocol of a page's voice socket. The relay selects it; the token beside it is never echoed. */
export const VOICE_PROTOCOL = 'svc.voice';
/** Prefix of a page's token in a second subprotocol. */
const BEARER_PROTOCOL = 'svc.bearer.';

/** The subprotocols that an upgrade offers. */
export const offeredProtocols = (headers: HeaderReader): string[] =>
  (headers.get('sec-websocket-protocol') ?? '').split(',').map((protocol) => protocol.trim());

/**
 * The token of an upgrade by a page: browsers send no `Authorization` with one, and an address would be logged. Null
 * without exactly one. Only for handshakes: any page can send these headers with a plain request.
 */
export function offeredBearer(headers: HeaderReader): string | null {
  const [bearer, ...more] = offeredProtocols(headers).filter((protocol) => protocol.startsWith(BEARER_PROTOCOL));
  return more.length > 0 ? null : bearer?.slice(BEARER_PROTOCOL.length) || null;
}
