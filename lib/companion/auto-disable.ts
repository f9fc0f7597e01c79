import { describeError } from '../errors.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { MINUTE } from '../kit/units.ts';
import type { Log } from '../log.ts';
import { finiteLeases, type SettingsStore } from './safety-settings.ts';

/** Smaller extensions than this are not stored, since hundreds of commands may arrive per second. */
const MIN_EXTENSION_MS = 1000;

export type AutoDisable = ReturnType<typeof createAutoDisable>;

/**
 * The single timer behind all timed leases (contract 03 §8.5). Calls `onExpired` once the expired leases are removed and
 * unattended access is switched off.
 */
export function createAutoDisable(deps: { settings: SettingsStore; clock: Clock; log: Log; onExpired(): void }) {
  const { settings, clock, log } = deps;
  let cancel: Cancel | null = null;
  let armedFor: number | null = null;
  let closed = false;

  const save = (change: Parameters<SettingsStore['update']>[0]) => {
    settings.update(change).catch((error) => log.warn(`cannot save the settings: ${describeError(error)}`));
  };

  /** End of the last finite lease, even if it has passed. */
  function lastExpiry(): number | null {
    const current = settings.get();
    const leases = finiteLeases(current);
    return current.masterEnabled && leases.length > 0 ? Math.max(...leases.map(({ expiry }) => expiry)) : null;
  }

  function expire(): void {
    const now = clock.now();
    const current = settings.get();
    const expired = new Set<string>(finiteLeases(current).flatMap(({ id, expiry }) => (expiry <= now ? [id] : [])));
    const active = Object.entries(current.capabilities).filter(([id]) => !expired.has(id));
    save({ capabilities: Object.fromEntries(active), unattended: false });
    deps.onExpired();
  }

  function arm(): void {
    if (closed) return;
    const expiry = lastExpiry();
    if (expiry === armedFor) return;
    cancel?.();
    armedFor = expiry;
    cancel =
      expiry === null
        ? null
        : clock.after(expiry - clock.now(), () => {
            armedFor = null;
            cancel = null;
            // The wall clock may have been set back while the timer ran.
            if (expiry <= clock.now()) expire();
            arm();
          });
  }

  const unsubscribe = settings.onChange(arm);
  arm();

  return {
    /** Renews all live finite leases for their full term, starting now. */
    extend(): void {
      const current = settings.get();
      const now = clock.now();
      const minutes = Math.min(Math.max(Number(current.autoDisableMinutes) || 30, 5), 120);
      const renewed = now + minutes * MINUTE;
      const live = finiteLeases(current).filter(({ expiry }) => expiry > now);
      if (live.every(({ expiry }) => expiry <= renewed && renewed - expiry < MIN_EXTENSION_MS)) return;
      save({ capabilities: { ...current.capabilities, ...Object.fromEntries(live.map(({ id }) => [id, renewed])) } });
    },
    /** End of the last finite lease, epoch ms; null without one or while the master toggle is off. */
    at(): number | null {
      const expiry = lastExpiry();
      return expiry !== null && expiry > clock.now() ? expiry : null;
    },
    close(): void {
      closed = true;
      cancel?.();
      unsubscribe();
    },
  };
}
