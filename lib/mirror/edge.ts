import type { MirrorPeerRecord, MirrorRecord, Store } from '../../storage/schema.ts';
import { RelayError } from '../errors.ts';
import { base64url, randomBytes } from '../kit/bytes.ts';
import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import { entriesOf } from '../kit/entries.ts';
import type { JsonObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import type { Media } from '../media/media.ts';
import type { Notifications } from '../notifications/notifications.ts';
import type { Gate } from '../operations/gate.ts';
import type { PairingCodes } from '../pairing/codes.ts';
import type { PhoneMessaging } from '../phone/phone.ts';
import type { Push } from '../push/push.ts';
import { narrowedPolicy } from '../sessions/policy-change.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { SocketEvents, Transport } from '../socket/transport.ts';
import { acceptCode, createPairedHere } from './adoption.ts';
import { createCalls } from './calls.ts';
import { type Channel, createChannel } from './channel.ts';
import { createCustody } from './custody.ts';
import { encodeFrame, type Frame, type Op, parseFrame } from './frames.ts';
import { readPageOrigins } from './home-pages.ts';
import { isPublicKey, verifyChallenge } from './keys.ts';
import { openOutbox } from './outbox.ts';
import { createRequests } from './requests.ts';
import { readEnded, readLiving, readReduced, sessionOf } from './session-body.ts';
import { createSharedFreeze } from './shared-freeze.ts';
import { createEdgeUploads, READ_UPLOAD, type WaitingUploads } from './uploads.ts';

/** Milliseconds in which home has to prove its key. */
const HELLO_TIMEOUT = 10_000;
/** Sockets that have not proved it yet, in all and of one address. With more, the oldest of them gives way. */
const MAX_UNPROVED = 64;
const MAX_UNPROVED_OF_ONE = 4;
/** Seconds for which a link is not replaced by another one. */
const REPLACE_AFTER = 10;
/** Seconds for which an ended session without an end of its own must not come back. */
const TOMBSTONE = 180 * 86_400;
const MAX_TOMBSTONES = 20_000;
const KEY = 'peer';
const HEARD = 'heard';
const LINK = 'link';
const PAGES = 'pages';
const HOME_PAGES = 'home-pages';
/** Origins of pages that devices of home are. */
const MAX_PAGES = 256;
const tombstone = (family: string) => `ended:${family}`;

export interface EdgeMirrorParts {
  store: Store<'mirror'>;
  sessions: Sessions;
  codes: PairingCodes;
  phone: PhoneMessaging;
  notifications: Notifications;
  gate: Gate;
  push: Push;
  /** Absent without an object store. */
  media: Pick<Media, 'shared'> | undefined;
  /** Uploads that may wait for home. */
  maxUploads: number;
  clock: Clock;
  log: Log;
  /** Seconds for which sessions of home are honoured after its last word (`RELAY_MIRROR_LEASE`). */
  lease: number;
  /** Sends a `system` message to every socket of a device of home. */
  announce(message: HomeMessage): void;
  isConnected(session: Session): boolean;
  /** Sends `pairing/routes.updated` to every socket of a device. */
  sendRoutes(session: Session, payload: JsonObject): void;
}

/** News of home for its devices here. `since` is epoch seconds. */
export type HomeMessage =
  | { type: 'home.online'; payload: Record<string, never> }
  | { type: 'home.offline'; payload: { since: number } };

/** Why a call is not served here but at home (contract 12 §2, §7). */
export interface HomeRefusal {
  message: string;
  error_code: 'home_offline' | 'home_only';
  /** Epoch seconds. */
  since?: number;
}

/** Answer of `GET /relay/mirror` at the edge (contract 12 §7). `since` is epoch seconds. */
export interface EdgeMirrorStatus {
  ok: true;
  enabled: boolean;
  url: null;
  link: 'up' | 'down';
  since: number | null;
  waiting: { out: number; in: number };
  /** Messages that wait for a phone here, or may not have arrived. */
  messages: number;
  /** Replies that home does not have yet. */
  replies: number;
  /** Uploads that home does not have yet. */
  uploads: WaitingUploads;
  epoch: string;
}

interface Link {
  socket: Transport;
  channel: Channel;
  /** Epoch seconds. */
  since: number;
}

export type EdgeMirror = Awaited<ReturnType<typeof openEdgeMirror>>;

/**
 * The edge's half of the mirror (contract 12 §2): has the sessions of home as home last gave them, honours them for as
 * long as home is heard, and tells home what ended or was reduced here.
 */
export async function openEdgeMirror(parts: EdgeMirrorParts) {
  const { store, sessions, codes, phone, notifications, push, media, maxUploads, gate, clock, log, lease, announce } =
    parts;
  const stored = new Map(await entriesOf(store));
  const outbox = openOutbox({
    store,
    stored,
    origin: 'edge',
    log,
    keeps: (kind) => kind === 'freeze' || kind === 'upload',
    acknowledged: (kind, body) => custody.acknowledged(kind, body),
  });
  const custody = createCustody({
    side: 'edge',
    phone,
    notifications,
    outbox,
    log,
    isOn: () => key !== undefined,
    isLinked: () => link !== undefined,
    flush: () => link?.channel.flush(),
  });
  const calls = createCalls({
    side: 'edge',
    push,
    outbox,
    log,
    isOn: () => key !== undefined,
    isLinked: () => link !== undefined,
    flush: () => link?.channel.flush(),
  });
  const freezes = createSharedFreeze({
    side: 'edge',
    gate,
    outbox,
    clock,
    log,
    isOn: () => key !== undefined,
    isLinked: () => link !== undefined,
    flush: () => link?.channel.flush(),
  });
  const uploads = createEdgeUploads({
    media,
    outbox,
    clock,
    maxCount: maxUploads,
    isOn: () => key !== undefined,
    refusal() {
      const { message, ...extra } = refusal();
      return new RelayError('unavailable', message, { extra });
    },
    flush: () => link?.channel.flush(),
  });
  const requests = createRequests({
    clock,
    send(text) {
      link?.socket.send(text);
      return link !== undefined;
    },
  });
  const pairedHere = createPairedHere({
    sessions,
    outbox,
    requests,
    log,
    isLinked: () => link !== undefined,
    isConnected: parts.isConnected,
    flush: () => link?.channel.flush(),
    send: parts.sendRoutes,
  });
  const read = <R extends MirrorRecord>(key: string) => (stored.get(key) ?? null) as R | null;
  let key = read<MirrorPeerRecord>(KEY)?.public_key;
  let heard = read<{ heard: number }>(HEARD)?.heard ?? 0;
  const kept = read<{ socket: string; since: number; listening?: boolean }>(LINK);
  /** Since when home is not linked, where that is known; epoch seconds. */
  let offSince = kept?.socket === '' ? kept.since : undefined;
  /** Keyed by family: until when it must not come back, epoch seconds. */
  const ended = new Map<string, number>();
  for (const name of stored.keys()) {
    const until = name.startsWith(tombstone('')) ? read<{ until: number }>(name)?.until : undefined;
    if (until !== undefined) ended.set(name.slice(tombstone('').length), until);
  }
  /** Keyed by family: when home was last told that the device was here, epoch seconds. */
  const seen = new Map<string, number>();
  /** A session decides by its own origin; these only tell strangers from pages of home. */
  let pages = read<{ origins: string[] }>(PAGES)?.origins ?? [];
  let homePages = read<{ origins: string[] }>(HOME_PAGES)?.origins ?? [];
  let link: Link | undefined;
  /** Oldest first, with the address of each. */
  const unproved = new Map<Transport, string>();
  /** Where home was last: nobody else makes its next socket give way. */
  let homeAddress: string | undefined;
  /** Home itself is the reason of what happens now. */
  let isHome = false;

  const now = () => seconds(clock);
  const mirrored = () => sessions.list().filter((session) => session.mirrored);
  const failed = () => log.warn('the state of the mirror could not be stored');
  sessions.honourIf((session) => !session.mirrored || pairedHere.isWaiting(session) || now() <= heard + lease);

  /** Stores that home has spoken, at most once a minute: well within the lease. */
  function hear(): void {
    if (now() < heard + Math.min(60, lease / 6)) return;
    heard = now();
    void store.setItem(HEARD, { heard }).catch(failed);
  }

  function bury({ family, expiresAt }: Pick<Session, 'family' | 'expiresAt'>): void {
    const until = expiresAt ?? now() + TOMBSTONE;
    ended.set(family, until);
    void store.setItem(tombstone(family), { until }).catch(failed);
    const [oldest] = ended.keys();
    if (ended.size > MAX_TOMBSTONES && oldest !== undefined) exhume(oldest);
  }

  function exhume(family: string): void {
    ended.delete(family);
    void store.removeItem(tombstone(family)).catch(failed);
  }

  const offerEnd = (family: string): void => {
    outbox.forget(`reduce:${family}`);
    outbox.forget(`seen:${family}`);
    pairedHere.ended(family);
    outbox.offer(`end:${family}`, 'end', { family });
    link?.channel.flush();
  };

  sessions.onChange((session, change) => {
    if (!session.mirrored || change !== 'reduced' || isHome) return;
    const { family, expiresAt, grants } = session;
    outbox.offer(`reduce:${family}`, 'reduce', { family, expires_at: expiresAt, grants });
    link?.channel.flush();
  });

  sessions.onWrite((family, over) => {
    const own = ownOf(family);
    if (own) {
      pairedHere.wrote(own);
      return sawDevice(own);
    }
    seen.delete(family);
    // A refresh replaces the session, and the clocks of both sides end what has expired.
    if (!over?.mirrored || key === undefined || over.ended !== 'revoked') return;
    bury(over);
    if (!isHome) offerEnd(family);
  });

  /** Home is told when the device was here. */
  function sawDevice({ family, firstSeen, lastSeen }: Session): void {
    if (lastSeen <= (seen.get(family) ?? firstSeen)) return;
    seen.set(family, lastSeen);
    outbox.offer(`seen:${family}`, 'seen', { family, at: lastSeen });
    link?.channel.flush();
  }

  async function end(session: Session): Promise<void> {
    isHome = true;
    try {
      // Over, with its record gone, before the first await.
      const ending = sessions.revoke(session, { by: 'home' });
      isHome = false;
      await ending;
    } finally {
      isHome = false;
    }
  }

  /** A device of home is this page. */
  function notePage(origin: string | undefined): void {
    if (origin === undefined || pages.includes(origin)) return;
    pages = [...pages, origin].slice(-MAX_PAGES);
    void store.setItem(PAGES, { origins: pages }).catch(failed);
  }

  function noteHome(body: JsonObject): undefined {
    const origins = readPageOrigins(body);
    if (!origins) return void log.warn('home gave addresses for its page that cannot be read');
    homePages = origins;
    void store.setItem(HOME_PAGES, { origins }).catch(failed);
    return undefined;
  }

  /** Sessions of home are taken as they are, but for reductions here that home has not seen. */
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
      if (ended.has(given.family)) return offerEnd(given.family);
      // A session that was made here is none of home's, whatever home says.
      if (sessions.byFamily(given.family) && !ownOf(given.family)) return;
      notePage(given.device.origin);
      const storing = adopt(given);
      const adopted = ownOf(given.family);
      if (adopted) pairedHere.offer(adopted);
      if (!(await storing)) throw new RelayError('unavailable', 'a session could not be stored');
      return;
    }
    if (kind === 'pages') return noteHome(body);
    if (kind === 'end') {
      const family = readEnded(body)?.family;
      const own = family === undefined ? undefined : ownOf(family);
      if (own) return end(own);
      if (family !== undefined && !ended.has(family)) bury({ family, expiresAt: null });
      return;
    }
    if (kind === 'sync') {
      const families = readLiving(body)?.families;
      if (!families) return log.warn('home gave a list of sessions that cannot be read');
      // Home is of another state, which may not know of the items of this side.
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

  /** Home says whether a phone listens there. The edge remembers it over a sleep, for as long as the link lasts. */
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
        for (const family of ended.keys()) outbox.offer(`end:${family}`, 'end', { family });
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
    offSince = now();
    void store.setItem(LINK, { socket: '', since: offSince }).catch(failed);
    log.info('the link of home has ended');
    announce(homeMessage());
  }

  const sinceWhen = (): number => Math.floor(link?.since ?? offSince ?? heard);
  const homeMessage = (): HomeMessage =>
    link ? { type: 'home.online', payload: {} } : { type: 'home.offline', payload: { since: sinceWhen() } };

  function refusal(): HomeRefusal {
    if (link) return { message: 'home is on: only home serves this', error_code: 'home_only' };
    const at = new Date(sinceWhen() * 1000).toISOString();
    return { message: `home is off since ${at}`, error_code: 'home_offline', since: sinceWhen() };
  }

  /** Closes the oldest unproved sockets where one from `address` would be too many. */
  function makeRoom(address: string): void {
    const all = [...unproved];
    const own = all.filter(([, of]) => of === address);
    const others = all.filter(([, of]) => of !== homeAddress);
    const oldest = own.length >= MAX_UNPROVED_OF_ONE ? own[0] : all.length >= MAX_UNPROVED ? others[0] : undefined;
    if (!oldest) return;
    unproved.delete(oldest[0]);
    oldest[0].close(1013, 'too many connections, try again soon');
  }

  /** The events of a socket on which home has proved its key. */
  const provedEvents = (socket: Transport): SocketEvents => ({
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

  async function prove(socket: Transport, frame: Frame, nonce: string, host: string): Promise<boolean> {
    if (frame.type !== 'hello' || frame.sig === undefined || key === undefined || frame.key !== key) {
      socket.close(1008, 'home is not known by this key');
      return false;
    }
    const pinned = key;
    if (!(await verifyChallenge(pinned, frame.sig, { nonce, host })) || pinned !== key) {
      socket.close(1008, 'home is not known by this key');
      return false;
    }
    if (link && now() < link.since + REPLACE_AFTER) {
      socket.close(1013, 'home is linked already');
      return false;
    }
    link?.socket.close(1012, 'replaced by another link');
    if (link) unlink(link.socket);
    heard = 0;
    hear();
    const since = now();
    await store.setItem(LINK, { socket: socket.id, since });
    socket.send(encodeFrame({ type: 'hello', epoch: outbox.epoch, applied: outbox.applied }));
    linked(socket, since).channel.start(frame.applied);
    custody.linked(false);
    freezes.compare();
    pairedHere.linked();
    log.info('home is linked');
    announce(homeMessage());
    return true;
  }

  const status = (): EdgeMirrorStatus => ({
    ok: true,
    enabled: key !== undefined,
    url: null,
    link: link ? 'up' : 'down',
    since: key === undefined ? null : sinceWhen() || null,
    waiting: { out: outbox.waiting, in: link?.channel.queued ?? 0 },
    messages: phone.shared.held(),
    replies: outbox.keys().filter((key) => key.startsWith('reply:') && outbox.isWaiting(key)).length,
    uploads: uploads.status(),
    epoch: outbox.epoch,
  });

  return {
    status,

    /**
     * Pins home's key (contract 12 §1).
     * @throws RelayError `invalid` for what is no key, `conflict` while another home is pinned.
     */
    async pin(publicKey: string): Promise<EdgeMirrorStatus> {
      if (!isPublicKey(publicKey)) throw new RelayError('invalid', 'key must be a P-256 public key, base64url');
      if (key !== undefined && key !== publicKey) {
        throw new RelayError('conflict', 'this relay is the mirror of another home: disable that first');
      }
      const isNew = key === undefined;
      await store.setItem(KEY, { public_key: publicKey });
      key = publicKey;
      if (isNew) await custody.begin();
      heard = 0;
      hear();
      return status();
    },

    /** Forgets home: its link and its sessions here end. */
    async unpin(): Promise<EdgeMirrorStatus> {
      key = undefined;
      link?.socket.close(1008, 'the mirror has ended');
      if (link) unlink(link.socket);
      heard = now();
      offSince = undefined;
      pages = [];
      homePages = [];
      await Promise.all([
        ...[KEY, HEARD, LINK, PAGES, HOME_PAGES].map((name) => store.removeItem(name)),
        push.shared.adoptKeyPair(null),
        ...mirrored().map(end),
      ]);
      for (const family of [...ended.keys()]) exhume(family);
      uploads.leave();
      await Promise.all([freezes.leave(), outbox.clear()]);
      return status();
    },

    /** The message for a device of home that connects while home is off; undefined for others. */
    greeting(session: Session): HomeMessage | undefined {
      pairedHere.offer(session);
      return session.mirrored && !link ? homeMessage() : undefined;
    },

    /** Why a device is not served here what only home serves; undefined for the devices of this relay. */
    homeRefusal({ mirrored }: Session): HomeRefusal | undefined {
      return mirrored ? refusal() : undefined;
    },

    /**
     * True if a device of home was paired in a page of this origin. The session itself decides whether the page may use
     * it.
     */
    isPage: (origin: string): boolean => pages.includes(origin),

    /** Origins of home to which the page of this relay may connect; home has named them. */
    homePages: (): readonly string[] => homePages,

    /** True if a home is pinned, which may call. */
    isExpected: (): boolean => key !== undefined,

    /**
     * A socket from `address` that says it is home, called under `host`. It is never refused for others that have yet to
     * prove themselves, which would keep home out: the oldest of those is closed.
     */
    open(socket: Transport, { host, address }: { host: string; address: string }): SocketEvents {
      const nonce = base64url(randomBytes(32));
      let state: 'asked' | 'proving' | 'over' = 'asked';
      let proved: SocketEvents | undefined;
      makeRoom(address);
      unproved.set(socket, address);
      const settle = () => {
        cancel();
        if (state === 'over') return;
        state = 'over';
        unproved.delete(socket);
      };
      const cancel: Cancel = clock.after(HELLO_TIMEOUT, () => {
        settle();
        socket.close(1008, 'home did not prove its key in time');
      });
      socket.send(encodeFrame({ type: 'challenge', nonce }));
      return {
        message(text) {
          if (proved) return proved.message(text);
          const frame = parseFrame(text);
          if (state !== 'asked' || !frame) {
            settle();
            socket.close(1008, 'frame out of turn');
            return;
          }
          state = 'proving';
          void prove(socket, frame, nonce, host)
            .then((isProved) => {
              if (!isProved) return;
              proved = provedEvents(socket);
              homeAddress = address;
            })
            .catch(() => socket.close(1011, 'the link could not be stored'))
            .finally(settle);
        },
        drained() {},
        pinged() {},
        closed() {
          settle();
          unlink(socket);
        },
      };
    },

    /** A socket that has outlived a sleep: the link, if it is the one that home has proved its key on. */
    restore(socket: Transport): SocketEvents | undefined {
      if (kept?.socket !== socket.id || key === undefined) {
        socket.close(1012, 'the relay was asleep');
        return undefined;
      }
      linked(socket, kept.since).channel.flush();
      custody.linked(kept.listening === true);
      return provedEvents(socket);
    },

    sweep(): void {
      for (const [family, until] of [...ended]) if (until <= now()) exhume(family);
      uploads.sweep();
    },
  };
}
