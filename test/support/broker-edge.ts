import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { MiniflareOptions } from 'miniflare';
import { afterAll, inject } from 'vitest';
import { digestOf } from '../../lib/kit/sha256.ts';
import { labelOf } from '../../lib/reach/broker/label.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import type { BrokerTarget, KnownHost } from './broker.ts';
import { databasesBelow, startMiniflare, untilPutAway } from './miniflare.ts';

/** Hosts of one runtime: two for each case. */
const HOSTS = 80;

type Runtime = Awaited<ReturnType<typeof startRuntime>>;

/** The runtime of this test file, shared because starting one takes longer than most cases. */
let shared: Promise<Runtime> | undefined;
afterAll(async () => {
  await (await shared)?.stop();
});

/** Starts the local edge runtime with the broker for these hosts, its state in `persist`. */
export function startBrokerRuntime(deps: {
  hosts: readonly KnownHost[];
  persist: string;
  log: string[];
  options?: Partial<MiniflareOptions>;
}) {
  const { hosts, ...rest } = deps;
  const file = {
    hosts: Object.fromEntries(hosts.map(({ id, token }) => [id, { host_token_sha256: digestOf(token) }])),
  };
  return startMiniflare({
    scriptPath: inject('brokerBundle'),
    bindings: { REACH_HOSTS: JSON.stringify(file), REACH_LOG_LEVEL: 'DEBUG' },
    durableObjects: {
      BROKER: { className: 'BrokerObject', useSQLite: true },
      COUNTER: { className: 'BrokerCounter', useSQLite: true },
    },
    ...rest,
  });
}

async function startRuntime() {
  const persist = await mkdtemp(join(tmpdir(), 'svc-relay-broker-edge-'));
  const hosts = Array.from({ length: HOSTS }, (): KnownHost => ({ id: newId(), token: newToken() }));
  const log: string[] = [];
  const start = () => startBrokerRuntime({ hosts, persist, log });
  let { miniflare, port } = await start();
  let taken = 0;
  return {
    log,
    asleep: async () => untilPutAway(await databasesBelow(persist)),
    take: (): [KnownHost, KnownHost] => [hosts[taken++] as KnownHost, hosts[taken++] as KnownHost],
    port: () => port,
    async restart() {
      await miniflare.dispose();
      ({ miniflare, port } = await start());
    },
    async stop() {
      await miniflare.dispose();
      await rm(persist, { recursive: true, force: true });
    },
  };
}

/** Two fresh hosts in the local edge runtime. With `isShared` they are reached by the name that all hosts have. */
export async function startEdgeBrokerTarget(isShared = false): Promise<BrokerTarget> {
  shared ??= startRuntime();
  const runtime = await shared;
  const since = runtime.log.length;
  return {
    runtime: 'edge',
    hosts: runtime.take(),
    connectUrl: (hostId) => `ws://${isShared ? 'reach' : labelOf(hostId)}.localhost:${runtime.port()}/v1/connect`,
    fetch: (path, init) =>
      fetch(`http://127.0.0.1:${runtime.port()}${path}`, {
        ...init,
        headers: { ...init?.headers, connection: 'close' },
      }),
    get log() {
      return runtime.log.slice(since);
    },
    asleep: runtime.asleep,
    restart: runtime.restart,
    // The objects stay until the runtime stops; the next case has other hosts.
    stop: async () => {},
  };
}
