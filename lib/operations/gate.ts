import * as v from 'valibot';
import type { FreezeRecord, Store } from '../../storage/schema.ts';
import { describeError, notStored, RelayError } from '../errors.ts';
import { createApplied } from '../kit/applied.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { entriesOf, readAs } from '../kit/entries.ts';
import { createEvent } from '../kit/event.ts';
import { visibleLine } from '../kit/text.ts';
import type { Log } from '../log.ts';

/** Maximum characters of a reason (contract 09 §3). */
const MAX_REASON = 200;
const KEY = 'freeze';
const OTHER = 'other';

/** Set while the relay is frozen. `since` is epoch seconds. */
export type Freeze = FreezeRecord;

const Stored = v.object({
  frozen: v.literal(true),
  since: v.pipe(v.number(), v.finite()),
  by: v.string(),
  reason: v.nullable(v.string()),
});

/** The other side of the mirror (contract 12 §2): this relay is frozen while either side is. */
export interface OtherSide {
  /** The freeze of this side has begun or ended. */
  changed(): void;
  /**
   * Ends a freeze of the other side. Resolves once it has ended.
   * @throws RelayError if that side cannot be reached: the relay stays frozen.
   */
  end(freeze: Freeze, by: string): Promise<void>;
}

/** Permission to act until it is ended, or until the relay is frozen. */
export interface Lease {
  end(): void;
}

/** Its function is cleared with the lease: V8 keeps the outgrown tables of a `Set` alive, and with them a whole request. */
interface Held {
  stop: ((why: RelayError) => void) | undefined;
}

export interface GateDeps {
  store: Store<'freeze'>;
  clock: Clock;
  log: Log;
}

export type Gate = Awaited<ReturnType<typeof openGate>>;

/**
 * The switch that stops all actions of agents on devices, at once and everywhere (contract 09 §3). A freeze takes effect
 * before the first await and is then stored; its end takes effect once it is stored. It survives restarts and sleeps.
 */
export async function openGate({ store, clock, log }: GateDeps) {
  const leases = new Set<Held>();
  const changes = createEvent<[freeze: Freeze | undefined]>();
  const records = new Map(await entriesOf(store));
  /** The freezes of this side and of the other one. */
  let freeze = restored(KEY);
  let other = restored(OTHER);
  let otherSide: OtherSide | undefined;
  const current = (): Freeze | undefined => freeze ?? other;
  /** The state of the store, as far as known. */
  let stored = freeze;
  /** The end of a freeze that is being stored. */
  let ending: Promise<void> | undefined;
  const still = current();
  if (still) log.warn(`still ${frozenText(still)}`);

  /** A freeze holds even if its record is damaged. */
  function restored(key: string): Freeze | undefined {
    if (!records.has(key)) return undefined;
    const since = Math.floor(seconds(clock));
    const unknown: Freeze = { frozen: true, since, by: 'operator', reason: 'the record of the freeze is damaged' };
    return readAs(Stored)(records.get(key)) ?? unknown;
  }

  const error = (by: Freeze): RelayError =>
    new RelayError('locked', frozenText(by), { extra: { error_code: 'frozen' } });

  const announce = (): void => changes.emit(current());

  async function save(): Promise<void> {
    const wanted = freeze;
    if (wanted) await store.setItem(KEY, wanted);
    stored = wanted;
    // The freeze may have ended before this was stored.
    if (!freeze) await store.removeItem(KEY);
  }

  const applied = createApplied({ clock, log, what: 'the relay is frozen', save });

  function begin(by: string, reason: string): Freeze {
    const shown = visibleLine(reason).trim().slice(0, MAX_REASON).toWellFormed();
    const begun: Freeze = {
      frozen: true,
      since: Math.floor(seconds(clock)),
      by,
      reason: shown === '' ? null : shown,
    };
    freeze = begun;
    stopAll(begun);
    otherSide?.changed();
    return begun;
  }

  function stopAll(begun: Freeze): void {
    const why = error(begun);
    const stopped = [...leases];
    leases.clear();
    for (const held of stopped) {
      try {
        held.stop?.(why);
      } catch (failure) {
        log.error(`a call could not be stopped: ${describeError(failure)}`);
      }
    }
    log.warn(`${frozenText(begun)}; stopped ${stopped.length}`);
    announce();
  }

  async function end(by: string): Promise<void> {
    try {
      await store.removeItem(KEY);
    } catch (cause) {
      throw notStored(cause);
    }
    applied.stop();
    freeze = undefined;
    stored = undefined;
    log.warn(other ? `${by} has ended the freeze of this side: ${frozenText(other)}` : `no longer frozen, by ${by}`);
    otherSide?.changed();
    announce();
  }

  /** Ends the freeze of this side, once for all concurrent callers. */
  function endOwn(by: string): Promise<void> {
    ending ??= end(by).finally(() => {
      ending = undefined;
    });
    return ending;
  }

  return {
    /** The freeze in effect. */
    state: current,

    /** The freeze of this side. */
    own: (): Freeze | undefined => freeze,

    /** Makes this side one of two. */
    join(side: OtherSide): void {
      otherSide = side;
    },

    /**
     * The other side has been frozen or thawed. A freeze takes effect before the first await, its end once it is stored; all
     * writes are made in this turn. Rejects if it could not be stored.
     */
    async applyRemote(remote: Freeze | undefined): Promise<void> {
      if (remote) {
        const wasFrozen = current() !== undefined;
        other = remote;
        if (!wasFrozen) stopAll(remote);
        await store.setItem(OTHER, remote);
        return;
      }
      const ended = other;
      if (!ended) return;
      await store.removeItem(OTHER);
      // The other side may have been frozen again meanwhile.
      if (other !== ended) return;
      other = undefined;
      if (!freeze) log.warn('no longer frozen: the other side is not');
      announce();
    },

    /** The other side ends the freeze of this one, unless that has been replaced by another. */
    async endedElsewhere({ since, by }: Pick<Freeze, 'since' | 'by'>, endedBy: string): Promise<void> {
      if (freeze && freeze.since === since && freeze.by === by) await endOwn(endedBy);
    },

    /**
     * Begins an action that a freeze ends: `stop` is called with the error for its caller, at most once.
     * @throws RelayError `locked` while the relay is frozen.
     */
    enter(stop: (why: RelayError) => void): Lease {
      const by = current();
      if (by) throw error(by);
      const held: Held = { stop };
      leases.add(held);
      return {
        end() {
          leases.delete(held);
          held.stop = undefined;
        },
      };
    },

    /** @throws RelayError `locked` while the relay is frozen. */
    requireThawed(): void {
      const by = current();
      if (by) throw error(by);
    },

    /** Calls back when a freeze begins or ends, after it has stopped running actions. */
    onChange: changes.on,

    /**
     * Freezes the relay; a second call changes nothing. `by` is the name of a device, or `operator`. Resolves once it is
     * stored, even for a call that did not begin it.
     * @throws RelayError `unavailable` if it is in effect, but could not be stored (contract 01 §6.7).
     */
    async freeze(by: string, reason: string): Promise<Freeze> {
      // A pending end of the previous freeze must not undo this one.
      while (ending) await ending.catch(() => {});
      const begun = freeze ?? begin(by, reason);
      if (stored !== begun) await applied.store();
      return begun;
    },

    /**
     * Ends the freeze on both sides.
     * @throws RelayError `unavailable` if that cannot be stored, or the other side cannot be reached: the relay stays
     * frozen.
     */
    async thaw(by: string): Promise<void> {
      if (freeze) await endOwn(by);
      if (other) await otherSide?.end(other, by);
    },

    stop: applied.stop,
  };
}

/** `frozen by Pixel 9: lost my phone` (contract 09 §3). */
const frozenText = ({ by, reason }: Freeze): string =>
  reason === null ? `frozen by ${by}` : `frozen by ${by}: ${reason}`;
