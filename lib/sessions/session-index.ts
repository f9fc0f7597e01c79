import { isDeviceId } from './device.ts';
import { hashesOf } from './refresh.ts';
import type { Device, Refresh, Session } from './session.ts';

/** Characters of a token that a URL must give at least (contract 01 §6.4): prefixes are found by them. */
const HEAD = 4;

export type SessionIndex = ReturnType<typeof createSessionIndex>;

/**
 * The live sessions under everything by which they are looked up. What is indexed is changed here only. No lookup
 * and no change costs more with more sessions.
 */
export function createSessionIndex() {
  /** In the order in which sessions were last seen, the latest last. */
  const byHash = new Map<string, Session>();
  const byPrefix = new Map<string, Session>();
  const byHead = new Map<string, Set<Session>>();
  const byRefresh = new Map<string, Session>();
  const byFamily = new Map<string, Session>();
  const byDevice = new Map<string, Set<Session>>();
  let latest: Session | undefined;
  /** No session expires earlier, epoch seconds. */
  let expiryBound = Number.POSITIVE_INFINITY;

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

  return {
    get size(): number {
      return byHash.size;
    },

    add(session: Session): void {
      byHash.set(session.tokenHash, session);
      latest = session;
      byPrefix.set(session.prefix, session);
      addTo(byHead, headOf(session), session);
      byFamily.set(session.family, session);
      addDevice(session);
      addRefresh(session);
      this.expiryChanged(session);
    },

    remove(session: Session): void {
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

    /** A session's end has come nearer. */
    expiryChanged({ expiresAt }: Session): void {
      if (expiresAt !== null) expiryBound = Math.min(expiryBound, expiresAt);
    },

    /**
     * Every session if one may have expired at `now`, else none. A session that is still alive afterwards must be
     * given to `expiryChanged`.
     */
    takeDue(now: number): Session[] {
      if (now < expiryBound) return [];
      expiryBound = Number.POSITIVE_INFINITY;
      return [...byHash.values()];
    },

    ofToken: (hash: string): Session | undefined => byHash.get(hash),
    ofPrefix: (prefix: string): Session | undefined => byPrefix.get(prefix),
    ofRefresh: (hash: string): Session | undefined => byRefresh.get(hash),
    ofFamily: (family: string): Session | undefined => byFamily.get(family),

    /** Sessions of a device, whatever the case of its id. None for an id that identifies no device. */
    ofDevice: (device: Pick<Device, 'id'>): Session[] => [...(byDevice.get(deviceKey(device)) ?? [])],

    /** Sessions whose stored prefix begins with `start`. */
    startingWith(start: string): Session[] {
      const candidates = start.length < HEAD ? byHash.values() : (byHead.get(start.slice(0, HEAD)) ?? []);
      return [...candidates].filter(({ prefix }) => prefix.startsWith(start));
    },

    /** All sessions, those not seen for longest first. */
    all: (): Iterable<Session> => byHash.values(),
  };
}

/** Records from disk may share what should be unique: one session must not take the entry of another with it. */
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
