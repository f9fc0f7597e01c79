import type { Cancel, Clock } from '../kit/clock.ts';

/**
 * Milliseconds after which a recall ends unless its caller renews it, which a killed command does not. Two calls may time
 * out in between, after five seconds each.
 */
const RECALL_LEASE = 15_000;

/** Numbers of items that came home during a recall. */
export interface CameHome {
  messages: number;
  replies: number;
  uploads: number;
}
const NOTHING: CameHome = { messages: 0, replies: 0, uploads: 0 };

/** The recall of all messages from the edge before the mirror ends (contract 12 §7). `changed` is told its begin and end. */
export function createRecall({ clock, changed }: { clock: Clock; changed(begins: boolean): void }) {
  /** Undefined without a recall. */
  let cameHome: CameHome | undefined;
  let cancelEnd: Cancel = () => {};

  /** Begins, renews or ends the recall. */
  function set(begins: boolean): void {
    cancelEnd();
    if (begins !== (cameHome !== undefined)) {
      cameHome = begins ? { ...NOTHING } : undefined;
      changed(begins);
    }
    if (begins) cancelEnd = clock.after(RECALL_LEASE, () => set(false));
  }

  return {
    set,

    took(kind: keyof CameHome): void {
      if (cameHome) cameHome[kind]++;
    },

    /** Ends the recall, and returns the numbers of what came home during it. */
    end(): CameHome {
      const came = cameHome ?? NOTHING;
      set(false);
      return came;
    },
  };
}
