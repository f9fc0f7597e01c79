import type { Page } from 'playwright-core';
import { expect } from 'vitest';

export interface Stored {
  /** Rows by their keys, of each database in IndexedDB. */
  databases: Record<string, Record<string, unknown>>;
  /** Keys of `localStorage` and `sessionStorage`. */
  storage: string[];
  /** Paths of what the service worker stores. */
  cached: string[];
}

/** Everything that the browser keeps for the page's origin. */
export const stored = (page: Page): Promise<Stored> =>
  page.evaluate(async () => {
    const done = <T>(request: IDBRequest<T>) =>
      new Promise<T>((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
      });
    const databases: Record<string, Record<string, unknown>> = {};
    for (const { name = '' } of await indexedDB.databases()) {
      const database = await done(indexedDB.open(name));
      const rows: Record<string, unknown> = {};
      for (const store of database.objectStoreNames) {
        const open = () => database.transaction(store).objectStore(store);
        for (const key of await done(open().getAllKeys())) rows[String(key)] = await done(open().get(key));
      }
      database.close();
      databases[name] = rows;
    }
    const cached: string[] = [];
    for (const name of await caches.keys()) {
      const requests = await (await caches.open(name)).keys();
      cached.push(...requests.map(({ url }) => new URL(url).pathname));
    }
    return { databases, storage: [...Object.keys(localStorage), ...Object.keys(sessionStorage)], cached };
  });

/** The relay's token of a file that the page has sent, once it is stored: the page shows it before. */
export async function sentToken(page: Page, name: string): Promise<string> {
  const find = async () => {
    const files = (await stored(page)).databases['svc kept']?.['files /'] as
      | { name: string; token: string }[]
      | undefined;
    return files?.find((file) => file.name === name)?.token ?? '';
  };
  await expect.poll(find).not.toBe('');
  return find();
}
