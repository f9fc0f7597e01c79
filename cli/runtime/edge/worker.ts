import { DurableObject } from 'cloudflare:workers';
import type { DurableObjectState, R2Bucket, WebSocket as WorkerSocket } from '@cloudflare/workers-types';
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
import { describeError } from '../../../lib/errors.ts';
import { utf8ToBytes } from '../../../lib/kit/bytes.ts';
import { createLog, type Log } from '../../../lib/log.ts';
import type { ObjectStore } from '../../../lib/media/objects.ts';
import { registerInitialCode } from '../../../lib/pairing/initial-code.ts';
import { createRelay, type Relay } from '../../../lib/relay.ts';
import { ALIVE_PING, ALIVE_PONG } from '../../../lib/socket/envelope.ts';
import { errorResponse } from '../../../lib/web/json.ts';
import { WebResponse } from '../../../lib/web/response.ts';
import packageJson from '../../../package.json' with { type: 'json' };
import { durableObjectExecutor } from '../../../storage/durable-object.ts';
import { createStores } from '../../../storage/index.ts';
import { sqlBackend } from '../../../storage/sql-backend.ts';
import type { SqlExecutor } from '../../../storage/sql-driver.ts';
import { createSocketHooks, type OpenSocket } from '../socket-hooks.ts';
import { createEdgeClock } from './clock.ts';
import { createDeployment } from './deployment.ts';
import { createEntry, drain, type EntryEnv, relayNameOf, textsOf } from './entry.ts';
import { createExpiry, ENDS, type Expiry } from './expiry.ts';
import { attachmentOf, socketOf } from './internals.ts';
import { type Claimed, isTenantObject, publishName, releaseName, type Tenant, variablesOf } from './tenants.ts';
import { answerClose, createEdgeTransport, type EdgeTransport, MAX_MESSAGE } from './transport.ts';

export { BrokerCounter, BrokerObject } from './broker.ts';

interface Env extends EntryEnv {
  /** Storage of uploads. */
  MEDIA?: R2Bucket;
}

/** Key of the tenant whose relay this is, beside its stores. */
const TENANT = 'tenant';
/** Key of the mark that the relay has ended, which its remains follow. */
const ENDED = 'ended';
/** Milliseconds after which a failed removal is tried again. */
const RETRY_END = 3_600_000;

/** The part of an accepted handshake that crossws gets. It stores the URL with the socket across sleeps. */
interface Handshake {
  url: string;
  accepted?: Accepted;
}

/** The relay as one Durable Object, with only its own state and sockets. */
export class RelayObject extends DurableObject<Env> {
  #clock!: ReturnType<typeof createEdgeClock>;
  readonly #open = new Map<string, OpenSocket & { transport: EdgeTransport }>();
  #crossws!: ReturnType<typeof crossws>;
  #relay!: Relay;
  #fetch!: Fetch;
  #table!: SocketTable;
  #expiry?: Expiry;
  /**
   * `unclaimed`: a tenant's name without a claim, so nothing is stored. `ending`: the relay has ended, and could not be
   * removed completely yet. `ended`: nothing is left, and the next request finds a new one.
   */
  #state: 'relay' | 'unclaimed' | 'ending' | 'ended' = 'relay';

  constructor(state: DurableObjectState, env: Env) {
    super(state as never, env);
    state.setWebSocketAutoResponse(new WebSocketRequestResponsePair(ALIVE_PING, ALIVE_PONG));
    void state.blockConcurrencyWhile(() => this.#begin(state, env));
  }

  /** The socket table. */
  protected rows(): readonly SocketRow[] {
    return sockets;
  }

  /** Storage of its state. */
  protected executor(state: DurableObjectState): SqlExecutor {
    return durableObjectExecutor(state.storage);
  }

  /** Wakes as the relay of a tenant, with its settings, or as one of the deployment. */
  async #begin(state: DurableObjectState, env: Env): Promise<void> {
    const stored = await state.storage.get<unknown>([TENANT, ENDS, ENDED]);
    const tenant = stored.get(TENANT) as Tenant | undefined;
    if (stored.has(ENDED)) return this.#remove(tenant);
    this.#state = tenant !== undefined || !isTenantObject(state.id.name) ? 'relay' : 'unclaimed';
    if (this.#state === 'unclaimed') return;
    const ends = stored.get(ENDS) as number | undefined;
    if (tenant) await this.#wake(state, env, variablesOf(tenant, env), tenant.host, ends);
    else await this.#wake(state, env, textsOf(env), state.id.name, ends);
  }

  /**
   * Gives this object to a tenant, unless it has one. A second claim changes nothing, by anybody; the tenant's own counts as
   * a use. For the Worker only, and for the name of a tenant's object.
   */
  async claim(tenant: Tenant): Promise<Claimed> {
    await this.#settle();
    return this.ctx.blockConcurrencyWhile(async () => {
      const { storage } = this.ctx;
      if (this.#state === 'ending') throw new Error('the relay of this name is being removed');
      const known = await storage.get<Tenant>(TENANT);
      if (known) {
        if (known.operatorPublicKey !== tenant.operatorPublicKey) return 'taken';
        this.#expiry?.renew();
      } else {
        if (this.#state === 'relay') throw new Error('a relay of the deployment cannot be claimed');
        await storage.put(TENANT, tenant);
        await this.#begin(this.ctx, this.env);
        this.#expiry?.check();
      }
      // Last, so that a name always leads to a relay with an operator; and in here, since a release in between would leave a
      // name without one.
      if (!(await publishName(known ?? tenant, this.env))) return 'unnamed';
      return known ? 'same' : 'claimed';
    });
  }

  /** Returns the tenant of this object, if there is one. Like the two methods below, this is for the Worker only. */
  async tenant(): Promise<Tenant | undefined> {
    await this.#settle();
    return this.#state === 'relay' ? this.ctx.storage.get<Tenant>(TENANT) : undefined;
  }

  /** Gives the tenant other settings or another key, and restarts with them. False if it is no longer `before`. */
  async change(before: Tenant, after: Tenant): Promise<boolean> {
    await this.#settle();
    return this.ctx.blockConcurrencyWhile(async () => {
      if (!(await this.#isStill(before))) return false;
      await this.ctx.storage.put(TENANT, after);
      await this.#halt();
      await this.#begin(this.ctx, this.env);
      this.#expiry?.check();
      return true;
    });
  }

  /** Ends the relay of a tenant, like after 30 days without use. `ending`: the rest is removed later. */
  async release(tenant: Tenant): Promise<'released' | 'ending' | 'changed'> {
    await this.#settle();
    return this.ctx.blockConcurrencyWhile(async () => {
      if (!(await this.#isStill(tenant))) return 'changed';
      await this.#remove(await this.#endNow('its name is released'));
      return this.#state === 'ending' ? 'ending' : 'released';
    });
  }

  /** True if the tenant has not changed since it was read. */
  async #isStill(tenant: Tenant): Promise<boolean> {
    const stored = await this.ctx.storage.get<Tenant>(TENANT);
    return this.#state === 'relay' && JSON.stringify(stored) === JSON.stringify(tenant);
  }

  /** Addresses of home that the app's policy allows. For the Worker only. */
  async homePages(): Promise<readonly string[]> {
    await this.#settle();
    try {
      return this.#state === 'relay' ? (this.#relay.edgeMirror?.homePages() ?? []) : [];
    } finally {
      this.#expiry?.check();
    }
  }

  /** Continues after an end: removes the rest of the old relay, and starts as a new one. */
  async #settle(): Promise<void> {
    while (this.#state === 'ended' || this.#state === 'ending') {
      const before = this.#state;
      await this.ctx.blockConcurrencyWhile(async () => {
        if (this.#state === before) await this.#begin(this.ctx, this.env);
      });
      if (before === 'ending' && this.#state === before) return;
    }
  }

  /**
   * Ends a relay that nobody has used for 30 days. It is gone from the mark on, even if the process ends before the rest.
   */
  #end(): Promise<void> {
    return this.ctx.blockConcurrencyWhile(async () => {
      if (await this.#expiry?.isOver())
        await this.#remove(await this.#endNow('nobody has used this relay for 30 days'));
    });
  }

  /** Marks the relay as ended and stops it. Returns its tenant. */
  async #endNow(reason: string): Promise<Tenant | undefined> {
    await this.ctx.storage.put(ENDED, true);
    this.#relay.log.info(`${reason}: it ends`);
    await this.#halt();
    return this.ctx.storage.get<Tenant>(TENANT);
  }

  /** Stops the relay and closes its sockets, including those that it leaves open, such as home's. */
  async #halt(): Promise<void> {
    this.#expiry = undefined;
    await this.#relay.stop();
    this.#clock.stop();
    this.#open.clear();
    for (const socket of this.ctx.getWebSockets()) socket.close(1001, 'server shutting down');
  }

  /** Removes an ended relay: its uploads, its name and, last and atomically, its storage. Failures are retried. */
  async #remove(tenant: Tenant | undefined): Promise<void> {
    const { storage, id } = this.ctx;
    // biome-ignore lint/suspicious/noConsole: the console is the log of a Worker
    const log = createLog('INFO', (line) => console.log(line));
    try {
      await removeUploads(this.env.MEDIA, `${id}/`);
      if (tenant) await releaseName(tenant, this.env);
      await storage.deleteAlarm();
      await storage.deleteAll();
      this.#state = 'ended';
      log.info('the state of a relay that has ended was removed');
    } catch (error) {
      this.#state = 'ending';
      log.error(`the state of a relay that has ended could not be removed: ${describeError(error)}`);
      await storage.setAlarm(Date.now() + RETRY_END);
    }
  }

  /** Builds the relay from its stores and restores the sockets that survived the sleep. */
  async #wake(
    state: DurableObjectState,
    env: Env,
    variables: Record<string, string>,
    name: string | undefined,
    ends: number | undefined,
  ): Promise<void> {
    this.#clock = createEdgeClock(state.storage, (await state.storage.getAlarm()) ?? undefined);
    // biome-ignore lint/suspicious/noConsole: the console is the log of a Worker
    const write = (line: string) => console.log(line);
    const { config, warnings } = readOwnConfig(variables, name, write);
    const log = createLog(config.logLevel, write);
    for (const warning of warnings) log.warn(warning);
    const stores = createStores('edge', sqlBackend(this.executor(state)));
    this.#relay = await createRelay({
      version: packageJson.version,
      config,
      stores,
      clock: this.#clock,
      log,
      channels: createChannels,
      env: variables,
      socketsOutliveMemory: true,
      objects: env.MEDIA && { store: env.MEDIA as unknown as ObjectStore, prefix: state.id.toString() },
    });
    this.#fetch = createFetch(this.#relay);
    this.#table = createSocketTable(this.#relay, this.rows());
    // Like on Node, the table has selected the subprotocol.
    const upgrade = (handshake: unknown) => ({ protocol: (handshake as Handshake).accepted?.protocol });
    this.#crossws = crossws({ hooks: { ...this.#hooks(log), upgrade } });
    await registerInitialCode(config.pairingCode, { codes: this.#relay.codes, store: stores.open('pairing') });
    this.#relay.state = 'ready';
    for (const socket of state.getWebSockets()) await this.#restore(socket, log);
    await this.#relay.restored();
    this.#expiry = createExpiry({
      storage: state.storage,
      relay: this.#relay,
      stores,
      clock: this.#clock,
      log,
      hasInitialCode: config.pairingCode !== undefined,
      ends,
    });
    log.debug(`awake with ${state.getWebSockets().length} sockets`);
  }

  #hooks(log: Log) {
    return createSocketHooks(
      {
        maxMessage: MAX_MESSAGE,
        take: (peer) => {
          const handshake = peer.request as unknown as Handshake;
          const { accepted } = handshake;
          handshake.accepted = undefined;
          return accepted;
        },
        open: (peer, accepted) => {
          const transport = createEdgeTransport(peer.id, peer, this.#pingedAt(socketOf(peer)));
          this.#open.set(peer.id, { row: accepted.row, transport, events: accepted.open(transport) });
        },
        find: (peer) => this.#open.get(peer.id),
        onReceived: (peer) => this.#open.get(peer.id)?.transport.touch(),
        forget: (peer) => this.#open.delete(peer.id),
      },
      log,
    ).hooks;
  }

  /** Time at which the platform answered the last constant ping of a socket, epoch ms. */
  #pingedAt = (socket: WorkerSocket) => () => this.ctx.getWebSocketAutoResponseTimestamp(socket)?.getTime() ?? null;

  /**
   * Restores a socket that survived a sleep, by its row. One that fails is closed, because the object would not wake
   * otherwise.
   */
  async #restore(socket: WorkerSocket, log: Log): Promise<void> {
    const { id, url } = attachmentOf(socket);
    // A change of a tenant has just closed its sockets.
    if (id === undefined || url === undefined || socket.readyState >= WebSocket.CLOSING) return;
    const row = this.#table.rowOf(new URL(url).pathname);
    const transport = createEdgeTransport(id, socket, this.#pingedAt(socket));
    if (!row?.restore) {
      transport.close(1012, 'the relay was asleep');
      return;
    }
    try {
      const events = await row.restore(transport, this.#relay);
      if (events) this.#open.set(id, { row, transport, events });
    } catch (error) {
      log.error(`a socket on ${row.path} failed: ${describeError(error)}`);
      transport.close(1011, 'internal error');
    }
  }

  async fetch(request: Request): Promise<Response> {
    await this.#settle();
    if (this.#state !== 'relay') {
      await drain(request);
      if (this.#state === 'unclaimed') return errorResponse(404, 'no relay answers for that host name');
      return errorResponse(503, 'this relay is being removed; try again later');
    }
    try {
      return await this.#answer(request);
    } finally {
      this.#expiry?.check();
    }
  }

  async #answer(request: Request): Promise<Response> {
    const peer = peerOf(request);
    const url = new URL(request.url);
    if (request.headers.get('upgrade')?.toLowerCase() === 'websocket') {
      const decision = await this.#table.upgrade(request, peer);
      if (decision.refusal) return decision.refusal;
      // Without the query, which nothing needs later and which might exceed the platform's limit.
      const handshake: Handshake = { url: url.origin + url.pathname, accepted: decision };
      return this.#crossws.handleDurableUpgrade(this as never, handshake as never) as unknown as Response;
    }
    const response = await this.#fetch(request, peer);
    await drain(request);
    return whenSent(response);
  }

  async webSocketMessage(socket: WorkerSocket, message: string | ArrayBuffer): Promise<void> {
    if (this.#state !== 'relay') return;
    await this.#crossws.handleDurableMessage(this as never, socket as never, message);
    this.#expiry?.check();
  }

  async webSocketClose(socket: WorkerSocket, code: number, reason: string, clean: boolean): Promise<void> {
    if (this.#state === 'relay') {
      await this.#crossws.handleDurableClose(this as never, socket as never, code, reason, clean);
      this.#expiry?.check();
    }
    answerClose(socket, code, reason);
  }

  /** A client has broken the protocol. The platform drops its connection, and reports no close. */
  webSocketError(socket: WorkerSocket): Promise<void> {
    return this.webSocketClose(socket, 1006, '', false);
  }

  /** After an incomplete end, the object has removed the rest when it woke, or does now. */
  async alarm(): Promise<void> {
    if (this.#state === 'ending') await this.#settle();
    if (this.#state !== 'relay') return;
    this.#clock.alarm();
    await this.#relay.sweep();
    await this.#end();
  }
}

/** Removes every object of a relay's bucket whose key begins with `prefix`. */
async function removeUploads(bucket: R2Bucket | undefined, prefix: string): Promise<void> {
  for (let isMore = bucket !== undefined; bucket && isMore; ) {
    const { objects, truncated } = await bucket.list({ prefix });
    if (objects.length > 0) await bucket.delete(objects.map(({ key }) => key));
    isMore = truncated;
  }
}

/**
 * The configuration of the relay called `name`. `RELAY_PUBLIC_URL` is the address of one relay only, that of its host.
 * @throws RelayError naming the variable, which is logged first, because the platform shows callers no reason.
 */
function readOwnConfig(variables: Record<string, string>, name: string | undefined, write: (line: string) => void) {
  try {
    const { config, warnings } = readConfig(variables, { home: '', agentHome: '' });
    const relayName = name ?? config.relayName;
    const isPublic = config.publicUrl && relayNameOf(new URL(config.publicUrl).hostname, config) === relayName;
    return { config: { ...config, relayName, publicUrl: isPublic ? config.publicUrl : undefined }, warnings };
  } catch (error) {
    createLog('ERROR', write).error(`this relay cannot start: ${describeError(error)}`);
    throw error;
  }
}

/**
 * A response whose handler needs to know whether it was written; the platform only reports when it starts reading the
 * stream.
 */
function whenSent(response: Response): Response {
  if (!(response instanceof WebResponse) || !response.sent || typeof response.content !== 'string') return response;
  const { content, sent } = response;
  let isConsumed = false;
  const body = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (!isConsumed) controller.enqueue(utf8ToBytes(content));
        else {
          controller.close();
          sent(true);
        }
        isConsumed = true;
      },
      cancel: () => sent(false),
    },
    { highWaterMark: 0 },
  );
  return new Response(body, { status: response.status, headers: response.headers });
}

/** The platform puts the client's address into a header that clients cannot set. */
function peerOf(request: Request): Peer {
  return {
    address: request.headers.get('cf-connecting-ip'),
    tls: new URL(request.url).protocol === 'https:',
    via: 'edge',
  };
}

/** The pages are part of the Worker's bundle: `wrangler.toml` names the file that the build makes. */
export default createDeployment(createEntry(async () => (await import('svc-relay-pages')).files));
