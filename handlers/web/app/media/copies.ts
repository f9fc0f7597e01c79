import type { PageStore } from '../page-store.ts';

/** Bytes of all copies. */
const MAX_BYTES = 64 * 1024 * 1024;
const MAX_COPIES = 100;
const INDEX = 'copies';

interface Row {
  token: string;
  size: number;
  /** Epoch ms. */
  expiresAt: number;
}

const nameOf = (token: string): string => `copy ${token}`;

/**
 * Files that this browser has sent to its mailbox, by their tokens: what it can show of them while home, which has taken them
 * over, is off. Oldest first, they make room for others, and none outlives the relay's own.
 */
export const openCopies = (pageStore: PageStore) => ({
  async get(token: string): Promise<File | undefined> {
    const rows = (await pageStore.read<Row[]>(INDEX)) ?? [];
    const isHere = rows.some((row) => row.token === token && row.expiresAt > Date.now());
    return isHere ? pageStore.read<File>(nameOf(token)) : undefined;
  },

  async add(token: string, file: File, expiresAt: number): Promise<void> {
    if (file.size > MAX_BYTES) return;
    let dropped: Row[] = [];
    const rows = await pageStore.change<Row[]>(INDEX, (stored = []) => {
      const now = Date.now();
      const others = stored.filter((row) => row.token !== token && row.expiresAt > now);
      const next = [...others, { token, size: file.size, expiresAt }].slice(-MAX_COPIES);
      let bytes = next.reduce((sum, { size }) => sum + size, 0);
      while (bytes > MAX_BYTES) bytes -= next.shift()?.size ?? 0;
      const left = new Set(next.map((row) => row.token));
      dropped = stored.filter((row) => !left.has(row.token));
      return next;
    });
    if (rows.some((row) => row.token === token)) await pageStore.change<File>(nameOf(token), () => file);
    for (const row of dropped) await pageStore.remove(nameOf(row.token));
  },

  async remove(token: string): Promise<void> {
    await pageStore.change<Row[]>(INDEX, (stored = []) => stored.filter((row) => row.token !== token));
    await pageStore.remove(nameOf(token));
  },
});
