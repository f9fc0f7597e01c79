import type { Cancel, Clock } from '../kit/clock.ts';
import type { Session } from './session.ts';
import type { Tmux } from './tmux.ts';

/** Milliseconds in which tmux has settled on a size after a client has come, gone or changed its own. */
const SETTLED = 250;

export interface WindowSizesParts {
  /** Sessions that are not closed. */
  live(): Iterable<Session>;
  tmux(): Promise<Tmux | undefined> | undefined;
  clock: Pick<Clock, 'after'>;
}

/** Gives clients that watch a tmux session the size of its window, which others choose. */
export function createWindowSizes({ live, tmux, clock }: WindowSizesParts) {
  /** Keyed by tmux name; at most one for each session. */
  const looks = new Map<string, Cancel>();

  const watchersOf = (tmuxName: string): Session[] =>
    [...live()].filter((session) => session.isWatch && session.tmuxName === tmuxName);

  async function look(tmuxName: string): Promise<void> {
    const size = await (await tmux())?.size(tmuxName);
    if (!size) return;
    for (const session of watchersOf(tmuxName)) {
      if (session.size.cols !== size.cols || session.size.rows !== size.rows) session.resize(size);
    }
  }

  return {
    /** The window of a tmux session may have another size soon. */
    mayChange(tmuxName: string | undefined): void {
      if (tmuxName === undefined || looks.has(tmuxName) || watchersOf(tmuxName).length === 0) return;
      const cancel = clock.after(SETTLED, () => {
        looks.delete(tmuxName);
        void look(tmuxName);
      });
      looks.set(tmuxName, cancel);
    },
    stop(): void {
      for (const cancel of looks.values()) cancel();
      looks.clear();
    },
  };
}
