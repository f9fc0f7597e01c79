import type { Cancel, Clock } from '../kit/clock.ts';
import type { Session } from './session.ts';
import type { Tmux } from './tmux.ts';

/** Milliseconds for tmux to settle on a size after a client has come, gone or resized. */
const SETTLED = 250;

export interface WindowSizesDeps {
  /** Sessions that are not closed. */
  live(): Iterable<Session>;
  tmux(): Promise<Tmux | undefined> | undefined;
  clock: Pick<Clock, 'after'>;
}

/** Sends clients that watch a tmux session the size of its window, which others choose. */
export function createWindowSizes({ live, tmux, clock }: WindowSizesDeps) {
  /** Keyed by tmux name, at most one per session. */
  const timers = new Map<string, Cancel>();

  const watchersOf = (tmuxName: string): Session[] =>
    [...live()].filter((session) => session.isWatch && session.tmuxName === tmuxName);

  async function adjust(tmuxName: string): Promise<void> {
    const size = await (await tmux())?.size(tmuxName);
    if (!size) return;
    for (const session of watchersOf(tmuxName)) {
      if (session.size.cols !== size.cols || session.size.rows !== size.rows) session.resize(size);
    }
  }

  return {
    /** The window of a tmux session may be resized soon. */
    mayChange(tmuxName: string | undefined): void {
      if (tmuxName === undefined || timers.has(tmuxName) || watchersOf(tmuxName).length === 0) return;
      const cancel = clock.after(SETTLED, () => {
        timers.delete(tmuxName);
        void adjust(tmuxName);
      });
      timers.set(tmuxName, cancel);
    },
    stop(): void {
      for (const cancel of timers.values()) cancel();
      timers.clear();
    },
  };
}
