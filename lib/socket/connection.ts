import { describeError } from '../errors.ts';
import { type ByteBudget, RELEASED_LATE, type Reservation } from '../kit/byte-budget.ts';
import { type Clock, nextTurn } from '../kit/clock.ts';
import { isDeeperThan } from '../kit/json.ts';
import { MAX_DEPTH, MAX_UNCOUNTED, readLongJson } from '../kit/long-json.ts';
import type { Log } from '../log.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Channel, ChannelTable, Connection } from './channel.ts';
import { encodeEnvelope, isLongerThan, type Message, type Payload, parseEnvelope } from './envelope.ts';
import {
  type EnvelopeHead,
  isShort,
  KEEPING_BOM,
  readHead,
  releaseFrame,
  type TextFrame,
  textOfFrame,
} from './envelope-head.ts';
import { Inbox } from './inbox.ts';
import type { Indexed } from './indexed-set.ts';
import type { Probes } from './probes.ts';
import { SerialQueue } from './serial-queue.ts';
import { STALE_AFTER } from './stale.ts';
import type { Caller, Transport } from './transport.ts';
import { Watermark, type WatermarkLimits } from './watermark.ts';

const MAX_MESSAGE = 4 * 1024 * 1024;
/** Milliseconds between checks for received bytes: no event announces them. */
const ANSWER_POLL = 20;
/** More bytes than these are part of a message, and not pings or answers of a proxy. */
const CONTROL_BYTES = 1024;
const MAX_UNSENT = 64 * 1024 * 1024;
/**
 * Milliseconds after which a message shows that what was sent before has arrived, from a client that answers no pings: a
 * client that gets nothing has given up its connection by then, because nothing answers its own ping of every 30 s.
 */
const GIVEN_UP_AFTER = 90_000;
/** Unsent bytes and messages above which a client is not read, and below which it is again. */
const READ_LIMIT = { bytes: 1024 * 1024, messages: 2000 };
const READ_AGAIN = { bytes: 256 * 1024, messages: 500 };

/** The routes by which a client reaches the relay, as the wire names them (contract 09 §2). */
const ROUTES = {
  direct: 'direct',
  ingress: 'ingress',
  edge: 'edge',
  'secure-link': 'secure_link',
  reach: 'reach',
} as const;

/** A connection in `GET /relay/devices` (contract 09 §2). */
export interface ConnectionRow {
  id: string;
  /** Epoch seconds. */
  since: number;
  client_surface: string;
  route: (typeof ROUTES)[keyof typeof ROUTES];
  /** Milliseconds since the last message of the client. */
  last_seen_ms: number;
  /** Milliseconds between the last ping and its answer; null before one was measured. */
  rtt_ms: number | null;
  /** Milliseconds since anything really came from the client: a message, a ping or the answer to one. */
  proof_age_ms: number;
  stale: boolean;
  channels: Record<string, Payload>;
}

export interface ConnectionParts {
  channels: ChannelTable;
  sessions: Sessions;
  clock: Clock;
  log: Log;
  probes: Probes;
  /** Limits the long messages of all sockets that are parsed at once. */
  parsing: ByteBudget;
  /** The clients of a session answer, or do not, the pings of a runtime that hides the protocol's own. */
  answersPings(session: Session, answers: boolean): void;
  /** Called once, when the connection has ended. */
  onClosed(connection: SocketConnection): void;
}

/** A ping that has to be answered. */
interface Probe {
  readonly answered: () => void;
  /** Monotonic milliseconds of the ping, and of the last message since. */
  readonly at: number;
  heardAt: number;
  /** A message has come since the last look. */
  isHeard: boolean;
  /** Bytes at the last look. */
  received: number;
  unsent: number;
}

/** One authenticated socket: dispatch, grants, order, backpressure and cleanup for every channel. */
export class SocketConnection implements Connection, Indexed {
  readonly caller: Caller;
  readonly session: Session;
  readonly typedStream: boolean;
  index = -1;
  /** Epoch milliseconds. */
  readonly since: number;
  #lastMessage: number;
  #lastProof: number;
  #pingedAt: number | undefined;
  #roundTrip: number | null = null;
  #probe: Probe | undefined;
  /** They wait for a probe of their own: what was sent after a ping is not proved by its answer. */
  #nextProbe: (() => void)[] | undefined;
  /** Data of the last ping of a probe, which its answer repeats. */
  #lastMark = 0;
  #wasAsked = false;
  readonly #parts: ConnectionParts;
  readonly #transport: Transport;
  /** Made on demand: most sockets need neither. */
  #queues: Map<string, SerialQueue> | undefined;
  #watermarks: Set<Watermark> | undefined;
  #lazyInbox: Inbox | undefined;
  /** True if the client takes too little of what is sent to be read. */
  #isStuck = false;
  #open = true;

  constructor(
    parts: ConnectionParts,
    transport: Transport,
    caller: Caller,
    session: Session,
    options: { typedStream: boolean; since?: number },
  ) {
    this.#parts = parts;
    this.#transport = transport;
    this.caller = caller;
    this.session = session;
    this.typedStream = options.typedStream;
    this.since = options.since ?? parts.clock.now();
    this.#lastMessage = this.since;
    this.#lastProof = this.since;
  }

  get id(): string {
    return this.#transport.id;
  }

  get isOpen(): boolean {
    return this.#open;
  }

  get isWritable(): boolean {
    return this.#open && this.#transport.isWritable?.() !== false;
  }

  get unsent(): number {
    return this.#transport.unsent();
  }

  send(channel: string, type: string, payload: Payload, id: string = crypto.randomUUID(), extra?: Payload): void {
    if (this.#open) this.sendFrame(encodeEnvelope(channel, type, payload, id, extra));
  }

  sendFrame(frame: string): void {
    if (!this.#open) return;
    this.#transport.send(frame);
    this.checkUnsent();
  }

  /** Applies the amount of unsent bytes: to the client, which is not read or closed, and to producers. */
  checkUnsent(): void {
    const unsent = this.#transport.unsent();
    if (unsent > MAX_UNSENT) {
      this.close(1013, 'slow consumer');
      return;
    }
    if (this.#watermarks) for (const watermark of this.#watermarks) watermark.update(unsent);
    if (unsent === 0 && !this.#isStuck) return;
    const messages = this.#transport.unsentMessages?.() ?? 0;
    if (!this.#isStuck && (unsent > READ_LIMIT.bytes || messages > READ_LIMIT.messages)) {
      this.#isStuck = true;
      this.#inbox.hold();
    } else if (this.#isStuck && unsent < READ_AGAIN.bytes && messages < READ_AGAIN.messages) {
      this.#isStuck = false;
      this.#inbox.release();
    }
  }

  sendError(message: string, error: string, id?: string, extra?: Payload): void {
    this.send('system', 'error', { message, error, ...extra }, id);
  }

  follow(limits: WatermarkLimits): () => void {
    const { credit = Number.POSITIVE_INFINITY } = this.#transport;
    const watermark = new Watermark({ ...limits, high: Math.min(limits.high, credit) });
    this.#watermarks ??= new Set();
    this.#watermarks.add(watermark);
    watermark.update(this.#transport.unsent());
    return () => this.#watermarks?.delete(watermark);
  }

  /** The socket's buffer has emptied. */
  drained(): void {
    this.checkUnsent();
  }

  /** One text frame from the client. */
  receive(frame: TextFrame): void {
    if (!this.#open) {
      releaseFrame(frame);
      return;
    }
    this.#lastMessage = this.#lastProof = this.#parts.clock.now();
    if (this.#probe) this.#heardWhileProbed(this.#probe);
    this.#inbox.receive(frame);
  }

  get #inbox(): Inbox {
    this.#lazyInbox ??= new Inbox(this.#transport, (frame) => {
      try {
        if (!this.#handle(frame)) releaseFrame(frame);
      } catch (error) {
        releaseFrame(frame);
        this.#broken(error);
      }
    });
    return this.#lazyInbox;
  }

  /**
   * Judges a message before it is parsed, except one that is no longer than its head (contract 02 §1.1). Returns false for
   * one that is not dispatched.
   */
  #handle(frame: TextFrame): boolean {
    if (!this.#open) return false;
    const head = isShort(frame) ? parseEnvelope(frame) : readHead(frame);
    if (!head) {
      this.#invalid(frame);
      return false;
    }
    const { channels, sessions } = this.#parts;
    if (!sessions.isAlive(this.session)) return false;
    sessions.touch(this.session);
    const { byName } = channels;
    const channel = Object.hasOwn(byName, head.channel) ? byName[head.channel] : undefined;
    if (!channel) {
      this.sendError(`Unknown channel: ${head.channel.slice(0, 64)}`, 'unknown_channel', head.id);
      return false;
    }
    const mayBeLarge = channel.large && channel.needsGrant?.(head) !== false;
    if (!mayBeLarge && isLongerThan(frame, MAX_MESSAGE)) {
      this.#tooLarge(head);
      return false;
    }
    this.#queueOf(head.channel).push(() => {
      const pending = this.#dispatch(channel, head, frame);
      if (typeof frame === 'string' || !frame.handled) return pending;
      if (pending) return pending.finally(frame.handled);
      frame.handled();
    }, frame.length);
    return true;
  }

  /** A failure outside of a handler closes this socket, and must not end the process, or others. */
  #broken(error: unknown): void {
    this.#parts.log.error(`a socket failed: ${describeError(error)}`);
    this.close(1011, 'internal error');
  }

  #invalid(frame: TextFrame): void {
    this.#parts.log.debug(`invalid envelope of ${frame.length} characters from ${this.caller.key}`);
    this.sendError('Invalid envelope', 'invalid_request');
  }

  #tooLarge({ channel, id }: EnvelopeHead): void {
    this.sendError(`Message too large for channel ${channel}`, 'message_too_large', id);
  }

  #queueOf(name: string): SerialQueue {
    const existing = this.#queues?.get(name);
    if (existing) return existing;
    const queue = new SerialQueue({
      backedUp: () => {
        if (!this.#inbox.pause()) this.close(1013, 'slow consumer');
      },
      drained: () => this.#inbox.resume(),
    });
    this.#queues ??= new Map();
    this.#queues.set(name, queue);
    return queue;
  }

  #dispatch(channel: Channel, head: EnvelopeHead | Message, frame: TextFrame): void | Promise<void> {
    try {
      if (!this.#mayDispatch(channel, head)) return;
      if ('payload' in head) return this.#deliver(channel, head, frame as string);
      if (isLongerThan(frame, MAX_UNCOUNTED)) {
        // Nothing refers to the bytes while the text is parsed: each is up to 40 MiB.
        const turn = this.#parts.parsing.acquire(frame.length, RELEASED_LATE);
        return readInTurn(turn, frame)
          .then((text) => this.#dispatchLong(channel, head, text))
          .catch((error) => this.#broken(error))
          .finally(() => turn.then(({ release }) => release()));
      }
      const text = textOfFrame(frame);
      const message = this.#parse(head, text);
      return message && this.#deliver(channel, message, text);
    } catch (error) {
      this.#broken(error);
    }
  }

  /** Dispatches a message that has been counted. Parsing and handling have a turn of the event loop each: both take long. */
  async #dispatchLong(channel: Channel, head: EnvelopeHead, text: string | null): Promise<void> {
    if (text === null) {
      this.#tooLarge(head);
      return;
    }
    const message = this.#parse(head, text);
    await nextTurn();
    if (message && this.#mayDispatch(channel, head)) await this.#deliver(channel, message, text);
  }

  /** The message, unless it is invalid or not the one that was judged: a later member may have the same name. */
  #parse({ channel, type }: EnvelopeHead, text: string): Message | undefined {
    const message = parseEnvelope(text);
    if (message?.channel === channel && message.type === type) return message;
    this.#invalid(text);
    return undefined;
  }

  #mayDispatch(channel: Channel, head: EnvelopeHead | Message): boolean {
    return (this.#open || channel.outlivesSocket?.(head) === true) && this.#mayUse(channel, head);
  }

  #deliver(channel: Channel, message: Message, text: string): void | Promise<void> {
    if (!channel.anyDepth && isTooDeep(message, text)) {
      this.#tooLarge(message);
      return;
    }
    if (message.badPayload && channel.badPayload) {
      channel.badPayload(this, message);
      return;
    }
    try {
      const pending = channel.message(this, message, text);
      return pending?.catch((error) => this.#failed(channel, message, error));
    } catch (error) {
      this.#failed(channel, message, error);
    }
  }

  #mayUse(channel: Channel, head: EnvelopeHead | Message): boolean {
    const { grant } = channel;
    if (!grant || channel.needsGrant?.(head) === false) return true;
    if (isGranted(this.session.grants, grant.name, this.#now())) return true;
    const text = `${grant.label} grant expired for this device`;
    this.sendError(text, 'permission_denied', head.id, { channel: head.channel });
    channel.denied?.(this, 'payload' in head ? head : { ...head, payload: {}, badPayload: false }, text);
    return false;
  }

  #failed(channel: Channel, message: Message, error: unknown): void {
    this.#parts.log.error(`${message.channel} handler failed: ${describeError(error)}`);
    if (channel.failed) channel.failed(this, message);
    else this.sendError('internal error', 'internal_error', message.id);
  }

  #now(): number {
    return this.#parts.clock.now() / 1000;
  }

  /** Announces the socket to every channel. Never rejects. */
  async opened(slept: boolean): Promise<void> {
    if (slept) this.#wasAsked = true;
    for (const [name, channel] of this.#parts.channels.withOpened) {
      try {
        const pending = channel.opened?.(this, slept);
        if (pending) await pending;
      } catch (error) {
        this.#parts.log.error(`${name} could not open a socket: ${describeError(error)}`);
      }
    }
  }

  /** Closes the socket after its cleanup. */
  close(code: number, reason: string): void {
    if (!this.#open) return;
    this.ended();
    this.#transport.close(code, reason);
  }

  /** Drops the socket without a closing handshake. */
  terminate(): void {
    this.ended();
    this.#transport.terminate();
  }

  /** Cleans up after the socket. Idempotent, never throws (contract 02 §1.8). */
  ended(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#watermarks?.clear();
    this.#lazyInbox?.end();
    this.#probe = undefined;
    this.#nextProbe = undefined;
    this.#parts.probes.remove(this);
    for (const [name, channel] of this.#parts.channels.withClosed) this.#cleanUp(name, channel);
    this.#parts.onClosed(this);
  }

  #cleanUp(name: string, channel: Channel): void {
    const failed = (error: unknown) => this.#parts.log.error(`${name} cleanup failed: ${describeError(error)}`);
    try {
      channel.closed?.(this)?.catch(failed);
    } catch (error) {
      failed(error);
    }
  }

  /** True if bytes arrived since the last call; always true where the runtime keeps sockets alive. */
  wasActive(): boolean {
    const received = this.#transport.received?.();
    if (received === undefined) return true;
    const alive = received !== this.#received || this.#lazyInbox?.isPaused === true;
    this.#received = received;
    return alive;
  }
  #received = -1;

  ping(): void {
    this.#pingedAt ??= this.#parts.clock.now();
    this.#transport.ping?.();
  }

  probe(answered: () => void): void {
    if (!this.#open) return;
    if (this.#probe) {
      this.#nextProbe ??= [];
      this.#nextProbe.push(answered);
      return;
    }
    const now = this.#parts.clock.now();
    const mark = Math.max(Math.trunc(now), this.#lastMark + 1);
    this.#lastMark = mark;
    const at = this.#parts.clock.monotonic();
    this.#probe = { answered, at, heardAt: at, isHeard: false, ...this.#progress() };
    const isAsked = !this.#wasAsked || !this.#ignoresPings;
    if (isAsked) this.#pingedAt ??= now;
    if (this.#transport.ping) this.#transport.ping(String(mark));
    // The platform hides a client's own answers: this takes the client's own code (contract 02 §2).
    else if (isAsked) this.send('system', 'ping', { ts: mark });
    this.#wasAsked = true;
    this.#parts.probes.add(this);
  }

  /** The client was asked at the edge, did not answer within 10 s, and never has. Each of its sockets is asked once. */
  get #ignoresPings(): boolean {
    return !this.#transport.ping && this.session.answersPings === false;
  }

  /**
   * A message proves nothing where pings are answered: it may have been sent first, or on a connection that is dead in the
   * other direction. At the edge, a late one has to do for clients that have never answered a `system/ping`.
   */
  #heardWhileProbed(probe: Probe): void {
    probe.isHeard = true;
    probe.heardAt = this.#parts.clock.monotonic();
    if (this.#transport.ping || this.session.answersPings) return;
    if (probe.heardAt - probe.at >= GIVEN_UP_AFTER) this.#probeAnswered(probe);
  }

  /** The client answers pings after all: a probe that was left to the platform is watched again. */
  watchProbe(): void {
    if (this.#probe) this.#parts.probes.add(this);
  }

  /**
   * The probe has had no answer for 10 s. Drops a client that was silent meanwhile, unless it ignores pings, when silence
   * says nothing and the platform finds out that it is gone. Returns whether to wait on.
   */
  missedProbe(): boolean {
    const probe = this.#probe;
    if (!probe) return false;
    const { received, unsent } = this.#progress();
    const isReceiving = received - probe.received > CONTROL_BYTES || this.#lazyInbox?.isPaused === true;
    const isPatient = this.#ignoresPings;
    if (!this.#transport.ping && !this.session.answersPings) this.#parts.answersPings(this.session, false);
    if (!isPatient && !probe.isHeard && !isReceiving && !(unsent < probe.unsent)) {
      this.#parts.log.info(`socket of session ${this.session.prefix} dropped: it does not answer (${this.caller.key})`);
      this.terminate();
      return false;
    }
    Object.assign(probe, { isHeard: false, received, unsent });
    return !isPatient || this.#parts.clock.monotonic() - probe.heardAt < STALE_AFTER;
  }

  #progress() {
    return { received: this.#transport.received?.() ?? 0, unsent: this.#transport.unsent() };
  }

  #probeAnswered({ answered }: Probe): void {
    this.#probe = undefined;
    this.#parts.probes.remove(this);
    const next = this.#nextProbe;
    this.#nextProbe = undefined;
    answered();
    if (next) {
      this.probe(() => {
        for (const each of next) each();
      });
    }
  }

  /** The client pinged. */
  pinged(): void {
    this.#lastProof = this.#parts.clock.now();
    this.checkUnsent();
  }

  /** The client answered a ping. */
  ponged(data?: unknown): void {
    const mark = typeof data === 'number' ? String(data) : data;
    this.#lastProof = this.#parts.clock.now();
    if (this.#pingedAt !== undefined) this.#roundTrip = Math.max(0, this.#lastProof - this.#pingedAt);
    this.#pingedAt = undefined;
    if (mark === undefined || mark !== String(this.#lastMark)) return;
    if (!this.#transport.ping) this.#parts.answersPings(this.session, true);
    const probe = this.#probe;
    if (!probe) return;
    this.#probeAnswered(probe);
  }

  /** The connection as `GET /relay/devices` shows it. */
  describe(): ConnectionRow {
    const now = this.#parts.clock.now();
    const proofAge = Math.max(0, now - this.#lastProof);
    const channels = this.#parts.channels.withDescription.map(([name, channel]) => [name, channel.describe?.(this)]);
    return {
      id: this.id,
      since: Math.floor(this.since / 1000),
      client_surface: this.session.device.surface,
      route: ROUTES[this.caller.peer.via],
      last_seen_ms: Math.max(0, now - this.#lastMessage),
      rtt_ms: this.#roundTrip,
      proof_age_ms: proofAge,
      stale: proofAge > STALE_AFTER,
      channels: Object.fromEntries(channels),
    };
  }

  async answers(ms: number): Promise<boolean> {
    const { clock } = this.#parts;
    const before = this.#transport.received?.();
    if (before === undefined) return true;
    this.ping();
    for (const end = clock.monotonic() + ms; this.#open && clock.monotonic() < end; ) {
      await new Promise<void>((resolve) => clock.after(ANSWER_POLL, resolve));
      if (this.#transport.received?.() !== before || this.#lazyInbox?.isPaused) return true;
    }
    return false;
  }
}

/** A function of its own, as the others of a chain would hold the bytes too. */
const readInTurn = (turn: Promise<Reservation>, frame: TextFrame): Promise<string | null> =>
  turn.then(() => readLongJson(frame, KEEPING_BOM));

/**
 * True if a payload is too deep to be written as JSON again, which recurses: in the list of phones, say, where one such
 * status would fail it for all. Every level takes two characters, and a longer text has been counted.
 */
const isTooDeep = ({ payload }: Message, text: string): boolean =>
  text.length > 2 * MAX_DEPTH && text.length <= MAX_UNCOUNTED && isDeeperThan(payload, MAX_DEPTH - 1);
