import type { Socket } from 'node:net';
import type { SecureContext } from 'node:tls';
import { WebSocket } from 'ws';
import { attempt } from '../../kit/attempt.ts';
import { systemClock } from '../../kit/clock.ts';
import type { BrokerSocket, BrokerSocketEvents, DialBroker } from '../broker-socket.ts';
import { upstreamReason } from '../upstream.ts';
import {
  CONNECT_TIMEOUT,
  type DialUpstream,
  TIMED_OUT,
  UpstreamSocketError,
  type UpstreamSocketEvents,
  type UpstreamSocketRequest,
} from '../upstream-socket.ts';
import { type CallOptions, carriesCredential, createAgents } from './agents.ts';
import { releaseChunks } from './release-chunks.ts';
import { sendParts } from './send-parts.ts';
import type { NodeUpstreamOptions } from './upstream.ts';

/** Dials with the client of `ws`. */
export const createNodeDialUpstream = (options: NodeUpstreamOptions = {}): DialUpstream => createDial(options, {});

/**
 * Options for brokers. `NODE_TLS_REJECT_UNAUTHORIZED` must not disable their verification. A mask of zeros saves a pass over each
 * byte here and another at the broker: masks protect proxies from bytes that a web page chose, and these are in TLS twice.
 */
const TO_BROKER = { rejectUnauthorized: true, generateMask: (mask: Buffer) => void mask.fill(0) };

/** Dials the broker of Reach. */
export const createNodeDialBroker = (options: NodeUpstreamOptions = {}): DialBroker => createDial(options, TO_BROKER);

function createDial(
  options: NodeUpstreamOptions,
  fixed: WebSocket.ClientOptions,
): (
  request: UpstreamSocketRequest,
  events: UpstreamSocketEvents & Partial<BrokerSocketEvents>,
) => Promise<BrokerSocket> {
  const { trust, guard } = options;

  function agentFor(text: string, headers: Record<string, string>, connectTimeout: number) {
    const url = URL.canParse(text) ? new URL(text) : undefined;
    if (!url) return undefined;
    const secure = /^(?:wss|https):$/.test(url.protocol);
    const choice = { secure, keepAlive: false, guarded: carriesCredential(url, headers) };
    return createAgents({ guard, connectTimeout }).pick(choice);
  }

  return (request, events) =>
    new Promise((resolve, reject) => {
      const { url, headers, signal, maxMessage, pingInterval } = request;
      const { connectTimeout = options.connectTimeout ?? CONNECT_TIMEOUT } = request;
      const socket = connect(url, {
        headers,
        agent: agentFor(url, headers, connectTimeout),
        maxPayload: maxMessage,
        maxFragments: 4096,
        maxBufferedChunks: 65_536,
        perMessageDeflate: false,
        handshakeTimeout: connectTimeout,
        callSignal: signal,
        secureContext: trust?.secureContext(),
        ...fixed,
      });
      let tcp: Socket;
      let isOpen = false;
      let isTooLarge = false;
      let isRefused = false;
      let status: number | undefined;
      let failure = '';
      let pings: ReturnType<typeof pingRegularly> | undefined;
      const abort = () => {
        failure ||= 'aborted';
        socket.terminate();
      };
      signal.addEventListener('abort', abort);
      socket.on('upgrade', (response) => {
        tcp = response.socket;
      });
      socket.on('open', () => {
        isOpen = true;
        releaseChunks(socket);
        if (pingInterval !== undefined) {
          pings = pingRegularly(socket, pingInterval, () => {
            failure ||= 'no answer to a ping';
            socket.terminate();
          });
        }
        resolve(socketOf(socket, tcp, () => pings?.excuse()));
      });
      socket.on('message', (data, isBinary) => {
        if (isBinary) events.bytes?.(data as Buffer);
        else events.message(String(data));
      });
      socket.on('unexpected-response', (_request, response) => {
        status = response.statusCode;
        response.destroy();
        socket.terminate();
      });
      socket.on('error', (error: NodeJS.ErrnoException) => {
        isRefused = error.code === 'ECONNREFUSED';
        isTooLarge = error.code === 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH';
        failure ||= error.message === 'Opening handshake has timed out' ? TIMED_OUT : upstreamReason(error);
      });
      socket.on('close', (code, reason) => {
        signal.removeEventListener('abort', abort);
        pings?.stop();
        if (isOpen) events.closed({ code: isTooLarge ? 1009 : code, reason: String(reason) || failure });
        else if (status !== undefined) reject(UpstreamSocketError.refused(status));
        else reject(new UpstreamSocketError(failure, { isRefused }));
      });
      if (signal.aborted) abort();
    });
}

/** @throws UpstreamSocketError for an invalid URL, without quoting it, since it may be secret. */
function connect(
  url: string,
  options: WebSocket.ClientOptions & CallOptions & { secureContext?: SecureContext },
): WebSocket {
  const socket = attempt(() => new WebSocket(url, options));
  if (!socket) throw new UpstreamSocketError('this is not the URL of a WebSocket');
  return socket;
}

/** Calls `onGone` if nothing came between two pings. */
function pingRegularly(socket: WebSocket, interval: number, onGone: () => void) {
  let hasReceived = true;
  /** Counts as an answer, since none could be read while reading was paused. */
  const excuse = () => {
    hasReceived = true;
  };
  const beat = () => {
    if (!hasReceived && !socket.isPaused) return onGone();
    hasReceived = false;
    socket.ping();
    cancel = systemClock.after(interval, beat);
  };
  let cancel = systemClock.after(interval, beat);
  for (const event of ['message', 'ping', 'pong'] as const) socket.on(event, excuse);
  return { excuse, stop: () => cancel() };
}

function socketOf(socket: WebSocket, tcp: Socket, onResume: () => void): BrokerSocket {
  const isOpen = () => socket.readyState === WebSocket.OPEN;
  return {
    send(text) {
      if (isOpen()) socket.send(text);
    },
    sendBytes(head, parts, sent) {
      if (isOpen()) sendParts(tcp, head, parts, { isMasked: true, sent });
      else sent();
    },
    unsent: () => socket.bufferedAmount,
    pause() {
      if (isOpen()) socket.pause();
    },
    resume() {
      onResume();
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
