import { type ReadonlySignal, useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { type Api, ApiError, type ApiRequest } from './api.ts';
import { Empty, Loading, Retry, useToast } from './components.tsx';
import { useT } from './i18n.ts';

export interface Loaded<T> {
  /** The last data, even after a failure. */
  data?: T;
  /** Why the last attempt failed, worded for people. */
  error?: string;
}

/** The sentence for an error, for display. */
export const messageOf = (error: unknown): string => {
  if (error instanceof ApiError) return error.message;
  return error instanceof Error && error.message !== '' ? error.message : 'Something went wrong.';
};

/**
 * Loads something while a component is shown, and again when one of `keys` changes or `reload` is called. A late result
 * of an older attempt is dropped.
 */
export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  keys: readonly unknown[] = [],
): { state: ReadonlySignal<Loaded<T>>; reload(): void } {
  const state = useSignal<Loaded<T>>({});
  const current = useRef<AbortController>(undefined);

  function reload(): void {
    current.current?.abort();
    const attempt = new AbortController();
    current.current = attempt;
    load(attempt.signal).then(
      (data) => {
        if (!attempt.signal.aborted) state.value = { data };
      },
      (error) => {
        if (!attempt.signal.aborted) state.value = { ...state.value, error: messageOf(error) };
      },
    );
  }

  useEffect(() => {
    reload();
    return () => current.current?.abort();
  }, keys);
  return { state, reload };
}

interface LoadedViewProps<T> {
  state: ReadonlySignal<Loaded<T>>;
  reload(): void;
  children(data: T): ComponentChildren;
}

/** Shows the loaded value; before that, a spinner, or the error with a retry. */
export function LoadedView<T>({ state, reload, children }: LoadedViewProps<T>) {
  const t = useT();
  const { data, error } = state.value;
  if (data !== undefined) return <>{children(data)}</>;
  if (error === undefined) return <Loading />;
  return (
    <Empty icon="warning" action={<Retry onClick={reload} />}>
      {t(error)}
    </Empty>
  );
}

/** A call that changes something, with a message about its success or failure. One at a time. */
export function useCall(api: Api): {
  isBusy: boolean;
  run(path: string, request: ApiRequest, done: string): Promise<boolean>;
} {
  const toast = useToast();
  const t = useT();
  const busy = useSignal(false);
  return {
    isBusy: busy.value,
    async run(path, request, done) {
      if (busy.value) return false;
      busy.value = true;
      try {
        await api.call(path, request);
        toast(done);
        return true;
      } catch (error) {
        toast(t(messageOf(error)));
        return false;
      } finally {
        busy.value = false;
      }
    },
  };
}
