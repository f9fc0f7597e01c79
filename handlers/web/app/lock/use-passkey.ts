import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { useT } from '../../shared/i18n.ts';
import { messageOf } from '../../shared/load.tsx';

/** One passkey prompt at a time, which a button or the end of the component cancels. */
export function usePasskey() {
  const t = useT();
  const isAsking = useSignal(false);
  const error = useSignal('');
  const attempt = useRef<AbortController>(undefined);
  useEffect(() => () => attempt.current?.abort(), []);

  return {
    isAsking: isAsking.value,
    /** Why the last prompt failed, worded for people. */
    error: error.value === '' ? undefined : t(error.value),
    cancel: () => attempt.current?.abort(),
    async run(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
      if (isAsking.value) return;
      attempt.current = new AbortController();
      isAsking.value = true;
      error.value = '';
      try {
        await work(attempt.current.signal);
      } catch (failure) {
        error.value = messageOf(failure);
      } finally {
        isAsking.value = false;
      }
    },
  };
}
