import { createHash, X509Certificate } from 'node:crypto';
import { TLSSocket } from 'node:tls';
import { WebSocket } from 'ws';
import type { Dial, DialedSocket, SocketEvents } from '../dial.ts';

/** The relay's own limit for a message (contract 01 §3.1). */
const MAX_MESSAGE_BYTES = 40 * 1024 * 1024;

/**
 * Dials with the client of `ws`. Certificates are not checked against any authority: a home relay's certificate is
 * self-signed, and the link compares its key with the pinned one before it sends anything.
 */
export const dial: Dial = (url, events) => dialWith(url, events, false);

/** Dials a relay at a public name, whose certificate has to be valid for it: there is no pinned key yet. */
export const dialVerified: Dial = (url, events) => dialWith(url, events, true);

function dialWith(url: string, events: SocketEvents, rejectUnauthorized: boolean): DialedSocket {
  const options = { rejectUnauthorized, perMessageDeflate: false, maxPayload: MAX_MESSAGE_BYTES };
  let socket: WebSocket;
  try {
    socket = new WebSocket(url, options);
  } catch {
    queueMicrotask(() => events.close({ code: 1006, reason: 'this is not the address of a relay' }));
    return { send() {}, close: (_code, _reason, done) => done?.(), terminate() {} };
  }
  let spki: string | undefined;
  let status: number | undefined;
  let failure = '';
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
  });
  socket.on('close', (code, reason) => events.close({ code, reason: String(reason) || failure, status }));
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

/** SHA-256 of the peer certificate's SubjectPublicKeyInfo. `getPeerCertificate().pubkey` is not that for every key. */
export function fingerprint(socket: TLSSocket): string | undefined {
  const { raw } = socket.getPeerCertificate();
  if (!raw) return undefined;
  const spki = new X509Certificate(raw).publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(spki).digest('hex');
}

const REASONS: Record<string, string> = {
  ECONNREFUSED: 'nothing is listening there',
  ENOTFOUND: 'host not found',
  EAI_AGAIN: 'the host name cannot be looked up',
  EHOSTUNREACH: 'host unreachable',
  ENETUNREACH: 'network unreachable',
  ETIMEDOUT: 'no answer',
  ECONNRESET: 'the connection was reset',
  EPROTO: 'the server does not speak TLS',
};

function explain(error: NodeJS.ErrnoException): string {
  const reason = error.code === undefined ? undefined : REASONS[error.code];
  return reason ?? (error.code ? `${error.code}: ${error.message}` : error.message);
}
