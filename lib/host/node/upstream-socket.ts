import type { SecureContext } from 'node:tls';
import { WebSocket } from 'ws';
import { upstreamReason } from '../upstream.ts';
import {
  CONNECT_TIMEOUT,
  type DialUpstream,
  TIMED_OUT,
  type UpstreamSocket,
  UpstreamSocketError,
} from '../upstream-socket.ts';
import type { Trust } from './trust.ts';

interface NodeDialOptions {
  /** Milliseconds until the socket has to be open. */
  connectTimeout?: number;
  /** Which certificates are accepted. Default: those of Node. */
  trust?: Trust;
}

/** Dials with the client of `ws`. */
export function createNodeDialUpstream(options: NodeDialOptions = {}): DialUpstream {
  const { connectTimeout = CONNECT_TIMEOUT, trust } = options;
  return ({ url, headers, signal, maxMessage }, events) =>
    new Promise((resolve, reject) => {
      const socket = connect(url, {
        headers,
        maxPayload: maxMessage,
        perMessageDeflate: false,
        handshakeTimeout: connectTimeout,
        secureContext: trust?.secureContext(),
      });
      let isOpen = false;
      let isTooLarge = false;
      let status: number | undefined;
      let failure = '';
      const abort = () => {
        failure ||= 'aborted';
        socket.terminate();
      };
      signal.addEventListener('abort', abort);
      socket.on('open', () => {
        isOpen = true;
        resolve(socketOf(socket));
      });
      socket.on('message', (data, isBinary) => {
        if (!isBinary) events.message(String(data));
      });
      socket.on('unexpected-response', (_request, response) => {
        status = response.statusCode;
        response.destroy();
        socket.terminate();
      });
      socket.on('error', (error: NodeJS.ErrnoException) => {
        isTooLarge = error.code === 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH';
        failure ||= error.message === 'Opening handshake has timed out' ? TIMED_OUT : upstreamReason(error);
      });
      socket.on('close', (code, reason) => {
        signal.removeEventListener('abort', abort);
        if (isOpen) events.closed({ code: isTooLarge ? 1009 : code, reason: String(reason) || failure });
        else if (status !== undefined) reject(UpstreamSocketError.refused(status));
        else reject(new UpstreamSocketError(failure));
      });
      if (signal.aborted) abort();
    });
}

/** @throws UpstreamSocketError for what is no URL of a WebSocket. Its text may be secret. */
function connect(url: string, options: WebSocket.ClientOptions & { secureContext?: SecureContext }): WebSocket {
  try {
    return new WebSocket(url, options);
  } catch {
    throw new UpstreamSocketError('this is not the URL of a WebSocket');
  }
}

function socketOf(socket: WebSocket): UpstreamSocket {
  const isOpen = () => socket.readyState === WebSocket.OPEN;
  return {
    send(text) {
      if (isOpen()) socket.send(text);
    },
    unsent: () => socket.bufferedAmount,
    pause() {
      if (isOpen()) socket.pause();
    },
    resume() {
      if (isOpen()) socket.resume();
    },
    close(code, reason) {
      // The other side's close frame has to be read.
      if (isOpen()) socket.resume();
      socket.close(code, reason);
    },
    terminate: () => socket.terminate(),
  };
}
