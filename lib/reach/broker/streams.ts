import type { Clock } from '../../kit/clock.ts';
import { KiB, MiB } from '../../kit/units.ts';
import { closeFrame, dataHeader, decodeFrame, HEADER_BYTES, windowFrame } from '../frames.ts';
import { type ErrorCode, encodeMessage } from '../messages.ts';
import { ByteQueue } from './byte-queue.ts';
import type { Link } from './effects.ts';

/** Largest payload of a frame to a host: with its header it fits the 1 MiB that older connectors accept. */
const MAX_RECORD = MiB - HEADER_BYTES;
/** Bytes in flight to a socket above which further ones wait in the queue of their stream. */
const HIGH_WATER = 256 * KiB;
/** Queue of one direction of a stream (contract 08 §7.6). */
const MAX_QUEUED_FRAMES = 32;
export const MAX_QUEUED_BYTES = 8 * MiB;
/**
 * Bytes queued for the host at which one client is no longer read, and at which none of the host's clients is. With flow
 * control one window is enough: what waits longer outlives two collections of young objects, and only a full one frees it.
 */
const PAUSE_CLIENT_AT = MiB;
const PAUSE_ALL_AT = 4 * MiB;
/** Milliseconds for which one full stream may stop the reading of the host. */
const MAX_STALL = 10_000;
/** Milliseconds without data in either direction after which a stream ends. */
const IDLE = 300_000;
/** Milliseconds in which a client that its host has closed must accept some of its remaining bytes. */
const MAX_DRAIN = 30_000;
/** IDs of ended streams that a host may still send data for. */
const MAX_ENDED = 4096;
/** Messages that may be queued for a host which does not read. */
const MAX_CONTROL_QUEUED = 1024;
/** Maximum credit that a host may accumulate on a stream, bytes. */
const MAX_CREDIT = 64 * MiB;

/** One client on one host. */
export interface Stream<S> {
  readonly id: string;
  /** Of each of its DATA frames. */
  readonly header: Uint8Array;
  readonly connectionId: string;
  /** Digest of the credential that opened it. */
  readonly digest: string;
  readonly credentialId: string | null;
  readonly client: Link<S>;
  readonly toHost: ByteQueue;
  readonly toClient: ByteQueue;
  /** True once the host knows of it. */
  isAnnounced: boolean;
  /** True while the side takes part. A side that has gone may leave a queue to be sent. */
  hostLive: boolean;
  clientLive: boolean;
  /** Time of the last data, monotonic milliseconds. */
  lastData: number;
  /** Time since when the queue to the client is over its limit. */
  fullSince: number | null;
  /** Bytes that may be sent to the host, and received from it, under flow control. */
  sendCredit: number;
  receiveCredit: number;
  /** Bytes sent to the client but not yet granted to the host again. */
  toGrant: number;
  /** Bytes sent to the client since it last sent anything. */
  unanswered: number;
  bytesToHost: number;
  bytesToClient: number;
}

export interface StreamLimits {
  /** Streams per host, and of a host without flow control. */
  maxStreams: number;
  maxStreamsWithoutFlow: number;
  /** Bytes that a host without flow control may send to a client that sends nothing. */
  maxUnanswered: number;
  /** Bytes queued for the host in one stream, and half of the limit for all streams. */
  maxQueuedToHost: number;
  /** Bytes of the offered window; the host's answer is the window of the other direction. */
  window: number;
}

export interface HostEvents<S> {
  /** The stream is over on both sides. */
  ended(stream: Stream<S>, why: string): void;
  /** The host broke the protocol or a limit. */
  violated(code: ErrorCode): void;
}

export interface HostFields<S> {
  id: string;
  link: Link<S>;
  connectionId: string;
  digest: string;
  /** By default now. */
  since?: number;
}

/** A registered host: its streams, and the frames queued for it. */
export class HostLink<S> {
  readonly id: string;
  readonly link: Link<S>;
  readonly connectionId: string;
  /** Digest of its token. */
  readonly digest: string;
  readonly since: number;
  readonly streams = new Map<string, Stream<S>>();
  /** Null without flow control. */
  window: number | null = null;
  readonly #ended = new Set<string>();
  readonly #control: (string | Uint8Array)[] = [];
  readonly #closes: Uint8Array[] = [];
  /** Streams with data for the host, the next one first. */
  readonly #ready = new Set<Stream<S>>();
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #limits: StreamLimits;
  readonly #events: HostEvents<S>;
  #queuedToHost = 0;

  constructor(
    fields: HostFields<S>,
    { clock, limits, events }: { clock: Pick<Clock, 'monotonic'>; limits: StreamLimits; events: HostEvents<S> },
  ) {
    this.id = fields.id;
    this.link = fields.link;
    this.connectionId = fields.connectionId;
    this.digest = fields.digest;
    this.#clock = clock;
    this.#limits = limits;
    this.#events = events;
    this.since = fields.since ?? clock.monotonic();
  }

  get isFull(): boolean {
    const { maxStreams, maxStreamsWithoutFlow } = this.#limits;
    return this.streams.size >= (this.window === null ? maxStreamsWithoutFlow : maxStreams);
  }

  /** Streams that a credential has open. */
  countOf(digest: string): number {
    let count = 0;
    for (const stream of this.streams.values()) if (stream.digest === digest) count++;
    return count;
  }

  /** Adds a stream. The host learns of it by `announce`. */
  add(fields: Pick<Stream<S>, 'id' | 'connectionId' | 'digest' | 'credentialId' | 'client'>): Stream<S> {
    const stream: Stream<S> = {
      ...fields,
      header: dataHeader(fields.id),
      toHost: new ByteQueue(),
      toClient: new ByteQueue(),
      isAnnounced: false,
      hostLive: true,
      clientLive: true,
      lastData: this.#clock.monotonic(),
      fullSince: null,
      sendCredit: this.window ?? Number.POSITIVE_INFINITY,
      receiveCredit: this.window === null ? Number.POSITIVE_INFINITY : this.#limits.window,
      toGrant: 0,
      unanswered: 0,
      bytesToHost: 0,
      bytesToClient: 0,
    };
    this.streams.set(stream.id, stream);
    return stream;
  }

  /** Queues a control message, ahead of all frames. */
  control(message: string | Uint8Array): void {
    if (this.#control.length >= MAX_CONTROL_QUEUED) {
      this.#events.violated('quota_exceeded');
      return;
    }
    this.#control.push(message);
    this.pump();
  }

  announce(stream: Stream<S>, open: string): void {
    stream.isAnnounced = true;
    this.control(open);
    this.#offer(stream);
    this.pump();
  }

  /** The host takes part in flow control. */
  useFlow(window: number): void {
    this.window = window;
    for (const stream of this.streams.values()) {
      stream.sendCredit = window;
      stream.receiveCredit = this.#limits.window;
      stream.toGrant = 0;
    }
  }

  /** Data from a client. False when it overflowed the queue. */
  fromClient(stream: Stream<S>, payload: Uint8Array): boolean {
    if (!stream.hostLive) return true;
    const { maxQueuedToHost } = this.#limits;
    if (this.#queuedToHost + payload.length > 2 * maxQueuedToHost) return false;
    if (stream.toHost.bytes + payload.length > maxQueuedToHost) return false;
    stream.lastData = this.#clock.monotonic();
    stream.unanswered = 0;
    stream.bytesToHost += payload.length;
    stream.toHost.push(payload);
    this.#queuedToHost += payload.length;
    this.#offer(stream);
    this.pump();
    this.#balance();
    return true;
  }

  /** The client has gone: its last bytes still reach the host, followed by one CLOSE. */
  clientEnded(stream: Stream<S>, why: string): void {
    if (!stream.clientLive) return;
    stream.clientLive = false;
    stream.lastData = this.#clock.monotonic();
    stream.toClient.clear();
    this.#unblock(stream);
    if (stream.toHost.bytes === 0 || !stream.isAnnounced) this.#finish(stream, why);
  }

  /** Ends a stream on both sides now: CLOSE to the host, and a close of the client, for an error after its message. */
  abort(stream: Stream<S>, how: number | ErrorCode, why: string): void {
    stream.clientLive = false;
    stream.toClient.clear();
    if (typeof how === 'string') stream.client.send(encodeMessage({ type: 'error', code: how }));
    stream.client.close(typeof how === 'string' ? 1008 : how);
    this.#finish(stream, why);
  }

  /** Handles a binary message of the host. */
  fromHost(bytes: Uint8Array): void {
    const frame = decodeFrame(bytes, this.window !== null);
    if (frame.type === 'bad') {
      this.#events.violated(frame.reason === 'size' ? 'quota_exceeded' : 'unauthorized');
      return;
    }
    const stream = this.streams.get(frame.streamId);
    if (!stream?.isAnnounced || !stream.hostLive) {
      // The host may not know yet that it has ended.
      const wasIssued = stream?.isAnnounced || this.#ended.has(frame.streamId);
      if (frame.type === 'data' && !wasIssued) this.#events.violated('unauthorized');
      return;
    }
    if (frame.type === 'data') this.#dataFromHost(stream, frame.payload);
    else if (frame.type === 'close') this.#closeFromHost(stream);
    else {
      stream.sendCredit = Math.min(MAX_CREDIT, stream.sendCredit + frame.credit);
      this.#offer(stream);
      this.pump();
      this.#balance();
    }
  }

  #dataFromHost(stream: Stream<S>, payload: Uint8Array): void {
    stream.receiveCredit -= payload.length;
    if (stream.receiveCredit < 0) {
      this.#events.violated('quota_exceeded');
      return;
    }
    // Credit for a client that has gone is not restored, since the host gets its CLOSE.
    if (!stream.clientLive) return;
    stream.lastData = this.#clock.monotonic();
    stream.bytesToClient += payload.length;
    stream.unanswered += payload.length;
    stream.toClient.push(payload);
    this.#feed(stream);
    if (this.window === null && stream.unanswered > this.#limits.maxUnanswered) {
      this.abort(stream, 'quota_exceeded', 'the client answers nothing');
      return;
    }
    const { bytes, frames } = stream.toClient;
    if (stream.fullSince === null && (bytes > MAX_QUEUED_BYTES || frames > MAX_QUEUED_FRAMES)) {
      stream.fullSince = this.#clock.monotonic();
      this.link.setPaused(true);
    }
  }

  /** Bytes left for the client still reach it. */
  #closeFromHost(stream: Stream<S>): void {
    stream.hostLive = false;
    this.#dropToHost(stream);
    this.#remember(stream.id);
    stream.lastData = this.#clock.monotonic();
    this.#feed(stream);
  }

  /**
   * The credential of a stream was revoked: nothing more is accepted, but the bytes that the host has sent still reach the
   * client.
   */
  revoke(stream: Stream<S>): void {
    if (stream.hostLive && stream.isAnnounced) this.#closes.push(closeFrame(stream.id));
    this.#closeFromHost(stream);
    this.pump();
  }

  /** Sends the client as much as it accepts. */
  #feed(stream: Stream<S>): void {
    while (stream.client.unsent < HIGH_WATER) {
      const payload = stream.toClient.take(Number.POSITIVE_INFINITY);
      if (!payload) break;
      stream.client.send(payload);
    }
    if (stream.fullSince !== null && isRelieved(stream.toClient)) this.#unblock(stream);
    if (!stream.hostLive && stream.toClient.bytes === 0) {
      stream.client.close(1000);
      stream.clientLive = false;
      this.#remove(stream, 'closed to the client');
    }
  }

  /** Bytes were sent to the client. */
  sentToClient(stream: Stream<S>, bytes: number): void {
    if (stream.clientLive && !stream.hostLive) stream.lastData = this.#clock.monotonic();
    if (this.window !== null && stream.hostLive && stream.clientLive) {
      stream.toGrant += bytes;
      // In steps, since the rest of the window suffices meanwhile.
      if (stream.toGrant >= this.#limits.window / 4) this.#grant(stream);
    }
    this.#feed(stream);
  }

  #grant(stream: Stream<S>): void {
    const used = this.#limits.window - stream.receiveCredit;
    const credit = Math.min(stream.toGrant, used);
    stream.toGrant = 0;
    if (credit <= 0) return;
    stream.receiveCredit += credit;
    this.control(windowFrame(stream.id, credit));
  }

  /** Sends the host as much as it accepts: control messages, then CLOSE frames, then one frame of each stream in turn. */
  pump(): void {
    while (this.link.isOpen && this.link.unsent < HIGH_WATER) {
      const message = this.#control.shift() ?? this.#closes.shift();
      if (message !== undefined) this.link.send(message);
      else if (!this.#sendNext()) break;
    }
  }

  #sendNext(): boolean {
    const [stream] = this.#ready;
    if (!stream) return false;
    this.#ready.delete(stream);
    const payload = stream.toHost.take(Math.min(MAX_RECORD, stream.sendCredit));
    if (payload) {
      stream.sendCredit -= payload.length;
      this.#queuedToHost -= payload.length;
      this.link.send(payload, stream.header);
      this.#offer(stream);
    }
    if (!stream.clientLive && stream.toHost.bytes === 0) this.#finish(stream, 'closed by the client');
    return true;
  }

  /** Bytes were sent to the host. */
  sentToHost(): void {
    this.pump();
    this.#balance();
  }

  #offer(stream: Stream<S>): void {
    if (stream.isAnnounced && stream.hostLive && stream.toHost.bytes > 0 && stream.sendCredit > 0) {
      this.#ready.add(stream);
    }
  }

  /** Reads from each client while there is room for its bytes. */
  #balance(): void {
    const allFull = this.#queuedToHost > PAUSE_ALL_AT;
    const pauseAt = Math.min(PAUSE_CLIENT_AT, this.window ?? PAUSE_CLIENT_AT);
    for (const { client, toHost } of this.streams.values()) {
      if (!client.isPaused) client.setPaused(toHost.bytes > 0 && (allFull || toHost.bytes > pauseAt));
      else if (!allFull && toHost.bytes <= pauseAt / 2) client.setPaused(false);
    }
  }

  #unblock(stream: Stream<S>): void {
    stream.fullSince = null;
    if (!this.link.isPaused) return;
    for (const other of this.streams.values()) if (other.fullSince !== null) return;
    this.link.setPaused(false);
  }

  /** Queues the CLOSE, unless the host has sent one. */
  #finish(stream: Stream<S>, why: string): void {
    const notifiesHost = stream.hostLive && stream.isAnnounced;
    stream.hostLive = false;
    this.#remove(stream, why);
    if (!notifiesHost) return;
    this.#closes.push(closeFrame(stream.id));
    this.pump();
  }

  #remove(stream: Stream<S>, why: string): void {
    if (!this.streams.delete(stream.id)) return;
    this.#dropToHost(stream);
    stream.toClient.clear();
    if (stream.isAnnounced) this.#remember(stream.id);
    this.#unblock(stream);
    this.#events.ended(stream, why);
    this.#balance();
  }

  #dropToHost(stream: Stream<S>): void {
    this.#queuedToHost -= stream.toHost.bytes;
    stream.toHost.clear();
    this.#ready.delete(stream);
  }

  #remember(streamId: string): void {
    this.#ended.add(streamId);
    if (this.#ended.size > MAX_ENDED) this.#ended.delete(this.#ended.values().next().value as string);
  }

  /** Time at which the first of its idle streams ends, monotonic milliseconds; null without streams. */
  nextIdleEnd(): number | null {
    let next: number | null = null;
    for (const { lastData } of this.streams.values()) next = Math.min(next ?? lastData + IDLE, lastData + IDLE);
    return next;
  }

  /** Ends streams that are idle or stalled for too long. */
  tick(): void {
    const now = this.#clock.monotonic();
    for (const stream of [...this.streams.values()]) {
      const { fullSince, lastData, hostLive, clientLive } = stream;
      const isLive = hostLive && clientLive;
      const isStalled = fullSince !== null && now - fullSince >= MAX_STALL;
      if (isStalled || (!isLive && now - lastData >= MAX_DRAIN)) {
        this.abort(stream, 'quota_exceeded', 'the other side takes nothing');
      } else if (isLive && now - lastData >= IDLE) this.abort(stream, 1000, 'idle');
    }
  }

  /** The host has gone, and every client with it. */
  end(code: number, why: string): void {
    for (const stream of [...this.streams.values()]) {
      stream.hostLive = false;
      this.abort(stream, code, why);
    }
    this.#control.length = 0;
    this.#closes.length = 0;
  }

  /** IDs of the streams that ended last, for a runtime that forgets this object. */
  recentlyEnded(count: number): string[] {
    return [...this.#ended].slice(-count);
  }

  /** The reverse of `recentlyEnded`. */
  rememberEnded(ids: string[]): void {
    for (const id of ids) this.#remember(id);
  }
}

const isRelieved = ({ bytes, frames }: ByteQueue): boolean =>
  bytes <= MAX_QUEUED_BYTES / 2 && frames <= MAX_QUEUED_FRAMES / 2;
