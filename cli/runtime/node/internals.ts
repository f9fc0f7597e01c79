import type { EventEmitter } from 'node:events';
import { type Server as HttpServer, type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Peer } from 'crossws';
import {
  type ChunkHolder,
  type Done,
  NO_MASK,
  release,
  WAITS_FOR_PAYLOAD,
} from '../../../lib/host/node/release-chunks.ts';
import { MAX_UNCOUNTED } from '../../../lib/kit/long-json.ts';

// Everything that relies on undocumented parts of Node. test/node/internals.test.ts and listen.test.ts fail if one of them
// changes.

/** The response that a connection is sending or waiting for, if any. */
export const currentResponse = (socket: Duplex): ServerResponse | undefined =>
  (socket as { _httpMessage?: ServerResponse | null })._httpMessage ?? undefined;

/** A response on a connection that Node has passed on with its `upgrade` event, and will not answer itself. */
export function responseOn(socket: Socket, request: IncomingMessage): ServerResponse {
  const response = new ServerResponse(request);
  response.assignSocket(socket);
  return response;
}

/**
 * The `ws` socket of a peer of crossws. `peer.websocket` is a proxy around it, which makes a short message a tenth more
 * expensive.
 */
export const webSocketOf = (peer: Peer): EventEmitter =>
  (peer as unknown as { _internal: { ws: EventEmitter } })._internal.ws;

/** Removes the listener with which crossws receives the messages of a socket of its `ws`. It is the only one. */
export function takeMessageListener(webSocket: EventEmitter): void {
  webSocket.removeAllListeners('message');
}

/**
 * Removes the listeners of `http-shutdown` from a server made by listhen: they hold every connection in a table, listen to
 * every response, and accumulate on a connection that is parsed again. The relay shuts down by itself.
 */
export function removeShutdown(server: HttpServer): void {
  for (const event of ['request', 'connection', 'secureConnection']) {
    const listener = server.listeners(event).at(-1) as () => void;
    server.off(event, listener);
  }
}

/** Lets requests without a `Host` header through, on a server that listens already. */
export function allowMissingHost(server: HttpServer): void {
  Object.assign(server, { requireHostHeader: false });
}

/** Sets how often a listening server checks for late requests. Node reads it when it starts to listen. */
export function checkConnectionsEvery(server: HttpServer, milliseconds: number): void {
  Object.assign(server, { connectionsCheckingInterval: milliseconds });
  server.emit('listening');
}

/** The part of the `ws` receiver that gathering works on. */
interface Receiver extends ChunkHolder {
  /** Bytes of the payload of the current frame, and of all frames of its message so far. */
  _payloadLength: number;
  _totalPayloadLength: number;
  _maxPayload: number;
  /** The opcode of a message in several frames; 0 for one in a single frame. */
  _fragmented: number;
  /** Bytes of the received but unprocessed chunks. */
  _bufferedBytes: number;
  /**
   * Ours: whether the received part of a large payload is unmasked, and the buffer in which it is joined once an eighth is
   * there.
   */
  isUnmasked?: boolean;
  whole?: Buffer;
  /** Ours: the function that requests memory, and the reservation of the current message. */
  reserve?: ReserveMessage;
  reservation?: MessageReservation;
  startLoop(done: Done): void;
}

const MIN_GATHERED = 1024 * 1024;
/** Bytes of the longest message that is read without a reservation. */
const MAX_UNRESERVED = MAX_UNCOUNTED;

/**
 * Makes a socket of crossws unmask and join a large frame while it arrives, and release chunks as `releaseChunks` does. Its
 * `ws` does so when the frame is complete, which blocks the event loop for 85 ms at 39 MiB, and takes twice the memory
 * (2026-11).
 */
export function gatherOnArrival(webSocket: unknown, reserve?: ReserveMessage): void {
  const { _receiver: receiver } = webSocket as { _receiver: Receiver };
  receiver.reserve = reserve;
  receiver._write = writeReserved;
}

/** The memory of one long message. */
export interface MessageReservation {
  readonly isGranted: boolean;
}

/**
 * Requests the memory for a long message. Unless it is granted at once, calls `read` when it is, or the socket has closed.
 * Undefined for a socket that has closed already.
 */
export type ReserveMessage = (size: number, read: () => void) => MessageReservation | undefined;

/** The reservation of the message that a socket of crossws is receiving, if it is long. */
export const reservationOf = (webSocket: unknown): MessageReservation | undefined =>
  (webSocket as { _receiver?: Receiver })._receiver?.reservation;

/** Takes over the reservation of the message that a socket of crossws has just received. */
export function takeReservation(webSocket: unknown): MessageReservation | undefined {
  const { _receiver: receiver } = webSocket as { _receiver: Receiver };
  const { reservation } = receiver;
  receiver.reservation = undefined;
  return reservation;
}

/**
 * Reserves memory for a message when it turns out to be long, before more of it is read: a receiver that is not `done` with
 * a chunk makes its `ws` pause the connection. The length of a message in several frames is unknown, so the limit is
 * reserved.
 */
function writeReserved(this: Receiver, chunk: Buffer, encoding: string, done: Done): void {
  if (this._totalPayloadLength <= MAX_UNRESERVED || this.reservation || !this.reserve) {
    writeGathered.call(this, chunk, encoding, done);
    return;
  }
  const size = this._fragmented ? this._maxPayload : this._totalPayloadLength;
  const read = () => writeGathered.call(this, chunk, encoding, done);
  this.reservation = this.reserve(size, read);
  if (this.reservation?.isGranted !== false) read();
}

function writeGathered(this: Receiver, chunk: Buffer, encoding: string, done: Done): void {
  gather.call(this, chunk, encoding, done);
  release(this);
}

function gather(this: Receiver, chunk: Buffer, encoding: string, done: Done): void {
  const { _payloadLength: length, _bufferedBytes: received, _buffers: buffers, _mask: mask } = this;
  const write = (Object.getPrototypeOf(this) as Receiver)._write;
  if (this._state !== WAITS_FOR_PAYLOAD || !mask || length < MIN_GATHERED) {
    write.call(this, chunk, encoding, done);
    return;
  }
  if (!this.isUnmasked) {
    this.isUnmasked = true;
    let at = 0;
    for (const buffer of buffers) at = unmask(buffer, mask, at);
  }
  if (!this.whole && received * 8 >= length) {
    // Not earlier, since a frame that is only announced must take no memory.
    this.whole = Buffer.allocUnsafeSlow(length);
    let at = 0;
    for (const buffer of buffers.splice(0)) at += buffer.copy(this.whole, at);
  }
  const part = chunk.subarray(0, length - received);
  unmask(part, mask, received);
  const isComplete = received + part.length === length;
  if (isComplete) {
    this._mask = NO_MASK;
    this.isUnmasked = false;
  }
  if (!this.whole) {
    write.call(this, chunk, encoding, done);
    return;
  }
  part.copy(this.whole, received);
  this._bufferedBytes += chunk.length;
  if (!isComplete) {
    done();
    return;
  }
  buffers.push(this.whole);
  if (part.length < chunk.length) buffers.push(chunk.subarray(part.length));
  this.whole = undefined;
  this.startLoop(done);
}

/** Unmasks, in place, bytes that start at index `at` of their payload. Returns the index after them. */
function unmask(bytes: Uint8Array, mask: Uint8Array, at: number): number {
  for (let next = 0; next < bytes.length; next++) {
    bytes[next] = (bytes[next] as number) ^ (mask[(at + next) & 3] as number);
  }
  return at + bytes.length;
}
