import type { LookupOptions } from 'node:dns';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe } from 'vitest';
import { WebSocket } from 'ws';
import { startNodeBroker } from '../../cli/runtime/node/broker.ts';
import { digestOf } from '../../lib/kit/sha256.ts';
import { createLog } from '../../lib/log.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { encodeMessage, type Register } from '../../lib/reach/messages.ts';
import { openBrokerStore } from '../../storage/broker.ts';
import { sqlBackend } from '../../storage/sql-backend.ts';
import { openStateFile } from '../../storage/sqlite.ts';
import { dataFrame } from './frames.ts';
import { TIMEOUT } from './limits.ts';
import { freePort } from './process.ts';

/** A host that the broker under test knows. */
export interface KnownHost {
  id: string;
  token: string;
}

/** A running broker under test, on either runtime. */
export interface BrokerTarget {
  runtime: 'node' | 'edge';
  hosts: [KnownHost, KnownHost];
  /** The address that a host's connector and clients dial. */
  connectUrl(hostId: string): string;
  fetch(path: string, init?: RequestInit): Promise<Response>;
  log: string[];
  /** Resolves once its objects have been put away (edge only). */
  asleep?(): Promise<void>;
  /** Stops it and starts it again on the same state. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

// biome-ignore lint/suspicious/noExplicitAny: a test knows the message it expects
type Message = any;

const lookupLoopback = (_name: string, options: LookupOptions, done: (...answer: unknown[]) => void): void => {
  if (options.all) done(null, [{ address: '127.0.0.1', family: 4 }]);
  else done(null, '127.0.0.1', 4);
};

/** One socket to a broker. Messages wait until they are asked for: JSON parsed, binary as bytes. */
export class BrokerPeer {
  readonly socket: WebSocket;
  readonly opened: Promise<void>;
  /** Status of a refused upgrade. */
  status: number | undefined;
  readonly messages: Message[] = [];
  closeCode: number | undefined;
  #wake = () => {};

  constructor(url: string, headers: Record<string, string> = {}) {
    // Names below `localhost` are this machine (RFC 6761 §6.3), but not every resolver knows that.
    const options = url.includes('.localhost') ? { lookup: lookupLoopback } : {};
    this.socket = new WebSocket(url, { ...options, perMessageDeflate: false, headers });
    this.opened = new Promise((resolve, reject) => {
      this.socket.once('open', resolve);
      this.socket.once('unexpected-response', (_request, response) => {
        this.status = response.statusCode;
        response.resume();
        this.socket.terminate();
        reject(new Error(`refused with ${this.status}`));
      });
      this.socket.on('error', reject);
    });
    this.opened.catch(() => {});
    this.socket.on('message', (data: Buffer, isBinary) => {
      this.messages.push(isBinary ? data : JSON.parse(data.toString()));
      this.#wake();
    });
    this.socket.on('close', (code) => {
      this.closeCode = code;
      this.#wake();
    });
  }

  /** The next message; rejects when the socket closes before it. */
  async next(): Promise<Message> {
    await this.#until(() => this.messages.length > 0);
    if (this.messages.length === 0) throw new Error(`closed with ${this.closeCode}`);
    return this.messages.shift();
  }

  /** The close code, once closed; messages before it stay. */
  async closed(): Promise<number> {
    await this.#until(() => this.closeCode !== undefined);
    return this.closeCode as number;
  }

  async #until(isThere: () => boolean): Promise<void> {
    const limit = Date.now() + TIMEOUT;
    while (!isThere() && this.closeCode === undefined) {
      if (Date.now() > limit) throw new Error('timed out waiting for the broker');
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 1000);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  send(data: string | Uint8Array): void {
    this.socket.send(data);
  }

  /** Sends one DATA frame. */
  data(streamId: string, payload: Uint8Array | string): void {
    this.send(dataFrame(streamId, Buffer.from(payload)));
  }
}

/** A broker for tests: hosts and clients that register, publish and match. */
export function broker(target: BrokerTarget) {
  const peers: BrokerPeer[] = [];

  async function register(message: Partial<Register> & { host_id: string }): Promise<BrokerPeer> {
    const peer = new BrokerPeer(target.connectUrl(message.host_id));
    peers.push(peer);
    await peer.opened;
    const whole = { role: 'client', credential_kind: 'route', connection_id: newId(), token: newToken() } as const;
    peer.send(encodeMessage({ type: 'register', ...whole, ...message }));
    return peer;
  }

  async function host(which: 0 | 1 = 0, flow?: number): Promise<BrokerPeer> {
    const { id, token } = target.hosts[which];
    const peer = await register({ role: 'host', credential_kind: 'host', host_id: id, token });
    const answer = await peer.next();
    if (answer.type !== 'registered') throw new Error(`not registered: ${JSON.stringify(answer)}`);
    if (flow !== undefined) peer.send(encodeMessage({ type: 'flow', window: flow }));
    return peer;
  }

  async function publish(
    peer: BrokerPeer,
    { credential = newId(), uses }: { credential?: string; uses?: number } = {},
  ) {
    const token = newToken();
    const expires_at = Math.floor(Date.now() / 1000) + 600;
    const common = { token_sha256: digestOf(token), expires_at };
    peer.send(
      uses === undefined
        ? encodeMessage({ type: 'publish_route', credential_id: credential, ...common, device_id_hash: digestOf('x') })
        : encodeMessage({ type: 'publish_bootstrap', pairing_id: credential, ...common, max_uses: uses }),
    );
    const answer = await peer.next();
    if (answer.type !== 'published') throw new Error(`not published: ${JSON.stringify(answer)}`);
    return token;
  }

  const client = (token: string, kind: 'route' | 'bootstrap' = 'route', which: 0 | 1 = 0): Promise<BrokerPeer> =>
    register({ host_id: target.hosts[which].id, credential_kind: kind, token });

  return {
    register,
    host,
    publish,
    client,
    /** A matched client and its stream ID; the host has read `open`. */
    async match(peer: BrokerPeer, token?: string, which: 0 | 1 = 0): Promise<{ client: BrokerPeer; id: string }> {
      const matched = await client(token ?? (await publish(peer)), 'route', which);
      const answer = await matched.next();
      if (answer.type !== 'matched') throw new Error(`not matched: ${JSON.stringify(answer)}`);
      const open = await peer.next();
      if (open.stream_id !== answer.stream_id) throw new Error(`not opened: ${JSON.stringify(open)}`);
      return { client: matched, id: answer.stream_id };
    },
    close: () => {
      for (const { socket } of peers) socket.terminate();
    },
  };
}

const knownHosts = (): [KnownHost, KnownHost] => [
  { id: newId(), token: newToken() },
  { id: newId(), token: newToken() },
];

export async function startNodeBrokerTarget(): Promise<BrokerTarget> {
  const directory = await mkdtemp(join(tmpdir(), 'svc-relay-broker-'));
  const hosts = knownHosts();
  const log: string[] = [];
  const port = await freePort();
  const start = () =>
    startNodeBroker({
      hosts: new Map(hosts.map(({ id, token }) => [id, [digestOf(token)]])),
      store: openBrokerStore(sqlBackend(openStateFile(join(directory, 'broker.db'), (message) => log.push(message)))),
      host: '127.0.0.1',
      port,
      clientIpHeader: 'x-client-ip',
      log: createLog('DEBUG', (line) => log.push(line)),
    });
  let running = await start();
  return {
    runtime: 'node',
    hosts,
    connectUrl: () => `ws://127.0.0.1:${port}/v1/connect`,
    fetch: (path, init) =>
      fetch(`http://127.0.0.1:${port}${path}`, { ...init, headers: { ...init?.headers, connection: 'close' } }),
    log,
    async restart() {
      await running.stop();
      running = await start();
    },
    async stop() {
      await running.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

const starters: Record<'node' | 'edge', () => Promise<BrokerTarget>> = {
  node: startNodeBrokerTarget,
  edge: async () => (await import('./broker-edge.ts')).startEdgeBrokerTarget(),
};

/** Declares the same cases for a broker on every runtime. `start` returns a fresh one, stopped after the case. */
export function describeBrokers(
  name: string,
  declare: (start: () => Promise<BrokerTarget & ReturnType<typeof broker>>, runtime: 'node' | 'edge') => void,
): void {
  for (const runtime of ['node', 'edge'] as const) {
    describe(`${name} [${runtime}]`, () => {
      const stops: (() => Promise<void>)[] = [];
      afterEach(async () => {
        await Promise.all(stops.splice(0).map((stop) => stop()));
      });
      declare(async () => {
        const target = await starters[runtime]();
        const actions = broker(target);
        stops.push(async () => {
          actions.close();
          await target.stop();
        });
        return Object.assign(target, actions);
      }, runtime);
    });
  }
}
