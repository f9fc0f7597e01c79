import { firstSocketKey, keepEarlySocket } from './first-socket.ts';

/**
 * A script of its own, which arrives long before the app on a slow network: a paired page opens its socket now. The app
 * takes it and authenticates (`dial.ts`).
 */
try {
  const url = localStorage.getItem(firstSocketKey(new URL('../', location.href)));
  if (url !== null) keepEarlySocket(new WebSocket(url));
} catch {
  // Without storage, or with an address that the browser does not take, the app opens its socket itself.
}
