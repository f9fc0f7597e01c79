import type { Store } from '../../storage/schema.ts';
import { describeError, RelayError } from '../errors.ts';
import { base64url, bytesToHex, randomBytes, sha256, timingSafeEqual } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import {
  applyPolicy,
  clamp,
  DAY,
  type Expiry,
  endsLater,
  fromNow,
  type Grants,
  isPast,
  type Policy,
} from './grants.ts';
import { type Device, type EndReason, fromStored, type Session, type TransportHint, toStored } from './session.ts';

const REFRESH_LIFE = 180 * DAY;
const REFRESH_OVERLAP = 600;
/** Replaced refresh tokens kept per session. More than one where answers got lost. */
const MAX_REPLACED = 8;
const LAST_SEEN_FLUSH = 60;
/** Sessions kept at once. Every one took a host-approved pairing, so this only bounds memory. */
const MAX_SESSIONS = 4096;

const NO_DEVICE = new Set(['', 'unknown', 'none', 'null']);
/** Whether an id says anything: some clients send a word for "none". */
export const isDeviceId = (id: string): boolean => !NO_DEVICE.has(id.toLowerCase());

export interface NewSession {
  device: Device;
  policy: Policy;
  transportHint: TransportHint;
}

/** A session together with the raw credentials that were made for it just now. */
export interface Issued {
  session: Session;
  token: string;
  refreshToken?: string;
}

/** What came of a device's return. */
export interface Resumed {
  refreshToken?: string;
  /** Settles when the change is on disk, or failed to get there. */
  saved?: Promise<void>;
}

/** What a `PATCH /sessions/{prefix}` asks for: durations in seconds from now, 0 = never. */
export interface Reduction {
  ttlSeconds?: number;
  grants?: Record<string, number>;
}

export interface SessionsParts {
  store: Store<'sessions'>;
  clock: Clock;
  log: Log;
}

export type Sessions = Awaited<ReturnType<typeof openSessions>>;

/**
 * All paired sessions: held in memory, written through. Methods change memory before their first await, so a check
 * and its change are one step; they resolve when the change is on disk, or has failed to get there (then
 * `storeState()` is `degraded` and the change stands in memory; contract 01 §6.7).
 */
export async function openSessions({ store, clock, log }: SessionsParts) {
  const byHash = new Map<string, Session>();
  const byPrefix = new Map<string, Session>();
  const byRefresh = new Map<string, Session>();
  const flushed = new Map<string, number>();
  const endListeners = new Set<(session: Session, reason: EndReason) => void>();
  const changeListeners = new Set<(session: Session) => void>();
  /** Families that have a record, as far as this process knows, and those whose record is not what it should be. */
  const stored = new Set<string>();
  const unsaved = new Set<string>();
  let isRetrying = false;

  const now = () => seconds(clock);

  /** Follows one write of a family's record, or its removal. Whether it succeeded. */
  async function written(family: string, write: Promise<unknown>, exists: boolean): Promise<boolean> {
    try {
      await write;
    } catch (error) {
      // What never got to the disk need not be removed from it.
      if (exists || stored.has(family)) unsaved.add(family);
      else unsaved.delete(family);
      log.warn(`a session change could not be saved, which is tried again: ${describeError(error)}`);
      return false;
    }
    if (exists) stored.add(family);
    else stored.delete(family);
    unsaved.delete(family);
    return true;
  }

  /** Stored records are as they should be once this has gone through (contract 01 §6.7). Stops at the first failure. */
  async function retry(): Promise<void> {
    if (isRetrying) return;
    isRetrying = true;
    try {
      // The living first: a device that was paired anew has one of its two records at any moment.
      const living = [...byHash.values()].filter(({ family }) => unsaved.has(family));
      for (const session of living) if (!(await put(session))) return;
      const alive = new Set([...byHash.values()].map(({ family }) => family));
      for (const family of [...unsaved]) if (!alive.has(family) && !(await remove(family))) return;
    } finally {
      isRetrying = false;
    }
  }

  async function put(session: Session): Promise<boolean> {
    // Somebody may still hold a session that is over: its record must not come back.
    if (session.ended) return true;
    flushed.set(session.family, now());
    return written(session.family, store.setItem(session.family, toStored(session)), true);
  }

  const remove = (family: string): Promise<boolean> => written(family, store.removeItem(family), false);

  /** Writes one change. Once a write gets through, so may those that did not. */
  async function settle(write: Promise<boolean>): Promise<void> {
    if ((await write) && unsaved.size > 0) await retry();
  }

  const save = (session: Session): Promise<void> => settle(put(session));

  function index(session: Session): void {
    byHash.set(session.tokenHash, session);
    byPrefix.set(session.prefix, session);
    for (const hash of refreshHashes(session)) byRefresh.set(hash, session);
  }

  function unindex(session: Session): void {
    byHash.delete(session.tokenHash);
    byPrefix.delete(session.prefix);
    for (const hash of refreshHashes(session)) byRefresh.delete(hash);
  }

  /** Takes a session out of memory. From here on nobody gets in by it. */
  function drop(session: Session, reason: EndReason): void {
    unindex(session);
    session.ended = reason;
  }

  function tell(session: Session, reason: EndReason): void {
    for (const listener of [...endListeners]) listener(session, reason);
  }

  function end(session: Session, reason: EndReason): Promise<void> {
    drop(session, reason);
    tell(session, reason);
    return forget(session);
  }

  function forget({ family }: Session): Promise<void> {
    flushed.delete(family);
    return settle(remove(family));
  }

  /** The session, unless it is over; one found to be over is removed on the way. */
  function alive(session: Session | undefined): Session | undefined {
    if (!session || session.ended) return undefined;
    if (!isPast(session.expiresAt, now())) return session;
    log.info(`session ${named(session)} expired`);
    void end(session, 'expired');
    return undefined;
  }

  function newToken(): string {
    const taken = new Set([...byHash.values()].map((session) => session.prefix));
    for (;;) {
      const token = crypto.randomUUID();
      if (!taken.has(token.slice(0, 8))) return token;
    }
  }

  /** Gives a session a new refresh token; the one it replaces stays good for a while (contract 01 §6.5). */
  function rotate(session: Session): string {
    const token = base64url(randomBytes(32));
    const at = now();
    // One that expired is not to work again in the shade of the one that replaces it.
    const old = session.refresh && session.refresh.expiresAt > at ? session.refresh : null;
    const replaced = (old?.replaced ?? []).filter(({ until }) => until > at);
    if (old) replaced.push({ hash: old.hash, until: at + REFRESH_OVERLAP });
    // Not the oldest: a client whose answers get lost comes with that one again and again.
    if (replaced.length > MAX_REPLACED) replaced.splice(1, replaced.length - MAX_REPLACED);
    unindex(session);
    session.refresh = {
      hash: sha256(token),
      replaced,
      createdAt: old?.createdAt ?? at,
      lastUsed: at,
      expiresAt: old?.expiresAt ?? at + REFRESH_LIFE,
    };
    index(session);
    return token;
  }

  /** Whether a refresh token belongs to this session and still works. */
  function refreshMatches({ refresh }: Session, hash: string): boolean {
    const at = now();
    if (!refresh || refresh.expiresAt <= at) return false;
    return refresh.hash === hash || refresh.replaced.some((one) => one.hash === hash && one.until > at);
  }

  /** Whoever shows a refresh token has it: those before it are of no more use. Whether there were any. */
  function settleRefresh(session: Session, hash: string): boolean {
    const { refresh } = session;
    if (!refresh) return false;
    const before =
      refresh.hash === hash ? refresh.replaced.length : refresh.replaced.findIndex((one) => one.hash === hash);
    if (before <= 0) return false;
    for (const one of refresh.replaced.slice(0, before)) byRefresh.delete(one.hash);
    session.refresh = { ...refresh, replaced: refresh.replaced.slice(before) };
    return true;
  }

  for (const key of await store.getKeys()) {
    const session = fromStored(await store.getItem(key));
    if (!session || session.family !== key) log.warn('skipped a session record that cannot be read');
    else {
      stored.add(key);
      if (isPast(session.expiresAt, now())) {
        await remove(key);
        continue;
      }
      index(session);
      flushed.set(session.family, session.lastSeen);
    }
  }

  return {
    /** Calls back when a session is over, before its record is gone from disk. */
    onEnd(listener: (session: Session, reason: EndReason) => void): void {
      endListeners.add(listener);
    },

    /** Calls back when a session's policy shrank. */
    onReduce(listener: (session: Session) => void): void {
      changeListeners.add(listener);
    },

    storeState: (): 'ok' | 'degraded' => (unsaved.size > 0 ? 'degraded' : 'ok'),

    /** How many sessions are alive. */
    count(): number {
      const at = now();
      let count = 0;
      for (const session of byHash.values()) if (!isPast(session.expiresAt, at)) count++;
      return count;
    },

    /** Live sessions, the one seen last first. */
    list(): Session[] {
      return [...byHash.values()]
        .filter((session) => alive(session) !== undefined)
        .sort((a, b) => b.lastSeen - a.lastSeen);
    },

    /**
     * The live session of a token: by hash the first time, then by its public prefix and a constant-time comparison,
     * which spares every small request a hash.
     */
    authenticate(token: string): Session | undefined {
      const known = byPrefix.get(token.slice(0, 8));
      const isKnown = known?.token !== undefined && timingSafeEqual(known.token, token);
      const session = alive(isKnown ? known : byHash.get(sha256(token)));
      if (session) {
        session.token = token;
        this.touch(session);
      }
      return session;
    },

    /** The session of a family that was alive when its socket went to sleep (edge). */
    byFamily(family: string): Session | undefined {
      for (const session of byHash.values()) if (session.family === family) return alive(session);
      return undefined;
    },

    /** Marks a session as seen now. On disk at most once a minute, and at `flush`. */
    touch(session: Session): void {
      const at = now();
      session.lastSeen = at;
      if (!session.ended && at - (flushed.get(session.family) ?? 0) >= LAST_SEEN_FLUSH) void save(session);
    },

    /** Whether the session is still the one to serve. */
    isAlive: (session: Session): boolean => alive(session) !== undefined,

    /**
     * Makes the session of a fresh pairing. Other sessions of the same device end with it (contract 01 §6.6): only
     * after the new one is on disk, so that a crash in between leaves a device one of the two.
     */
    async create({ device, policy, transportHint }: NewSession): Promise<Issued> {
      const at = now();
      const token = newToken();
      const session: Session = {
        family: bytesToHex(randomBytes(16)),
        tokenHash: sha256(token),
        prefix: token.slice(0, 8),
        token,
        device,
        transportHint,
        createdAt: at,
        firstSeen: at,
        lastSeen: at,
        ...applyPolicy(policy, at),
        refresh: null,
      };
      const others = [...byHash.values()].filter(
        (other) => isDeviceId(device.id) && other.device.id.toLowerCase() === device.id.toLowerCase(),
      );
      const refreshToken = rotate(session);
      if (byHash.size - others.length > MAX_SESSIONS) {
        const rest = [...byHash.values()].filter((other) => other !== session && !others.includes(other));
        const oldest = rest.reduce((a, b) => (a.lastSeen <= b.lastSeen ? a : b));
        log.warn(`more than ${MAX_SESSIONS} sessions: ending the one not seen for longest (${oldest.prefix})`);
        others.push(oldest);
      }
      // Every write is asked for before the first await, so that they reach the disk in this order.
      await Promise.all([save(session), ...others.map((other) => end(other, 'replaced'))]);
      log.info(`session ${session.prefix} created for ${device.name} (${device.id})`);
      return { session, token, refreshToken };
    },

    /**
     * Replaces the session that a refresh token belongs to by one with the same policy and a new token.
     * Undefined when the token is not good, or not for this device.
     */
    async refresh(refreshToken: string, device: Device): Promise<Issued | undefined> {
      const hash = sha256(refreshToken);
      const old = alive(byRefresh.get(hash));
      if (!old || !refreshMatches(old, hash)) return undefined;
      if (isDeviceId(old.device.id) && old.device.id !== device.id) return undefined;
      settleRefresh(old, hash);
      const token = newToken();
      drop(old, 'replaced');
      tell(old, 'replaced');
      const session: Session = {
        ...old,
        ended: undefined,
        tokenHash: sha256(token),
        prefix: token.slice(0, 8),
        token,
        device: mergeDevice(old.device, device),
        lastSeen: now(),
      };
      const rotated = rotate(session);
      await save(session);
      log.info(`session ${named(old)} refreshed as ${session.prefix}`);
      return { session, token, refreshToken: rotated };
    },

    /**
     * A device came back with its token: takes over what it says of itself, and gives it a refresh token where it
     * lacks a good one (contract 01 §3.4): that token. `saved` is absent when nothing changed.
     */
    resume(session: Session, device: Device, offeredRefresh?: string): Resumed {
      if (session.ended) return {};
      const merged = mergeDevice(session.device, device);
      const changed = !isSameDevice(merged, session.device);
      if (changed) session.device = merged;
      const hash = offeredRefresh === undefined ? undefined : sha256(offeredRefresh);
      const good = hash === undefined ? session.refresh !== null : refreshMatches(session, hash);
      const issued = good ? undefined : rotate(session);
      const settled = hash !== undefined && good && settleRefresh(session, hash);
      if (!changed && issued === undefined && !settled) return {};
      return { refreshToken: issued, saved: save(session) };
    },

    /**
     * Sessions that a prefix from a URL names: by the 8 stored characters, or, given more, by the whole token or by
     * the start of one this process has seen (contract 01 §6.4).
     */
    find(prefix: string): Session[] {
      const live = this.list();
      if (prefix.length <= 8) return live.filter((session) => session.prefix.startsWith(prefix));
      const hash = sha256(prefix);
      return live.filter((session) => session.tokenHash === hash || session.token?.startsWith(prefix));
    },

    /**
     * Ends a session for good, its refresh credential with it. With `answerFirst` it is over at once too, but those who
     * hold it hear of it after whoever awaits this had his answer (contract 01 §6.4).
     */
    async revoke(session: Session, { answerFirst = false } = {}): Promise<void> {
      if (session.ended) return;
      log.info(`session ${named(session)} revoked`);
      drop(session, 'revoked');
      if (!answerFirst) tell(session, 'revoked');
      await forget(session);
      if (answerFirst) clock.after(0, () => tell(session, 'revoked'));
    },

    /**
     * Shortens a session's policy, all or nothing.
     * @throws RelayError `invalid` for a grant the session has not, `forbidden` for anything that would extend it.
     */
    async reduce(session: Session, reduction: Reduction): Promise<void> {
      if (session.ended) throw new RelayError('not-found', 'this session is over');
      const at = now();
      const unknown = Object.keys(reduction.grants ?? {}).find((channel) => !Object.hasOwn(session.grants, channel));
      if (unknown !== undefined) throw new RelayError('invalid', 'grants names a channel this session does not have');
      const expiresAt: Expiry =
        reduction.ttlSeconds === undefined ? session.expiresAt : fromNow(reduction.ttlSeconds, at);
      if (endsLater(expiresAt, session.expiresAt)) {
        throw new RelayError('forbidden', 'operator approval required to extend session');
      }
      const changes: Grants = {};
      for (const [channel, duration] of Object.entries(reduction.grants ?? {})) {
        changes[channel] = fromNow(duration, at);
        if (endsLater(changes[channel], session.grants[channel] as Expiry)) {
          throw new RelayError('forbidden', 'operator approval required to extend a grant');
        }
      }
      session.expiresAt = expiresAt;
      session.grants = clamp({ ...session.grants, ...changes }, expiresAt);
      for (const listener of [...changeListeners]) listener(session);
      log.info(`session ${named(session)} reduced`);
      await save(session);
    },

    /** Removes what has expired. Called every 30 s, and by whoever wakes at the edge. */
    sweep(): void {
      for (const session of [...byHash.values()]) alive(session);
      if (unsaved.size > 0) void retry();
    },

    /** Writes every `lastSeen` that is newer than its record, and what could not be written before. */
    async flush(): Promise<void> {
      await retry();
      const stale = [...byHash.values()].filter((session) => session.lastSeen > (flushed.get(session.family) ?? 0));
      await Promise.all(stale.map(save));
    },
  };
}

/** What is presented wins, where it says anything (contract 01 §3.4). */
function mergeDevice(old: Device, presented: Device): Device {
  const pick = <T extends string>(fresh: T, kept: T, nothing: string): T =>
    fresh !== '' && fresh !== 'unknown' && fresh !== nothing ? fresh : kept;
  return {
    name: pick(presented.name, old.name, UNNAMED),
    id: isDeviceId(presented.id) || !isDeviceId(old.id) ? presented.id : old.id,
    model: pick(presented.model, old.model, ''),
    platform: pick(presented.platform, old.platform, ''),
    surface: pick(presented.surface, old.surface, 'unknown'),
    formFactor: pick(presented.formFactor, old.formFactor, 'unknown'),
  };
}

/** A session for the log (contract 01 §10). */
const named = ({ prefix, device }: Session): string => `${prefix} of ${device.name} (${device.id})`;

const refreshHashes = ({ refresh }: Session): string[] =>
  refresh ? [refresh.hash, ...refresh.replaced.map(({ hash }) => hash)] : [];

/** Run at every connect. Both have the fields of `Device` and no others. */
const isSameDevice = (a: Device, b: Device): boolean =>
  (Object.keys(a) as (keyof Device)[]).every((field) => a[field] === b[field]);

export const UNNAMED = 'Unknown device';
