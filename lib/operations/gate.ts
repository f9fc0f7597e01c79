import type { FreezeRecord, Store } from '../../storage/schema.ts';
import { appliedOnly, describeError, notStored, RelayError } from '../errors.ts';
import { type Clock, every, seconds } from '../kit/clock.ts';
import { visibleLine } from '../kit/text.ts';
import type { Log } from '../log.ts';

/** Characters of a reason (contract 09 §3). */
const MAX_REASON = 200;
const KEY = 'freeze';
/** Milliseconds between attempts to store what could not be stored. */
const RETRY_PERIOD = 5_000;

/** While the relay is frozen. `since` is epoch seconds. */
export type Freeze = FreezeRecord;

/** Permission to act until it is ended, or until the relay is frozen. */
export interface Lease {
  end(): void;
}

export interface GateParts {
  store: Store<'freeze'>;
  clock: Clock;
  log: Log;
}

export type Gate = Awaited<ReturnType<typeof openGate>>;

/**
 * The switch that stops whatever agents do to devices, at once and everywhere (contract 09 §3). A freeze is in effect
 * before the first await and is stored then; its end is in effect once it is stored. It outlives restarts and sleeps.
 */
export async function openGate({ store, clock, log }: GateParts) {
  const leases = new Set<(why: RelayError) => void>();
  const listeners = new Set<(freeze: Freeze | undefined) => void>();
  let freeze: Freeze | undefined = (await store.getItem(KEY)) ?? undefined;
  /** The stored state, as far as is known. */
  let stored = freeze;
  /** An end that is being stored. */
  let ending: Promise<void> | undefined;
  let cancelRetry: (() => void) | undefined;
  if (freeze) log.warn(`still ${frozenText(freeze)}`);

  const error = (by: Freeze): RelayError =>
    new RelayError('locked', frozenText(by), { extra: { error_code: 'frozen' } });

  function announce(): void {
    for (const listener of [...listeners]) listener(freeze);
  }

  async function save(): Promise<boolean> {
    const wanted = freeze;
    try {
      if (wanted) await store.setItem(KEY, wanted);
      stored = wanted;
      // It may have ended in the meantime, before this was stored.
      if (!freeze) await store.removeItem(KEY);
    } catch {
      return false;
    }
    return true;
  }

  function retry(): void {
    cancelRetry ??= every(clock, RETRY_PERIOD, again, (failure) => log.error(describeError(failure)));
  }

  async function again(): Promise<void> {
    if (!(await save())) return;
    cancelRetry?.();
    cancelRetry = undefined;
  }

  function begin(by: string, reason: string): Freeze {
    const shown = visibleLine(reason).trim().slice(0, MAX_REASON).toWellFormed();
    const begun: Freeze = {
      frozen: true,
      since: Math.floor(seconds(clock)),
      by,
      reason: shown === '' ? null : shown,
    };
    freeze = begun;
    const why = error(begun);
    const stopped = [...leases];
    leases.clear();
    for (const stop of stopped) {
      try {
        stop(why);
      } catch (failure) {
        log.error(`a call could not be stopped: ${describeError(failure)}`);
      }
    }
    log.warn(`${frozenText(begun)}; stopped ${stopped.length}`);
    announce();
    return begun;
  }

  async function end(by: string): Promise<void> {
    try {
      await store.removeItem(KEY);
    } catch (cause) {
      throw notStored(cause);
    }
    cancelRetry?.();
    cancelRetry = undefined;
    freeze = undefined;
    stored = undefined;
    log.warn(`no longer frozen, by ${by}`);
    announce();
  }

  return {
    /** The freeze that is in effect. */
    state: (): Freeze | undefined => freeze,

    /**
     * Begins something that a freeze ends: `stop` is called with the error for its caller, at most once.
     * @throws RelayError `locked` while the relay is frozen.
     */
    enter(stop: (why: RelayError) => void): Lease {
      if (freeze) throw error(freeze);
      const lease = (why: RelayError) => stop(why);
      leases.add(lease);
      return { end: () => void leases.delete(lease) };
    },

    /** @throws RelayError `locked` while the relay is frozen. */
    requireThawed(): void {
      if (freeze) throw error(freeze);
    },

    /** Calls back when a freeze begins or ends, after it has stopped what was under way. */
    onChange(listener: (freeze: Freeze | undefined) => void): () => void {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },

    /**
     * Freezes the relay; a second call changes nothing. `by` is the name of a device, or `operator`. Resolves once it is
     * stored, whichever call has begun it.
     * @throws RelayError `unavailable` when it is in effect, but could not be stored (contract 01 §6.7).
     */
    async freeze(by: string, reason: string): Promise<Freeze> {
      // An end that was asked for before must not undo this.
      while (ending) await ending.catch(() => {});
      const begun = freeze ?? begin(by, reason);
      if (stored === begun || (await save())) return begun;
      retry();
      throw appliedOnly('the relay is frozen');
    },

    /** Ends the freeze. @throws RelayError `unavailable` when that cannot be stored: the relay stays frozen. */
    async thaw(by: string): Promise<void> {
      if (!freeze) return;
      ending ??= end(by).finally(() => {
        ending = undefined;
      });
      await ending;
    },

    stop(): void {
      cancelRetry?.();
    },
  };
}

/** `frozen by Pixel 9: lost my phone` (contract 09 §3). */
export const frozenText = ({ by, reason }: Freeze): string =>
  reason === null ? `frozen by ${by}` : `frozen by ${by}: ${reason}`;
