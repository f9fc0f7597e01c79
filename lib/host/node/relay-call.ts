import { type IncomingMessage, type RequestOptions, request } from 'node:http';
import { connect as connectPlain, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { createByteBuffer } from '../../kit/byte-buffer.ts';
import type { CallRelay, PinnedRoute, RelayCall, RelayResponse } from '../dial.ts';
import { fingerprint } from './dial.ts';
import type { PinnedConnector } from './pinned.ts';

const SILENCE_TIMEOUT = 15_000;
/** A broker, its answer and TLS get ten seconds each. */
const PINNED_TIMEOUT = 30_000;

/**
 * The HTTP counterpart of `createDial`. Without a pinned route, a certificate is checked by its key alone, before
 * anything is sent.
 */
export function createCallRelay(pinned: PinnedConnector): CallRelay {
  return async (call) => {
    const url = new URL(call.socketUrl.replace(/^ws/i, 'http'));
    call.signal?.throwIfAborted();
    const socket = await (call.route ? connectPinned(call, call.route, pinned) : connect(url, call));
    const abort = () => socket.destroy(new Error('aborted'));
    call.signal?.addEventListener('abort', abort);
    try {
      if (call.signal?.aborted) abort();
      return await exchange(url, call, socket);
    } finally {
      call.signal?.removeEventListener('abort', abort);
      socket.destroy();
    }
  };
}

async function connectPinned(call: RelayCall, route: PinnedRoute, pinned: PinnedConnector): Promise<Socket> {
  const timeout = AbortSignal.timeout(PINNED_TIMEOUT);
  const signal = call.signal ? AbortSignal.any([timeout, call.signal]) : timeout;
  const socket = await pinned.connect(call.socketUrl, route, signal);
  const refusal = call.refuse(fingerprint(socket));
  if (refusal !== null) {
    socket.destroy();
    throw new Error(refusal);
  }
  socket.setTimeout(SILENCE_TIMEOUT, () => socket.destroy(new Error('the relay did not answer')));
  return socket;
}

/** Opens a connection and checks the key of its certificate. */
function connect(url: URL, { refuse, signal }: RelayCall): Promise<Socket> {
  const isTls = url.protocol === 'https:';
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const target = { host, port: Number(url.port) || (isTls ? 443 : 80) };
  const socket = isTls ? connectTls({ ...target, rejectUnauthorized: false }) : connectPlain(target);
  return new Promise((resolve, reject) => {
    const fail = (error: Error) => {
      signal?.removeEventListener('abort', abort);
      socket.destroy();
      reject(error);
    };
    const abort = () => fail(new Error('aborted'));
    signal?.addEventListener('abort', abort);
    socket.setTimeout(SILENCE_TIMEOUT, () => socket.destroy(new Error('the relay did not answer')));
    socket.once('error', fail);
    socket.once(isTls ? 'secureConnect' : 'connect', () => {
      socket.off('error', fail);
      const refusal = refuse(isTls ? fingerprint(socket as TLSSocket) : undefined);
      if (refusal !== null) return fail(new Error(refusal));
      signal?.removeEventListener('abort', abort);
      resolve(socket);
    });
  });
}

function exchange(url: URL, { method, path, headers, body, limit }: RelayCall, socket: Socket): Promise<RelayResponse> {
  const options: RequestOptions = {
    method,
    path: `${url.pathname.replace(/\/(?:ws)?$/, '')}${path}`,
    headers: { host: url.host, ...headers, ...(body && { 'content-length': body.length }), connection: 'close' },
    createConnection: () => socket,
  };
  return new Promise((resolve, reject) => {
    const outgoing = request(options, (response) => {
      read(response, limit).then(resolve, reject);
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

async function read(response: IncomingMessage, limit: number): Promise<RelayResponse> {
  const body = createByteBuffer(limit);
  for await (const chunk of response as AsyncIterable<Uint8Array>) {
    if (!body.push(chunk)) throw new Error('the response is too large');
  }
  const headers = response.headers as RelayResponse['headers'];
  return { status: response.statusCode ?? 0, headers, bytes: body.bytes() };
}
