/** Replaces a bad service worker (`RELAY_SERVICE_WORKER=0`): removes every trace of it, then itself. */

import type { WorkerScope } from './worker/scope.ts';

const scope = globalThis as unknown as WorkerScope;

scope.addEventListener('install', (event) => {
  event.waitUntil(scope.skipWaiting());
});

scope.addEventListener('activate', (event) => {
  event.waitUntil(leave());
});

async function leave(): Promise<void> {
  const names = (await caches.keys()).filter((name) => name.startsWith('svc app '));
  await Promise.all(names.map((name) => caches.delete(name)));
  // Pages of the old worker have its files, so they are reloaded from the relay.
  const pages = await scope.clients.matchAll();
  await scope.registration.unregister();
  await Promise.all(pages.map((page) => page.navigate(page.url).catch(() => {})));
}
