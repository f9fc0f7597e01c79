import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, inject, it } from 'vitest';
import { startNodeRelay } from '../../cli/runtime/node/relay.ts';
import { readConfig } from '../../lib/config.ts';
import type { Clock } from '../../lib/kit/clock.ts';
import { createLog } from '../../lib/log.ts';
import type { Relay } from '../../lib/relay.ts';
import { type Client, connect, type Frame } from './client.ts';
import { startEdgeTarget } from './edge.ts';
import { sharedYaml } from './host.ts';
import { freePort } from './process.ts';

/** A running relay under test, on either runtime. */
export interface Target {
  runtime: 'node' | 'edge';
  url: string;
  wsUrl: string;
  agentHome: string;
  /** Log lines; at the edge those of every relay of the file, and a moment late. */
  log: string[];
  /** A request without credentials. */
  fetch(path: string, init?: RequestInit): Promise<Response>;
  /** Sends a request as the operator: from strict loopback on Node, with an operator token at the edge. */
  operator(path: string, init?: RequestInit): Promise<Response>;
  /**
   * Stops the relay and starts it again on the same state; at the edge without a shutdown. `whileAway` runs while nothing
   * listens (Node only).
   */
  restart(whileAway?: () => Promise<void>): Promise<void>;
  stop(): Promise<void>;
  /** A token of its operator (edge only). */
  operatorToken?: string;
  /** Another one with a lifetime such as `5s` (edge only). */
  operatorTokenFor?(lifetime: string): Promise<string>;
  /** Makes every write of its state fail, or repairs that. On Node, a file that uses it mocks `openStateFile`. */
  breakStorage?(isBroken: boolean): Promise<void>;
  /** Resolves once its object has been put away (edge only). */
  asleep?(): Promise<void>;
  /** Keys in its object store (edge only). */
  objects?(): Promise<string[]>;
  /** A stored value as JSON text (edge only). */
  stored?(store: string, key: string): Promise<string | undefined>;
  /** The relay itself (Node only). */
  relay?: Relay;
}

export interface TargetOptions {
  /** Variables of the relay and its host; at the edge those of the deployment. */
  env?: Record<string, string>;
  /** Port to listen on (Node only); by default one that stays free while the relay is stopped. */
  port?: number;
  /** Its clock (Node only). */
  clock?: Clock;
}

export async function startNodeTarget({ env = {}, port: wanted, clock }: TargetOptions = {}): Promise<Target> {
  const agentHome = await mkdtemp(join(tmpdir(), 'svc-relay-test-'));
  const log: string[] = [];
  const port = wanted ?? (await freePort());
  const start = async () => {
    const { config } = readConfig({ RELAY_HOST: '127.0.0.1', ...env }, { home: agentHome, agentHome });
    return startNodeRelay({
      yaml: sharedYaml,
      clock,
      version: '1.0.0',
      config: { ...config, port },
      env: { ...process.env, ...env },
      log: createLog('DEBUG', (line) => log.push(line)),
    });
  };
  let running = await start();
  const target: Target = {
    runtime: 'node',
    url: `http://127.0.0.1:${port}`,
    wsUrl: `ws://127.0.0.1:${port}/ws`,
    agentHome,
    log,
    relay: running.relay,
    fetch: (path, init) => fetch(target.url + path, init),
    operator: (path, init) => fetch(target.url + path, init),
    async restart(whileAway) {
      await running.stop();
      await whileAway?.();
      running = await start();
      target.relay = running.relay;
      // `fetch` may still hold a connection to the stopped relay: spend its failure here.
      await fetch(`${target.url}/health`).catch(() => {});
    },
    async stop() {
      await running.stop();
      await rm(agentHome, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  return target;
}

type Runtime = Target['runtime'];

/** The runtimes of this run: a project of `vitest.config.ts` declares the cases of Node, or those of the edge, or both. */
export const runtimes = (): Runtime[] => inject('runtimes');
const skipsNode = !runtimes().includes('node');
const skipsEdge = !runtimes().includes('edge');
/** For cases outside a matrix in a file that runs once for each runtime. */
export const itOnNode = it.skipIf(skipsNode);
export const describeOnNode = describe.skipIf(skipsNode);
export const itAtEdge = it.skipIf(skipsEdge);
export const describeAtEdge = describe.skipIf(skipsEdge);

const starters = { node: startNodeTarget, edge: startEdgeTarget };

/**
 * Declares the same cases for every runtime of the run. `start` returns a fresh relay, which is stopped after the case. `suite` is
 * `describe.concurrent` for cases that mostly wait.
 */
export function describeMatrix(
  name: string,
  declare: (start: (options?: TargetOptions) => Promise<Target>, runtime: Runtime) => void,
  only: Runtime[] = ['node', 'edge'],
  suite: (name: string, declare: () => void) => void = describe,
): void {
  for (const runtime of only.filter((one) => runtimes().includes(one))) {
    suite(`${name} [${runtime}]`, () => {
      const running: Target[] = [];
      afterEach(async () => {
        await Promise.all(running.splice(0).map((target) => target.stop()));
      });
      declare(async (options) => {
        const target = await starters[runtime](options);
        running.push(target);
        return target;
      }, runtime);
    });
  }
}

export const post = (body: unknown): RequestInit => ({
  method: 'POST',
  body: JSON.stringify(body),
  headers: { 'content-type': 'application/json' },
});

/** Registers a code with the given policy. */
export async function registerCode(target: Target, code: string, policy: Record<string, unknown> = {}): Promise<void> {
  const response = await target.operator('/pairing/register', post({ code, ...policy }));
  if (response.status !== 200) throw new Error(`register: ${response.status} ${await response.text()}`);
}

export interface Paired {
  client: Client;
  token: string;
  refreshToken: string;
  prefix: string;
  ok: Frame;
}

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
export const randomCode = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => LETTERS[byte % 26]).join('');

/** Pairs a device from registration to `auth.ok`. */
export async function pair(
  target: Target,
  { policy, device }: { policy?: Record<string, unknown>; device?: Record<string, unknown> } = {},
): Promise<Paired> {
  const code = randomCode();
  await registerCode(target, code, policy);
  const client = await connect(target.wsUrl);
  client.send('system', 'auth', {
    pairing_code: code,
    device_id: crypto.randomUUID(),
    device_name: 'Phone',
    ...device,
  });
  const ok = await client.next({ channel: 'system', type: 'auth.ok' });
  const token = ok.payload.session_token as string;
  return { client, token, refreshToken: ok.payload.refresh_token as string, prefix: token.slice(0, 8), ok };
}

/** Connects with credentials and returns the answer, `auth.ok` or `auth.fail`. */
export async function authenticate(
  target: Target,
  payload: Record<string, unknown>,
): Promise<{ client: Client; frame: Frame }> {
  const client = await connect(target.wsUrl);
  client.send('system', 'auth', payload);
  return { client, frame: await client.next({ channel: 'system' }) };
}

export const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` });

/** For `start`: a relay that takes the address of its callers from the header of `addressHeaders`. */
export const BEHIND_PROXY: TargetOptions = { env: { RELAY_TRUST_PROXY_HEADERS: '1' } };

/** The header that makes a request come from an address: set by a trusted proxy on Node, by the platform at the edge. */
export const addressHeaders = ({ runtime }: Target, address: string): Record<string, string> =>
  runtime === 'node' ? { 'x-forwarded-for': address } : { 'cf-connecting-ip': address };

/** Attempts to authenticate from an address: `auth.ok`, the reason of `auth.fail`, or the status of a refused upgrade. */
export async function attemptFrom(target: Target, address: string, payload: Record<string, unknown>): Promise<string> {
  const client = await connect(target.wsUrl, { headers: addressHeaders(target, address) }).catch((error) => error);
  if (client instanceof Error) return String((client as Error & { status?: number }).status);
  client.send('system', 'auth', payload);
  const frame: Frame = await client.next({ channel: 'system' });
  client.terminate();
  return frame.type === 'auth.ok' ? frame.type : String(frame.payload.reason);
}
