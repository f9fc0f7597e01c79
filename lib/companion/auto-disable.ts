import { describeError } from '../errors.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { finiteLeases } from './capabilities.ts';
import type { SettingsStore } from './types.ts';

const MINUTE = 60_000;
/** Leases are not written again for less than this, ms: commands may come by the hundred a second. */
const GRAIN = 1000;

/** The one timer behind all timed leases (contract 03 §8.5). */
export interface AutoDisable {
  /** Gives the live finite leases their full term again, from now. */
  extend(): void;
  /** When the last finite lease ends, epoch ms; null when none runs or the master toggle is off. */
  at(): number | null;
  close(): void;
}

/** `onExpired` is called after the leases that ran out were dropped and unattended access was switched off. */
export function createAutoDisable(parts: {
  settings: SettingsStore;
  clock: Clock;
  log: Log;
  onExpired(): void;
}): AutoDisable {
  const { settings, clock, log } = parts;
  let cancel: Cancel | null = null;
  let armedFor: number | null = null;
  let closed = false;

  const save = (change: Parameters<SettingsStore['update']>[0]) => {
    settings.update(change).catch((error) => log.warn(`settings not saved: ${describeError(error)}`));
  };

  /** The end of the last finite lease, past or not. */
  function end(): number | null {
    const current = settings.get();
    const leases = finiteLeases(current);
    return current.masterEnabled && leases.length > 0 ? Math.max(...leases.map(({ until }) => until)) : null;
  }

  function expire(): void {
    const now = clock.now();
    const current = settings.get();
    const past = new Set<string>(finiteLeases(current).flatMap(({ id, until }) => (until <= now ? [id] : [])));
    const kept = Object.entries(current.capabilities).filter(([id]) => !past.has(id));
    save({ capabilities: Object.fromEntries(kept), unattended: false });
    parts.onExpired();
  }

  function arm(): void {
    if (closed) return;
    const until = end();
    if (until === armedFor) return;
    cancel?.();
    armedFor = until;
    cancel =
      until === null
        ? null
        : clock.after(until - clock.now(), () => {
            armedFor = null;
            cancel = null;
            // The wall clock may have been set back while the timer ran.
            if (until <= clock.now()) expire();
            arm();
          });
  }

  const unsubscribe = settings.onChange(arm);
  arm();

  return {
    extend() {
      const current = settings.get();
      const now = clock.now();
      const minutes = Math.min(Math.max(Number(current.autoDisableMinutes) || 30, 5), 120);
      const until = now + minutes * MINUTE;
      const live = finiteLeases(current).filter((lease) => lease.until > now);
      if (live.every((lease) => lease.until <= until && until - lease.until < GRAIN)) return;
      save({ capabilities: { ...current.capabilities, ...Object.fromEntries(live.map(({ id }) => [id, until])) } });
    },
    at() {
      const until = end();
      return until !== null && until > clock.now() ? until : null;
    },
    close() {
      closed = true;
      cancel?.();
      unsubscribe();
    },
  };
}
