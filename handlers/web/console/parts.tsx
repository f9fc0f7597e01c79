import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { Empty, Loading, Notice, Retry } from '../shared/components.tsx';
import { useT } from '../shared/i18n.ts';
import { useCall } from '../shared/load.tsx';
import { useConsole } from './context.ts';
import type { Resource } from './stores/resource.ts';

interface ResourceViewProps<T> {
  of: Resource<T>;
  /** `at` is when the relay sent the value, in epoch milliseconds. */
  children(value: T, at: number): ComponentChildren;
}

/** A resource of the relay, kept up to date while it is shown. */
export function ResourceView<T>({ of, children }: ResourceViewProps<T>) {
  const t = useT();
  const { isAway } = useConsole();
  useEffect(() => of.watch(), [of]);
  const { value, at, error } = of.state.value;
  const retry = <Retry disabled={isAway.value} onClick={() => void of.refresh()} />;
  if (value === undefined) {
    if (error === undefined) return <Loading />;
    return (
      <Empty icon="warning" action={retry}>
        {t(error)}
      </Empty>
    );
  }
  return (
    <>
      {/* An absent relay is already reported above the screen. */}
      {error !== undefined && !isAway.value && (
        <Notice tone="warn" action={retry}>
          {t(error)}
        </Notice>
      )}
      {children(value, at)}
    </>
  );
}

/** Reloads a resource every `period` ms while it is shown in a visible tab: for ages, which no event reports. */
export function useRefresh(resource: Resource<unknown>, period: number): void {
  const { isAway } = useConsole();
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible' && !isAway.value) resource.invalidate();
    }, period);
    return () => clearInterval(timer);
  }, [resource, period, isAway]);
}

/** A call that changes something, with a message about its success or failure. One at a time. */
export const useAction = () => useCall(useConsole().api);

/** The relay's freeze, for the button that begins it and the one that ends it. */
export function useFreeze() {
  const { api, relay, isAway } = useConsole();
  const freeze = relay.freeze.state.value.value ?? null;
  return { api, freeze, isAway: isAway.value, onDone: () => void relay.freeze.refresh() };
}

/** When the focused element is gone, keyboards and screen readers continue from the title of the screen. */
export function restoreFocus(): void {
  requestAnimationFrame(() => {
    if (document.activeElement === document.body) document.querySelector<HTMLElement>('h1')?.focus();
  });
}
