import type { MirrorOpRecord, Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { base64url, randomBytes } from '../kit/bytes.ts';
import { type Deferred, deferred } from '../kit/deferred.ts';
import { batched } from '../kit/entries.ts';
import type { JsonObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { type Cursor, type Op, type Origin, START } from './frames.ts';

/** Ops that may wait for the other side (contract 12 §2), and the characters in them. */
export const MAX_WAITING = 10_000;
const MAX_CHARACTERS = 32 * 1024 * 1024;
const OP = 'op:';
/** Never refused: there are few of them, and without them a revoked device would stay, or an agent go on. */
const ALWAYS_TAKEN: ReadonlySet<string> = new Set(['end', 'sync', 'freeze', 'thaw']);

export interface OutboxParts {
  store: Store<'mirror'>;
  /** The content of the store. */
  stored: ReadonlyMap<string, unknown>;
  origin: Origin;
  log: Log;
  /** True where the last op of a kind stays once it is acknowledged: it is what the other side has. */
  keeps(kind: string): boolean;
  /** The other side has stored an op. Called in the turn in which that is stored here. */
  acknowledged?(kind: string, body: JsonObject): void;
}

export type Outbox = ReturnType<typeof openOutbox>;

/**
 * The ops of this side that the other one has yet to acknowledge, one for each key: a newer one takes the place of an
 * older one, so that what waits is bounded by what there is to tell. All of it is stored, and so is how much of the other
 * side's ops is applied. Ops are numbered upwards, with gaps.
 */
export function openOutbox({ store, stored, origin, log, keeps, acknowledged }: OutboxParts) {
  /** Names this start of the process: a state that was restored from a backup makes other ops under the same numbers. */
  const epoch = base64url(randomBytes(8));
  /** In the order of their numbers. */
  const rows = new Map<string, MirrorOpRecord>();
  const waiters = new Map<string, Deferred>();
  /** An op was refused, or could not be stored: what the other side has is no longer known. */
  let isIncomplete = false;
  let isRefusing = false;

  const failed = (error: unknown) => {
    isIncomplete = true;
    log.warn(`what the mirror waits to send could not be stored: ${describeError(error)}`);
  };
  const put = (key: string, record: MirrorOpRecord) => void store.setItem(OP + key, record).catch(failed);
  const drop = (key: string) => void store.removeItem(OP + key).catch(failed);
  const isWaiting = ({ oseq }: Cursor) => oseq > acked.oseq;
  const waiting = () => [...rows].filter(([, row]) => isWaiting(row));

  const loaded: [string, MirrorOpRecord][] = [];
  for (const [key, value] of stored) {
    if (!key.startsWith(OP)) continue;
    const row = value as MirrorOpRecord | null;
    if (typeof row?.oseq === 'number' && typeof row.kind === 'string') loaded.push([key.slice(OP.length), row]);
    else log.warn('skipped a record of the mirror that cannot be read');
  }
  /** Length of the bodies of all rows, as JSON; a row's own length by its record. */
  let characters = 0;
  const lengths = new WeakMap<MirrorOpRecord, number>();
  let acked = (stored.get('acked') as Cursor | null | undefined) ?? START;
  let applied = (stored.get('applied') as Cursor | null | undefined) ?? START;
  loaded.sort(([, a], [, b]) => a.oseq - b.oseq);
  let last = Math.max(acked.oseq, loaded.at(-1)?.[1].oseq ?? 0);
  /** Number of the ops that wait. */
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

  /** Number of the newest op that this process has given to a link. */
  let given = 0;

  function settle(key: string): void {
    waiters.get(key)?.resolve();
    waiters.delete(key);
  }

  const isFull = () => count >= MAX_WAITING || characters > MAX_CHARACTERS;

  return {
    epoch,

    /** True when no more ops are taken, but for those in place of others. */
    isFull,

    /** Place up to which the other side's ops are applied and stored. */
    get applied(): Cursor {
      return applied;
    },

    get waiting(): number {
      return count;
    },

    /**
     * Adds an op in place of the one with the same key, in the transaction of this turn. False when too many wait: the
     * next link begins with everything then, unless the caller offers it again once there is room.
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
      return true;
    },

    /** Body of the op with this key that was offered last: one that waits, or that stays. */
    body: (key: string): JsonObject | undefined => rows.get(key)?.body,
    isWaiting: (key: string): boolean => {
      const row = rows.get(key);
      return row !== undefined && isWaiting(row);
    },

    /**
     * Changes the body of an op that waits, which keeps its place. False where there is none, and where the other side
     * may have applied it as it was: that is to be told of the change by another op.
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

    /** Ops after a number, in their order. */
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

    /** The other side has stored everything up to a place. */
    acknowledge(cursor: Cursor): void {
      if (cursor.oseq <= acked.oseq || cursor.oseq > last) return;
      const done: [string, MirrorOpRecord][] = [];
      // In the order of their numbers: what is behind the place is not looked at.
      for (const entry of rows) {
        if (entry[1].oseq > cursor.oseq) break;
        if (isWaiting(entry[1])) done.push(entry);
      }
      acked = { epoch: cursor.epoch, oseq: cursor.oseq };
      count -= done.length;
      isRefusing = false;
      void store.setItem('acked', acked).catch(failed);
      for (const [key, { kind, body }] of done) {
        if (!keeps(kind)) {
          release(key);
          drop(key);
        }
        settle(key);
        acknowledged?.(kind, body);
      }
    },

    /**
     * True if a place that the other side names is one of these ops, so that the rest can follow it. It is not when
     * either side was restored from a backup.
     */
    isKnown({ epoch, oseq }: Cursor): boolean {
      if (isIncomplete) return false;
      const isAt = (place: Cursor) => place.oseq === oseq && place.epoch === epoch;
      return isAt(acked) || [...rows.values()].some(isAt);
    },

    /** Begins anew behind a place of the other side: all that waits or stays is sent again under new numbers. */
    restart(after: Cursor): void {
      last = Math.max(last, after.oseq);
      acked = { epoch: after.epoch, oseq: after.oseq };
      count = waiting().length;
      isIncomplete = false;
      void store.setItem('acked', acked).catch(failed);
      for (const [key, { kind, body }] of [...rows]) insert(key, kind, body);
    },

    forget(key: string): void {
      if (release(key)) drop(key);
      settle(key);
    },

    /** Resolves once the op with this key is acknowledged; at once when none waits. */
    settled(key: string): Promise<void> {
      const row = rows.get(key);
      if (!row || !isWaiting(row)) return Promise.resolve();
      const waiting = waiters.get(key);
      if (waiting) return waiting.promise;
      const waiter = deferred();
      waiters.set(key, waiter);
      return waiter.promise;
    },

    /** Runs `work`, which applies ops of the other side: their writes and `apply` are durable together. */
    batch: (work: () => void): void => batched(store, work),

    /** Stores how far the other side's ops are applied. In effect once it is stored. */
    async apply(cursor: Cursor): Promise<void> {
      await store.setItem('applied', { epoch: cursor.epoch, oseq: cursor.oseq });
      if (cursor.oseq > applied.oseq || cursor.epoch !== applied.epoch) applied = cursor;
    },

    /** Forgets everything, for an end of the mirror. */
    async clear(): Promise<void> {
      for (const key of [...rows.keys()]) this.forget(key);
      [acked, applied, last, count] = [START, START, 0, 0];
      await Promise.all([store.removeItem('acked'), store.removeItem('applied')]);
    },
  };
}
