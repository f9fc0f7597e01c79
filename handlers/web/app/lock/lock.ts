import { computed, type ReadonlySignal, signal } from '@preact/signals';
import { type Cancel, systemClock } from '../../../../lib/kit/clock.ts';
import type { Settings } from '../settings.ts';

/** The id of the passkey, stored apart from the settings, whose backup must not lock another browser. */
const PLACE = 'svc lock';
const MINUTE = 60_000;

export type Lock = ReturnType<typeof createLock>;

/**
 * Locks the page behind a passkey: when it is loaded, and after it was hidden for the minutes of `lock_after_minutes`. It
 * protects the screen, not the data stored in this browser.
 */
export function createLock({ values }: Pick<Settings, 'values'>) {
  const passkey = signal(read());
  const isShut = signal(passkey.value !== null);
  let hiddenAt: number | null = null;
  let cancel: Cancel = () => {};

  function read(): string | null {
    try {
      return localStorage.getItem(PLACE);
    } catch {
      return null;
    }
  }

  function shut(): void {
    isShut.value = true;
  }

  /** Timers of a hidden page come late or never, so its return also checks the time. */
  function changed(): void {
    const after = values.lock_after_minutes.value * MINUTE;
    if (document.visibilityState === 'hidden') {
      hiddenAt ??= Date.now();
      cancel();
      if (after === 0) shut();
      else cancel = systemClock.after(after, shut);
      return;
    }
    cancel();
    if (hiddenAt !== null && Date.now() - hiddenAt >= after) shut();
    hiddenAt = null;
  }

  document.addEventListener('visibilitychange', changed);
  // Another tab has turned it on or off.
  addEventListener('storage', ({ key }) => {
    if (key === PLACE || key === null) passkey.value = read();
  });

  return {
    /** Id of the passkey, in base64url; null while the lock is off. */
    passkey: passkey as ReadonlySignal<string | null>,
    isLocked: computed(() => isShut.value && passkey.value !== null),
    lock: shut,
    open(): void {
      // The prompt for the passkey may itself have hidden the page.
      hiddenAt = null;
      isShut.value = false;
    },
    /** Turns the lock on with a passkey, or off. @throws if the browser cannot store anything */
    use(id: string | null): void {
      if (id === null) localStorage.removeItem(PLACE);
      else localStorage.setItem(PLACE, id);
      isShut.value = false;
      passkey.value = id;
    },
  };
}
