import { type Clock, seconds } from '../../kit/clock.ts';

/**
 * Upgrades of one source per window, the window in milliseconds, and the maximum number of tracked sources (contract 08
 * §7.7).
 */
const ATTEMPTS = 30;
const WINDOW = 60_000;
const MAX_SOURCES = 4096;
/** Unregistered sockets, in total and of one source. */
const MAX_PENDING = 512;
const MAX_PENDING_PER_SOURCE = 16;
/** Maximum remembered connection IDs, and seconds for which each is remembered. */
const MAX_SEEN = 65_536;
const SEEN_FOR = 24 * 3600;

type Time = Pick<Clock, 'monotonic'>;

/** Upgrade attempts and unregistered sockets per source address. */
export class SourceLimits {
  readonly #clock: Time;
  /** Times of attempts by source, the source of the latest one last. */
  readonly #attempts = new Map<string, number[]>();
  readonly #pending = new Map<string, number>();
  #pendingTotal = 0;

  constructor(clock: Time) {
    this.#clock = clock;
  }

  /** Counts an attempt to connect. False if the source, or the broker as a whole, is over its limit. */
  attempt(source: string): boolean {
    const since = this.#clock.monotonic() - WINDOW;
    let attempts = this.#attempts.get(source)?.filter((at) => at > since);
    if (!attempts) {
      if (this.#attempts.size >= MAX_SOURCES) this.#prune(since);
      if (this.#attempts.size >= MAX_SOURCES) return false;
      attempts = [];
    }
    if (attempts.length >= ATTEMPTS) return false;
    attempts.push(this.#clock.monotonic());
    this.#attempts.delete(source);
    this.#attempts.set(source, attempts);
    return this.#pendingTotal < MAX_PENDING && (this.#pending.get(source) ?? 0) < MAX_PENDING_PER_SOURCE;
  }

  /** Sources expire oldest first, so that no new source has to scan all others in a flood. */
  #prune(since: number): void {
    for (const [source, attempts] of this.#attempts) {
      if ((attempts.at(-1) ?? 0) > since) break;
      this.#attempts.delete(source);
    }
  }

  /** A socket of the source waits for its registration. */
  waits(source: string): void {
    this.#pendingTotal++;
    this.#pending.set(source, (this.#pending.get(source) ?? 0) + 1);
  }

  /** The registration is over. The attempt is refunded if it left nothing behind. */
  settled(source: string, isRefunded: boolean): void {
    this.#pendingTotal--;
    const left = (this.#pending.get(source) ?? 1) - 1;
    if (left > 0) this.#pending.set(source, left);
    else this.#pending.delete(source);
    const attempts = isRefunded ? this.#attempts.get(source) : undefined;
    attempts?.pop();
    if (attempts?.length === 0) this.#attempts.delete(source);
  }

  get pending(): number {
    return this.#pendingTotal;
  }
}

/** A used connection ID, and its expiry (epoch seconds). */
export interface SeenRecord {
  connection_id: string;
  expires_at: number;
}

/** Connection IDs that have been used. */
export class ReplayCache {
  readonly #clock: Pick<Clock, 'now'>;
  /** Oldest first. */
  readonly #seen = new Map<string, number>();

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock;
  }

  has(connectionId: string): boolean {
    return (this.#seen.get(connectionId) ?? 0) > seconds(this.#clock);
  }

  /** Remembers an ID. Returns its record, and the IDs that were removed for it. */
  add(connectionId: string): { record: SeenRecord; forgotten: string[] } {
    const record = { connection_id: connectionId, expires_at: seconds(this.#clock) + SEEN_FOR };
    this.#put(record);
    return { record, forgotten: this.prune() };
  }

  /** Loads records from the store, in any order. Returns the IDs of those that have expired, or are too many. */
  load(records: SeenRecord[]): string[] {
    for (const record of records.toSorted((a, b) => a.expires_at - b.expires_at)) this.#put(record);
    return this.prune();
  }

  #put({ connection_id, expires_at }: SeenRecord): void {
    this.#seen.delete(connection_id);
    this.#seen.set(connection_id, expires_at);
  }

  /** Removes expired IDs, and the oldest over the limit. Returns them. */
  prune(): string[] {
    const now = seconds(this.#clock);
    const forgotten: string[] = [];
    for (const [id, until] of this.#seen) {
      if (until > now && this.#seen.size <= MAX_SEEN) break;
      this.#seen.delete(id);
      forgotten.push(id);
    }
    return forgotten;
  }
}
