import type { Entry, Lookups, Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import { batched, entriesOf } from '../kit/entries.ts';
import type { Log } from '../log.ts';
import { fromStored, type Session, toStored } from './session.ts';
import type { StoredSessions } from './session-index.ts';

/** Seconds between two writes of one session's `last_seen` (contract 01 §6.7). */
const LAST_SEEN_PERIOD = 60;
/** Milliseconds. Short enough that the timer keeps an object at the edge awake, whose memory holds the change. */
const MIN_RETRY_DELAY = 1_000;
const MAX_RETRY_DELAY = 30_000;

export interface SessionRecordsDeps {
  store: Store<'sessions'>;
  log: Log;
  clock: Clock;
  /** The live session of a family, if it is in memory. */
  living(family: string): Session | undefined;
  /** The record of an ended session was removed. */
  removed(family: string): void;
  /** A record is being written, or removed with the session `over`. The listener's writes join that transaction. */
  written(family: string, over?: Session): void;
}

/** A session that replaces others, which have the families `over`. */
export interface Replacement {
  session: Session;
  over?: readonly string[];
  /** A further key, such as a device, with only one replacement at a time. */
  key?: string;
}

export type SessionRecords = ReturnType<typeof createSessionRecords>;

/**
 * The stored records of sessions, one per family. A failed write is logged and retried until it succeeds: after a second,
 * then less and less often, with the next successful write, at every sweep, and at the end. Until then the change is in
 * memory only (contract 01 §6.7).
 */
export function createSessionRecords({ store, log, clock, living, removed, written }: SessionRecordsDeps) {
  /** Families whose record is not up to date. */
  const unsaved = new Set<string>();
  /** Time of the last write of each family's record, epoch seconds. */
  const writtenAt = new Map<string, number>();
  /** Sessions seen since their record was written. */
  const seen = new Set<Session>();
  /** Keyed by family or device: running replacements, which other writes of that family wait for. */
  const replacing = new Map<string, Promise<unknown>>();
  let isRetrying = false;
  let lastFailure: unknown;
  let cancelRetry: Cancel | undefined;
  let retryDelay = MIN_RETRY_DELAY;

  /** Awaits a write of a family's record, or its removal. Returns whether it succeeded. */
  async function follow(family: string, write: Promise<unknown>): Promise<boolean> {
    try {
      await write;
    } catch (error) {
      // A record that never reached the disk is removed too, since a failed sync may have left it there.
      unsaved.add(family);
      // Writes of one transaction fail with the same error, which is logged once.
      if (error !== lastFailure) {
        log.warn(`a session change could not be saved, which is tried again: ${describeError(error)}`);
      }
      lastFailure = error;
      retryLater();
      return false;
    }
    unsaved.delete(family);
    if (unsaved.size === 0) stopRetrying();
    return true;
  }

  function retryLater(): void {
    cancelRetry ??= clock.after(retryDelay, () => {
      cancelRetry = undefined;
      retryDelay = Math.min(retryDelay * 2, MAX_RETRY_DELAY);
      void retry();
    });
  }

  function stopRetrying(): void {
    cancelRetry?.();
    cancelRetry = undefined;
    retryDelay = MIN_RETRY_DELAY;
  }

  async function put(session: Session): Promise<boolean> {
    const { family } = session;
    seen.delete(session);
    let current: Session | undefined = session;
    for (let busy = replacing.get(family); busy; busy = replacing.get(family)) {
      await busy;
      current = living(family);
    }
    // A caller may still hold an ended session, whose record must not return.
    if (!current || current.ended) return true;
    writtenAt.set(family, seconds(clock));
    const writing = follow(family, store.setItem(family, toStored(current)));
    written(family);
    return writing;
  }

  async function drop(family: string, over?: Session): Promise<boolean> {
    writtenAt.delete(family);
    const writing = follow(family, store.removeItem(family));
    written(family, over);
    if (!(await writing)) return false;
    removed(family);
    return true;
  }

  /** After a successful write, retries the failed ones. Returns whether the write succeeded. */
  async function settle(write: Promise<boolean>): Promise<boolean> {
    const isStored = await write;
    if (isStored && unsaved.size > 0) await retry();
    return isStored;
  }

  /** Retries all failed writes in one transaction. */
  async function retry(): Promise<void> {
    if (isRetrying || unsaved.size === 0) return;
    isRetrying = true;
    try {
      // The living first: on a store without transactions, a device that was paired again never lacks both of its records.
      const [alive, over]: [Session[], string[]] = [[], []];
      for (const family of unsaved) {
        const session = living(family);
        if (session) alive.push(session);
        else over.push(family);
      }
      await Promise.all(batched(store, () => [...alive.map(put), ...over.map((family) => drop(family))]));
    } finally {
      isRetrying = false;
    }
  }

  /** True if the record is on disk. */
  const save = (session: Session): Promise<boolean> => settle(put(session));

  /** The sessions of records. An unreadable record is skipped with a warning, and stays. */
  function read(entries: readonly (readonly [key: string, value: unknown])[]): Session[] {
    const sessions: Session[] = [];
    for (const [key, value] of entries) {
      const session = fromStored(value);
      if (session?.family === key) {
        if (!writtenAt.has(key)) writtenAt.set(key, session.lastSeen);
        sessions.push(session);
      } else log.warn('skipped a session record that cannot be read');
    }
    return sessions;
  }

  /** Sessions whose records are up to date; those of the others are in memory, or about to be. */
  const settled = (entries: Entry[]): Session[] =>
    read(entries.filter(([family]) => !replacing.has(family) && !unsaved.has(family)));

  function readLater({ get, find, startingWith, upTo, least, count }: Lookups): StoredSessions {
    return {
      ofFamily: (family) => settled(get(family)),
      startingWith: (prefix) => settled(startingWith('prefix', prefix)),
      ofDevice: (id) => settled(find('device', id)),
      all: () => settled(startingWith('prefix', '')),
      endingBy: (at) => settled(upTo('expires', at)),
      nextEnd: (at) => least('expires', at),
      count: () => count('prefix'),
    };
  }

  return {
    /** Set if records can be read on demand. */
    stored: store.lookups && readLater(store.lookups),

    /** Reads every record. */
    load: async (): Promise<Session[]> => read(await entriesOf(store)),

    save,

    /** Runs `work`, whose writes of records share a transaction. */
    batch: <T>(work: () => T): T => batched(store, work),

    /** A running replacement with one of the keys, to be awaited before another one begins. */
    replacementOf: (keys: readonly (string | undefined)[]): Promise<unknown> | undefined => {
      const key = keys.find((key) => key !== undefined && replacing.has(key));
      return key === undefined ? undefined : replacing.get(key);
    },

    /**
     * Stores a session that is not yet in memory, and removes the records of those that it replaces, in one transaction.
     * `apply` is called once that is stored, before any other write of these families. Returns true if it is stored;
     * otherwise the records are restored as soon as the disk works.
     */
    async replace({ session, over = [], key }: Replacement, apply: () => void): Promise<boolean> {
      const families = [session.family, ...over];
      const keys = key === undefined ? families : [...families, key];
      const work = (async () => {
        const writes = batched(store, () => [
          follow(session.family, store.setItem(session.family, toStored(session))),
          ...over.map((family) => follow(family, store.removeItem(family))),
        ]);
        const isStored = (await Promise.all(writes)).every(Boolean);
        if (isStored) {
          writtenAt.set(session.family, seconds(clock));
          for (const family of over) writtenAt.delete(family);
          apply();
          for (const family of over) removed(family);
          for (const family of families) written(family);
        } else for (const family of families) unsaved.add(family);
        return isStored;
      })();
      const released = work
        .catch(() => {})
        .then(() => {
          for (const key of keys) replacing.delete(key);
        });
      for (const key of keys) replacing.set(key, released);
      await released;
      return settle(work);
    },

    /** True if the record is gone from disk. */
    remove(session: Session): Promise<boolean> {
      seen.delete(session);
      return settle(drop(session.family, session));
    },

    /** Marks a session whose `lastSeen` is newer than its record. */
    markSeen(session: Session): void {
      if (!session.ended) seen.add(session);
    },

    /** Writes the marked sessions: those whose record is at least a minute old, or `all`. One transaction. */
    async saveSeen({ all = false } = {}): Promise<void> {
      const before = seconds(clock) - LAST_SEEN_PERIOD;
      const due = [...seen].filter(({ family, ended }) => all || ended || (writtenAt.get(family) ?? 0) <= before);
      await Promise.all(due.map(save));
    },

    retry,

    /** `degraded` while a record is not up to date. */
    state: (): 'ok' | 'degraded' => (unsaved.size > 0 ? 'degraded' : 'ok'),
  };
}
