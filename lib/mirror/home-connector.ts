import type { DialUpstream } from '../host/upstream-socket.ts';
import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import type { JsonObject } from '../kit/json.ts';
import { type Attempts, type Ending, NO_ATTEMPTS, nextAttempt, type Pace } from '../kit/reconnect.ts';
import type { Log } from '../log.ts';
import { type Channel, type ChannelDeps, createChannel } from './channel.ts';
import { type Cursor, encodeFrame, type Frame } from './frames.ts';
import { HomeLink } from './home-link.ts';
import type { HomePeer } from './home-peer.ts';
import type { Outbox } from './outbox.ts';
import { createRequests } from './requests.ts';

/** 1, 2, 4, ... 60 s, and up to a second more, like the connector of Reach. */
const PACE: Pace = { max: 60_000, jitter: (wait) => Math.min(1000, wait / 4) };
/** Milliseconds between messages to the edge, which counts its lease from the last one, and minimum messages per lease. */
const WORD_PERIOD = 6 * 3_600_000;
const WORDS_PER_LEASE = 3;

export interface ConnectorDeps extends Pick<ChannelDeps, 'apply' | 'busy' | 'resync' | 'roomMade'> {
  peer: Pick<HomePeer, 'dialled'>;
  outbox: Outbox;
  /** Opens the socket to the edge. */
  dial: DialUpstream;
  clock: Clock;
  log: Log;
  /** Between 0 and 1. */
  random(): number;
  /** The edge has accepted home. */
  linked(): void;
  unlinked(): void;
  /** The credentials for home that the edge asks for on behalf of a device. Never rejects. */
  credentials(family: string): Promise<JsonObject>;
}

/** Keeps home linked with its edge (contract 12 §2): dials, dials again, and keeps the lease of the edge alive. */
export function createConnector(deps: ConnectorDeps) {
  const { peer, outbox, dial, clock, log, random, linked, unlinked, credentials, ...ops } = deps;
  let link: HomeLink | undefined;
  let channel: Channel | undefined;
  let attempts: Attempts = NO_ATTEMPTS;
  let upSince: number | undefined;
  let since = seconds(clock);
  let lastError: string | undefined;
  let isStarted = false;
  let cancelRetry: Cancel = () => {};
  let cancelWord: Cancel = () => {};
  let words = 0;

  const isLinked = () => upSince !== undefined;
  const send = (text: string): boolean => {
    if (isLinked()) link?.send(text);
    return isLinked();
  };
  const requests = createRequests({ clock, send });

  function receive(own: HomeLink, frame: Frame): void {
    if (frame.type === 'op' || frame.type === 'part' || frame.type === 'ack') channel?.receive(frame);
    else if (frame.type === 'result') {
      const lease = frame.body?.lease;
      if (frame.id === String(words) && typeof lease === 'number' && lease > 0) speakLater(own, lease);
      requests.answered(frame);
    } else if (frame.type === 'call' && frame.method === 'home') {
      const { id, body } = frame;
      const family = typeof body.family === 'string' ? body.family : '';
      void credentials(family).then((body) => own.send(encodeFrame({ type: 'result', id, body })));
    }
  }

  function accepted(own: HomeLink, edge: Cursor): void {
    upSince = clock.monotonic();
    since = seconds(clock);
    lastError = undefined;
    log.info(`linked with the edge ${peer.dialled()?.url}`);
    channel = createChannel({
      ...ops,
      outbox,
      log,
      send: (text) => own.send(text),
      fail: (reason) => own.fail(reason),
    });
    channel.start(edge);
    linked();
    speak(own);
  }

  /** The edge counts its lease from home's last message, and answers with its length in seconds. */
  function speak(own: HomeLink): void {
    own.send(encodeFrame({ type: 'call', id: String(++words), method: 'lease', body: {} }));
    speakLater(own);
  }

  function speakLater(own: HomeLink, lease = Number.POSITIVE_INFINITY): void {
    cancelWord();
    cancelWord = clock.after(Math.min(WORD_PERIOD, (lease * 1000) / WORDS_PER_LEASE), () => speak(own));
  }

  function connect(): void {
    const edge = peer.dialled();
    if (!edge) return;
    const own: HomeLink = new HomeLink({
      ...edge,
      epoch: outbox.epoch,
      applied: () => outbox.applied,
      dial,
      clock,
      accepted: (cursor) => accepted(own, cursor),
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
    if (isLinked()) since = seconds(clock);
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
    unlinked();
    requests.unlinked();
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

  return {
    /** Calls to the edge that expect an answer. */
    requests,

    isLinked,

    /** Sends a frame; false without a link. */
    send,

    /** Sends the offered ops. */
    flush: (): void => channel?.flush(),

    /** State for the status of the mirror; `since` is epoch seconds, `queued` the number of received ops that are not applied yet. */
    state: () => ({ since, queued: channel?.queued ?? 0, error: lastError }),

    start(): void {
      isStarted = true;
      connect();
    },

    stop(): void {
      isStarted = false;
      disconnect();
    },

    /** There is an edge now. */
    enabled(): void {
      since = seconds(clock);
      if (isStarted) connect();
    },

    /** There is no edge any more. */
    disabled(): void {
      disconnect();
      lastError = undefined;
    },
  };
}
