import { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import { attempt } from '../../kit/attempt.ts';
import { NotListening, type TunnelRequest } from '../dial.ts';
import { upstreamReason } from '../upstream.ts';
import type { Trust } from './trust.ts';

/** Milliseconds until the socket is open, and then until the server has answered (contract 08 §7.3). */
const OPEN_TIMEOUT = 10_000;
const ANSWER_TIMEOUT = 10_000;
const CLOSE_TIMEOUT = 2000;
/** Bytes of the largest incoming message, one record of the other side (contract 08 §7.5). */
const MAX_MESSAGE = 1024 * 1024;
/** Bytes of the largest message sent. Records up to this size only wait for each other. */
const MAX_RECORD = 64 * 1024;

export interface TunnelOptions {
  trust: Trust;
  /** Aborts the attempt. */
  signal: AbortSignal;
  /** Milliseconds to wait for the server's answer. */
  answerTimeout?: number;
}

/**
 * Opens a byte stream over a WebSocket (contract 08 §7.9, steps 1 to 3). Rejects with a sentence for people that holds
 * no secret. Reading stops while the stream is not read, and a write is done once the socket has taken it, so that
 * neither side queues more than a few records. The stream cannot be half-open: it ends when the other side ends.
 */
export function openTunnel(request: TunnelRequest, { trust, signal, answerTimeout }: TunnelOptions): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const secureContext = trust.secureContext();
    const options = { handshakeTimeout: OPEN_TIMEOUT, maxPayload: MAX_MESSAGE, perMessageDeflate: false };
    const socket = attempt(() => new WebSocket(request.url, { ...options, ...(secureContext && { secureContext }) }));
    if (!socket) return reject(new Error('this is not the address of a broker'));
    let timer: NodeJS.Timeout | undefined;
    const settle = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      socket.off('message', answered);
      socket.off('close', closed);
      socket.off('error', failed);
    };
    const fail = (message: string, isAway = false) => {
      settle();
      // An abort during the handshake is reported as an error, which must have a listener.
      socket.on('error', () => {});
      socket.terminate();
      reject(isAway ? new NotListening(message) : new Error(message));
    };
    const abort = () => fail('aborted');
    const closed = () => fail('the broker closed the connection');
    const failed = (error: NodeJS.ErrnoException) =>
      fail(`broker: ${upstreamReason(error)}`, error.code === 'ECONNREFUSED');
    const answered = (data: WebSocket.RawData, isBinary: boolean): void => {
      const text = String(data);
      const refusal = isBinary ? 'the broker answered with what is no answer' : request.refuse(text);
      if (refusal !== null) fail(refusal, !isBinary && request.isOffline?.(text));
      else {
        settle();
        resolve(streamOf(socket));
      }
    };

    socket.on('unexpected-response', (_request, response) => {
      response.destroy();
      fail(`the broker answered the upgrade with HTTP ${response.statusCode}`);
    });
    socket.on('open', () => {
      timer = setTimeout(
        () => fail('the broker did not connect to the relay in time'),
        answerTimeout ?? ANSWER_TIMEOUT,
      );
      socket.send(request.hello());
    });
    socket.on('message', answered);
    socket.on('close', closed);
    socket.on('error', failed);
    signal.addEventListener('abort', abort);
    if (signal.aborted) abort();
  });
}

function streamOf(socket: WebSocket): Duplex {
  const stream = new Duplex({
    allowHalfOpen: false,
    read: () => socket.resume(),
    write: (chunk: Buffer, _encoding, done) => send([chunk], done),
    writev: (chunks, done) =>
      send(
        chunks.map(({ chunk }) => chunk as Buffer),
        done,
      ),
    final(done) {
      socket.close(1000);
      done();
    },
    destroy(error, done) {
      // Bytes sent before the end still arrive, unless the other side no longer reads.
      if (error || socket.readyState !== WebSocket.CLOSING) socket.terminate();
      else setTimeout(() => socket.terminate(), CLOSE_TIMEOUT).unref();
      done(error);
    },
  });

  // An unexpected message may come with the answer, before the stream has any other listener.
  stream.on('error', () => {});

  /** Sends bytes in records. An empty message would end the tunnel, so none is sent. */
  function send(chunks: Buffer[], done: (error?: Error | null) => void): void {
    const bytes = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
    if (bytes.length === 0) done();
    for (let start = 0; start < bytes.length; start += MAX_RECORD) {
      const record = bytes.subarray(start, start + MAX_RECORD);
      const isLast = start + MAX_RECORD >= bytes.length;
      socket.send(record, { binary: true }, isLast ? done : undefined);
    }
  }

  socket.on('message', (data, isBinary) => {
    if (stream.destroyed) return;
    const bytes = data as Buffer;
    if (!isBinary || bytes.length === 0) stream.destroy(new Error('the broker sent an unexpected message'));
    else if (!stream.push(bytes)) socket.pause();
  });
  socket.on('error', (error) => stream.destroy(new Error(`broker: ${upstreamReason(error)}`)));
  socket.on('close', () => {
    if (!stream.readableEnded) stream.push(null);
    stream.end();
  });
  return stream;
}
