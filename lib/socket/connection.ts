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
/** Milliseconds between checks for received bytes, since no event reports them. */
const ANSWER_POLL = 20;
/** More bytes than these belong to a message, rather than to pings or answers of a proxy. */
const CONTROL_BYTES = 1024;
const MAX_UNSENT = 64 * 1024 * 1024;
/**
 * Milliseconds after which a message proves the arrival of earlier data, for a client that answers no pings: a client that
 * receives nothing would have given up its connection by then, because its own ping every 30 s gets no answer.
 */
const GIVEN_UP_AFTER = 90_000;
/** Unsent bytes and messages above which a client is not read, and below which it is again. */
const READ_LIMIT = { bytes: 1024 * 1024, messages: 2000 };
const READ_AGAIN = { bytes: 256 * 1024, messages: 500 };

/** The route of a client to the relay, in its name on the wire (contract 09 §2). */
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
  /** Milliseconds since the last sign of life: a message, a ping or the answer to one. */
  proof_age_ms: number;
  stale: boolean;
  channels: Record<string, Payload>;
}

export interface ConnectionDeps {
  channels: ChannelTable;
  sessions: Sessions;
  clock: Clock;
  log: Log;
  probes: Probes;
  /** Limits the long messages of all sockets that are parsed at the same time. */
  parsing: ByteBudget;
  /** Reports whether the clients of a session answer the pings of a runtime that hides protocol pings. */
  answersPings(session: Session, answers: boolean): void;
  /** Called once, when the connection has ended. */
  onClosed(connection: SocketConnection): void;
}

/** An unanswered ping. */
interface Probe {
  readonly answered: () => void;
  /** Monotonic milliseconds of the ping, and of the last message since. */
  readonly at: number;
  receivedAt: number;
  /** True if a message came since the last check. */
  hasReceived: boolean;
  /** Bytes received at the last check. */
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
  /** Callbacks that wait for the next probe, since the answer to a ping proves nothing about data sent after it. */
  #nextProbe: (() => void)[] | undefined;
  /** Data of the last ping of a probe, which its answer repeats. */
  #lastMark = 0;
  #wasAsked = false;
  readonly #deps: ConnectionDeps;
  readonly #transport: Transport;
  /** Created on demand, as most sockets need neither. */
  #queues: Map<string, SerialQueue> | undefined;
  #watermarks: Set<Watermark> | undefined;
  #lazyInbox: Inbox | undefined;
  /** True if the client reads too little, so that it is not read either. */
  #isStuck = false;
  #open = true;

  constructor(
    deps: ConnectionDeps,
    transport: Transport,
    caller: Caller,
    session: Session,
    options: { typedStream: boolean; since?: number },
  ) {
    this.#deps = deps;
    this.#transport = transport;
    this.caller = caller;
    this.session = session;
    this.typedStream = options.typedStream;
    this.since = options.since ?? deps.clock.now();
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
    // A session that revokes itself keeps its socket until that is stored and answered.
    if (!this.#open || this.session.ended) return;
    this.#transport.send(frame);
    this.checkUnsent();
  }

  /** Reacts to the amount of unsent bytes: pauses or closes the client, and pauses producers. */
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

  /** One text frame from the client. */
  receive(frame: TextFrame): void {
    if (!this.#open) {
      releaseFrame(frame);
      return;
    }
    this.#lastMessage = this.#lastProof = this.#deps.clock.now();
    if (this.#probe) this.#receivedWhileProbed(this.#probe);
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
   * Checks a message before it is parsed, unless it is no longer than its head (contract 02 §1.1). Returns false if it must
   * not be dispatched.
   */
  #handle(frame: TextFrame): boolean {
    if (!this.#open) return false;
    const head = isShort(frame) ? parseEnvelope(frame) : readHead(frame);
    if (!head) {
      this.#invalid(frame);
      return false;
    }
    const { channels, sessions } = this.#deps;
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

  /** A failure outside of a handler closes this socket; it must not end the process or other sockets. */
  #broken(error: unknown): void {
    this.#deps.log.error(`a socket failed: ${describeError(error)}`);
    this.close(1011, 'internal error');
  }

  #invalid(frame: TextFrame): void {
    this.#deps.log.debug(`invalid envelope of ${frame.length} characters from ${this.caller.key}`);
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
        // Nothing references the bytes while the text is parsed, since each is up to 40 MiB.
        const turn = this.#deps.parsing.acquire(frame.length, RELEASED_LATE);
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

  /** Dispatches a counted message. Parsing and handling take separate turns of the event loop, since both are slow. */
  async #dispatchLong(channel: Channel, head: EnvelopeHead, text: string | null): Promise<void> {
    if (text === null) {
      this.#tooLarge(head);
      return;
    }
    const message = this.#parse(head, text);
    await nextTurn();
    if (message && this.#mayDispatch(channel, head)) await this.#deliver(channel, message, text);
  }

  /** The message, unless it is invalid or differs from the checked head: a later member may have the same name. */
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
    this.#deps.log.error(`${message.channel} handler failed: ${describeError(error)}`);
    if (channel.failed) channel.failed(this, message);
    else this.sendError('internal error', 'internal_error', message.id);
  }

  #now(): number {
    return this.#deps.clock.now() / 1000;
  }

  /** Announces the socket to every channel. Never rejects. */
  async opened(slept: boolean): Promise<void> {
    if (slept) this.#wasAsked = true;
    for (const [name, channel] of this.#deps.channels.withOpened) {
      try {
        const pending = channel.opened?.(this, slept);
        if (pending) await pending;
      } catch (error) {
        this.#deps.log.error(`${name} could not open a socket: ${describeError(error)}`);
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
    this.#deps.probes.remove(this);
    for (const [name, channel] of this.#deps.channels.withClosed) this.#cleanUp(name, channel);
    this.#deps.onClosed(this);
  }

  #cleanUp(name: string, channel: Channel): void {
    const failed = (error: unknown) => this.#deps.log.error(`${name} cleanup failed: ${describeError(error)}`);
    try {
      channel.closed?.(this)?.catch(failed);
    } catch (error) {
      failed(error);
    }
  }

  /** True if bytes arrived since the last call; always true on a runtime that keeps sockets alive itself. */
  wasActive(): boolean {
    const received = this.#transport.received?.();
    if (received === undefined) return true;
    const alive = received !== this.#received || this.#lazyInbox?.isPaused === true;
    this.#received = received;
    return alive;
  }
  #received = -1;

  ping(): void {
    this.#pingedAt ??= this.#deps.clock.now();
    this.#transport.ping?.();
  }

  probe(answered: () => void): void {
    if (!this.#open) return;
    if (this.#probe) {
      this.#nextProbe ??= [];
      this.#nextProbe.push(answered);
      return;
    }
    const now = this.#deps.clock.now();
    const mark = Math.max(Math.trunc(now), this.#lastMark + 1);
    this.#lastMark = mark;
    const at = this.#deps.clock.monotonic();
    this.#probe = { answered, at, receivedAt: at, hasReceived: false, ...this.#progress() };
    const isAsked = !this.#wasAsked || !this.#ignoresPings;
    if (isAsked) this.#pingedAt ??= now;
    if (this.#transport.ping) this.#transport.ping(String(mark));
    // The platform hides protocol pongs, so this uses the client's own ping (contract 02 §2).
    else if (isAsked) this.send('system', 'ping', { ts: mark });
    this.#wasAsked = true;
    this.#deps.probes.add(this);
  }

  /**
   * True if the client was pinged at the edge, did not answer within 10 s, and never has. Each of its sockets is pinged
   * once.
   */
  get #ignoresPings(): boolean {
    return !this.#transport.ping && this.session.answersPings === false;
  }

  /**
   * Where pings are answered, a message proves nothing: it may have been sent earlier, or on a connection that is dead in
   * the other direction. At the edge, a late one has to suffice for clients that have never answered a `system/ping`.
   */
  #receivedWhileProbed(probe: Probe): void {
    probe.hasReceived = true;
    probe.receivedAt = this.#deps.clock.monotonic();
    if (this.#transport.ping || this.session.answersPings) return;
    if (probe.receivedAt - probe.at >= GIVEN_UP_AFTER) this.#probeAnswered(probe);
  }

  /** The client answers pings after all, so a probe that was left to the platform is watched again. */
  watchProbe(): void {
    if (this.#probe) this.#deps.probes.add(this);
  }

  /**
   * The probe had no answer for 10 s. Drops a client that was silent meanwhile, unless it ignores pings, in which case
   * silence proves nothing and the platform detects the end. Returns true to keep waiting.
   */
  missedProbe(): boolean {
    const probe = this.#probe;
    if (!probe) return false;
    const { received, unsent } = this.#progress();
    const isReceiving = received - probe.received > CONTROL_BYTES || this.#lazyInbox?.isPaused === true;
    const isPatient = this.#ignoresPings;
    if (!this.#transport.ping && !this.session.answersPings) this.#deps.answersPings(this.session, false);
    if (!isPatient && !probe.hasReceived && !isReceiving && !(unsent < probe.unsent)) {
      this.#deps.log.info(`socket of session ${this.session.prefix} dropped: it does not answer (${this.caller.key})`);
      this.terminate();
      return false;
    }
    Object.assign(probe, { hasReceived: false, received, unsent });
    return !isPatient || this.#deps.clock.monotonic() - probe.receivedAt < STALE_AFTER;
  }

  #progress() {
    return { received: this.#transport.received?.() ?? 0, unsent: this.#transport.unsent() };
  }

  #probeAnswered({ answered }: Probe): void {
    this.#probe = undefined;
    this.#deps.probes.remove(this);
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
    this.#lastProof = this.#deps.clock.now();
    this.checkUnsent();
  }

  /** The client answered a ping. */
  ponged(data?: unknown): void {
    const mark = typeof data === 'number' ? String(data) : data;
    this.#lastProof = this.#deps.clock.now();
    if (this.#pingedAt !== undefined) this.#roundTrip = Math.max(0, this.#lastProof - this.#pingedAt);
    this.#pingedAt = undefined;
    if (mark === undefined || mark !== String(this.#lastMark)) return;
    if (!this.#transport.ping) this.#deps.answersPings(this.session, true);
    const probe = this.#probe;
    if (!probe) return;
    this.#probeAnswered(probe);
  }

  /** The connection, as shown by `GET /relay/devices`. */
  describe(): ConnectionRow {
    const now = this.#deps.clock.now();
    const proofAge = Math.max(0, now - this.#lastProof);
    const channels = this.#deps.channels.withDescription.map(([name, channel]) => [name, channel.describe?.(this)]);
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
    const { clock } = this.#deps;
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

/** A separate function, since closures of the promise chain would also keep the bytes alive. */
const readInTurn = (turn: Promise<Reservation>, frame: TextFrame): Promise<string | null> =>
  turn.then(() => readLongJson(frame, KEEPING_BOM));

/**
 * True if a payload is too deep to be serialized again, which recurses; one such status would make the list of phones fail
 * for all. Every level takes two characters, and longer texts were counted already.
 */
const isTooDeep = ({ payload }: Message, text: string): boolean =>
  text.length > 2 * MAX_DEPTH && text.length <= MAX_UNCOUNTED && isDeeperThan(payload, MAX_DEPTH - 1);
