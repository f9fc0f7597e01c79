import type { Clock } from '../kit/clock.ts';
import type { ModelEfforts } from './efforts.ts';

/** Milliseconds that a row lives. */
const LIFETIME = 300_000;
export const MAX_ROWS = 4096;
/** Profiles whose generation is remembered. */
const MAX_PROFILES = 1024;

interface Row {
  profile: string;
  efforts: ModelEfforts;
  /** Monotonic milliseconds. */
  expiresAt: number;
}

/**
 * Efforts reported by providers, in memory: at most 4096 rows, of which the oldest is evicted (contract 07 §3). Rows are per
 * profile, never shared with another one.
 */
export function createEffortCache(clock: Clock) {
  /** Oldest first. */
  const rows = new Map<string, Row>();
  const generations = new Map<string, number>();
  /** Only grows, so that a forgotten profile cannot return to an old generation. */
  let last = 0;

  const id = (profile: string, key: string) => JSON.stringify([profile, key]);

  function drop(profile: string): void {
    for (const [at, row] of rows) if (row.profile === profile) rows.delete(at);
    generations.delete(profile);
  }

  function begin(profile: string): number {
    drop(profile);
    const [oldest] = generations.keys();
    if (oldest !== undefined && generations.size >= MAX_PROFILES) drop(oldest);
    generations.set(profile, ++last);
    return last;
  }

  return {
    /**
     * The generation of a profile's rows. Take it before reading anything that a call depends on, and pass it back with the
     * result.
     */
    generation: (profile: string): number => generations.get(profile) ?? begin(profile),

    /** Drops the profile's rows and rejects results of calls that began earlier. Returns the new generation. */
    refresh: begin,

    get(profile: string, key: string): ModelEfforts | undefined {
      const row = rows.get(id(profile, key));
      return row && row.expiresAt > clock.monotonic() ? row.efforts : undefined;
    },

    /** Caches a result for five minutes, unless its generation is over. */
    set(profile: string, generation: number, key: string, efforts: ModelEfforts): void {
      if (generations.get(profile) !== generation) return;
      const at = id(profile, key);
      // Reinserted, to keep the map in order of age.
      rows.delete(at);
      const [oldest] = rows.keys();
      if (oldest !== undefined && rows.size >= MAX_ROWS) rows.delete(oldest);
      rows.set(at, { profile, efforts, expiresAt: clock.monotonic() + LIFETIME });
    },

    get size(): number {
      return rows.size;
    },
  };
}
