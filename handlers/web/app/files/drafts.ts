import type { PageStore } from '../page-store.ts';

/** A file on its way to the sealed mailbox. */
export interface Draft {
  file: File;
  /** As it is sent, for the key of home. The same bytes again have the same token, so the mailbox takes them once. */
  sealed?: { file: File; token: string; home: string };
  /** Why it is not on its way: in words for people, or empty when a person has cancelled it. */
  stopped?: string;
}

const MAX_DRAFTS = 50;
const INDEX = 'uploads';

const nameOf = (id: string): string => `upload ${id}`;

/**
 * Files for the sealed mailbox, until it has them: this browser keeps them over reloads. Others of its tabs leave a draft
 * alone while one has it.
 */
export function openDrafts(pageStore: PageStore) {
  const releases = new Map<string, () => void>();
  const closing = new AbortController();

  function release(id: string): void {
    releases.get(id)?.();
    releases.delete(id);
  }

  /** Resolves once this tab alone has a draft, until that is removed; never after `close`. */
  const claim = (id: string): Promise<void> =>
    new Promise((claimed) => {
      if (releases.has(id) || !navigator.locks) return claimed();
      void navigator.locks
        .request(`svc upload ${id}`, { signal: closing.signal }, () => {
          const held = new Promise<void>((release) => releases.set(id, release));
          claimed();
          return held;
        })
        .catch(() => {});
    });

  async function remove(id: string): Promise<void> {
    if (closing.signal.aborted) return;
    await pageStore.change<string[]>(INDEX, (stored = []) => stored.filter((other) => other !== id));
    await pageStore.remove(nameOf(id));
    release(id);
  }

  return {
    ids: async (): Promise<readonly string[]> => (await pageStore.read<string[]>(INDEX)) ?? [],
    read: (id: string): Promise<Draft | undefined> => pageStore.read<Draft>(nameOf(id)),
    claim,
    remove,

    /** Claims a draft. Undefined if it is gone, or cannot be read now, in which case it is left for a later page. */
    async adopt(id: string): Promise<Draft | undefined> {
      await claim(id);
      try {
        const draft = await pageStore.find<Draft>(nameOf(id));
        if (!draft) await remove(id);
        return draft;
      } catch {
        release(id);
        return undefined;
      }
    },

    async put(id: string, draft: Draft): Promise<void> {
      if (closing.signal.aborted) return;
      const ids = await pageStore.change<string[]>(INDEX, (stored = []) =>
        stored.includes(id) || stored.length >= MAX_DRAFTS ? stored : [...stored, id],
      );
      if (ids.includes(id) && !closing.signal.aborted) await pageStore.change<Draft>(nameOf(id), () => draft);
    },

    /** Lets other tabs have the drafts, and writes no more to the page store. */
    close(): void {
      closing.abort();
      for (const release of releases.values()) release();
    },
  };
}
