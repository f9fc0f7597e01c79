import type { ReadonlySignal } from '@preact/signals';

/** Resolves with the first value of a signal, from the present one on, that passes a test. */
export const until = <T>(source: ReadonlySignal<T>, test: (value: T) => boolean): Promise<T> =>
  new Promise((resolve) => {
    const stop = source.subscribe((value) => {
      if (!test(value)) return;
      // The first call comes before `stop` is there.
      queueMicrotask(() => stop());
      resolve(value);
    });
  });
