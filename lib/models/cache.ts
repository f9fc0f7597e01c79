import type { Clock } from '../kit/clock.ts';
import type { Answer } from './answer.ts';

/** Milliseconds that an answer is good for. */
const KEEP = 300_000;
export const MAX_ROWS = 4096;
/** Profiles whose generation is remembered. */
const MAX_PROFILES = 1024;

/** Answers of providers. A row belongs to a profile, and no other profile ever sees it. */
export interface AnswerCache {
  /**
   * The generation of a profile's rows. Whoever asks a provider takes it before it looks at anything, and gives it back
   * with the answer.
   */
  generation(profile: string): number;
  /** Drops the profile's rows, so that only answers to later questions are kept. Returns the new generation. */
  refresh(profile: string): number;
  get(profile: string, key: string): Answer | undefined;
  /** Keeps an answer for five minutes, unless it belongs to a generation that is over. */
  set(profile: string, generation: number, key: string, answer: Answer): void;
  readonly size: number;
}

interface Row {
  profile: string;
  answer: Answer;
  until: number;
}

/** In memory, at most 4096 rows: of too many the oldest goes (contract 07 §3). */
export function createAnswerCache(clock: Clock): AnswerCache {
  /** Oldest first. */
  const rows = new Map<string, Row>();
  const generations = new Map<string, number>();
  /** Never counts back, so that a profile that was forgotten does not come back to an old generation. */
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
    generation: (profile) => generations.get(profile) ?? begin(profile),
    refresh: begin,

    get(profile, key) {
      const row = rows.get(id(profile, key));
      return row && row.until > clock.monotonic() ? row.answer : undefined;
    },

    set(profile, generation, key, answer) {
      if (generations.get(profile) !== generation) return;
      const at = id(profile, key);
      // Out and in again: the oldest has to stay first.
      rows.delete(at);
      const [oldest] = rows.keys();
      if (oldest !== undefined && rows.size >= MAX_ROWS) rows.delete(oldest);
      rows.set(at, { profile, answer, until: clock.monotonic() + KEEP });
    },

    get size() {
      return rows.size;
    },
  };
}
