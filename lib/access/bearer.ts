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

/** The rest of the subprotocol that begins with `prefix`; null without exactly one. */
export function offeredWith(prefix: string, headers: HeaderReader): string | null {
  const [value, ...more] = offeredProtocols(headers).filter((protocol) => protocol.startsWith(prefix));
  return more.length > 0 ? null : value?.slice(prefix.length) || null;
}

/**
 * The token of an upgrade by a page: browsers send no `Authorization` with one, and an address would be logged. Null
 * without exactly one. Only for handshakes: any page can send these headers with a plain request.
 */
export const offeredBearer = (headers: HeaderReader): string | null => offeredWith(BEARER_PROTOCOL, headers);
