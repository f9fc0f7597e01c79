import { DurableObject } from 'cloudflare:workers';
import type {
  DurableObjectNamespace,
  DurableObjectState,
  R2Bucket,
  WebSocket as WorkerSocket,
} from '@cloudflare/workers-types';
import crossws from 'crossws/adapters/cloudflare';
import { createChannels } from '../../../handlers/channels/index.ts';
import { createFetch, type Fetch } from '../../../handlers/routes.ts';
import {
  type Accepted,
  createSocketTable,
  type SocketRow,
  type SocketTable,
  sockets,
} from '../../../handlers/sockets.ts';
import type { Peer } from '../../../lib/access/peer.ts';
import { readConfig } from '../../../lib/config.ts';
import { createLog, type Log } from '../../../lib/log.ts';
import type { ObjectStore } from '../../../lib/media/objects.ts';
import { createRelay, type Relay } from '../../../lib/relay.ts';
import type { Transport } from '../../../lib/socket/transport.ts';
import packageJson from '../../../package.json' with { type: 'json' };
import { durableObjectExecutor } from '../../../storage/durable-object.ts';
import { createStores } from '../../../storage/index.ts';
import { createSocketHooks, type OpenSocket } from '../socket-hooks.ts';
import { createEdgeClock } from './clock.ts';
import { attachmentOf } from './internals.ts';

interface Env extends Record<string, unknown> {
  RELAY: DurableObjectNamespace<RelayObject>;
  /** Where uploads are kept. */
  MEDIA?: R2Bucket;
  /** Name of the relay that answers. Default: one relay per host name. */
  RELAY_NAME?: string;
}

/** The part of an accepted handshake that crossws gets. It keeps the URL with the socket across sleeps. */
interface Handshake {
  url: string;
  accepted?: Accepted;
}

/** The relay as one Durable Object: its state, its sockets and nobody else's. */
export class RelayObject extends DurableObject<Env> {
  readonly #clock;
  readonly #open = new Map<string, OpenSocket>();
  #crossws!: ReturnType<typeof crossws>;
  #relay!: Relay;
  #fetch!: Fetch;
  #table!: SocketTable;

  constructor(state: DurableObjectState, env: Env) {
    super(state as never, env);
    this.#clock = createEdgeClock(state.storage);
    void state.blockConcurrencyWhile(() => this.#wake(state, env));
  }

  /** The socket table. */
  protected rows(): readonly SocketRow[] {
    return sockets;
  }

  /** Builds the relay from its stores and restores the sockets that outlived the sleep. */
  async #wake(state: DurableObjectState, env: Env): Promise<void> {
    const variables = Object.fromEntries(
      Object.entries(env).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
    );
    const { config } = readConfig(variables, { home: '', agentHome: '' });
    // biome-ignore lint/suspicious/noConsole: the console is the log of a Worker
    const log = createLog(config.logLevel, (line) => console.log(line));
    this.#relay = await createRelay({
      version: packageJson.version,
      config,
      stores: createStores('edge', durableObjectExecutor(state.storage)),
      clock: this.#clock,
      log,
      channels: createChannels,
      env: variables,
      socketsOutliveMemory: true,
      objects: env.MEDIA && { store: env.MEDIA as unknown as ObjectStore, prefix: state.id.toString() },
    });
    this.#fetch = createFetch(this.#relay);
    this.#table = createSocketTable(this.#relay, this.rows());
    this.#crossws = crossws({ hooks: this.#hooks(log) });
    this.#relay.state = 'ready';
    for (const socket of state.getWebSockets()) await this.#restore(socket);
    await this.#relay.restored();
  }

  #hooks(log: Log) {
    return createSocketHooks(
      {
        take: (peer) => {
          const handshake = peer.request as unknown as Handshake;
          const { accepted } = handshake;
          handshake.accepted = undefined;
          return accepted;
        },
        open: (peer, accepted) => {
          this.#open.set(peer.id, { row: accepted.row, events: accepted.open(edgeTransport(peer.id, peer)) });
        },
        find: (peer) => this.#open.get(peer.id),
        forget: (peer) => this.#open.delete(peer.id),
      },
      log,
    );
  }

  /** Restores a socket that outlived a sleep, by its row. */
  async #restore(socket: WorkerSocket): Promise<void> {
    const { id, url } = attachmentOf(socket);
    if (id === undefined || url === undefined) return;
    const row = this.#table.rowOf(new URL(url).pathname);
    const transport = edgeTransport(id, socket);
    if (!row?.restore) {
      transport.close(1012, 'the relay was asleep');
      return;
    }
    const events = await row.restore(transport, this.#relay);
    if (events) this.#open.set(id, { row, events });
  }

  async fetch(request: Request): Promise<Response> {
    const peer = peerOf(request);
    const url = new URL(request.url);
    this.#relay.listener = {
      host: url.hostname,
      port: Number(url.port) || (peer.tls ? 443 : 80),
      tls: peer.tls,
    };
    if (request.headers.get('upgrade')?.toLowerCase() === 'websocket') {
      const decided = await this.#table.upgrade(request, peer);
      if (decided.refusal) return decided.refusal;
      // Without the query: nothing needs it later, and a long one would not fit into what the platform keeps.
      const handshake: Handshake = { url: url.origin + url.pathname, accepted: decided };
      return this.#crossws.handleDurableUpgrade(this as never, handshake as never) as unknown as Response;
    }
    const response = await this.#fetch(request, peer);
    await drain(request);
    return response;
  }

  webSocketMessage(socket: WorkerSocket, message: string | ArrayBuffer): Promise<void> {
    return this.#crossws.handleDurableMessage(this as never, socket as never, message);
  }

  webSocketClose(socket: WorkerSocket, code: number, reason: string, clean: boolean): Promise<void> {
    return this.#crossws.handleDurableClose(this as never, socket as never, code, reason, clean);
  }

  /** A client has broken the protocol. The platform drops its connection, and reports no close. */
  webSocketError(socket: WorkerSocket): Promise<void> {
    return this.webSocketClose(socket, 1006, '', false);
  }

  async alarm(): Promise<void> {
    this.#clock.alarm();
    await this.#relay.sweep();
  }
}

/** Bytes of an unread body to discard, and milliseconds for which the response waits for them. */
const UNREAD_LIMIT = 1024 * 1024;
const UNREAD_WAIT = 250;

/**
 * Discards a small unread body: the platform would otherwise drop the connection, and with it the next requests. After
 * the response the body can no longer be read.
 */
async function drain({ body, bodyUsed, headers }: Request): Promise<void> {
  if (!body || bodyUsed || body.locked || Number(headers.get('content-length')) > UNREAD_LIMIT) return;
  const reader = body.getReader();
  const timer = setTimeout(() => reader.cancel().catch(() => {}), UNREAD_WAIT);
  let size = 0;
  try {
    for (let part = await reader.read(); !part.done && size <= UNREAD_LIMIT; part = await reader.read()) {
      size += part.value.byteLength;
    }
    await reader.cancel();
  } catch {
    // The client has gone.
  } finally {
    clearTimeout(timer);
  }
}

/** The platform puts the client's address into a header that clients cannot set. */
function peerOf(request: Request): Peer {
  return {
    address: request.headers.get('cf-connecting-ip'),
    tls: new URL(request.url).protocol === 'https:',
    via: 'edge',
  };
}

/** The members that a peer of crossws and the platform's socket share. */
interface Closable {
  send(data: string | ArrayBuffer | ArrayBufferView): unknown;
  close(code: number, reason: string): void;
}

/** A socket of the Durable Object. The platform answers pings, finds dead peers, and hides how much is unsent. */
function edgeTransport(id: string, socket: Closable): Transport {
  const quietly = (action: () => void) => {
    try {
      action();
    } catch {
      // Already closed: the close event follows or has passed.
    }
  };
  return {
    id,
    send: (data) => quietly(() => socket.send(data)),
    close: (code, reason) => quietly(() => socket.close(code, reason)),
    terminate: () => quietly(() => socket.close(1008, 'policy violation')),
    unsent: () => 0,
    pause: () => false,
    resume: () => {},
  };
}

export default {
  /** Hands every request to the object of its relay. */
  fetch(request: Request, env: Env): Promise<Response> {
    const name = env.RELAY_NAME || new URL(request.url).hostname;
    const stub = env.RELAY.get(env.RELAY.idFromName(name));
    return stub.fetch(request as never) as unknown as Promise<Response>;
  },
};
