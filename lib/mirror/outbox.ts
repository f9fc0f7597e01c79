import * as v from 'valibot';
import type { MirrorOpRecord } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { base64url, randomBytes } from '../kit/bytes.ts';
import { type Deferred, deferred } from '../kit/deferred.ts';
import { batched } from '../kit/entries.ts';
import type { JsonObject } from '../kit/json.ts';
import { type Cursor, type Op, type Origin, START } from './frames.ts';
import { count as number, type RecordDeps } from './records.ts';

/** Maximum ops that wait for the other side (contract 12 §2), and the characters in them. */
export const MAX_WAITING = 10_000;
const MAX_CHARACTERS = 32 * 1024 * 1024;
const OP = 'op:';
/** Never refused: they are few, and without them a revoked device would stay, or an agent would continue. */
const ALWAYS_TAKEN: ReadonlySet<string> = new Set(['end', 'sync', 'freeze', 'thaw']);

const Place = v.object({ epoch: v.string(), oseq: number });
const Row = v.object({ ...Place.entries, kind: v.string(), body: v.record(v.string(), v.unknown()) });

export interface OutboxDeps extends Omit<RecordDeps, 'clock'> {
  origin: Origin;
  /** True if the last op of a kind stays after its acknowledgement, as a record of the other side's state. */
  isRecord(kind: string): boolean;
  /** Sends the offered ops, if there is a link. */
  flush(): void;
  /** The other side has stored an op. Called in the turn in which that is stored here. */
  acknowledged?(kind: string, body: JsonObject): void;
}

export type Outbox = ReturnType<typeof openOutbox>;

/**
 * The ops of this side that the other one has yet to acknowledge, one per key. A newer one replaces an older one, which
 * bounds the backlog. All of them are stored, and so is the position up to which the other side's ops are applied. Ops are
 * numbered upwards, with gaps.
 */
export function openOutbox({ store, records, origin, log, isRecord, flush, acknowledged }: OutboxDeps) {
  /**
   * Identifies this start of the process, since a state that was restored from a backup makes other ops with the same
   * numbers.
   */
  const epoch = base64url(randomBytes(8));
  /** In the order of their numbers. */
  const rows = new Map<string, MirrorOpRecord>();
  const waiters = new Map<string, Deferred>();
  /** True if an op was refused, or could not be stored, so that the other side's state is unknown. */
  let isIncomplete = false;
  let isRefusing = false;
  /** True during `together`. */
  let isHeld = false;

  const failed = (error: unknown) => {
    isIncomplete = true;
    log.warn(`what the mirror waits to send could not be stored: ${describeError(error)}`);
  };
  const put = (key: string, record: MirrorOpRecord) => void store.setItem(OP + key, record).catch(failed);
  const drop = (key: string) => void store.removeItem(OP + key).catch(failed);
  const isWaiting = ({ oseq }: Cursor) => oseq > acked.oseq;
  const waiting = () => [...rows].filter(([, row]) => isWaiting(row));

  const loaded = [...records.below(OP, Row)].sort(([, a], [, b]) => a.oseq - b.oseq);
  /** Length of the bodies of all rows, as JSON; a row's own length by its record. */
  let characters = 0;
  const lengths = new WeakMap<MirrorOpRecord, number>();
  let acked = records.one('acked', Place) ?? START;
  let applied = records.one('applied', Place) ?? START;
  let last = Math.max(acked.oseq, loaded.at(-1)?.[1].oseq ?? 0);
  /** Number of waiting ops. */
  let count = 0;
  for (const [key, row] of loaded) hold(key, row);

  function hold(key: string, row: MirrorOpRecord): void {
    release(key);
    lengths.set(row, JSON.stringify(row.body).length);
    characters += lengths.get(row) ?? 0;
    rows.set(key, row);
    if (isWaiting(row)) count++;
  }

  function release(key: string): boolean {
    const row = rows.get(key);
    if (!row) return false;
    characters -= lengths.get(row) ?? 0;
    if (isWaiting(row)) count--;
    return rows.delete(key);
  }

  function insert(key: string, kind: string, body: JsonObject): void {
    const row = { epoch, oseq: ++last, kind, body };
    hold(key, row);
    put(key, row);
  }

  /** Number of the newest op that this process has sent over a link. */
  let given = 0;

  function settle(key: string): void {
    waiters.get(key)?.resolve();
    waiters.delete(key);
  }

  const isFull = () => count >= MAX_WAITING || characters > MAX_CHARACTERS;

  return {
    epoch,

    /** True if no more ops are accepted, except replacements. */
    isFull,

    /** Position up to which the other side's ops are applied and stored. */
    get applied(): Cursor {
      return applied;
    },

    get waiting(): number {
      return count;
    },

    /**
     * Adds an op in place of the one with the same key, in the transaction of this turn, and sends it. False if too many
     * wait, in which case the next link starts with everything, unless the caller offers it again once there is room.
     */
    offer(key: string, kind: string, body: JsonObject, { isOfferedAgain = false } = {}): boolean {
      const own = rows.get(key);
      const isMore = !own || !isWaiting(own);
      const isFull = (isMore && count >= MAX_WAITING) || characters > MAX_CHARACTERS;
      if (isFull && !ALWAYS_TAKEN.has(kind)) {
        if (!isRefusing) log.error(`${count} changes wait for the other side of the mirror: no more are taken`);
        isRefusing = true;
        if (!isOfferedAgain) isIncomplete = true;
        return false;
      }
      insert(key, kind, body);
      if (!isHeld) flush();
      return true;
    },

    /** Runs `work`, and sends nothing of what it offers before its end. */
    together(work: () => void): void {
      isHeld = true;
      try {
        work();
      } finally {
        isHeld = false;
      }
      flush();
    },

    /** Body of the last op with this key: a waiting one, or one that stays. */
    body: (key: string): JsonObject | undefined => rows.get(key)?.body,
    isWaiting: (key: string): boolean => {
      const row = rows.get(key);
      return row !== undefined && isWaiting(row);
    },

    /**
     * Changes the body of a waiting op, which keeps its position. False if there is none, or if the other side may have
     * applied it unchanged, in which case another op has to report the change.
     */
    amend(key: string, body: JsonObject): boolean {
      const row = rows.get(key);
      if (!row || !isWaiting(row)) return false;
      const next = { ...row, body };
      lengths.set(next, JSON.stringify(body).length);
      characters += (lengths.get(next) ?? 0) - (lengths.get(row) ?? 0);
      rows.set(key, next);
      put(key, next);
      return row.epoch === epoch && row.oseq > given;
    },

    keys: (): string[] => [...rows.keys()],

    /** Ops after a number, in order. */
    after: (oseq: number, limit: number): Op[] => {
      const from = Math.max(oseq, acked.oseq);
      const ops: Op[] = [];
      for (const { epoch, oseq, kind, body } of rows.values()) {
        if (oseq <= from) continue;
        given = Math.max(given, oseq);
        if (ops.push({ type: 'op', origin, epoch, oseq, kind, body }) === limit) break;
      }
      return ops;
    },

    /** The other side has stored everything up to a position. */
    acknowledge(cursor: Cursor): void {
      if (cursor.oseq <= acked.oseq || cursor.oseq > last) return;
      const done: [string, MirrorOpRecord][] = [];
      // In the order of their numbers, so that later ones are not visited.
      for (const entry of rows) {
        if (entry[1].oseq > cursor.oseq) break;
        if (isWaiting(entry[1])) done.push(entry);
      }
      acked = { epoch: cursor.epoch, oseq: cursor.oseq };
      count -= done.length;
      isRefusing = false;
      void store.setItem('acked', acked).catch(failed);
      for (const [key, { kind, body }] of done) {
        if (!isRecord(kind)) {
          release(key);
          drop(key);
        }
        settle(key);
        acknowledged?.(kind, body);
      }
    },

    /**
     * True if a position of the other side is one of these ops, so that the rest can follow it. False after either side was
     * restored from a backup.
     */
    isKnown({ epoch, oseq }: Cursor): boolean {
      if (isIncomplete) return false;
      const isAt = (place: Cursor) => place.oseq === oseq && place.epoch === epoch;
      return isAt(acked) || [...rows.values()].some(isAt);
    },

    /** Restarts after a position of the other side: all ops that wait or stay are sent again under new numbers. */
    restart(after: Cursor): void {
      last = Math.max(last, after.oseq);
      acked = { epoch: after.epoch, oseq: after.oseq };
      count = waiting().length;
      isIncomplete = false;
      void store.setItem('acked', acked).catch(failed);
      for (const [key, { kind, body }] of [...rows]) insert(key, kind, body);
    },

    /** Begins both directions anew where records were damaged: what either side lacks is no longer known. */
    repair(): void {
      if (records.damaged.size === 0) return;
      batched(store, () => {
        for (const [key, left] of records.damaged)
          void (left ? store.setItem(key, left) : store.removeItem(key)).catch(failed);
        applied = START;
        void store.removeItem('applied').catch(failed);
        this.restart(START);
      });
    },

    forget(key: string): void {
      if (release(key)) drop(key);
      settle(key);
    },

    /** Resolves once the op with this key is acknowledged, at once if there is none. */
    settled(key: string): Promise<void> {
      const row = rows.get(key);
      if (!row || !isWaiting(row)) return Promise.resolve();
      const waiting = waiters.get(key);
      if (waiting) return waiting.promise;
      const waiter = deferred();
      waiters.set(key, waiter);
      return waiter.promise;
    },

    /** Runs `work`, which applies ops of the other side: their writes and `apply` become durable together. */
    batch: (work: () => void): void => batched(store, work),

    /** Stores the position up to which the other side's ops are applied. Takes effect once it is stored. */
    async apply(cursor: Cursor): Promise<void> {
      await store.setItem('applied', { epoch: cursor.epoch, oseq: cursor.oseq });
      if (cursor.oseq > applied.oseq || cursor.epoch !== applied.epoch) applied = cursor;
    },

    /** Removes everything, at the end of the mirror. */
    async clear(): Promise<void> {
      for (const key of [...rows.keys()]) this.forget(key);
      [acked, applied, last, count] = [START, START, 0, 0];
      await Promise.all([store.removeItem('acked'), store.removeItem('applied')]);
    },
  };
}
