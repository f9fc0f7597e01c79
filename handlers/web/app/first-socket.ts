import type { Pairing } from '../../../lib/companion/link/settings.ts';
import { homeOf } from './stored-pairing.ts';

/** Shared by two scripts that share no module. */
interface EarlyScope {
  svcEarlySocket?: WebSocket | undefined;
}

/** Name in `localStorage` of the first socket of this browser's pairing. Several relays may share an origin. */
export const firstSocketKey = ({ pathname }: URL): string => `svc socket ${pathname}`;

/** Stores the URL of the socket that the next start opens first, or removes it without a pairing. */
export function storeFirstSocket(base: string, pairing: Pairing | null): void {
  const key = firstSocketKey(new URL(base));
  const url = pairing && (homeOf(pairing) ?? pairing.mailbox?.url);
  try {
    if (!url) localStorage.removeItem(key);
    else if (localStorage.getItem(key) !== url) localStorage.setItem(key, url);
  } catch {
    // Without storage, the next start takes a little longer.
  }
}

export function keepEarlySocket(socket: WebSocket): void {
  (globalThis as EarlyScope).svcEarlySocket = socket;
}

/** The socket that `early.ts` has opened, if it leads to `url` and has not failed. Any other one is closed. */
export function takeEarlySocket(url: string): WebSocket | undefined {
  const scope = globalThis as EarlyScope;
  const socket = scope.svcEarlySocket;
  scope.svcEarlySocket = undefined;
  if (socket && socket.url === new URL(url).href && socket.readyState <= WebSocket.OPEN) return socket;
  socket?.close();
  return undefined;
}
