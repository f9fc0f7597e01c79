import { type CommandContext, line } from '../output.ts';

/** Milliseconds between two updates on a terminal. */
const INTERVAL = 100;

/** Reports the progress of a command on stderr. */
export interface Progress {
  /** Starts a step, on a separate line without a terminal. */
  step(text: string): void;
  /** Progress of the step. Shown on a terminal only, at most ten times a second. */
  update(text: string): void;
  /** Removes an unfinished line. */
  end(): void;
}

/** Progress that overwrites one line on a terminal. Empty with `quiet`. */
export function createProgress({ stderr, env }: CommandContext, quiet: boolean): Progress {
  const isTty = stderr.isTTY === true && env.TERM !== 'dumb';
  let isShown = false;
  let shownAt = Number.NEGATIVE_INFINITY;
  const show = (text: string) => {
    stderr.write(`\r\u001b[K${text.slice(0, (stderr.columns ?? 80) - 1)}`);
    isShown = true;
  };
  return {
    step(text) {
      if (quiet) return;
      if (isTty) show(text);
      else line(stderr, text);
    },
    update(text) {
      if (quiet || !isTty || performance.now() - shownAt < INTERVAL) return;
      shownAt = performance.now();
      show(text);
    },
    end() {
      if (isShown) stderr.write('\r\u001b[K');
      isShown = false;
    },
  };
}
