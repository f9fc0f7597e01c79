import { type HeaderReader, isSecureTransport, type Peer, peerKey } from '../lib/access/peer.ts';
import type { Relay } from '../lib/relay.ts';
import type { Caller } from '../lib/socket/transport.ts';
import { errorResponse } from '../lib/web/json.ts';

export const SOCKET_PATHS = ['/ws', '/'];

/** `GET /ws` and `GET /` without upgrade headers. */
export const upgradeRequired = (): Response =>
  errorResponse(426, 'connect to this path with a WebSocket', { upgrade: 'websocket', connection: 'Upgrade' });

/** Who wants a socket. */
export function callerOf(peer: Peer, headers: HeaderReader, relay: Relay): Caller {
  const trusted = relay.config.trustProxyHeaders;
  return {
    peer,
    key: peerKey(peer, headers, trusted),
    transportHint: isSecureTransport(peer, headers, trusted) ? 'wss' : 'ws',
  };
}

/** The answer to an upgrade that is not to happen; undefined lets it happen (contract 01 §3.1). */
export function refuseUpgrade(path: string, caller: Caller, relay: Relay): Response | undefined {
  if (!SOCKET_PATHS.includes(path)) return closing(errorResponse(404, 'not found'));
  const refusal = relay.sockets.refusal(caller.key);
  if (!refusal) return undefined;
  const sentence = refusal.blocked
    ? 'too many failed attempts, try again later'
    : 'too many connections, try again soon';
  return closing(errorResponse(429, sentence, { 'retry-after': String(refusal.retryAfter) }));
}

function closing(response: Response): Response {
  response.headers.set('connection', 'close');
  return response;
}
