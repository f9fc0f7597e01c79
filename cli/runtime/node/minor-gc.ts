import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * Frees the buffers of large bodies while these are carried: returns a function that counts their bytes. Node reads into
 * buffers of 64 KiB outside of the heap, which V8 frees only when the tiny objects that own them are collected. Otherwise V8
 * lets hundreds of MiB pile up, and then marks the whole heap, ten times as often as necessary and with up to half of the
 * CPU (2026-11, Node 20). A collection of the young objects takes a fraction of a millisecond.
 *
 * `every`: bytes carried between two collections. Each is allocated two or three times on its way, and a process with a small
 * heap marks it whenever buffers of 8 MiB were added.
 */
export function createMinorCollector(every: number): (bytes: number) => void {
  let collect: Collect | undefined;
  let carried = 0;
  return (bytes) => {
    carried += bytes;
    if (carried < every) return;
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
