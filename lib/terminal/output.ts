import type { Clock } from '../kit/clock.ts';

const LIMIT = 4096;
const DELAY = 16;

/** Collects text on its way to the client. */
export interface Output {
  /** Takes text that was `bytes` long. */
  push(text: string, bytes: number): void;
  /** Somebody typed: what comes next is sent at once. */
  hurry(): void;
  /** Sends what waits. */
  flush(): void;
  /** Forgets what waits. */
  drop(): void;
}

/**
 * Batches output: sent when 4096 bytes wait, or 16 ms after the first of them (contract 02 §3.6). What comes after a
 * quiet moment, or in answer to a keystroke, is sent at once: an echo waits for nothing.
 */
export function createOutput(clock: Pick<Clock, 'after' | 'monotonic'>, send: (text: string) => void): Output {
  let waiting = '';
  let size = 0;
  let isArmed = false;
  let lastSent = Number.NEGATIVE_INFINITY;

  function flush(): void {
    if (waiting === '') return;
    const text = waiting;
    waiting = '';
    size = 0;
    lastSent = clock.monotonic();
    send(text);
  }

  return {
    push(text, bytes) {
      waiting += text;
      size += bytes;
      if (size >= LIMIT || clock.monotonic() - lastSent >= DELAY) flush();
      else if (!isArmed) {
        // Not disarmed by a flush in between: it then fires early for what came later, which does no harm.
        isArmed = true;
        clock.after(DELAY, () => {
          isArmed = false;
          flush();
        });
      }
    },
    hurry() {
      lastSent = Number.NEGATIVE_INFINITY;
    },
    flush,
    drop() {
      waiting = '';
      size = 0;
    },
  };
}
