import { useSignal } from '@preact/signals';

/** A flag of a component, such as whether its dialog is open, and the handlers that change it. */
export function useFlag(initial = false) {
  const flag = useSignal(initial);
  const set = (value: boolean): void => {
    flag.value = value;
  };
  return {
    isOn: flag.value,
    set,
    on: () => set(true),
    off: () => set(false),
    toggle: () => set(!flag.peek()),
  };
}
