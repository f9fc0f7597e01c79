import { isDeviceId } from './device.ts';
import { isPast } from './grants.ts';
import { hashesOf } from './refresh.ts';
import type { Device, Refresh, Session } from './session.ts';

/** Minimum characters of a token in a URL (contract 01 §6.4), which index prefixes. */
const HEAD = 4;

export type SessionIndex = ReturnType<typeof createSessionIndex>;

/** Stored sessions that are read on demand (edge). */
export interface StoredSessions {
  ofFamily(family: string): Session[];
  startingWith(prefix: string): Session[];
  ofDevice(id: string): Session[];
  all(): Session[];
  /** Sessions that have ended at `at`, epoch seconds. */
  endingBy(at: number): Session[];
  /** Time of the first end after `at`, epoch seconds. */
  nextEnd(at: number): number | null;
  count(): number;
}

/**
 * The live sessions with all of their indexes. Indexed fields are changed here only. The cost of lookups and changes is
 * independent of the number of sessions. With `stored`, sessions are read on demand, so that an object at the edge wakes
 * with 20,000 of them as fast as with none. Sessions that were read stay, so that each is one object.
 */
export function createSessionIndex(stored?: StoredSessions) {
  /** In the order in which sessions were last seen, the latest last. */
  const byHash = new Map<string, Session>();
  const byPrefix = new Map<string, Session>();
  const byHead = new Map<string, Set<Session>>();
  const byRefresh = new Map<string, Session>();
  const byFamily = new Map<string, Session>();
  const byDevice = new Map<string, Set<Session>>();
  let latest: Session | undefined;
  /** A lower bound of the sessions' ends, epoch seconds. */
  let expiryBound = stored?.nextEnd(Number.NEGATIVE_INFINITY) ?? Number.POSITIVE_INFINITY;
  let isComplete = stored === undefined;
  /** Number of stored sessions, counted before the first change, and of those that were read. */
  let counted: number | undefined;
  let readCount = 0;
  /** Families that are over but may still be stored. */
  const over = new Set<string>();

  const headOf = ({ prefix }: Session) => prefix.slice(0, HEAD);
  const deviceKey = ({ id }: Pick<Device, 'id'>) => id.toLowerCase();

  function addDevice(session: Session): void {
    if (isDeviceId(session.device.id)) addTo(byDevice, deviceKey(session.device), session);
  }

  function addRefresh(session: Session): void {
    for (const hash of hashesOf(session.refresh)) byRefresh.set(hash, session);
  }

  function removeRefresh(session: Session): void {
    for (const hash of hashesOf(session.refresh)) deleteOwn(byRefresh, hash, session);
  }

  function put(session: Session): void {
    byHash.set(session.tokenHash, session);
    latest = session;
    byPrefix.set(session.prefix, session);
    addTo(byHead, headOf(session), session);
    byFamily.set(session.family, session);
    addDevice(session);
    addRefresh(session);
  }

  /** Loads stored sessions that are not in memory. Those in memory are newer than the stored ones. */
  function read(from: (stored: StoredSessions) => Session[]): void {
    if (!stored || isComplete) return;
    for (const session of from(stored)) {
      if (over.has(session.family) || byFamily.has(session.family)) continue;
      put(session);
      readCount++;
    }
  }

  function readAll(): void {
    read((from) => from.all());
    isComplete = true;
    over.clear();
  }

  /** Number of stored sessions that were not read yet. */
  function unread(): number {
    if (!stored || isComplete) return 0;
    counted ??= stored.count();
    return counted - readCount;
  }

  return {
    get size(): number {
      return byFamily.size + unread();
    },

    /** True if there is a session. Counts nothing once one has been read. */
    get isUsed(): boolean {
      return byFamily.size > 0 || unread() > 0;
    },

    /** A lower bound of the sessions' ends, epoch seconds. */
    get nextEnd(): number {
      return expiryBound;
    },

    add(session: Session): void {
      unread();
      over.delete(session.family);
      put(session);
      this.expiryChanged(session);
    },

    remove(session: Session): void {
      unread();
      if (!isComplete) over.add(session.family);
      deleteOwn(byHash, session.tokenHash, session);
      if (latest === session) latest = undefined;
      deleteOwn(byPrefix, session.prefix, session);
      removeFrom(byHead, headOf(session), session);
      deleteOwn(byFamily, session.family, session);
      removeFrom(byDevice, deviceKey(session.device), session);
      removeRefresh(session);
    },

    setDevice(session: Session, device: Device): void {
      removeFrom(byDevice, deviceKey(session.device), session);
      session.device = device;
      addDevice(session);
    },

    setRefresh(session: Session, refresh: Refresh): void {
      removeRefresh(session);
      session.refresh = refresh;
      addRefresh(session);
    },

    /** Sets when an indexed session was last seen. */
    setSeen(session: Session, at: number): void {
      session.lastSeen = at;
      if (latest === session) return;
      byHash.delete(session.tokenHash);
      byHash.set(session.tokenHash, session);
      latest = session;
    },

    /** A session's end has become earlier. */
    expiryChanged({ expiresAt }: Session): void {
      if (expiresAt !== null) expiryBound = Math.min(expiryBound, expiresAt);
    },

    /** The record of an ended session was removed from disk. */
    forget: (family: string): void => void over.delete(family),

    /** Sessions that have expired at `now`, each returned once. */
    takeDue(now: number): Session[] {
      if (now < expiryBound) return [];
      read((from) => from.endingBy(now));
      expiryBound = (isComplete ? null : stored?.nextEnd(now)) ?? Number.POSITIVE_INFINITY;
      const due: Session[] = [];
      for (const session of byHash.values()) {
        if (isPast(session.expiresAt, now)) due.push(session);
        else this.expiryChanged(session);
      }
      return due;
    },

    /** Sessions that end by `at`, epoch seconds. */
    endingBy(at: number): Session[] {
      read((from) => from.endingBy(at));
      return [...byHash.values()].filter(({ expiresAt }) => isPast(expiresAt, at));
    },

    ofToken(hash: string, prefix: string): Session | undefined {
      if (!byHash.has(hash)) read((from) => from.startingWith(prefix));
      return byHash.get(hash);
    },

    ofPrefix(prefix: string): Session | undefined {
      if (!byPrefix.has(prefix)) read((from) => from.startingWith(prefix));
      return byPrefix.get(prefix);
    },

    /** Finds a session by the hash of a refresh token, and by the family in it, if any. */
    ofRefresh(hash: string, family: string | undefined): Session | undefined {
      if (!byRefresh.has(hash)) {
        if (family === undefined) readAll();
        else this.ofFamily(family);
      }
      return byRefresh.get(hash);
    },

    ofFamily(family: string): Session | undefined {
      if (!byFamily.has(family)) read((from) => from.ofFamily(family));
      return byFamily.get(family);
    },

    /** The session of a family, if it is in memory. */
    known: (family: string): Session | undefined => byFamily.get(family),

    /** Sessions of a device, ignoring the case of its id. Empty for an id that identifies no device. */
    ofDevice(device: Pick<Device, 'id'>): Session[] {
      const key = deviceKey(device);
      if (isDeviceId(device.id)) read((from) => from.ofDevice(key));
      return [...(byDevice.get(key) ?? [])];
    },

    /** Sessions whose stored prefix begins with `start`. */
    startingWith(start: string): Session[] {
      read((from) => from.startingWith(start));
      const candidates = start.length < HEAD ? byHash.values() : (byHead.get(start.slice(0, HEAD)) ?? []);
      return [...candidates].filter(({ prefix }) => prefix.startsWith(start));
    },

    /** All sessions, the one not seen for longest first. */
    all(): Iterable<Session> {
      readAll();
      return byHash.values();
    },
  };
}

/** Records from disk may share values that should be unique, so one session must not remove the entry of another. */
function deleteOwn(map: Map<string, Session>, key: string, session: Session): void {
  if (map.get(key) === session) map.delete(key);
}

function addTo(sets: Map<string, Set<Session>>, key: string, session: Session): void {
  const set = sets.get(key);
  if (set) set.add(session);
  else sets.set(key, new Set([session]));
}

function removeFrom(sets: Map<string, Set<Session>>, key: string, session: Session): void {
  const set = sets.get(key);
  if (set?.delete(session) && set.size === 0) sets.delete(key);
}
