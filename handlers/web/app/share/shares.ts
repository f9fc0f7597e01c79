import { type ReadonlySignal, signal } from '@preact/signals';
import { isEmpty, readShare, removeShare, type Share, storeRest } from './stored-share.ts';

export type Shares = ReturnType<typeof createShares>;

/** Content shared by another app, as the service worker stored it. */
export function createShares(base: string) {
  const pending = signal<Share | null>(null);
  const forTerminal = signal('');

  void readShare(base).then(
    (share) => {
      pending.value = share;
    },
    () => {},
  );

  /** Replaces parts of the share. */
  async function change(parts: Partial<Share>): Promise<void> {
    if (!pending.value) return;
    const share = { ...pending.value, ...parts };
    pending.value = isEmpty(share) ? null : share;
    await storeRest(base, share).catch(() => {});
  }

  return {
    pending: pending as ReadonlySignal<Share | null>,
    /** Text that the terminal offers for pasting. */
    forTerminal,

    /** A part was used, and is removed. */
    used: (part: 'text' | 'files'): Promise<void> =>
      change(part === 'text' ? { text: '' } : { files: [], refused: [] }),

    /** All of it was used, or is not wanted. */
    discard: (): Promise<void> => change({ text: '', files: [], refused: [] }),

    /** The pairing has ended: erases whatever is stored. */
    async clear(): Promise<void> {
      pending.value = null;
      await removeShare(base).catch(() => {});
    },
  };
}
