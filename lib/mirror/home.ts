import type { MirrorPeerRecord, Store } from '../../storage/schema.ts';
import { describeError, RelayError } from '../errors.ts';
import type { DialUpstream } from '../host/upstream-socket.ts';
import { base64url, randomBytes } from '../kit/bytes.ts';
import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import { entriesOf } from '../kit/entries.ts';
import { type Attempts, type Ending, NO_ATTEMPTS, nextAttempt, type Pace } from '../kit/reconnect.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import type { Media } from '../media/media.ts';
import type { Notifications } from '../notifications/notifications.ts';
import type { Gate } from '../operations/gate.ts';
import { PHONE_GRANT, type PhoneMessaging } from '../phone/phone.ts';
import type { Push } from '../push/push.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { type HomeRoutes, openAdoption, openEdgeCodes } from './adoption.ts';
import { createCalls } from './calls.ts';
import { type Channel, createChannel } from './channel.ts';
import { createCustody } from './custody.ts';
import { encodeFrame, type Frame, type Op } from './frames.ts';
import { HomeLink } from './home-link.ts';
import { pageOrigins } from './home-pages.ts';
import { type HomeKey, newHomeKey } from './keys.ts';
import { type Mailbox, mailboxUrl, openMailboxes } from './mailboxes.ts';
import { openOutbox } from './outbox.ts';
import { openPulls, type PullStatus } from './pulls.ts';
import { createRequests } from './requests.ts';
import type { SealStatus } from './seal-status.ts';
import { type HomeBox, openSeals } from './sealed.ts';
import { bodyOf, readEnded, readReduced, readSeen } from './session-body.ts';
import { createSharedFreeze } from './shared-freeze.ts';

/** 1, 2, 4, ... 60 s, and up to a second more, as the connector of Reach. */
const PACE: Pace = { max: 60_000, jitter: (wait) => Math.min(1000, wait / 4) };
/** Milliseconds for which a revocation waits for the edge. */
const CONFIRM_TIMEOUT = 1_000;
/**
 * Milliseconds after which a recall ends unless its caller requests it again, which a killed command does not. Two calls
 * may time out in between, after five seconds each.
 */
const RECALL_LEASE = 15_000;
/** Milliseconds between words to the edge, which counts its lease from the last one, and words in a lease at least. */
const WORD_PERIOD = 6 * 3_600_000;
const WORDS_PER_LEASE = 3;
/** Milliseconds for which a device that asks for its mailbox waits for the edge. */
const RENEW_TIMEOUT = 10_000;
const KEY = 'peer';
const PAGES = 'pages';
const newSecret = () => base64url(randomBytes(32));
const session = (family: string) => `session:${family}`;

export interface HomeMirrorParts {
  store: Store<'mirror'>;
  sessions: Sessions;
  phone: PhoneMessaging;
  notifications: Notifications;
  gate: Gate;
  push: Push;
  media: Pick<Media, 'shared'>;
  /** Bytes of the largest upload that this relay takes from the edge. */
  maxUpload: number;
  /** Opens the socket to the edge. */
  dial: DialUpstream;
  clock: Clock;
  log: Log;
  /** A session is about to end because it did at the edge: its shells end with it. */
  ended(session: Session): void;
  /** A session was reduced because it was at the edge. */
  reduced(session: Session): void;
  /** The edge takes credentials that a device has not got yet: see `mailbox`. */
  mailboxReady(session: Session): void;
  /** Signs by the identity that pairing links pin; null, or absent, without one. */
  sign?(bytes: Uint8Array): Uint8Array | null;
  /** The routes to home, for a device that has paired at the edge. */
  routes(): Promise<HomeRoutes>;
  /** Between 0 and 1. */
  random?(): number;
}

/** Answer of `GET /relay/mirror` (contract 12 §7). `since` is epoch seconds. */
export interface MirrorStatus {
  ok: true;
  enabled: boolean;
  url: string | null;
  link: 'up' | 'down';
  since: number | null;
  waiting: { out: number; in: number };
  /** Uploads that wait at the edge. */
  uploads: PullStatus;
  /** True if the edge gets sealed content. */
  mailbox: SealStatus;
  epoch: string;
  /** Home's public key, which the edge pins. */
  key: string;
  error?: string;
}

/** Numbers of items that came home during a recall. */
export interface CameHome {
  messages: number;
  replies: number;
  uploads: number;
}
const NOTHING: CameHome = { messages: 0, replies: 0, uploads: 0 };

export type HomeMirror = Awaited<ReturnType<typeof openHomeMirror>>;

/**
 * Home's half of the mirror (contract 12 §1, §2): keeps the edge told of every session, and does here what was ended or
 * reduced there. Without an edge it does nothing.
 */
export async function openHomeMirror(parts: HomeMirrorParts) {
  const {
    store,
    sessions,
    phone,
    notifications,
    push,
    media,
    maxUpload,
    gate,
    dial,
    clock,
    log,
    random = Math.random,
  } = parts;
  const stored = new Map(await entriesOf(store));
  const outbox = openOutbox({
    store,
    stored,
    origin: 'home',
    log,
    keeps: (kind) => /^(session|freeze|vapid|subscription|pages)$/.test(kind),
    acknowledged(kind, body) {
      custody.acknowledged(kind, body);
      calls.acknowledged(kind, body);
      pulls.acknowledged(kind, body);
    },
  });
  const seals = await openSeals({
    store,
    stored,
    log,
    everySession: () => sessions.list(),
    sessions: () => sessions.list().filter(({ grants }) => isGranted(grants, PHONE_GRANT, seconds(clock))),
    hasMailbox: (family) => mailboxes.isTaken(family),
    mayHaveMailbox: (family) => mailboxes.mayHave(family),
    secret: () => peer?.mailbox_secret ?? '',
    sign: (bytes) => parts.sign?.(bytes) ?? null,
    ready: () => custody.handOver(),
  });
  const custody = createCustody({
    side: 'home',
    seals,
    phone,
    notifications,
    outbox,
    log,
    isOn: () => url() !== undefined,
    isLinked: () => upSince !== undefined,
    flush: () => channel?.flush(),
    heard: (listening) =>
      link?.send(encodeFrame({ type: 'call', id: 'listening', method: 'listening', body: { listening } })),
  });
  const freezes = createSharedFreeze({
    side: 'home',
    gate,
    outbox,
    clock,
    log,
    isOn: () => url() !== undefined,
    isLinked: () => upSince !== undefined,
    flush: () => channel?.flush(),
  });
  const mailboxes = openMailboxes({ store, stored, clock, log });
  const calls = createCalls({
    side: 'home',
    isSealed: seals.isOn,
    push,
    outbox,
    log,
    isOn: () => url() !== undefined,
    isLinked: () => upSince !== undefined,
    flush: () => channel?.flush(),
  });
  const requests = createRequests({
    clock,
    send(text) {
      if (upSince === undefined) return false;
      link?.send(text);
      return true;
    },
  });
  const edgeCodes = openEdgeCodes({
    store,
    stored,
    clock,
    log,
    requests,
    isOn: () => url() !== undefined,
    isLinked: () => upSince !== undefined,
  });
  const pulls = await openPulls({
    store,
    stored,
    media,
    outbox,
    clock,
    log,
    requests,
    openHead: seals.openHead,
    maxSize: maxUpload,
    isLinked: () => upSince !== undefined,
    flush: () => channel?.flush(),
    took: () => took('uploads'),
    random,
  });
  const adoption = openAdoption({
    store,
    stored,
    sessions,
    outbox,
    mailboxes,
    codes: edgeCodes,
    clock,
    log,
    secret: () => (url() === undefined ? undefined : peer?.mailbox_secret),
    routes: parts.routes,
  });
  let peer = (stored.get(KEY) ?? null) as MirrorPeerRecord | null;
  if (peer?.url !== undefined && peer.mailbox_secret === undefined) {
    peer = { ...peer, mailbox_secret: newSecret() };
    await store.setItem(KEY, peer);
  }
  /** Families whose session the edge has yet to get, because too much waits already. */
  const behind = new Set<string>();
  let link: HomeLink | undefined;
  let channel: Channel | undefined;
  let attempts: Attempts = NO_ATTEMPTS;
  let upSince: number | undefined;
  let since = seconds(clock);
  let lastError: string | undefined;
  let isStarted = false;
  let cancelRetry: Cancel = () => {};
  let cancelWord: Cancel = () => {};
  let cancelRecall: Cancel = () => {};
  /** Counts of items that came home during the present recall; undefined when there is none. */
  let cameHome: CameHome | undefined;
  let words = 0;

  const url = () => peer?.url;

  /** Offers what the edge does not know of a family yet. */
  function compare(family: string): void {
    if (!peer || url() === undefined) return;
    const key = session(family);
    const before = outbox.body(key);
    const living = sessions.byFamily(family);
    if (living) {
      const body = bodyOf(living, mailboxes.body(peer, family));
      if (before && JSON.stringify(before) === JSON.stringify(body)) return;
      if (!outbox.offer(key, 'session', body, { isOfferedAgain: true })) return void behind.add(family);
      if (!mailboxes.isTaken(family)) void outbox.settled(key).then(() => ready(family));
    } else {
      mailboxes.forget(family);
      seals.forget(family);
      if (before && before.ended !== true) outbox.offer(key, 'end', { family, ended: true });
    }
    channel?.flush();
  }

  /** Offers what was refused while too much waited. */
  function catchUp(): void {
    for (const family of behind) {
      behind.delete(family);
      compare(family);
      if (behind.has(family)) return;
    }
  }

  function took(kind: keyof CameHome): void {
    if (cameHome) cameHome[kind]++;
  }

  /** The edge has confirmed a session: its device may get what it has not got yet. */
  function ready(family: string): void {
    const living = sessions.byFamily(family);
    if (living && mailboxOf(living)) parts.mailboxReady(living);
  }

  /** Credentials that the edge has confirmed and the device has not got. */
  function mailboxOf({ family }: Session): { mailbox: Mailbox; chain: number } | undefined {
    const key = session(family);
    if (!peer || mailboxes.isTaken(family) || outbox.isWaiting(key)) return undefined;
    const { chain, ...mailbox } = mailboxes.credentials(peer, family) ?? {};
    if (chain === undefined || outbox.body(key)?.chain !== chain) return undefined;
    return { mailbox: mailbox as Mailbox, chain };
  }

  /** Everything that the edge does not know: after a start, and when the edge is of another state. */
  function compareAll(): void {
    for (const { family } of sessions.list()) compare(family);
    for (const family of mailboxes.families()) if (!sessions.byFamily(family)) mailboxes.forget(family);
    for (const family of seals.families()) if (!sessions.byFamily(family)) seals.forget(family);
    for (const key of outbox.keys()) if (key.startsWith(session(''))) compare(key.slice(session('').length));
  }

  sessions.onWrite(compare);

  async function apply(given: Op): Promise<unknown> {
    const op = seals.opened(given);
    const { kind, body } = op;
    const ofPhone = custody.apply(op) ?? calls.apply(op) ?? freezes.apply(op) ?? pulls.apply(op);
    if (kind === 'message') took('messages');
    if (kind === 'reply' && body.taken !== true) took('replies');
    if (ofPhone) return ofPhone;
    if (kind === 'pair') return adoption.adopt(body);
    if (kind === 'seen') {
      const seen = readSeen(body);
      const own = seen && sessions.byFamily(seen.family);
      return own && sessions.seenElsewhere(own, seen.at);
    }
    const reduced = kind === 'reduce' ? readReduced(body) : null;
    const family = reduced?.family ?? (kind === 'end' ? readEnded(body)?.family : undefined);
    const living = family === undefined ? undefined : sessions.byFamily(family);
    if (!living) return;
    if (reduced) {
      const done = sessions.narrow(living, { expiresAt: reduced.expires_at, grants: reduced.grants });
      parts.reduced(living);
      return done;
    }
    parts.ended(living);
    return sessions.revoke(living, { by: 'the edge' });
  }

  /** Tells the edge where its page finds home. */
  async function tellPages(): Promise<void> {
    const { endpoints } = await parts.routes();
    // Without a network there is nothing to say.
    if (url() === undefined || endpoints.length === 0) return;
    const body = { origins: pageOrigins(endpoints) };
    if (JSON.stringify(outbox.body(PAGES) ?? { origins: [] }) === JSON.stringify(body)) return;
    outbox.offer(PAGES, PAGES, body);
    channel?.flush();
  }

  /** The addresses of home have changed, or the edge may not know them. */
  function routesChanged(): void {
    if (url() === undefined) return;
    void tellPages().catch((error) => log.warn(`the edge is not told where home is: ${describeError(error)}`));
  }

  function receive(own: HomeLink, frame: Frame): void {
    if (frame.type === 'op' || frame.type === 'part' || frame.type === 'ack') channel?.receive(frame);
    else if (frame.type === 'result') {
      const lease = frame.body?.lease;
      if (frame.id === String(words) && typeof lease === 'number' && lease > 0) speakLater(own, lease);
      requests.answered(frame);
    } else if (frame.type === 'call' && frame.method === 'home') {
      void adoption
        .credentials(String(frame.body.family))
        .catch((error) => {
          log.warn(`a device of the edge does not get its credentials: ${describeError(error)}`);
          return {};
        })
        .then((body) => own.send(encodeFrame({ type: 'result', id: frame.id, body })));
    }
  }

  function accepted(own: HomeLink, edge: { epoch: string; oseq: number }): void {
    upSince = clock.monotonic();
    since = seconds(clock);
    lastError = undefined;
    log.info(`linked with the edge ${url()}`);
    channel = createChannel({
      outbox,
      log,
      apply,
      busy: (op) => sessions.busy(String(op.body.family)) ?? seals.busy(op),
      resync: () => {
        custody.resync();
        freezes.compare(true);
        mailboxes.restart();
        compareAll();
        outbox.offer('sync', 'sync', { families: sessions.list().map(({ family }) => family) });
      },
      send: (text) => own.send(text),
      roomMade: catchUp,
      fail: (reason) => own.fail(reason),
    });
    channel.start(edge);
    calls.linked();
    pulls.linked();
    custody.linked(false);
    freezes.compare();
    routesChanged();
    speak(own);
  }

  /** The edge counts its lease from the last word of home, and answers with its length in seconds. */
  function speak(own: HomeLink): void {
    own.send(encodeFrame({ type: 'call', id: String(++words), method: 'lease', body: {} }));
    speakLater(own);
  }

  function speakLater(own: HomeLink, lease = Number.POSITIVE_INFINITY): void {
    cancelWord();
    cancelWord = clock.after(Math.min(WORD_PERIOD, (lease * 1000) / WORDS_PER_LEASE), () => speak(own));
  }

  function connect(): void {
    if (peer?.url === undefined || peer.private_key === undefined) return;
    const key: HomeKey = { privateKey: peer.private_key, publicKey: peer.public_key };
    const own: HomeLink = new HomeLink({
      url: peer.url,
      key,
      epoch: outbox.epoch,
      applied: () => outbox.applied,
      dial,
      clock,
      accepted: (edge) => accepted(own, edge),
      receive: (frame) => receive(own, frame),
      ended: (reason, ending) => link === own && ended(reason, ending),
    });
    link = own;
    own.start();
  }

  function ended(reason: string, ending: Ending): void {
    const now = clock.monotonic();
    const lasted = upSince === undefined ? null : now - upSince;
    const retry = nextAttempt(attempts, { ending, lasted }, { now, random: random() }, PACE);
    attempts = retry.attempts;
    if (upSince !== undefined) since = seconds(clock);
    release();
    const line = `no link to the edge: ${reason}; trying again in ${Math.ceil(retry.wait / 1000)} s`;
    if (reason === lastError) log.debug(line);
    else log.warn(line);
    lastError = reason;
    cancelRetry = clock.after(retry.wait, connect);
  }

  function release(): void {
    link = undefined;
    upSince = undefined;
    custody.unlinked();
    calls.unlinked();
    requests.unlinked();
    pulls.unlinked();
    channel?.stop();
    channel = undefined;
    cancelWord();
    cancelRetry();
  }

  function disconnect(): void {
    const own = link;
    release();
    own?.close();
  }

  function recall(begins: boolean): void {
    cancelRecall();
    if (begins !== (cameHome !== undefined)) {
      cameHome = begins ? { ...NOTHING } : undefined;
      custody.recall(begins);
    }
    if (begins) cancelRecall = clock.after(RECALL_LEASE, () => recall(false));
  }

  async function ownKey(): Promise<MirrorPeerRecord> {
    if (peer) return peer;
    const { privateKey, publicKey } = await newHomeKey();
    peer ??= { private_key: privateKey, public_key: publicKey };
    await store.setItem(KEY, peer);
    return peer;
  }

  const status = async (): Promise<MirrorStatus> => {
    const { public_key: key } = await ownKey();
    return {
      ok: true,
      enabled: url() !== undefined,
      url: url() ?? null,
      link: upSince === undefined ? 'down' : 'up',
      since: url() === undefined ? null : since,
      waiting: { out: outbox.waiting, in: channel?.queued ?? 0 },
      uploads: pulls.status(),
      mailbox: seals.status(),
      epoch: outbox.epoch,
      key,
      ...(lastError !== undefined && { error: lastError }),
    };
  };

  return {
    status,

    /**
     * Begins to mirror to an edge that has pinned the key of `status` (contract 12 §1).
     * @throws RelayError `conflict` while there is another edge, `unavailable` when it cannot be stored.
     */
    async enable(origin: string): Promise<MirrorStatus> {
      const own = await ownKey();
      if (own.url !== undefined && own.url !== origin) {
        throw new RelayError('conflict', `the mirror is at ${own.url}: disable it first`);
      }
      const isNew = own.url === undefined;
      const next = { ...own, url: origin, ...((isNew || !own.mailbox_secret) && { mailbox_secret: newSecret() }) };
      await store.setItem(KEY, next);
      peer = next;
      if (isNew) {
        since = seconds(clock);
        compareAll();
        if (isStarted) connect();
      }
      return status();
    },

    /**
     * Brings home all messages that wait at the edge, and gives it no more, until this is called with false, or has not been
     * called again for 15 seconds.
     * @throws RelayError `conflict` while there is no link.
     */
    async recall(begins: boolean): Promise<MirrorStatus> {
      if (begins && upSince === undefined) throw new RelayError('conflict', 'there is no link to the edge');
      recall(begins);
      return status();
    },

    /** Ends the mirror here. The edge ends the sessions of home when it is told so, or when its lease has run out. */
    async disable(): Promise<MirrorStatus & { came_home: CameHome }> {
      const { url: _, mailbox_secret: __, ...rest } = await ownKey();
      await store.setItem(KEY, rest);
      peer = rest;
      disconnect();
      const came = cameHome ?? NOTHING;
      recall(false);
      lastError = undefined;
      for (const family of mailboxes.families()) mailboxes.forget(family);
      behind.clear();
      edgeCodes.clear();
      adoption.clear();
      await Promise.all([freezes.leave(), pulls.leave(), outbox.clear()]);
      return { ...(await status()), came_home: came };
    },

    /** The codes that are good at the edge alone. */
    edgeCodes,

    routesChanged,

    /**
     * Origin of the edge's page, which may call home with the sessions that were paired in it; undefined without an
     * edge.
     */
    edgePage: url,

    /** Socket URL of the edge that devices may use as their mailbox; undefined without one. */
    mailboxUrl: (): string | undefined => mailboxUrl(peer),

    /**
     * The credentials for the edge to send to a device that has yet to get them (contract 12 §3): the edge has confirmed
     * them. `taken` is called when the device has shown that they have come.
     */
    mailbox(of: Session): { mailbox: Mailbox; taken(): void } | undefined {
      const found = mailboxOf(of);
      if (found) mailboxes.give(of.family);
      return found && { mailbox: found.mailbox, taken: () => mailboxes.take(of.family, found.chain) };
    },

    /**
     * Credentials for a device that has none, or has lost them: those that were never sent or were begun just now, else a
     * new chain of them, with which the last one ends.
     * @throws RelayError `unsupported` without an edge, `unavailable` while the edge does not confirm them.
     */
    async renewMailbox(of: Session): Promise<{ mailbox: Mailbox; taken(): void }> {
      if (url() === undefined) throw new RelayError('unsupported', 'this relay has no mailbox at the edge');
      mailboxes.renew(of.family);
      compare(of.family);
      const settled = outbox.settled(session(of.family)).then(() => true);
      await withTimeout({ clock, timeout: RENEW_TIMEOUT }, settled, () => false);
      const given = this.mailbox(of);
      if (!given) throw new RelayError('unavailable', 'the mailbox at the edge cannot be reached now');
      return given;
    },

    /**
     * A device has authenticated with its key for the mailbox, if it has one (contract 12 §4). Returns home's key for it,
     * undefined for a device without one.
     */
    box: (of: Session, given: string | undefined): HomeBox | undefined =>
      seals.device(of, given) ? seals.homeBox() : undefined,

    /** A device says that it has home's key of this name. */
    boxKnown: seals.known,

    /** True if a change of a session is in force at the edge, which it waits for a second; undefined without an edge. */
    async confirmed(family: string): Promise<'confirmed' | 'pending' | undefined> {
      if (url() === undefined) return undefined;
      compare(family);
      const key = session(family);
      if (!outbox.isWaiting(key) && !behind.has(family)) return 'confirmed';
      if (!channel || behind.has(family)) return 'pending';
      const settled = outbox.settled(key).then((): 'confirmed' => 'confirmed');
      return withTimeout({ clock, timeout: CONFIRM_TIMEOUT }, settled, (): 'pending' => 'pending');
    },

    start(): void {
      isStarted = true;
      compareAll();
      connect();
    },

    stop(): void {
      isStarted = false;
      disconnect();
      recall(false);
    },
  };
}
