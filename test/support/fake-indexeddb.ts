import { onTestFinished, vi } from 'vitest';

interface FakeRequest {
  result?: unknown;
  error?: Error;
  onsuccess?(): void;
  onerror?(): void;
}

/**
 * A browser's database, as much of it as idb-keyval needs, whose calls fail on demand: rows of all stores by their keys.
 */
export function stubIndexedDb() {
  const rows = new Map<string, unknown>();
  const failing = { read: false, write: false };

  function answer(isFailing: boolean, work: () => unknown): FakeRequest {
    const request: FakeRequest = {};
    setTimeout(() => {
      if (isFailing) {
        request.error = new Error('refused');
        request.onerror?.();
      } else {
        request.result = work();
        request.onsuccess?.();
      }
    });
    return request;
  }

  function objectStore() {
    const transaction: { oncomplete?(): void; onabort?(): void; error?: Error } = {};
    return {
      transaction,
      get: (key: string) => answer(failing.read, () => structuredClone(rows.get(key))),
      put(value: unknown, key: string) {
        if (failing.write) transaction.error = new Error('full');
        else rows.set(key, structuredClone(value));
        setTimeout(() => (transaction.error ? transaction.onabort?.() : transaction.oncomplete?.()));
      },
      delete(key: string) {
        rows.delete(key);
        setTimeout(() => transaction.oncomplete?.());
      },
    };
  }

  vi.stubGlobal('indexedDB', { open: () => answer(false, () => ({ transaction: () => ({ objectStore }) })) });
  onTestFinished(() => void vi.unstubAllGlobals());
  return { rows, failing };
}
