import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { MiB } from '../../../lib/kit/units.ts';

/**
 * Sets V8 up for requests, whose objects die young. It affects code that is compiled later.
 *
 * - Young objects are collected on the main thread, which frees their buffers before it goes on. A relay has so few of them
 *   that waking other threads costs more than the work itself: a seventh of a connect, and of a large body (2026-11). Until
 *   another thread has freed a buffer, V8 also counts it towards the limit at which it marks the heap.
 * - All objects are allocated young. V8 would allocate those of one line of code old, for good, if many of them happened to
 *   survive a first collection. Each then keeps all that it refers to until V8 marks the heap: with eight bridge commands in
 *   flight, this cost a third of their processor time in every second process (2026-11).
 */
export function tuneCollection(): void {
  const flags = ['--no-parallel-scavenge', '--no-concurrent-array-buffer-sweeping', '--no-allocation-site-pretenuring'];
  for (const flag of flags) setFlagsFromString(flag);
}

/**
 * Bytes carried between two collections. Each is allocated two or three times on its way. Once V8 has marked a small heap, it
 * marks it again whenever 8 MiB of buffers have been added, which can cost three times as much as carrying them (2026-11).
 */
const EVERY = 2 * MiB;

/**
 * Frees the buffers of large bodies while these are carried: returns a function that counts their bytes. Node reads into
 * buffers of 64 KiB outside of the heap, which V8 frees only when the tiny objects that own them are collected. A collection of
 * the young objects takes a fraction of a millisecond.
 */
export function createMinorCollector(): (bytes: number) => void {
  let collect: Collect | undefined;
  let carried = 0;
  return (bytes) => {
    carried += bytes;
    if (carried < EVERY) return;
    carried = 0;
    collect ??= exposeCollection();
    collect({ type: 'minor' });
  };
}

type Collect = (options: { type: 'minor' }) => void;

/** V8's `gc`, which exists only in contexts created while the flag was on. Without it, V8 collects on its own schedule. */
function exposeCollection(): Collect {
  setFlagsFromString('--expose-gc');
  try {
    return runInNewContext("typeof gc === 'function' ? gc : () => {}");
  } finally {
    setFlagsFromString('--no-expose-gc');
  }
}
