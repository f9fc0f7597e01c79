import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { pickHeaders, RESPONSE_HEADERS, readSessionHeader } from '../../lib/dashboard/ingress-headers.ts';
import { matchIngressSocket } from '../../lib/dashboard/ingress-routes.ts';
import { MiB } from '../../lib/kit/units.ts';
import { isHandshake } from '../runtime/node/handshake.ts';
import { createSocketPairs, type Dialled, isBroken, NO_CODE, type PairLimits } from '../runtime/node/socket-pairs.ts';
import { refuseUpgrade, refuseUpgradeWith } from './answers.ts';
import type { Decisions } from './decisions.ts';
import type { Marker } from './marker.ts';
import type { DashboardHost } from './plugin.ts';
import type { RelayLink } from './relay-link.ts';

/** Limits of forwarded sockets (contract 07 §4.3). */
export interface SocketLimits extends PairLimits {
  /** Sockets that are open or being opened. */
  maxSockets: number;
}

export const SOCKET_LIMITS: SocketLimits = {
  maxMessage: 4 * MiB,
  maxSockets: 512,
  handshake: 5_000,
  ping: 30_000,
  idle: 90_000,
  // Short enough to close every socket within 2 s of disabling the plugin.
  check: 1_500,
};

/** Bytes of a refusal by the relay that are passed on. */
const MAX_REFUSAL = 64 * 1024;
const DISABLED = 'Relay plugin is disabled';

/** Answer to an upgrade that is not accepted. */
interface Refusal {
  status: number;
  detail: string;
}

/** The relay's own refusal, passed on as it is. */
interface RelayRefusal {
  status: number;
  headers: string[];
  body: Buffer;
}

export interface IngressSocketsDeps {
  host: DashboardHost;
  decisions: Decisions;
  link: RelayLink;
  marker: Marker;
  limits: SocketLimits;
}

/** The sockets of the ingress (contract 07 §4.3). */
export function createIngressSockets({ host, decisions, link, marker, limits }: IngressSocketsDeps) {
  const pairs = createSocketPairs({
    limits,
    mirror: (code, reason) => ({ code: code === NO_CODE ? 1000 : isBroken(code) ? 1011 : code, reason }),
    onCheck: () => void checkEnabled(),
  });
  let opening = 0;
  let isClosed = false;
  let isChecking = false;

  /** The refusal of an upgrade by the dashboard, or the path at the relay and the headers that it gets. */
  async function admit(req: IncomingMessage, path: string | null): Promise<Refusal | Admitted> {
    if (isClosed || !(await decisions(host.isPluginEnabled()))) return { status: 403, detail: 'plugin disabled' };
    // A dashboard in JavaScript may answer with a promise, which is never false itself.
    if (!(await decisions(host.checkHostOrigin(req)))) return { status: 403, detail: 'host or origin not allowed' };
    const target = path === null ? null : matchIngressSocket(path);
    if (!target) return { status: 404, detail: 'not found' };
    if (!isHandshake(req)) return { status: 400, detail: 'a WebSocket handshake of version 13 is required' };
    if (opening + pairs.size > limits.maxSockets) return { status: 503, detail: 'too many sockets' };
    const ticket = await decisions(host.consumeWsTicket(req));
    if (!ticket) return { status: 403, detail: 'a fresh WebSocket ticket is required' };
    if (target.path === null) return { status: 404, detail: 'not found' };
    const headers: Record<string, string> = {};
    if (target.needsSession) {
      const session = readSessionHeader(req.headers);
      if (session.status !== undefined) return session;
      headers.authorization = `Bearer ${session.value}`;
    }
    const marked = await marker.headersFor(req);
    if (!marked) return { status: 503, detail: marker.missing };
    for (let index = 0; index < marked.length; index += 2)
      headers[marked[index] as string] = marked[index + 1] as string;
    return { path: target.path, headers, subprotocol: ticket.subprotocol };
  }

  /** Opens the relay's side, which reads nothing until it is joined. */
  function dial({ path, headers }: Admitted, client: Socket): Promise<Dialled | Refusal | RelayRefusal> {
    const unreachable = (error: unknown): Refusal => ({ status: 502, detail: link.unreachable(error) });
    return new Promise((resolve) => {
      const refused = (answer: IncomingMessage, end: () => void) =>
        void readRefusal(answer)
          .then(resolve, (error) => resolve(unreachable(error)))
          .finally(end);
      const target = { link, authority: link.host, path, headers };
      pairs.dial(target, client, refused).then(resolve, (error) => resolve(unreachable(error)));
    });
  }

  /** A dashboard that cannot answer counts as one that has disabled the plugin. */
  async function checkEnabled(): Promise<void> {
    if (isChecking) return;
    isChecking = true;
    try {
      if (!(await decisions(host.isPluginEnabled()))) pairs.closeAll(1008, DISABLED);
    } catch {
      pairs.closeAll(1008, DISABLED);
    } finally {
      isChecking = false;
    }
  }

  return {
    /** Answers an upgrade. `path` is below the ingress, null for one beside it. Never rejects. */
    async upgrade(req: IncomingMessage, stream: Duplex, head: Buffer, path: string | null): Promise<void> {
      const socket = stream as Socket;
      // Node no longer handles the errors of this connection.
      socket.on('error', ignore);
      opening++;
      try {
        const admitted = await admit(req, path);
        if ('status' in admitted) return refuseUpgradeWith(socket, admitted.status, admitted.detail);
        const answer = await dial(admitted, socket);
        if ('detail' in answer) return refuseUpgradeWith(socket, answer.status, answer.detail);
        if ('body' in answer) return refuseUpgrade(socket, answer.status, answer.body, answer.headers);
        if (isClosed) {
          answer.side.webSocket.terminate();
          return refuseUpgradeWith(socket, 403, 'plugin disabled');
        }
        // The relay selects no subprotocol: it is the dashboard's ticket that may have come by one.
        pairs.accept(req, socket, head, { side: answer.side, protocol: admitted.subprotocol });
      } catch {
        refuseUpgradeWith(socket, 503, 'the dashboard cannot admit this socket now');
      } finally {
        opening--;
      }
    },

    /** Closes every socket with 1001; resolves when all are closed. */
    async close(): Promise<void> {
      isClosed = true;
      await pairs.end(1001, 'the dashboard is closing');
    },
  };
}

/** An upgrade that may go to the relay. */
interface Admitted {
  path: string;
  headers: Record<string, string>;
  subprotocol: string | undefined;
}

/** Reads the relay's plain answer to an upgrade. */
async function readRefusal(response: IncomingMessage): Promise<RelayRefusal> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_REFUSAL) throw new Error('its answer is too large');
    chunks.push(chunk);
  }
  const headers = pickHeaders(response.headers, RESPONSE_HEADERS);
  return { status: response.statusCode ?? 502, headers, body: Buffer.concat(chunks) };
}

const ignore = () => {};
