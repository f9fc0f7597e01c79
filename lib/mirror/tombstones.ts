import type { Store } from '../../storage/schema.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import type { Session } from '../sessions/session.ts';
import { ENDLESS, End, type Records } from './records.ts';

/** Seconds for which an ended session without an expiry must not return. */
const TOMBSTONE = 180 * 86_400;
const MAX_TOMBSTONES = 20_000;
const ENDED = 'ended:';

export interface TombstonesDeps {
  store: Store<'mirror'>;
  records: Records;
  clock: Clock;
  /** A change could not be stored. */
  failed(): void;
}

/** At the edge, the families of home that ended and must not return (contract 12 §2). */
export function openTombstones({ store, records, clock, failed }: TombstonesDeps) {
  /** Keyed by family: time until which it must not return, epoch seconds. */
  const ended = new Map<string, number>();
  for (const [family, { until }] of records.below(ENDED, End, ENDLESS)) ended.set(family, until);

  function exhume(family: string): void {
    ended.delete(family);
    void store.removeItem(ENDED + family).catch(failed);
  }

  return {
    has: (family: string): boolean => ended.has(family),

    families: (): string[] => [...ended.keys()],

    bury({ family, expiresAt }: Pick<Session, 'family' | 'expiresAt'>): void {
      const until = expiresAt ?? seconds(clock) + TOMBSTONE;
      ended.set(family, until);
      void store.setItem(ENDED + family, { until }).catch(failed);
      const [oldest] = ended.keys();
      if (ended.size > MAX_TOMBSTONES && oldest !== undefined) exhume(oldest);
    },

    sweep(): void {
      for (const [family, until] of [...ended]) if (until <= seconds(clock)) exhume(family);
    },

    /** There is no home any more. */
    leave(): void {
      for (const family of [...ended.keys()]) exhume(family);
    },
  };
}
