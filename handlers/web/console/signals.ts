import type { Signal } from '@preact/signals';

/** An event handler that gives a signal a value. */
export const setTo =
  <T>(signal: Signal<T>, value: NoInfer<T>) =>
  (): void => {
    signal.value = value;
  };
