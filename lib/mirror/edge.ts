import * as v from 'valibot';
import { RelayError } from '../errors.ts';
import { seconds } from '../kit/clock.ts';
import type { JsonObject } from '../kit/json.ts';
import type { Media } from '../media/media.ts';
import type { PairingCodes } from '../pairing/codes.ts';
import { narrowedPolicy } from '../sessions/policy-change.ts';
import type { Session } from '../sessions/session.ts';
import type { SocketEvents, Transport } from '../socket/transport.ts';
import { acceptCode, createPairedHere } from './adoption.ts';
import { createCalls } from './calls.ts';
import { type Channel, createChannel } from './channel.ts';
import { createCustody } from './custody.ts';
import { type Challenge, createHandshakes } from './edge-handshakes.ts';
import { openEdgePages } from './edge-pages.ts';
import { encodeFrame, type Frame, type Op, parseFrame } from './frames.ts';
import { isPublicKey, verifyChallenge } from './keys.ts';
import { openOutbox } from './outbox.ts';
import { loadRecords, time } from './records.ts';
import { createRequests } from './requests.ts';
import { readEnded, readLiving, readReduced, sessionOf } from './session-body.ts';
import { createSharedFreeze } from './shared-freeze.ts';
import { createSideTurns, type MirrorDeps, type Side } from './side.ts';
import { openTombstones } from './tombstones.ts';
import { createEdgeUploads, READ_UPLOAD } from './uploads.ts';

/** Seconds for which a link is not replaced by another one. */
const REPLACE_AFTER = 10;
const KEY = 'peer';
const LAST_SEEN = 'heard';
const LINK = 'link';
const ENDED = 'ended:';
const Peer = v.object({ public_key: v.pipe(v.string(), v.check(isPublicKey)) });
const LastSeen = v.object({ heard: time });
const Linked = v.object({ socket: v.string(), since: time, listening: v.optional(v.boolean()) });

export interface EdgeMirrorDeps extends MirrorDeps {
  codes: PairingCodes;
  /** Absent without an object store. */
  media: Pick<Media, 'shared'> | undefined;
  /** Maximum uploads that wait for home. */
  maxUploads: number;
  /** Seconds for which sessions of home are honoured after its last message (`RELAY_MIRROR_LEASE`). */
  lease: number;
  /** Sends a `system` message to every socket of a device of home. */
  announce(message: HomeMessage): void;
  isConnected(session: Session): boolean;
  /** Sends `pairing/routes.updated` to every socket of a device. */
  sendRoutes(session: Session, payload: JsonObject): void;
}

/** State of home for its devices here. `since` is epoch seconds. */
export type HomeMessage =
  | { type: 'home.online'; payload: Record<string, never> }
  | { type: 'home.offline'; payload: { since: number } };

interface Link {
  socket: Transport;
  channel: Channel;
  /** Epoch seconds. */
  since: number;
}

export type EdgeMirror = Awaited<ReturnType<typeof openEdgeMirror>>;

/**
 * The edge's side of the mirror (contract 12 §2): stores the sessions of home as home last sent them, honours them while it
 * hears from home, and reports endings and reductions here to home.
 */
export async function openEdgeMirror(deps: EdgeMirrorDeps) {
  const { store, sessions, codes, phone, notifications, push, media, maxUploads, gate, clock, log, lease, announce } =
    deps;
  const records = await loadRecords({ store, log });
  let link: Link | undefined;
  /** True while the link of a home that has proved its key is being stored. */
  let isLinking = false;
  const outbox = openOutbox({
    store,
    records,
    origin: 'edge',
    log,
    isRecord: (kind) => kind === 'freeze' || kind === 'upload',
    flush: () => link?.channel.flush(),
    acknowledged: (kind, body) => custody.acknowledged(kind, body),
  });
  const isLinked = () => link !== undefined;
  const side: Side = { side: 'edge', outbox, log, isOn: () => key !== undefined, isLinked };
  const custody = createCustody({ ...side, phone, notifications });
  const calls = createCalls({ ...side, push });
  const freezes = createSharedFreeze({ ...side, gate, clock });
  const uploads = createEdgeUploads({
    ...side,
    media,
    clock,
    maxCount: maxUploads,
    refusal,
  });
  const requests = createRequests({
    clock,
    send(text) {
      link?.socket.send(text);
      return isLinked();
    },
  });
  const { isConnected, sendRoutes: send } = deps;
  const pairedHere = createPairedHere({ ...side, sessions, requests, isConnected, send });
  const failed = () => log.warn('the state of the mirror could not be stored');
  const tombstones = openTombstones({ store, records, base: ENDED, clock, failed });
  const pages = openEdgePages({ store, records, log, failed });
  let key = records.one(KEY, Peer)?.public_key;
  let homeSeenAt = records.one(LAST_SEEN, LastSeen)?.heard ?? 0;
  const storedLink = records.one(LINK, Linked);
  /** Time since when home is not linked, if known; epoch seconds. */
  let offSince = storedLink?.socket === '' ? storedLink.since : undefined;
  /** Keyed by family: when home was last told that the device had connected here, epoch seconds. */
  const seen = new Map<string, number>();
  outbox.repair();
  /** True while home itself causes the present changes. */
  let isHome = false;

  const now = () => seconds(clock);
  const mirrored = () => sessions.list().filter((session) => session.mirrored);
  sessions.honourIf((session) => !session.mirrored || pairedHere.isWaiting(session) || now() <= homeSeenAt + lease);

  /** Stores that home was heard, at most once a minute, well within the lease. */
  function hear(): void {
    if (now() < homeSeenAt + Math.min(60, lease / 6)) return;
    homeSeenAt = now();
    void store.setItem(LAST_SEEN, { heard: homeSeenAt }).catch(failed);
  }

  const offerEnd = (family: string): void => {
    outbox.forget(`reduce:${family}`);
    outbox.forget(`seen:${family}`);
    pairedHere.ended(family);
    outbox.offer(`end:${family}`, 'end', { family });
  };

  sessions.onChange((session, change) => {
    if (!session.mirrored || change !== 'reduced' || isHome) return;
    const { family, expiresAt, grants } = session;
    outbox.offer(`reduce:${family}`, 'reduce', { family, expires_at: expiresAt, grants });
  });

  sessions.onWrite((family, over) => {
    const own = ownOf(family);
    if (own) {
      pairedHere.wrote(own);
      return sawDevice(own);
    }
    seen.delete(family);
    // A refresh only replaces the session, and each side's clock ends expired ones.
    if (!over?.mirrored || key === undefined || over.ended !== 'revoked') return;
    tombstones.bury(family, over.expiresAt);
    if (!isHome) offerEnd(family);
  });

  /** Reports to home when the device was here. */
  function sawDevice({ family, firstSeen, lastSeen }: Session): void {
    if (lastSeen <= (seen.get(family) ?? firstSeen)) return;
    seen.set(family, lastSeen);
    outbox.offer(`seen:${family}`, 'seen', { family, at: lastSeen });
  }

  async function end(session: Session): Promise<void> {
    isHome = true;
    // Ended, with its record removed, before the first await.
    const ending = sessions.revoke(session, { by: 'home' });
    isHome = false;
    await ending;
  }

  /** Sessions of home are stored as sent, except for reductions here that home has not seen. */
  function adopt(given: Session): Promise<boolean> {
    const reduced = outbox.body(`reduce:${given.family}`);
    const own = reduced && readReduced(reduced);
    const left = own && narrowedPolicy(given, { expiresAt: own.expires_at, grants: own.grants });
    return sessions.adopt(left ? { ...given, ...left, terminalReduced: undefined } : given);
  }

  const ownOf = (family: string): Session | undefined => {
    const found = sessions.byFamily(family);
    return found?.mirrored ? found : undefined;
  };

  async function apply(op: Op): Promise<unknown> {
    const { kind, body } = op;
    const ofPhone = custody.apply(op) ?? calls.apply(op) ?? freezes.apply(op) ?? uploads.apply(op);
    if (ofPhone) return ofPhone;
    if (kind === 'session') {
      const given = sessionOf(body);
      if (!given) return log.warn('home gave a session that cannot be read');
      if (tombstones.has(given.family)) return offerEnd(given.family);
      // A session that was made here never becomes home's, whatever home sends.
      if (sessions.byFamily(given.family) && !ownOf(given.family)) return;
      pages.add(given.device.origin);
      const storing = adopt(given);
      const adopted = ownOf(given.family);
      if (adopted) pairedHere.offer(adopted);
      if (!(await storing)) throw new RelayError('unavailable', 'a session could not be stored');
      return;
    }
    if (kind === 'pages') return pages.setHome(body);
    if (kind === 'end') {
      const family = readEnded(body)?.family;
      const own = family === undefined ? undefined : ownOf(family);
      if (own) return end(own);
      if (family !== undefined && !tombstones.has(family)) tombstones.bury(family, null);
      return;
    }
    if (kind === 'sync') {
      const families = readLiving(body)?.families;
      if (!families) return log.warn('home gave a list of sessions that cannot be read');
      // Home has another state, which may lack the items of this side.
      custody.resync();
      const living = new Set(families);
      return Promise.all(
        mirrored()
          .filter((session) => !living.has(session.family) && !pairedHere.isWaiting(session))
          .map(end),
      );
    }
  }

  function receive(socket: Transport, frame: Frame): void {
    hear();
    if (frame.type === 'op' || frame.type === 'part' || frame.type === 'ack') link?.channel.receive(frame);
    else if (frame.type === 'call' && frame.method === 'code') void takeCode(socket, frame);
    else if (frame.type === 'call' && frame.method === READ_UPLOAD) {
      void uploads.read(frame.body).then((result) => {
        if (link?.socket === socket) socket.send(encodeFrame({ type: 'result', id: frame.id, ...result }));
      });
    } else if (frame.type === 'result') requests.answered(frame);
    else if (frame.type === 'call') {
      if (frame.method === 'listening') listens(frame.body.listening === true);
      const result = /^(lease|listening)$/.test(frame.method) ? { body: { lease } } : { error: 'unknown method' };
      socket.send(encodeFrame({ type: 'result', id: frame.id, ...result }));
    } else socket.close(1008, 'frame out of turn');
  }

  async function takeCode(socket: Transport, { id, body }: Frame & { type: 'call' }): Promise<void> {
    const result = await acceptCode(codes, body).then(
      (body) => ({ body }),
      (error) => ({ error: error instanceof RelayError ? error.message : 'the code could not be taken' }),
    );
    socket.send(encodeFrame({ type: 'result', id, ...result }));
  }

  /** Home reports whether a phone listens there. The edge remembers it over a sleep, while the link lasts. */
  function listens(listening: boolean): void {
    if (!link) return;
    const { socket, since } = link;
    void store.setItem(LINK, { socket: socket.id, since, listening }).catch(failed);
    custody.linked(listening);
  }

  function linked(socket: Transport, since: number): Link {
    const channel = createChannel({
      outbox,
      log,
      apply,
      busy: ({ body }) => sessions.busy(String(body.family)),
      resync: () => {
        custody.resync();
        freezes.compare(true);
        for (const family of tombstones.families()) outbox.offer(`end:${family}`, 'end', { family });
      },
      send: (text) => socket.send(text),
      fail: (reason) => socket.close(1011, reason),
    });
    link = { socket, channel, since };
    return link;
  }

  function unlink(socket: Transport): void {
    if (link?.socket !== socket) return;
    link.channel.stop();
    link = undefined;
    custody.unlinked();
    calls.unlinked();
    requests.unlinked();
    noteOff();
    log.info('the link of home has ended');
    announce(homeMessage());
  }

  function noteOff(): void {
    offSince = now();
    void store.setItem(LINK, { socket: '', since: offSince }).catch(failed);
  }

  const sinceWhen = (): number => Math.floor(link?.since ?? offSince ?? homeSeenAt);
  const homeMessage = (): HomeMessage =>
    link ? { type: 'home.online', payload: {} } : { type: 'home.offline', payload: { since: sinceWhen() } };

  /** Why only home serves something (contract 12 §2, §7), in the same words at every door. */
  function refusal(): RelayError {
    if (link) {
      const extra = { error_code: 'home_only', advice: 'connect to home' };
      return new RelayError('unavailable', 'home is on: only home serves this', { extra });
    }
    const since = sinceWhen();
    const advice = 'try again when home is back; messages, replies and uploads are taken here meanwhile';
    const extra = { error_code: 'home_offline', since, advice };
    return new RelayError('unavailable', `home is off since ${new Date(since * 1000).toISOString()}`, { extra });
  }

  /** The events of a socket on which home has proved its key. */
  const linkEvents = (socket: Transport): SocketEvents => ({
    message(text) {
      if (link?.socket !== socket) return;
      const frame = parseFrame(text);
      if (frame) receive(socket, frame);
      else socket.close(1008, 'no frame of the mirror');
    },
    drained() {},
    pinged() {},
    closed: () => unlink(socket),
  });

  async function prove(socket: Transport, frame: Frame, challenge: Challenge): Promise<boolean> {
    const refuse = (code: number, reason: string): false => {
      socket.close(code, reason);
      return false;
    };
    const unknown = () => refuse(1008, 'home is not known by this key');
    if (frame.type !== 'hello' || frame.sig === undefined || key === undefined || frame.key !== key) return unknown();
    const pinned = key;
    if (!(await verifyChallenge(pinned, frame.sig, challenge)) || pinned !== key) return unknown();
    if (challenge.isOver()) return false;
    if (isLinking || (link && now() < link.since + REPLACE_AFTER)) return refuse(1013, 'home is linked already');
    link?.socket.close(1012, 'replaced by another link');
    if (link) unlink(link.socket);
    homeSeenAt = 0;
    hear();
    const since = now();
    isLinking = true;
    await store.setItem(LINK, { socket: socket.id, since }).finally(() => {
      isLinking = false;
    });
    if (pinned !== key) return unknown();
    if (challenge.isOver()) {
      noteOff();
      return false;
    }
    socket.send(encodeFrame({ type: 'hello', epoch: outbox.epoch, applied: outbox.applied }));
    linked(socket, since).channel.start(frame.applied);
    custody.linked(false);
    freezes.compare();
    pairedHere.linked();
    log.info('home is linked');
    announce(homeMessage());
    return true;
  }

  const inTurn = createSideTurns();
  const handshakes = createHandshakes({ clock, prove, linkEvents });

  /** Answer of `GET /relay/mirror` at the edge (contract 12 §7). `since` is epoch seconds. */
  const status = () => ({
    ok: true as const,
    enabled: key !== undefined,
    url: null,
    link: link ? ('up' as const) : ('down' as const),
    since: key === undefined ? null : sinceWhen() || null,
    waiting: { out: outbox.waiting, in: link?.channel.queued ?? 0 },
    /** Messages that wait for a phone here, or may not have arrived. */
    messages: phone.shared.held(),
    /** Replies and uploads that home does not have yet. */
    replies: outbox.keys().filter((key) => key.startsWith('reply:') && outbox.isWaiting(key)).length,
    uploads: uploads.status(),
    epoch: outbox.epoch,
  });

  return {
    status,

    /**
     * Pins home's key (contract 12 §1).
     * @throws RelayError `invalid` for anything but a key, `conflict` while another home is pinned.
     */
    pin: (publicKey: string) =>
      inTurn(async () => {
        if (!isPublicKey(publicKey)) throw new RelayError('invalid', 'key must be a P-256 public key, base64url');
        if (key !== undefined && key !== publicKey) {
          throw new RelayError('conflict', 'this relay is the mirror of another home: disable that first');
        }
        const isNew = key === undefined;
        await store.setItem(KEY, { public_key: publicKey });
        key = publicKey;
        if (isNew) await custody.begin();
        homeSeenAt = 0;
        hear();
        return status();
      }),

    /** Unpins home, which ends its link and its sessions here. */
    unpin: () =>
      inTurn(async () => {
        key = undefined;
        link?.socket.close(1008, 'the mirror has ended');
        if (link) unlink(link.socket);
        homeSeenAt = now();
        offSince = undefined;
        await Promise.all([
          ...[KEY, LAST_SEEN, LINK].map((name) => store.removeItem(name)),
          pages.leave(),
          push.shared.adoptKeyPair(null),
          ...mirrored().map(end),
        ]);
        tombstones.leave();
        uploads.leave();
        await Promise.all([freezes.leave(), outbox.clear()]);
        return status();
      }),

    /** The message for a device of home that connects while home is off; undefined for others. */
    greeting(session: Session): HomeMessage | undefined {
      pairedHere.offer(session);
      return session.mirrored && !link ? homeMessage() : undefined;
    },

    /** Why a device cannot use here what only home serves; undefined for the devices of this relay. */
    homeRefusal({ mirrored }: Session): RelayError | undefined {
      return mirrored ? refusal() : undefined;
    },

    /**
     * True if a device of home was paired in a page of this origin. The session itself decides whether the page may use
     * it.
     */
    isPage: pages.isPage,

    /** Origins of home that this relay's page may connect to, as sent by home. */
    homePages: pages.homePages,

    /** True if a home is pinned, which may connect. */
    isExpected: (): boolean => key !== undefined,

    open: handshakes.open,

    /** A socket that has survived a sleep: the link, if home has proved its key on it. */
    restore(socket: Transport): SocketEvents | undefined {
      if (storedLink?.socket !== socket.id || key === undefined) {
        socket.close(1012, 'the relay was asleep');
        return undefined;
      }
      linked(socket, storedLink.since).channel.flush();
      custody.linked(storedLink.listening === true);
      return linkEvents(socket);
    },

    sweep(): void {
      tombstones.sweep();
      uploads.sweep();
    },
  };
}
