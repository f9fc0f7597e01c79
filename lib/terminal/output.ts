import type { Clock } from '../kit/clock.ts';

const MAX_BATCH = 4096;
/** Milliseconds. */
const MAX_DELAY = 16;

export type Output = ReturnType<typeof createOutput>;

/**
 * Batches output: sent when 4096 bytes are pending, or 16 ms after the first of them (contract 02 §3.6). Output after a
 * pause or after a keystroke is sent at once, so that an echo never waits.
 */
export function createOutput(clock: Pick<Clock, 'after' | 'monotonic'>, send: (text: string) => void) {
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
    /** Adds text that was `bytes` long. */
    push(text: string, bytes: number): void {
      waiting += text;
      size += bytes;
      if (size >= MAX_BATCH || clock.monotonic() - lastSent >= MAX_DELAY) flush();
      else if (!isArmed) {
        // Not cancelled by a flush in between, after which it fires early for later text, which is harmless.
        isArmed = true;
        clock.after(MAX_DELAY, () => {
          isArmed = false;
          flush();
        });
      }
    },
    /** Sends the next output at once, because input was typed. */
    flushNow(): void {
      lastSent = Number.NEGATIVE_INFINITY;
    },
    /** Sends the pending text. */
    flush,
  };
}
