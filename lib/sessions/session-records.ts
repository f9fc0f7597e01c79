import type { Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';
import { fromStored, type Session, toStored } from './session.ts';

/** Seconds between two writes of one session's `last_seen` (contract 01 §6.7). */
const LAST_SEEN_PERIOD = 60;

export interface SessionRecordsParts {
  store: Store<'sessions'>;
  log: Log;
  /** Epoch seconds. */
  now(): number;
  /** The live session of a family. */
  living(family: string): Session | undefined;
}

export type SessionRecords = ReturnType<typeof createSessionRecords>;

/**
 * The stored records of sessions, one per family. A write that fails is logged and tried again with the next one that
 * works, at every sweep, and at the end; until then the change stands in memory only (contract 01 §6.7).
 */
export function createSessionRecords({ store, log, now, living }: SessionRecordsParts) {
  /** Families that have a record, as far as this process knows. */
  const stored = new Set<string>();
  /** Families whose record is not what it should be. */
  const unsaved = new Set<string>();
  /** When each family's record was written, epoch seconds. */
  const writtenAt = new Map<string, number>();
  /** Sessions seen since their record was written. */
  const seen = new Set<Session>();
  let isRetrying = false;
  let lastFailure: unknown;

  /** Follows one write of a family's record, or its removal. Whether it succeeded. */
  async function follow(family: string, write: Promise<unknown>, exists: boolean): Promise<boolean> {
    try {
      await write;
    } catch (error) {
      // A record that never reached the disk need not be removed from it.
      if (exists || stored.has(family)) unsaved.add(family);
      else unsaved.delete(family);
      // Writes of one transaction fail with one error, which is worth one line.
      if (error !== lastFailure) {
        log.warn(`a session change could not be saved, which is tried again: ${describeError(error)}`);
      }
      lastFailure = error;
      return false;
    }
    if (exists) stored.add(family);
    else stored.delete(family);
    unsaved.delete(family);
    return true;
  }

  async function put(session: Session): Promise<boolean> {
    seen.delete(session);
    // A caller may still hold a session that is over: its record must not come back.
    if (session.ended) return true;
    writtenAt.set(session.family, now());
    return follow(session.family, store.setItem(session.family, toStored(session)), true);
  }

  async function drop(family: string): Promise<boolean> {
    writtenAt.delete(family);
    return follow(family, store.removeItem(family), false);
  }

  /** Once a write gets through, so may those that did not. */
  async function settle(write: Promise<boolean>): Promise<void> {
    if ((await write) && unsaved.size > 0) await retry();
  }

  /** Writes what could not be written before, in one transaction. */
  async function retry(): Promise<void> {
    if (isRetrying || unsaved.size === 0) return;
    isRetrying = true;
    try {
      // The living first: on a store without transactions, a device that was paired anew never lacks both its records.
      const [alive, over]: [Session[], string[]] = [[], []];
      for (const family of unsaved) {
        const session = living(family);
        if (session) alive.push(session);
        else over.push(family);
      }
      await Promise.all([...alive.map(put), ...over.map(drop)]);
    } finally {
      isRetrying = false;
    }
  }

  const save = (session: Session): Promise<void> => settle(put(session));

  return {
    /** Reads every record. One that cannot be read is skipped with a warning, and kept. */
    async load(): Promise<Session[]> {
      const sessions: Session[] = [];
      for (const key of await store.getKeys()) {
        const session = fromStored(await store.getItem(key));
        if (session?.family === key) {
          stored.add(key);
          writtenAt.set(key, session.lastSeen);
          sessions.push(session);
        } else log.warn('skipped a session record that cannot be read');
      }
      return sessions;
    },

    /** Resolves when the record is on disk, or has failed to get there. */
    save,

    /** Resolves when the record is gone from disk, or has failed to go. */
    remove(session: Session): Promise<void> {
      seen.delete(session);
      return settle(drop(session.family));
    },

    /** Marks a session whose `lastSeen` is newer than its record. */
    markSeen(session: Session): void {
      if (!session.ended) seen.add(session);
    },

    /** Writes the marked sessions: those whose record is at least a minute old, or `all`. One transaction. */
    async saveSeen({ all = false } = {}): Promise<void> {
      const before = now() - LAST_SEEN_PERIOD;
      const due = [...seen].filter(({ family, ended }) => all || ended || (writtenAt.get(family) ?? 0) <= before);
      await Promise.all(due.map(save));
    },

    retry,

    /** `degraded` while a record is not what it should be. */
    state: (): 'ok' | 'degraded' => (unsaved.size > 0 ? 'degraded' : 'ok'),
  };
}
