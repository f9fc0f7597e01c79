import * as v from 'valibot';
import { seconds } from '../kit/clock.ts';
import { type RecordDeps, time } from './records.ts';

/** Seconds for which an ended session without an expiry must not return. */
const TOMBSTONE = 180 * 86_400;
const MAX_TOMBSTONES = 20_000;
/** Nobody comes back because the record of an end is damaged: that lasts for good then. */
const End = v.object({ until: time });
const ENDLESS = v.fallback(End, { until: Number.MAX_SAFE_INTEGER });

export interface TombstonesDeps extends Omit<RecordDeps, 'log'> {
  /** Prefix of the keys. */
  base: string;
  /** A change could not be stored. */
  failed(): void;
}

/** The families of the other side that must not return once they have ended (contract 12 §2). */
export function openTombstones({ store, records, base, clock, failed }: TombstonesDeps) {
  /** Keyed by family: time until which it must not return, epoch seconds. */
  const ended = new Map<string, number>();
  for (const [family, { until }] of records.below(base, End, ENDLESS)) ended.set(family, until);

  function exhume(family: string): void {
    ended.delete(family);
    void store.removeItem(base + family).catch(failed);
  }

  return {
    has: (family: string): boolean => ended.has(family),

    families: (): string[] => [...ended.keys()],

    /** `expiresAt` is epoch seconds, null for a session without an end. */
    bury(family: string, expiresAt: number | null): void {
      const until = expiresAt ?? seconds(clock) + TOMBSTONE;
      ended.set(family, until);
      void store.setItem(base + family, { until }).catch(failed);
      const [oldest] = ended.keys();
      if (ended.size > MAX_TOMBSTONES && oldest !== undefined) exhume(oldest);
    },

    sweep(): void {
      for (const [family, until] of [...ended]) if (until <= seconds(clock)) exhume(family);
    },

    /** There is no other side any more. */
    leave(): void {
      for (const family of [...ended.keys()]) exhume(family);
    },
  };
}
