import type { EndedSessionRecord, RoutesRecord, Store } from '../../storage/schema.ts';
import { appliedOnly, notStored, RelayError } from '../errors.ts';
import { bytesToHex, randomBytes, timingSafeEqual } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { createEvent } from '../kit/event.ts';
import { sha256 } from '../kit/sha256.ts';
import type { Log } from '../log.ts';
import type { ClockJump } from '../steady-clock.ts';
import { isDeviceId, isSameDevice, mergeDevice } from './device.ts';
import { type EndedSessions, openEndedSessions } from './ended.ts';
import { endsSoon, needsNotice, WARN_BEFORE } from './ends-soon.ts';
import { applyPolicy, isPast, type Policy } from './grants.ts';
import { extendedPolicy, narrowedPolicy, type Reduction, reducedPolicy } from './policy-change.ts';
import {
  type Audience,
  audienceOf,
  familyOf,
  hashesOf,
  isGood,
  newRefreshToken,
  rotated,
  withoutOlder,
} from './refresh.ts';
import type { Device, EndReason, Session, TransportHint } from './session.ts';
import { createSessionIndex, type SessionIndex } from './session-index.ts';
import { createSessionRecords, type SessionRecords } from './session-records.ts';

/** Characters of a token that are public, and identify its session in logs and URLs. */
const PREFIX_LENGTH = 8;
const CLOCK_MAY_BE_WRONG = "authentication timeout: the clock of the relay's machine may be wrong, try again later";
/** Seconds until the device of a session that was set aside retries, since somebody first has to set the clock. */
const ASIDE_RETRY = 60;

export interface NewSession {
  device: Device;
  policy: Policy;
  transportHint: TransportHint;
  /** Thumbprint of the key to bind the session to. */
  keyThumbprint?: string;
  /** The routes to the relay that its device knows. */
  routes?: RoutesRecord;
  /** At the edge, the hash of a code whose device becomes one of home. */
  home?: string;
}

/** A session with its new raw credentials. */
export interface Issued {
  session: Session;
  token: string;
  refreshToken?: string;
}

/** The change of a session that continues. */
export type SessionChange = 'reduced' | 'extended' | 'renamed';

/** An ended session in a list. `ended_at` is epoch seconds. */
export type ListedEnd = Omit<EndedSessionRecord, 'token_sha256'>;

/** Result of the return of a device. */
export interface Resumed {
  /** Resolves when the change is on disk, or has failed to get there, with the issued refresh token, if any. */
  saved?: Promise<string | undefined>;
}

export interface SessionsDeps {
  store: Store<'sessions'>;
  ended: Store<'ended-sessions'>;
  clock: Clock;
  /** Set if the start is so long after the last write that the clock may be wrong. */
  jump?: ClockJump;
  log: Log;
  /** Maximum sessions, beyond which no device pairs, 4,096 by default. Each took an approved pairing; this bounds memory. */
  maxSessions?: number;
  /**
   * True if `lastSeen` is saved in the turn that changed it, because nothing sweeps and memory may be lost at any time
   * (edge).
   */
  savesSeenAtOnce?: boolean;
}

/** Members that a refresh copies from the replaced session, since they may change while the new one is stored. */
const CARRIED = [
  'expiresAt',
  'grants',
  'terminalReduced',
  'policy',
  'grantedAt',
  'ownerName',
  'noticedExpiry',
  'routes',
  'answersPings',
  'pairedHere',
] as const satisfies readonly (keyof Session)[];

/**
 * All paired sessions: held in memory (at the edge on demand) and written through. A change that adds rights (a pairing, a
 * refresh) takes effect once it is stored, and has no effect if that fails. A change that removes rights takes effect in
 * memory before the first await, so that a check and its change are one step. If it cannot be stored, it stays in effect,
 * `storeState()` is `degraded`, and the write is retried until it succeeds (contract 01 §6.7). Related writes are one
 * transaction.
 */
export async function openSessions(deps: SessionsDeps): Promise<Sessions> {
  const sessions = new Sessions(deps, await openEndedSessions({ ...deps, store: deps.ended }));
  await sessions.load();
  return sessions;
}

export class Sessions {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #index: SessionIndex;
  readonly #records: SessionRecords;
  readonly #ended: EndedSessions;
  readonly #jump: ClockJump | undefined;
  readonly #savesSeenAtOnce: boolean;
  readonly #maxSessions: number;
  readonly #ends = createEvent<[session: Session, reason: EndReason]>();
  readonly #changes = createEvent<[session: Session, change: SessionChange]>();
  readonly #writes = createEvent<[family: string, over?: Session]>();
  #isHonoured: (session: Session) => boolean = () => true;
  /** Keyed by family: the latest use of a refresh token that is unanswered. */
  readonly #refreshes = new Map<string, Promise<Issued | undefined>>();
  /** Pairings that are being stored. */
  #creating = 0;
  #expiredWhileDown: Session[] = [];
  /** Sessions that expired by a clock which may be wrong; their records stay (contract 11 §2). */
  #aside: Session[] = [];

  constructor(
    { store, clock, log, savesSeenAtOnce = false, jump, maxSessions = 4096 }: SessionsDeps,
    ended: EndedSessions,
  ) {
    this.#ended = ended;
    this.#jump = jump;
    this.#clock = clock;
    this.#log = log;
    this.#savesSeenAtOnce = savesSeenAtOnce;
    this.#maxSessions = maxSessions;
    this.#records = createSessionRecords({
      ...{ store, log, clock },
      living: (family) => this.#index.known(family),
      removed: (family) => this.#index.forget(family),
      written: (family, over) => this.#writes.emit(family, over),
    });
    this.#index = createSessionIndex(this.#records.stored);
  }

  /** Loads the stored sessions that are alive, regardless of the limit; at the edge, on demand. */
  async load(): Promise<void> {
    if (this.#records.stored) return this.#endExpired();
    const at = this.#now();
    const loaded = await this.#records.load();
    const living = loaded.filter(({ expiresAt }) => !isPast(expiresAt, at)).sort((a, b) => a.lastSeen - b.lastSeen);
    if (living.length > this.#maxSessions) {
      this.#log.warn(
        `${living.length} sessions are stored: no device pairs while there are ${this.#maxSessions} or more`,
      );
    }
    for (const session of living) this.#index.add(session);
    const isLiving = new Set(living);
    const expired = loaded.filter((session) => !isLiving.has(session));
    const from = this.#jump?.from;
    this.#aside = from === undefined ? [] : expired.filter(({ expiresAt }) => !isPast(expiresAt, from));
    if (this.#aside.length > 0) {
      const have = this.#aside.length === 1 ? '1 session has' : `${this.#aside.length} sessions have`;
      this.#log.warn(`${have} ended by a clock that may be wrong: kept aside for a day`);
    }
    const isAside = new Set(this.#aside);
    const over = expired.filter((session) => !isAside.has(session));
    this.#expiredWhileDown = over.filter(({ terminalReduced }) => terminalReduced);
    await this.#removeExpired(over);
    await this.#settleJump();
  }

  /** Restores the sessions set aside once the clock has returned, or ends them once the clock has proved right. */
  async #settleJump(): Promise<void> {
    const state = this.#jump?.state() ?? 'ahead';
    if (state === 'ahead') return;
    this.#jump?.settle();
    const aside = this.#aside.splice(0);
    const at = this.#now();
    const [back, over]: [Session[], Session[]] = [[], []];
    for (const session of aside) {
      (state === 'returned' && !isPast(session.expiresAt, at) ? back : over).push(session);
    }
    for (const session of back) this.#index.add(session);
    const are =
      back.length === 1 ? '1 session that was kept aside is' : `${back.length} sessions that were kept aside are`;
    if (back.length > 0) this.#log.warn(`the clock was set back: ${are} back`);
    await this.#removeExpired(over);
  }

  async #removeExpired(over: readonly Session[]): Promise<void> {
    for (const session of over) this.#ended.add(session, 'expired');
    await Promise.all(over.map((session) => this.#records.remove(session)));
  }

  /** Sessions that expired while no relay ran, and whose shells have yet to end. Only the first caller gets them. */
  takeExpiredWhileDown(): Session[] {
    return this.#expiredWhileDown.splice(0);
  }

  /** Calls back when a session has ended, before its record is removed from disk. */
  onEnd(listener: (session: Session, reason: EndReason) => void): void {
    this.#ends.on(listener);
  }

  /** Calls back when the operator or the device changed a session. */
  onChange(listener: (session: Session, change: SessionChange) => unknown): void {
    this.#changes.on(listener);
  }

  /**
   * Calls back when a session's record is being written, or removed with the session `over`. The listener's writes join that
   * transaction.
   */
  onWrite(listener: (family: string, over?: Session) => void): void {
    this.#writes.on(listener);
  }

  /** Sets the check whether a session is honoured now; a session that is not does not end (contract 12 §2). */
  honourIf(isHonoured: (session: Session) => boolean): void {
    this.#isHonoured = isHonoured;
  }

  /** Calls back when a session's policy shrank. */
  onReduce(listener: (session: Session) => void): void {
    this.onChange((session, change) => change === 'reduced' && listener(session));
  }

  /** Ended sessions, the latest first, preceded by those that ended by a clock which may be wrong. */
  ended(): ListedEnd[] {
    const aside = this.#aside.map(({ prefix, device, expiresAt }) => ({
      token_prefix: prefix,
      device_name: device.name,
      device_id: device.id,
      client_surface: device.surface,
      ended_at: expiresAt as number,
      reason: 'clock?',
    }));
    return [...aside, ...this.#ended.list().map(({ token_sha256: _, ...listed }) => listed)];
  }

  /** Answer to the holder of the credential of an ended session; undefined for any other credential. */
  endedSentence = (credential: { token?: string; refreshToken?: string }): string | undefined =>
    this.#ended.sentenceFor(credential);

  /**
   * Temporarily refuses the credential of a session that is set aside: it is valid again once the clock is set right. The
   * words "auth" and "timeout" make every client keep its pairing (contract 01 §3.6).
   * @throws RelayError `unavailable` for such a credential.
   */
  refuseAside({ token, refreshToken }: { token?: string; refreshToken?: string }): void {
    if (this.#aside.length === 0) return;
    const hash = token === undefined ? '' : sha256(token);
    const refreshHash = refreshToken === undefined ? '' : sha256(refreshToken);
    const isAside = this.#aside.some(
      ({ tokenHash, refresh }) => tokenHash === hash || hashesOf(refresh).includes(refreshHash),
    );
    if (isAside) throw new RelayError('unavailable', CLOCK_MAY_BE_WRONG, { retryAfter: ASIDE_RETRY });
  }

  /** Live sessions that end so soon that their owner is notified (contract 11 §2). */
  endingSoon(): Session[] {
    const now = this.#now();
    return this.#index.endingBy(now + WARN_BEFORE).filter((session) => endsSoon(session, now));
  }

  /**
   * The sessions whose devices have to get their single push about the end. Each is returned once: it is marked, and the
   * mark is stored.
   */
  async takeNotices(): Promise<Session[]> {
    const now = this.#now();
    const due = this.#index.endingBy(now + WARN_BEFORE).filter((session) => needsNotice(session, now));
    for (const session of due) session.noticedExpiry = session.expiresAt ?? undefined;
    await Promise.all(due.map((session) => this.#records.save(session)));
    return due.filter(({ ended }) => ended === undefined);
  }

  storeState(): 'ok' | 'degraded' {
    return this.#records.state();
  }

  /** Number of live sessions. */
  count(): number {
    this.#endExpired();
    return this.#index.size;
  }

  /** True if there is a session. Cheaper than `count` at the edge. */
  isUsed(): boolean {
    return this.#index.isUsed;
  }

  /** A lower bound of the sessions' ends, epoch seconds; infinite if none ends by itself. */
  nextEnd(): number {
    return this.#index.nextEnd;
  }

  /** Live sessions, the one seen last first. */
  list(): Session[] {
    this.#endExpired();
    return latestFirst([...this.#index.all()]);
  }

  /**
   * The live session of a token: by hash the first time, then by its public prefix and a constant-time comparison, which
   * saves small requests a hash. A session that is bound to a key requires `proved`, the thumbprint of the key that the
   * caller has just proved to hold.
   */
  authenticate(token: string, proved?: string): Session | undefined {
    const session = this.#ofToken(token);
    if (!session || (session.keyThumbprint !== undefined && session.keyThumbprint !== proved)) return undefined;
    session.token = token;
    this.touch(session);
    return session;
  }

  #ofToken(token: string): Session | undefined {
    const known = this.#index.ofPrefix(token.slice(0, PREFIX_LENGTH));
    const isKnown = known?.token !== undefined && timingSafeEqual(known.token, token);
    return this.#alive(isKnown ? known : this.#index.ofToken(sha256(token), token.slice(0, PREFIX_LENGTH)));
  }

  /** Thumbprint of the key that the live session of a token or refresh token is bound to, if any. */
  keyOf = (credential: { token?: string; refreshToken?: string }): string | undefined =>
    this.ownerOf(credential)?.keyThumbprint;

  /** The live session of a token or refresh token, regardless of further requirements to use it. */
  ownerOf({ token, refreshToken }: { token?: string; refreshToken?: string }): Session | undefined {
    const ofToken = token === undefined ? undefined : this.#ofToken(token);
    if (ofToken || refreshToken === undefined) return ofToken;
    const hash = sha256(refreshToken);
    const session = this.#alive(this.#index.ofRefresh(hash, familyOf(refreshToken)));
    return session && isGood(session.refresh, hash, this.#now()) ? session : undefined;
  }

  /**
   * Unbinds a session from its key, so that its credentials suffice again. Takes effect once it is stored.
   * @throws RelayError `unavailable` if it cannot be stored.
   */
  async unbind(session: Session): Promise<void> {
    while (this.busy(session.family)) await this.busy(session.family);
    if (session.ended) throw new RelayError('not-found', 'this session is over');
    if (session.keyThumbprint === undefined) return;
    const isStored = await this.#records.replace({ session: { ...session, keyThumbprint: undefined } }, () => {
      session.keyThumbprint = undefined;
    });
    if (!isStored) throw notStored();
    // Revoked while this was stored. The removal may have been written first.
    if (session.ended) await this.#records.remove(session);
    this.#log.warn(`session ${named(session)} is no longer bound to the key of its device: copies of it work anywhere`);
  }

  /** The live session of a family, for example of one that was alive when its socket went to sleep (edge). */
  byFamily(family: string): Session | undefined {
    return this.#alive(this.#index.ofFamily(family));
  }

  /** A running replacement with one of the keys, such as a family. After it, check again and then act synchronously. */
  busy(...keys: (string | undefined)[]): Promise<unknown> | undefined {
    return this.#records.replacementOf(keys);
  }

  /**
   * Stores a session of home in its present state there (contract 12 §2). Its tokens at this relay stay, unless home has
   * begun a new chain of them, which closes the sockets of the last one. Must not be called while the family is `busy`. True
   * if it is stored.
   */
  adopt(given: Session): Promise<boolean> {
    const own = this.#index.ofFamily(given.family);
    if (!own) {
      this.#index.add(given);
      this.#log.info(`session ${named(given)} is one of home`);
      return this.#records.save(given);
    }
    if ((given.chain ?? 0) > (own.chain ?? 0)) {
      this.#log.info(`session ${named(own)} has new credentials as ${given.prefix}`);
      const next = { ...given, lastSeen: Math.max(given.lastSeen, own.lastSeen) };
      this.#drop(own, 'replaced');
      this.#index.add(next);
      this.#ends.emit(own, 'replaced');
      return this.#records.save(next);
    }
    if (own.pairedHere) own.pairedHere = { ...own.pairedHere, adopted: true };
    const { expiresAt, grants, policy, grantedAt, ownerName, keyThumbprint, transportHint } = given;
    Object.assign(own, { expiresAt, grants, policy, grantedAt, ownerName, keyThumbprint, transportHint });
    this.#index.setDevice(own, given.device);
    if (given.lastSeen > own.lastSeen) this.#index.setSeen(own, given.lastSeen);
    this.#index.expiryChanged(own);
    return this.#records.save(own);
  }

  /** At the edge, a device that has paired here has connected to home. */
  wasAtHome(session: Session): void {
    if (session.ended || !session.pairedHere) return;
    session.pairedHere = undefined;
    void this.#records.save(session);
  }

  /**
   * At home, accepts a device that has paired at the edge (contract 12 §3). Ends other sessions of the same device in the
   * same transaction. Must not be called while the family is `busy`. Resolves with false if it cannot be stored.
   * @throws RelayError `unavailable` if there are too many sessions.
   */
  async takeIn(session: Session): Promise<boolean> {
    const replaced = this.#replacedBy(session.device);
    this.#index.add(session);
    this.#log.info(`session ${named(session)} has paired at the edge`);
    const writes = this.#records.batch(() => [
      ...replaced.map((other) => this.#end(other, 'replaced')),
      this.#records.save(session),
    ]);
    return (await Promise.all(writes)).every(Boolean);
  }

  /** True if a session's credentials came through the edge, in which case the device exchanges them when it connects. */
  isInterim = ({ chain, mirrored }: Session): boolean => chain !== undefined && !mirrored;

  /**
   * Shortens a session's policy to that of another side (contract 12 §2).
   * @throws RelayError `unavailable` if it is in effect, but could not be stored.
   */
  async narrow(session: Session, other: Pick<Session, 'expiresAt' | 'grants'>): Promise<void> {
    if (session.ended) return;
    Object.assign(session, narrowedPolicy(session, other));
    await this.#reduced(session);
  }

  /** True if an id belongs to a device of another family, connected or not. */
  isDeviceOfAnother = (id: string, family: string): boolean =>
    this.#index.ofDevice({ id }).some((session) => session.family !== family && this.isAlive(session));

  /** Another side has seen the device; the later time counts (contract 12 §2). Epoch seconds. */
  seenElsewhere(session: Session, at: number): void {
    const seen = Math.min(at, this.#now());
    if (session.ended || seen <= session.lastSeen) return;
    this.#index.setSeen(session, seen);
    this.#records.markSeen(session);
  }

  /** Marks a session as seen now. Saved by the sweep, at most once a minute, and by `flush`. */
  touch(session: Session): void {
    if (session.ended) return;
    this.#index.setSeen(session, this.#now());
    this.#records.markSeen(session);
    if (this.#savesSeenAtOnce) void this.#records.saveSeen();
  }

  /** Records the routes that the device knows from now on. A failed write is retried like any other. */
  setRoutes(session: Session, routes: RoutesRecord): void {
    if (session.ended) return;
    session.routes = routes;
    void this.#records.save(session);
  }

  /**
   * Records whether the clients of the session answer a `system/ping` (contract 02 §2). Returns whether that has changed. A
   * failed write is retried like any other.
   */
  setAnswersPings(session: Session, answersPings: boolean): boolean {
    if (session.ended || session.answersPings === answersPings) return false;
    session.answersPings = answersPings;
    void this.#records.save(session);
    return true;
  }

  /** True if the session is still to be served. */
  isAlive(session: Session): boolean {
    return this.#alive(session) !== undefined;
  }

  /**
   * Creates the session of a new pairing. Other sessions of the same device end with it (contract 01 §6.6), in the same
   * transaction, so that a crash leaves the device either the new session or the old ones.
   * @throws RelayError `unavailable` if that cannot be stored, in which case the old ones continue, or if there are too many
   * sessions of other devices, none of which is evicted.
   */
  async create({ device, policy, transportHint, keyThumbprint, routes, home }: NewSession): Promise<Issued> {
    const key = isDeviceId(device.id) ? `device:${device.id.toLowerCase()}` : undefined;
    const others = () => this.#ownOfDevice(device).map(({ family }) => family);
    while (this.busy(key, ...others())) await this.busy(key, ...others());
    const replaced = this.#replacedBy(device);
    const at = this.#now();
    const token = this.#newToken();
    const family = bytesToHex(randomBytes(16));
    const refreshToken = newRefreshToken(family, home === undefined ? 'own' : 'mailbox');
    const session: Session = {
      family,
      tokenHash: sha256(token),
      prefix: token.slice(0, PREFIX_LENGTH),
      token,
      device,
      transportHint,
      createdAt: at,
      firstSeen: at,
      lastSeen: at,
      ...applyPolicy(policy, at),
      policy: { ttlSeconds: policy.ttlSeconds, grants: policy.grants, without: policy.without },
      grantedAt: at,
      refresh: rotated(null, sha256(refreshToken), at),
      ...(keyThumbprint !== undefined && { keyThumbprint }),
      ...(routes && { routes }),
      ...(home !== undefined && { mirrored: true, chain: Math.floor(at), pairedHere: { code: home } }),
    };
    const id = device.id.toLowerCase();
    const aside = this.#aside.filter((other) => isDeviceId(id) && other.device.id.toLowerCase() === id);
    const over = [...replaced, ...aside].map((other) => other.family);
    this.#creating++;
    const storing = this.#records.replace({ session, over, key }, () => {
      this.#index.add(session);
      this.#aside = this.#aside.filter((other) => !aside.includes(other));
      for (const other of aside) this.#ended.add(other, 'replaced');
      for (const other of replaced.filter(({ ended }) => !ended)) {
        this.#ended.add(other, 'replaced');
        this.#drop(other, 'replaced');
        this.#ends.emit(other, 'replaced');
      }
    });
    const isStored = await storing.finally(() => {
      this.#creating--;
    });
    if (!isStored) throw notStored();
    this.#log.info(`session ${session.prefix} created for ${device.name} (${device.id})`);
    return { session, token, refreshToken };
  }

  /**
   * Replaces the session that a refresh token belongs to by one with the same policy and a new token. Undefined if the token
   * is not valid, or not for this device, or if the session is bound to another key than `proved`; an unbound session is
   * bound to it. A dead token ends its session: see `#endIfStolen`.
   * @throws RelayError `unavailable` if it cannot be stored, in which case the session and this token stay valid.
   */
  async refresh(refreshToken: string, device: Device, proved?: string): Promise<Issued | undefined> {
    const hash = sha256(refreshToken);
    const family = this.#index.ofRefresh(hash, familyOf(refreshToken))?.family;
    if (!family) return this.#refresh(refreshToken, hash, device, proved);
    const use = (async () => {
      while (this.busy(family)) await this.busy(family);
      return this.#refresh(refreshToken, hash, device, proved);
    })();
    this.#refreshes.set(family, use);
    try {
      return await use;
    } finally {
      // A use during the await replaces this session at once, which the caller has to see.
      if (this.#refreshes.get(family) === use) this.#refreshes.delete(family);
      else await this.#refreshes.get(family)?.catch(() => {});
    }
  }

  async #refresh(refreshToken: string, hash: string, device: Device, proved?: string): Promise<Issued | undefined> {
    const old = this.#alive(this.#index.ofRefresh(hash, familyOf(refreshToken)));
    if (!old?.refresh || !isGood(old.refresh, hash, this.#now())) {
      await this.#endIfStolen(refreshToken, hash);
      return undefined;
    }
    if (isDeviceId(old.device.id) && old.device.id !== device.id) return undefined;
    if (old.keyThumbprint !== undefined && old.keyThumbprint !== proved) return undefined;
    const token = this.#newToken();
    const rotatedToken = newRefreshToken(old.family, audience(old));
    const session: Session = {
      ...old,
      tokenHash: sha256(token),
      prefix: token.slice(0, PREFIX_LENGTH),
      token,
      device: this.#describe(old, device),
      lastSeen: this.#now(),
      chain: old.mirrored ? old.chain : undefined,
      refresh: rotated(withoutOlder(old.refresh, hash), sha256(rotatedToken), this.#now()),
      ...(proved !== undefined && { keyThumbprint: proved }),
    };
    let isApplied = false;
    const isStored = await this.#records.replace({ session }, () => {
      if (old.ended) return;
      isApplied = true;
      // The session may have been reduced while this was stored; the reduction is written next.
      Object.assign(session, Object.fromEntries(CARRIED.map((name) => [name, old[name]])));
      const { ownerName } = old;
      if (ownerName !== undefined) session.device = { ...session.device, name: ownerName };
      this.#drop(old, 'replaced');
      this.#ends.emit(old, 'replaced');
      this.#index.add(session);
    });
    if (!isStored) throw notStored();
    if (!isApplied) {
      // Revoked while this was stored. The removal may have been written first.
      await this.#records.remove(old);
      return undefined;
    }
    this.#log.info(`session ${named(old)} refreshed as ${session.prefix}`);
    return { session, token, refreshToken: rotatedToken };
  }

  /**
   * A device has returned with its token: stores its description, and issues a refresh token if it lacks a valid one
   * (contract 01 §3.4). An unbound session is bound to `proved`. `saved` is absent if nothing changed.
   */
  resume(session: Session, device: Device, offeredRefresh?: string, proved?: string): Resumed {
    if (session.ended) return {};
    const isBinding = proved !== undefined && session.keyThumbprint === undefined;
    if (isBinding) {
      session.keyThumbprint = proved;
      this.#log.info(`session ${named(session)} is bound to the key of its device`);
    }
    const merged = this.#describe(session, device);
    const isChanged = !isSameDevice(merged, session.device);
    if (isChanged) this.#index.setDevice(session, merged);
    const hash = offeredRefresh === undefined ? undefined : sha256(offeredRefresh);
    const isServed = () => (hash === undefined ? session.refresh !== null : isGood(session.refresh, hash, this.#now()));
    if (!isServed()) return { saved: this.#issueRefresh(session, isServed) };
    const { refresh } = session;
    const rest = refresh && hash !== undefined ? withoutOlder(refresh, hash) : refresh;
    if (rest && rest !== refresh) this.#index.setRefresh(session, rest);
    else if (!isChanged && !isBinding) return {};
    return { saved: this.#records.save(session).then(() => undefined) };
  }

  /**
   * Issues a new refresh token for a session once it is stored; none if that fails, since a crash would make it a stolen
   * one.
   */
  async #issueRefresh(session: Session, isServed: () => boolean): Promise<string | undefined> {
    while (this.busy(session.family)) await this.busy(session.family);
    if (session.ended) return undefined;
    if (isServed()) {
      // It may have been bound to a key.
      await this.#records.save(session);
      return undefined;
    }
    const token = newRefreshToken(session.family, audience(session));
    const refresh = rotated(session.refresh, sha256(token), this.#now());
    const isStored = await this.#records.replace({ session: { ...session, refresh } }, () => {
      if (!session.ended) this.#index.setRefresh(session, refresh);
    });
    return isStored ? token : undefined;
  }

  /**
   * Sessions for a prefix from a URL: by the 8 stored characters, or with more, by the whole token or the start of one that
   * this process has seen (contract 01 §6.4).
   */
  find(prefix: string): Session[] {
    const candidates = this.#index.startingWith(prefix.slice(0, PREFIX_LENGTH));
    const found = candidates.filter((session) => this.isAlive(session));
    if (prefix.length <= PREFIX_LENGTH) return latestFirst(found);
    const hash = sha256(prefix);
    return latestFirst(found.filter(({ tokenHash, token }) => tokenHash === hash || token?.startsWith(prefix)));
  }

  /**
   * Ends a session and its refresh credential permanently. With `answerFirst` it ends at once too, but listeners are called
   * only after the caller has been answered (contract 01 §6.4). `by` is the name of the one who ended it.
   * @throws RelayError `unavailable` if it is over, but that could not be stored (contract 01 §6.7).
   */
  async revoke(
    session: Session,
    { answerFirst = false, by }: { answerFirst?: boolean; by?: string } = {},
  ): Promise<void> {
    if (session.ended) return;
    this.#log.info(`session ${named(session)} revoked`);
    this.#ended.add(session, 'revoked', by);
    this.#drop(session, 'revoked');
    if (!answerFirst) this.#ends.emit(session, 'revoked');
    const isStored = await this.#records.remove(session);
    if (answerFirst) this.#clock.after(0, () => this.#ends.emit(session, 'revoked'));
    if (!isStored) throw appliedOnly('the session is revoked');
  }

  /**
   * Shortens a session's policy, all or nothing.
   * @throws RelayError `invalid` for a grant that the session does not have, `forbidden` for any extension, `unavailable` if
   * it is in effect, but could not be stored (contract 01 §6.7).
   */
  async reduce(session: Session, reduction: Reduction): Promise<void> {
    if (session.ended) throw new RelayError('not-found', 'this session is over');
    Object.assign(session, reducedPolicy(session, reduction, this.#now()));
    await this.#reduced(session);
  }

  async #reduced(session: Session): Promise<void> {
    this.#index.expiryChanged(session);
    this.#changes.emit(session, 'reduced');
    this.#log.info(`session ${named(session)} reduced`);
    if (!(await this.#records.save(session))) throw appliedOnly('the session is reduced');
  }

  /**
   * Renews a session's policy, counted from now, with the lifetime `ttlSeconds` if given (contract 11 §2). The token stays.
   * Takes effect once it is stored. For the operator only, since no session may extend itself (01 §6.4).
   * @throws RelayError `invalid` if it would end earlier, `conflict` if it was changed meanwhile, `unavailable` if it cannot
   * be stored.
   */
  async extend(session: Session, ttlSeconds?: number): Promise<void> {
    while (this.busy(session.family)) await this.busy(session.family);
    if (!this.isAlive(session)) throw new RelayError('not-found', 'this session is over');
    if (session.mirrored) throw new RelayError('conflict', 'this device has paired at home: extend it there');
    const { expiresAt, grants } = session;
    const extended = extendedPolicy(session, ttlSeconds, this.#now());
    let isApplied = false;
    const isStored = await this.#records.replace({ session: { ...session, ...extended } }, () => {
      isApplied = !session.ended && session.expiresAt === expiresAt && session.grants === grants;
      if (!isApplied) return;
      Object.assign(session, extended);
      this.#index.expiryChanged(session);
    });
    if (!isStored) throw notStored();
    if (!isApplied) {
      if (session.ended) await this.#records.remove(session);
      else await this.#records.save(session);
      throw new RelayError('conflict', 'the session was changed meanwhile, and was not extended');
    }
    this.#changes.emit(session, 'extended');
    this.#log.info(`session ${named(session)} extended`);
  }

  /**
   * Sets the owner's name for a device, which overrides the one that the device sends (contract 11 §2).
   * @throws RelayError `unavailable` if it is in effect, but could not be stored.
   */
  async rename(session: Session, name: string): Promise<void> {
    if (session.ended) throw new RelayError('not-found', 'this session is over');
    if (session.mirrored) throw new RelayError('conflict', 'this device has paired at home: rename it there');
    this.#log.info(`session ${named(session)} renamed to ${name}`);
    session.ownerName = name;
    this.#index.setDevice(session, { ...session.device, name });
    this.#changes.emit(session, 'renamed');
    if (!(await this.#records.save(session))) throw appliedOnly('the device is renamed');
  }

  /** The shells of a device have ended with its reduced `terminal` grant, so that a restart need not search for them. */
  async shellsEnded(session: Session): Promise<void> {
    if (!session.terminalReduced) return;
    session.terminalReduced = undefined;
    await this.#records.save(session);
  }

  /**
   * Ends expired sessions, saves `lastSeen`, and retries failed writes. Called every 30 s, and at the edge whenever the
   * alarm wakes the object.
   */
  sweep(): void {
    this.#endExpired();
    this.#ended.sweep();
    if (this.#jump && this.#jump.state() !== 'ahead') void this.#settleJump();
    void this.#records.retry();
    void this.#records.saveSeen();
  }

  /** Saves every `lastSeen` that is newer than its record, and retries failed writes. */
  async flush(): Promise<void> {
    await this.#records.retry();
    await this.#records.saveSeen({ all: true });
  }

  #now(): number {
    return seconds(this.#clock);
  }

  /** The session, unless it is over; an expired one is ended. */
  #alive(session: Session | undefined): Session | undefined {
    if (!session || session.ended) return undefined;
    if (!isPast(session.expiresAt, this.#now())) return this.#isHonoured(session) ? session : undefined;
    this.#log.info(`session ${named(session)} expired`);
    void this.#end(session, 'expired');
    return undefined;
  }

  #endExpired(): void {
    for (const session of this.#index.takeDue(this.#now())) this.#alive(session);
  }

  /** Removes a session from memory. It admits nobody from here on. */
  #drop(session: Session, reason: EndReason): void {
    this.#index.remove(session);
    session.ended = reason;
  }

  #end(session: Session, reason: EndReason, by?: string): Promise<boolean> {
    this.#ended.add(session, reason, by);
    this.#drop(session, reason);
    this.#ends.emit(session, reason);
    return this.#records.remove(session);
  }

  /** A session's device with its new description. An id that it must not use is ignored (contract 01 §3.4). */
  #describe(session: Session, presented: Device): Device {
    const { id, origin } = session.device;
    // Home decides the origin of a page of home.
    const merged = mergeDevice(session.device, session.mirrored ? { ...presented, origin } : presented);
    // Otherwise a session without an id would get that of another device, and the messages for it.
    const isUsed = merged.id !== id && this.isDeviceOfAnother(merged.id, session.family);
    if (isUsed || (isDeviceId(presented.id) && presented.id !== merged.id)) {
      this.#log.warn(`session ${named(session)} presented another device id (${presented.id}), which is ignored`);
    }
    const name = session.ownerName ?? merged.name;
    return { ...merged, name, ...(isUsed && { id }) };
  }

  /**
   * Ends the session of a dead refresh token: the device has a later one, so either the presented token was copied, or the
   * later one was issued to a thief (contract 01 §6.5).
   */
  async #endIfStolen(token: string, hash: string): Promise<void> {
    const family = familyOf(token);
    const session = this.#alive(this.#index.ofRefresh(hash, family) ?? this.#index.ofFamily(family ?? ''));
    // The current token is invalid only because it has expired.
    if (!session?.refresh || session.refresh.hash === hash) return;
    // A token for the other side is not a copy of one of these.
    if (familyOf(token) !== undefined && audienceOf(token) !== audience(session)) return;
    this.#log.warn(`session ${named(session)} ended: a replaced refresh token was shown again, a sign of theft`);
    await this.#end(session, 'revoked', 'the relay: a replaced refresh token was shown again');
  }

  /** The sessions that end when a device pairs. @throws RelayError `unavailable` if there are too many besides them. */
  #replacedBy(device: Device): Session[] {
    this.#endExpired();
    const replaced = this.#ownOfDevice(device);
    if (this.#index.size + this.#creating - replaced.length < this.#maxSessions) return replaced;
    this.#log.warn(`${device.name} (${device.id}) cannot pair: there are ${this.#index.size} sessions; revoke some`);
    throw new RelayError(
      'unavailable',
      `This relay has ${this.#maxSessions} paired devices: remove one, then pair again`,
    );
  }

  /** Sessions of a device that a pairing here replaces. Only home ends home's sessions. */
  #ownOfDevice(device: Device): Session[] {
    return this.#index.ofDevice(device).filter(({ mirrored }) => !mirrored);
  }

  #newToken(): string {
    for (;;) {
      const token = crypto.randomUUID();
      if (!this.#index.ofPrefix(token.slice(0, PREFIX_LENGTH))) return token;
    }
  }
}

/** Sorts in place, usually from the reverse order. */
const latestFirst = (sessions: Session[]): Session[] => sessions.reverse().sort((a, b) => b.lastSeen - a.lastSeen);

const audience = ({ mirrored }: Session): Audience => (mirrored ? 'mailbox' : 'own');

/** A session in the form for the log (contract 01 §10). */
const named = ({ prefix, device }: Session): string => `${prefix} of ${device.name} (${device.id})`;
