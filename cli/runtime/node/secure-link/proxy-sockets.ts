import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { upstreamReason } from '../../../../lib/host/upstream.ts';
import type { Log } from '../../../../lib/log.ts';
import type { Gate } from '../../../../lib/secure-link/gate.ts';
import { requestHeaders } from '../../../../lib/secure-link/proxy-headers.ts';
import { refusalOn } from '../serve.ts';
import { createSocketPairs, type Dialled, isBroken, type Mirror, NO_CODE, type PairLimits } from '../socket-pairs.ts';
import { GATE_OFF, type ProxyTarget, refuse, type Space } from './proxy.ts';

/** Limits of sockets to the dashboard (contract 08 §4.4). */
export const PROXY_SOCKET_LIMITS: PairLimits = {
  maxMessage: 16 * 1024 * 1024,
  handshake: 10_000,
  ping: 30_000,
  // A ping, and 15 s for its pong.
  idle: 45_000,
  check: 1_000,
};

/** Subprotocols of this kind contain credentials, which are never echoed. */
const TICKET_PROTOCOL = 'svc-gateway-ticket.';
const UNAVAILABLE = 'upstream unavailable';

/**
 * Each side closes like the other; a dashboard that breaks off is distinguished from a client that leaves (contract 08
 * §4.5).
 */
const mirror: Mirror = (code, reason, upstream) => {
  if (upstream && isBroken(code)) return { code: 1011, reason: UNAVAILABLE };
  return code === NO_CODE || isBroken(code) ? { code: 1000, reason: '' } : { code, reason };
};

export interface ProxySocketsDeps {
  space: Space;
  gate: Gate;
  log: Log;
  limits: PairLimits;
}

/** The WebSocket proxy of `/dashboard` (contract 08 §4.5). */
export function createProxySockets({ space, gate, log, limits }: ProxySocketsDeps) {
  const pairs = createSocketPairs({ limits, mirror });
  let isClosed = false;

  /** Opens the dashboard's side; on failure, returns the status and sentence of the refusal. */
  async function dial(
    req: IncomingMessage,
    socket: Socket,
    { path, client }: ProxyTarget,
  ): Promise<Dialled | [number, string]> {
    if (!(await gate.check()).dashboard || isClosed) return [503, GATE_OFF];
    const { rules, base, link } = space;
    const headers = objectOf(requestHeaders(req.rawHeaders, rules, path, client));
    const target = { link, authority: rules.host, path: base + path, headers, protocols: offeredBy(req) };
    let dialled: Dialled;
    try {
      dialled = await pairs.dial(target, socket, (_answer, end) => end());
    } catch (error) {
      log.debug(`dashboard: ${upstreamReason(error)}`);
      return error instanceof SyntaxError ? [400, 'invalid subprotocols'] : [502, UNAVAILABLE];
    }
    const isUsable = !isClosed && socket.writable && dialled.protocol?.startsWith(TICKET_PROTOCOL) !== true;
    if (isUsable) return dialled;
    dialled.side.webSocket.terminate();
    return [502, UNAVAILABLE];
  }

  return {
    /** Connects a handshake to the dashboard, and completes it only then. Never rejects. */
    async upgrade(req: IncomingMessage, socket: Socket, head: Buffer, target: ProxyTarget): Promise<void> {
      const startedAt = performance.now();
      const answer = await dial(req, socket, target).catch(() => [502, UNAVAILABLE] as [number, string]);
      const ended = (status: number) => {
        const took = Math.round(performance.now() - startedAt);
        log.debug(`dashboard GET ${status}, ${socket.bytesRead} bytes in, ${socket.bytesWritten} out, ${took} ms`);
      };
      if (!('side' in answer)) {
        if (!socket.writable) socket.destroy();
        else refuse(req, refusalOn(socket, req), ...answer);
        ended(answer[0]);
        return;
      }
      socket.once('close', () => ended(101));
      pairs.accept(req, socket, head, answer);
    },

    /** Closes every socket with 1001; resolves when all are closed. */
    async close(): Promise<void> {
      isClosed = true;
      await pairs.end(1001, 'the relay is stopping');
    },
  };
}

const offeredBy = ({ headers }: IncomingMessage): string[] =>
  (headers['sec-websocket-protocol'] ?? '')
    .split(',')
    .map((protocol) => protocol.trim())
    .filter((protocol) => protocol !== '');

/** Alternating names and values as an object, with the values of one name joined. */
function objectOf(headers: readonly string[]): Record<string, string> {
  // Without members of its own, since a header may be called `constructor`.
  const joined: Record<string, string> = Object.create(null);
  for (let at = 0; at < headers.length; at += 2) {
    const name = (headers[at] as string).toLowerCase();
    const value = headers[at + 1] as string;
    const before = joined[name];
    joined[name] = before === undefined ? value : `${before}${name === 'cookie' ? '; ' : ', '}${value}`;
  }
  return joined;
}
