import { X509Certificate } from 'node:crypto';
import { TLSSocket } from 'node:tls';
import { WebSocket } from 'ws';
import { attempt } from '../../kit/attempt.ts';
import { type Dial, type DialedSocket, NotListening, OtherPeer, type PinnedRoute, type SocketEvents } from '../dial.ts';
import { explain } from './explain.ts';
import { spkiHash } from './identity.ts';
import { createPinnedConnector, type PinnedConnector } from './pinned.ts';

/** The relay's own limit for a message (contract 01 §3.1). */
const MAX_MESSAGE_BYTES = 40 * 1024 * 1024;

/**
 * Dials with the client of `ws`. Without a pinned route, certificates are not checked against any authority: a home
 * relay's certificate is self-signed, and the link compares its key with that of the first connection before it sends
 * anything.
 */
export function createDial(pinned: PinnedConnector): Dial {
  return (url, events, route) => dialWith(url, events, route ? overPinned(url, route, pinned) : NO_AUTHORITY);
}

/** Like `createDial`, with only Node's own authorities. */
export const dial: Dial = createDial({ connect: (...args) => createPinnedConnector().connect(...args) });

/** Dials a relay at a public name, whose certificate must be valid for it because no key is pinned yet. */
export const dialVerified: Dial = (url, events) => dialWith(url, events, {});

type ConnectOptions = WebSocket.ClientOptions & { ended?: AbortController };

const NO_AUTHORITY: ConnectOptions = { rejectUnauthorized: false };

/** Options for a connection that has already proved to lead to the pinned origin. */
function overPinned(url: string, route: PinnedRoute, pinned: PinnedConnector): ConnectOptions {
  const ended = new AbortController();
  const createConnection = (_options: unknown, made: (error: Error | null, socket?: TLSSocket) => void) => {
    // Never speak plain HTTP, not even inside a pinned connection.
    const connecting = /^wss:/i.test(url)
      ? pinned.connect(url, route, ended.signal)
      : Promise.reject(new Error('a pinned route needs a wss:// URL'));
    connecting.then(
      (socket) => made(null, socket),
      (error) => made(error),
    );
  };
  return { ended, createConnection: createConnection as unknown as WebSocket.ClientOptions['createConnection'] };
}

function dialWith(url: string, events: SocketEvents, { ended, ...connect }: ConnectOptions): DialedSocket {
  const options = { ...connect, perMessageDeflate: false, maxPayload: MAX_MESSAGE_BYTES };
  const socket = attempt(() => new WebSocket(url, options));
  if (!socket) {
    queueMicrotask(() => events.close({ code: 1006, reason: 'this is not the address of a relay' }));
    return { send() {}, close: (_code, _reason, done) => done?.(), terminate() {} };
  }
  let spki: string | undefined;
  let status: number | undefined;
  let failure = '';
  let isOtherPeer = false;
  let isRefused = false;
  socket.on('upgrade', (response) => {
    if (response.socket instanceof TLSSocket) spki = fingerprint(response.socket);
  });
  socket.on('unexpected-response', (_request, response) => {
    status = response.statusCode;
    response.resume();
    socket.terminate();
  });
  socket.on('open', () => events.open(spki));
  socket.on('ping', () => events.alive());
  socket.on('pong', () => events.alive());
  socket.on('message', (data, isBinary) => {
    if (!isBinary) events.message(String(data));
  });
  socket.on('error', (error: NodeJS.ErrnoException) => {
    failure = explain(error);
    isOtherPeer = error instanceof OtherPeer;
    isRefused = error instanceof NotListening || error.code === 'ECONNREFUSED';
  });
  socket.on('close', (code, reason) => {
    ended?.abort();
    const kind = { ...(isOtherPeer && { isOtherPeer }), ...(isRefused && { isRefused }) };
    events.close({ code, reason: String(reason) || failure, status, ...kind });
  });
  return {
    send(text) {
      if (socket.readyState === WebSocket.OPEN) socket.send(text);
    },
    close(code, reason, done) {
      if (done) socket.on('close', done);
      if (done && socket.readyState === WebSocket.CLOSED) done();
      socket.close(code, reason);
    },
    terminate: () => socket.terminate(),
  };
}

/** SHA-256 of the peer certificate's SubjectPublicKeyInfo. `getPeerCertificate().pubkey` is not always the SPKI. */
export function fingerprint(socket: TLSSocket): string | undefined {
  const { raw } = socket.getPeerCertificate();
  return raw && spkiHash(new X509Certificate(raw)).toString('hex');
}
