/**
 * The service worker: the app starts without a network, from the files of the build that it was installed with. It never
 * answers for the relay. It also shows push notices of the relay (`worker/notices.ts`). `sw-off.ts` replaces it when the
 * operator turns it off.
 */

import { createCaller } from './worker/caller.ts';
import { serveMedia } from './worker/media.ts';
import { serveNotices } from './worker/notices.ts';
import type { WorkerScope } from './worker/scope.ts';
import { serveShares } from './worker/share.ts';

/** Set by the build: names of all files of the app, and a name for their sum. */
declare const __FILES__: readonly string[];
declare const __BUILD__: string;

const scope = globalThis as unknown as WorkerScope;

const CACHE = `svc app ${__BUILD__}`;
const DOCUMENT = './';
/** Milliseconds for the network to answer for the document before the stored one is shown. */
const DOCUMENT_TIMEOUT = 3000;

scope.addEventListener('install', (event) => {
  event.waitUntil(store().then(() => scope.skipWaiting()));
});

scope.addEventListener('activate', (event) => {
  event.waitUntil(removeOthers().then(() => scope.clients.claim()));
});

scope.addEventListener('fetch', (event) => {
  const { request } = event;
  if (request.method !== 'GET' || !request.url.startsWith(scope.registration.scope)) return;
  const name = request.url.slice(scope.registration.scope.length).replace(/[?#].*$/, '');
  if (request.mode === 'navigate' && name === '') event.respondWith(freshDocument(request));
  else if (__FILES__.includes(name)) event.respondWith(storedFile(request));
});

const caller = createCaller(new URL('../', scope.registration.scope).href);
serveMedia(scope, scope.registration.scope, caller);
serveShares(scope, scope.registration.scope);
serveNotices(scope, scope.registration.scope, caller);

async function store(): Promise<void> {
  const cache = await caches.open(CACHE);
  // Names contain a hash, so the browser's cached copy is valid; the document must be of this exact build.
  await Promise.all([cache.addAll(__FILES__), cache.add(new Request(DOCUMENT, { cache: 'reload' }))]);
}

async function removeOthers(): Promise<void> {
  const names = (await caches.keys()).filter((name) => name.startsWith('svc app ') && name !== CACHE);
  await Promise.all(names.map((name) => caches.delete(name)));
}

/** The document from the network, or the stored one if that does not answer in time. */
async function freshDocument(request: Request): Promise<Response> {
  const deadline = new AbortController();
  // Until the head has arrived; a body that is still arriving is not cut off.
  const timer = setTimeout(() => deadline.abort(), DOCUMENT_TIMEOUT);
  try {
    const response = await fetch(request, { signal: deadline.signal });
    if (response.status < 500) return response;
  } catch {
    // No network: the stored document follows.
  } finally {
    clearTimeout(timer);
  }
  return (await caches.match(DOCUMENT, { cacheName: CACHE })) ?? Response.error();
}

async function storedFile(request: Request): Promise<Response> {
  return (await caches.match(request, { cacheName: CACHE })) ?? fetch(request);
}
