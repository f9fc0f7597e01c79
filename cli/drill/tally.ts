/** Kinds of work that the drill does and counts, in the order in which they are printed. */
export const KINDS = [
  'messages',
  'replies',
  'commands',
  'shell',
  'uploads',
  'refreshes',
  'page_messages',
  'page_replies',
] as const;
export type Kind = (typeof KINDS)[number];

/** The counts of one kind of work. The unit of `shell` is a line of output. */
export interface Tally {
  kind: Kind;
  sent: number;
  /** The relay, or the phone behind it, has confirmed it. */
  acknowledged: number;
  /** Came, or was asked for, more than once before it was confirmed, which at least once delivery allows. */
  repeated: number;
  /** Confirmed, and never seen where it had to arrive. */
  lost: number;
  /** Took effect more than once. */
  doubled: number;
}

/** Work of one or more kinds, done at the same time as the others. */
export interface Work {
  /** Goes on until the signal. Rejects only for a fault of the drill itself. */
  run(signal: AbortSignal): Promise<void>;
  /** True once everything that was confirmed has arrived. */
  isSettled(): boolean;
  tallies(): Tally[];
}

/** Counts by id, for ids that count up from 0. */
export interface Log {
  /** Notes it once more, and returns how often it was noted. */
  add(id: number): number;
  times(id: number): number;
  /** Ids that were noted at least once. */
  readonly size: number;
  /** Times that an id was noted again. */
  readonly again: number;
}

export function createLog(): Log {
  const counts: number[] = [];
  let size = 0;
  let again = 0;
  return {
    add(id) {
      const times = (counts[id] ?? 0) + 1;
      counts[id] = times;
      if (times === 1) size++;
      else again++;
      return times;
    },
    times: (id) => counts[id] ?? 0,
    get size() {
      return size;
    },
    get again() {
      return again;
    },
  };
}

/** The counts of things that are confirmed in one log, and have to arrive in the other. */
export const tallyOf = (
  kind: Kind,
  sent: number,
  { confirmed, arrived }: { confirmed: Log; arrived: Log },
  { repeated = 0, doubled }: { repeated?: number; doubled: number },
): Tally => ({
  kind,
  sent,
  acknowledged: confirmed.size,
  repeated,
  lost: missing(sent, confirmed, arrived).length,
  doubled,
});

/** Ids below `end` that are in the first log, and not in the second. */
export function missing(end: number, confirmed: Log, arrived: Log): number[] {
  return Array.from({ length: end }, (_, id) => id).filter((id) => confirmed.times(id) > 0 && arrived.times(id) === 0);
}
