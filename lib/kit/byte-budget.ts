import type { Cancel, Clock } from './clock.ts';
import { deferred } from './deferred.ts';

/** Milliseconds between progress checks while somebody waits. */
const PERIOD = 15_000;
/** Bytes that a reservation has to receive per period while others wait: 70 KB/s. */
const MIN_PROGRESS = 1024 * 1024;

/** Reports the progress of a reservation while others wait for its bytes. */
export interface Progress {
  /** Bytes received so far. */
  received(): number;
  /**
   * Too few bytes came in 15 to 30 s while others waited. Must release the reservation, now or soon; its progress is
   * not checked again.
   */
  stalled(reservation: Reservation): void;
}

/** A part of a budget, which may still be waiting. */
export interface Reservation {
  readonly isGranted: boolean;
  /** Gives the bytes back, or leaves the line. Idempotent. */
  release(): void;
}

/** Never reports progress, so that the reservation is released once others have waited for it. */
export const RELEASED_LATE: Progress = { received: () => 0, stalled: ({ release }) => release() };

interface Entry extends Reservation {
  isGranted: boolean;
  size: number;
  granted(): void;
  progress?: Progress;
  /** Bytes received at the last check; undefined before the first. */
  seen?: number;
}

/**
 * A shared number of bytes, granted in the order of requests, so that nobody waits forever. A request for more than the
 * whole budget is granted when nobody else holds any.
 */
export class ByteBudget {
  readonly #total: number;
  readonly #clock: Clock;
  readonly #holders = new Set<Entry>();
  readonly #line = new Set<Entry>();
  #used = 0;
  #cancel: Cancel | undefined;

  constructor(total: number, clock: Clock) {
    this.#total = total;
    this.#clock = clock;
  }

  /** Bytes in use. */
  get used(): number {
    return this.#used;
  }

  /** Number of waiting reservations. */
  get waiting(): number {
    return this.#line.size;
  }

  /**
   * Reserves `size` bytes; calls `granted` later if they are not free yet. Without `progress`, its progress is not
   * checked.
   */
  reserve(size: number, granted: () => void, progress?: Progress): Reservation {
    const entry: Entry = { size, granted, progress, isGranted: false, release: () => this.#release(entry) };
    if (this.#line.size === 0 && this.#fits(size)) this.#grant(entry);
    else {
      this.#line.add(entry);
      this.#cancel ??= this.#clock.after(PERIOD, this.#check);
    }
    return entry;
  }

  /** Like `reserve`, for a caller that can wait. */
  async acquire(size: number, progress?: Progress): Promise<Reservation> {
    const turn = deferred();
    const reservation = this.reserve(size, turn.resolve, progress);
    if (!reservation.isGranted) await turn.promise;
    return reservation;
  }

  #fits(size: number): boolean {
    return this.#used === 0 || this.#used + size <= this.#total;
  }

  #grant(entry: Entry): void {
    entry.isGranted = true;
    this.#used += entry.size;
    this.#holders.add(entry);
  }

  #release(entry: Entry): void {
    if (this.#holders.delete(entry)) this.#used -= entry.size;
    else if (!this.#line.delete(entry)) return;
    this.#serve();
  }

  /** Grants waiting requests in order. A callback may release or reserve, so the queue is read again each time. */
  #serve(): void {
    for (let [next] = this.#line; next && this.#fits(next.size); [next] = this.#line) {
      this.#line.delete(next);
      this.#grant(next);
      next.granted();
    }
    if (this.#line.size > 0 || !this.#cancel) return;
    this.#cancel();
    this.#cancel = undefined;
    for (const holder of this.#holders) holder.seen = undefined;
  }

  /** Calls `stalled` for reservations that receive almost nothing while others wait. */
  readonly #check = (): void => {
    this.#cancel = this.#clock.after(PERIOD, this.#check);
    for (const holder of [...this.#holders]) {
      const { progress, seen } = holder;
      if (!progress) continue;
      const received = progress.received();
      holder.seen = received;
      if (seen === undefined || received - seen >= MIN_PROGRESS) continue;
      holder.progress = undefined;
      progress.stalled(holder);
    }
  };
}

/** Bytes of JSON that are parsed at the same time. The text and its values take two to four times as much heap. */
const MAX_PARSING = 40 * 1024 * 1024;

/** Limits on the memory of long messages and JSON bodies of all clients together. */
export interface ReadBudgets {
  /** Held from the first bytes until the message has been handled. */
  readonly reading: ByteBudget;
  /** Held in addition while the text is decoded, parsed and handled. */
  readonly parsing: ByteBudget;
}

export const createReadBudgets = (total: number, clock: Clock): ReadBudgets => ({
  reading: new ByteBudget(total, clock),
  parsing: new ByteBudget(MAX_PARSING, clock),
});
