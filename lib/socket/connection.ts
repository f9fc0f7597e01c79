import { describeError } from '../errors.ts';
import type { Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Channel, ChannelTable, Connection } from './channel.ts';
import type { Indexed } from './dense-set.ts';
import { encodeEnvelope, isLongerThan, type Message, type Payload, parseEnvelope } from './envelope.ts';
import { SerialQueue } from './serial-queue.ts';
import type { Caller, Transport } from './transport.ts';
import { Watermark, type WatermarkLimits } from './watermark.ts';

const MAX_MESSAGE = 4 * 1024 * 1024;
/** Milliseconds between checks for received bytes: no event announces them. */
const ANSWER_POLL = 20;
const MAX_UNSENT = 64 * 1024 * 1024;

export interface ConnectionParts {
  channels: ChannelTable;
  sessions: Sessions;
  clock: Clock;
  log: Log;
  /** Called once, when the connection has ended. */
  onClosed(connection: SocketConnection): void;
}

/** One authenticated socket: dispatch, grants, order, backpressure and cleanup for every channel. */
export class SocketConnection implements Connection, Indexed {
  readonly caller: Caller;
  readonly session: Session;
  readonly typedStream: boolean;
  index = -1;
  readonly #parts: ConnectionParts;
  readonly #transport: Transport;
  /** Made on demand: most sockets need neither. */
  #queues: Map<string, SerialQueue> | undefined;
  #watermarks: Set<Watermark> | undefined;
  #open = true;

  constructor(
    parts: ConnectionParts,
    transport: Transport,
    caller: Caller,
    session: Session,
    options: { typedStream: boolean },
  ) {
    this.#parts = parts;
    this.#transport = transport;
    this.caller = caller;
    this.session = session;
    this.typedStream = options.typedStream;
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

  /** Passes the amount of unsent bytes to producers, and closes a client with too many. */
  checkUnsent(): void {
    const unsent = this.#transport.unsent();
    if (unsent > MAX_UNSENT) this.close(1013, 'slow consumer');
    else if (this.#watermarks) for (const watermark of this.#watermarks) watermark.update(unsent);
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
  receive(text: string): void {
    if (!this.#open) return;
    const message = parseEnvelope(text);
    if (!message) {
      this.#parts.log.debug(`invalid envelope of ${text.length} characters from ${this.caller.key}`);
      this.sendError('Invalid envelope', 'invalid_request');
      return;
    }
    const { channels, sessions } = this.#parts;
    if (!sessions.isAlive(this.session)) return;
    sessions.touch(this.session);
    const { byName } = channels;
    const channel = Object.hasOwn(byName, message.channel) ? byName[message.channel] : undefined;
    if (!channel) {
      this.sendError(`Unknown channel: ${message.channel.slice(0, 64)}`, 'unknown_channel', message.id);
      return;
    }
    if (!channel.large && isLongerThan(text, MAX_MESSAGE)) {
      this.sendError(`Message too large for channel ${message.channel}`, 'message_too_large', message.id);
      return;
    }
    this.#queueOf(message.channel).push(() => this.#dispatch(channel, message, text));
  }

  /** Reading is paused because too many messages wait: silence then says nothing about the client. */
  get #isBackedUp(): boolean {
    return [...(this.#queues?.values() ?? [])].some((queue) => queue.isBackedUp);
  }

  #queueOf(name: string): SerialQueue {
    const existing = this.#queues?.get(name);
    if (existing) return existing;
    const queue = new SerialQueue({
      backedUp: () => {
        if (!this.#transport.pause()) this.close(1013, 'slow consumer');
      },
      drained: () => {
        if (!this.#isBackedUp) this.#transport.resume();
      },
    });
    this.#queues ??= new Map();
    this.#queues.set(name, queue);
    return queue;
  }

  #dispatch(channel: Channel, message: Message, text: string): void | Promise<void> {
    if (!this.#open && !channel.outlivesSocket?.(message)) return;
    if (!this.#mayUse(channel, message)) return;
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

  #mayUse(channel: Channel, message: Message): boolean {
    const { grant } = channel;
    if (!grant || channel.needsGrant?.(message) === false) return true;
    if (isGranted(this.session.grants, grant.name, this.#now())) return true;
    const text = `${grant.label} grant expired for this device`;
    this.sendError(text, 'permission_denied', message.id, { channel: message.channel });
    channel.denied?.(this, message, text);
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

  /** Whether bytes arrived since the last call; always true where the runtime keeps sockets alive. */
  wasActive(): boolean {
    const received = this.#transport.received?.();
    if (received === undefined) return true;
    const alive = received !== this.#received || this.#isBackedUp;
    this.#received = received;
    return alive;
  }
  #received = -1;

  ping(): void {
    this.#transport.ping?.();
  }

  async answers(ms: number): Promise<boolean> {
    const { clock } = this.#parts;
    const before = this.#transport.received?.();
    if (before === undefined) return true;
    this.ping();
    for (const end = clock.monotonic() + ms; this.#open && clock.monotonic() < end; ) {
      await new Promise<void>((resolve) => clock.after(ANSWER_POLL, resolve));
      if (this.#transport.received?.() !== before || this.#isBackedUp) return true;
    }
    return false;
  }
}
