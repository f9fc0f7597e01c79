import { type ReadonlySignal, signal } from '@preact/signals';
import { isEmpty, readShare, type Share, storeShare } from './stored-share.ts';

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

  async function save(share: Share): Promise<void> {
    pending.value = isEmpty(share) ? null : share;
    await storeShare(base, share).catch(() => {});
  }

  const clear = (): Promise<void> => save({ text: '', files: [], refused: [], at: 0 });

  return {
    pending: pending as ReadonlySignal<Share | null>,
    /** Text that the terminal offers for pasting. */
    forTerminal,

    /** A part was used, and is removed. */
    async used(part: 'text' | 'files'): Promise<void> {
      const share = pending.value;
      if (share) await save({ ...share, ...(part === 'text' ? { text: '' } : { files: [], refused: [] }) });
    },

    /** Erases all of it in this browser. */
    clear,
  };
}
