import { describeError, RelayError } from '../errors.ts';
import type { DialUpstream } from '../host/upstream-socket.ts';
import { seconds } from '../kit/clock.ts';
import { createEvent } from '../kit/event.ts';
import type { Media } from '../media/media.ts';
import { PHONE_GRANT } from '../phone/phone.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import { type HomeRoutes, openAdoption, openEdgeCodes } from './adoption.ts';
import { createCalls } from './calls.ts';
import { createCustody } from './custody.ts';
import { encodeFrame, type Op } from './frames.ts';
import { createConnector } from './home-connector.ts';
import { pageOrigins } from './home-pages.ts';
import { openHomePeer } from './home-peer.ts';
import { createHomeSessions } from './home-sessions.ts';
import { mailboxUrl, openMailboxes } from './mailboxes.ts';
import { openOutbox } from './outbox.ts';
import { openPulls } from './pulls.ts';
import { createRecall } from './recall.ts';
import { loadRecords } from './records.ts';
import { type HomeBox, openSeals } from './sealed.ts';
import { readEnded, readReduced, readSeen } from './session-body.ts';
import { createSharedFreeze } from './shared-freeze.ts';
import type { MirrorDeps, Side } from './side.ts';

const PAGES = 'pages';

export interface HomeMirrorDeps extends MirrorDeps {
  media: Pick<Media, 'shared'>;
  /** Bytes of the largest upload that this relay accepts from the edge. */
  maxUpload: number;
  /** Opens the socket to the edge. */
  dial: DialUpstream;
  /** Signs by the identity that pairing links pin; null, or absent, without one. */
  sign?(bytes: Uint8Array): Uint8Array | null;
  /** The routes to home, for a device that has paired at the edge. */
  routes(): Promise<HomeRoutes>;
  /** Between 0 and 1. */
  random?(): number;
}

export type HomeMirror = Awaited<ReturnType<typeof openHomeMirror>>;

/**
 * Home's side of the mirror (contract 12 §1, §2): keeps the edge informed of every session, and applies endings and
 * reductions there. Without an edge it does nothing.
 */
export async function openHomeMirror(deps: HomeMirrorDeps) {
  const { store, sessions, phone, notifications, push, media, gate, dial, clock, log, random = Math.random } = deps;
  const ends = createEvent<[Session]>();
  const reductions = createEvent<[Session]>();
  const records = await loadRecords({ store, log });
  const peer = openHomePeer({ store, records });
  const outbox = openOutbox({
    store,
    records,
    origin: 'home',
    log,
    isRecord: (kind) => /^(session|freeze|vapid|subscription|pages)$/.test(kind),
    flush: () => connector.flush(),
    acknowledged(kind, body) {
      custody.acknowledged(kind, body);
      calls.acknowledged(kind, body);
      pulls.acknowledged(kind, body);
    },
  });
  const connector = createConnector({
    peer,
    outbox,
    dial,
    clock,
    log,
    random,
    apply,
    busy: (op) => sessions.busy(String(op.body.family)) ?? seals.busy(op),
    resync() {
      custody.resync();
      freezes.compare(true);
      offers.resync();
    },
    roomMade: () => offers.catchUp(),
    linked() {
      calls.linked();
      pulls.linked();
      custody.linked(false);
      freezes.compare();
      routesChanged();
    },
    unlinked() {
      custody.unlinked();
      calls.unlinked();
      pulls.unlinked();
    },
    credentials: (family) =>
      adoption.credentials(family).catch((error) => {
        log.warn(`a device of the edge does not get its credentials: ${describeError(error)}`);
        return {};
      }),
  });
  const { requests, isLinked } = connector;
  const isOn = () => peer.url() !== undefined;
  const side: Side = { side: 'home', outbox, log, isOn, isLinked };
  const stored = { ...side, store, records, clock, requests };
  const mailboxes = openMailboxes(stored);
  const seals = await openSeals({
    ...stored,
    everySession: () => sessions.list(),
    sessions: () => sessions.list().filter(({ grants }) => isGranted(grants, PHONE_GRANT, seconds(clock))),
    hasMailbox: mailboxes.isTaken,
    mayHaveMailbox: mailboxes.mayHave,
    secret: () => peer.record()?.mailbox_secret ?? '',
    sign: (bytes) => deps.sign?.(bytes) ?? null,
    ready: () => custody.handOver(),
  });
  const custody = createCustody({
    ...side,
    seals,
    phone,
    notifications,
    onListening: (listening) =>
      connector.send(encodeFrame({ type: 'call', id: 'listening', method: 'listening', body: { listening } })),
  });
  const freezes = createSharedFreeze({ ...side, gate, clock });
  const calls = createCalls({ ...side, push, isSealed: seals.isOn });
  const edgeCodes = openEdgeCodes(stored);
  const recall = createRecall({ clock, changed: custody.recall });
  const pulls = await openPulls({
    ...stored,
    media,
    openHead: seals.openHead,
    maxSize: deps.maxUpload,
    took: () => recall.took('uploads'),
    random,
  });
  const { secret, inTurn } = peer;
  const adoption = openAdoption({ ...stored, sessions, mailboxes, codes: edgeCodes, secret, routes: deps.routes });
  outbox.repair();
  await peer.complete();
  const offers = createHomeSessions({ ...side, sessions, peer, mailboxes, seals, clock });

  async function apply(given: Op): Promise<unknown> {
    const op = seals.opened(given);
    const { kind, body } = op;
    const ofPhone = custody.apply(op) ?? calls.apply(op) ?? freezes.apply(op) ?? pulls.apply(op);
    if (kind === 'message') recall.took('messages');
    if (kind === 'reply' && body.taken !== true) recall.took('replies');
    if (ofPhone) return ofPhone;
    if (kind === 'pair') return adoption.adopt(body);
    if (kind === 'seen') {
      const seen = readSeen(body);
      const own = seen && sessions.byFamily(seen.family);
      return own && sessions.seenElsewhere(own, seen.at);
    }
    const reduced = kind === 'reduce' ? readReduced(body) : undefined;
    const family = reduced?.family ?? (kind === 'end' ? readEnded(body)?.family : undefined);
    const living = family === undefined ? undefined : sessions.byFamily(family);
    if (!living) return;
    if (reduced) {
      const done = sessions.narrow(living, { expiresAt: reduced.expires_at, grants: reduced.grants });
      reductions.emit(living);
      return done;
    }
    ends.emit(living);
    return sessions.revoke(living, { by: 'the edge' });
  }

  /** Tells the edge the addresses of home for its page, which have changed, or which it may not know. */
  async function tellPages(): Promise<void> {
    if (!isOn()) return;
    const { endpoints } = await deps.routes();
    // Without a network there are no addresses.
    if (!isOn() || endpoints.length === 0) return;
    const body = { origins: pageOrigins(endpoints) };
    if (JSON.stringify(outbox.body(PAGES) ?? { origins: [] }) === JSON.stringify(body)) return;
    outbox.offer(PAGES, PAGES, body);
  }

  const routesChanged = (): void =>
    void tellPages().catch((error) => log.warn(`the edge is not told where home is: ${describeError(error)}`));

  /** Answer of `GET /relay/mirror` (contract 12 §7). `since` is epoch seconds. */
  const status = async () => {
    const { public_key: key, url } = await peer.ensure();
    const { since, queued, error } = connector.state();
    return {
      ok: true as const,
      enabled: url !== undefined,
      url: url ?? null,
      link: isLinked() ? ('up' as const) : ('down' as const),
      since: url === undefined ? null : since,
      waiting: { out: outbox.waiting, in: queued },
      /** Uploads that wait at the edge. */
      uploads: pulls.status(),
      mailbox: seals.status(),
      epoch: outbox.epoch,
      /** Home's public key, which the edge pins. */
      key,
      ...(error !== undefined && { error }),
    };
  };

  return {
    status,

    /** Calls back when a session is about to end because it did at the edge. */
    onEnd: ends.on,

    /** Calls back when a session was reduced because it was at the edge. */
    onReduce: reductions.on,

    onMailbox: offers.onMailbox,
    mailbox: offers.mailbox,
    renewMailbox: offers.renewMailbox,
    confirmed: offers.confirmed,

    /**
     * Starts to mirror to an edge that has pinned the key of `status` (contract 12 §1).
     * @throws RelayError `conflict` while there is another edge, `unavailable` if it cannot be stored.
     */
    enable: (origin: string) =>
      inTurn(async () => {
        if (await peer.enable(origin)) {
          offers.compareAll();
          connector.enabled();
        }
        return status();
      }),

    /**
     * Brings home all messages that wait at the edge, and hands over no more, until this is called with false, or has not
     * been called again for 15 seconds.
     * @throws RelayError `conflict` without a link.
     */
    async recall(begins: boolean) {
      if (begins && !isLinked()) throw new RelayError('conflict', 'there is no link to the edge');
      recall.set(begins);
      return status();
    },

    /** Ends the mirror here. The edge ends the sessions of home when it is told, or when its lease has run out. */
    disable: () =>
      inTurn(async () => {
        await peer.disable();
        connector.disabled();
        const came = recall.end();
        const left = [adoption, offers, freezes, pulls, push.shared, phone.shared].map((part) => part.leave());
        await Promise.all([...left, outbox.clear()]);
        return { ...(await status()), came_home: came };
      }),

    /** The codes that are valid at the edge only. */
    edgeCodes,

    routesChanged,

    /**
     * Origin of the edge's page, which may call home with the sessions that were paired in it; undefined without an edge.
     */
    edgePage: peer.url,

    /** Socket URL of the edge that devices may use as their mailbox; undefined without one. */
    mailboxUrl: (): string | undefined => mailboxUrl(peer.record()),

    /**
     * A device has authenticated with its key for the mailbox, if it has one (contract 12 §4). Returns home's key for it,
     * undefined for a device without one.
     */
    box: (of: Session, given: string | undefined): HomeBox | undefined =>
      seals.device(of, given) ? seals.homeBox() : undefined,

    /** A device reports that it has home's key with this id. */
    boxKnown: seals.known,

    start(): void {
      offers.compareAll();
      connector.start();
    },

    stop(): void {
      connector.stop();
      recall.set(false);
    },
  };
}
