import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach } from 'vitest';
import { loadPages } from '../../cli/runtime/node/pages.ts';
import { createRelayServer } from '../../cli/runtime/node/server.ts';
import { createChannels } from '../../handlers/channels/index.ts';
import { createFetch } from '../../handlers/routes.ts';
import { createSocketTable, type SocketRow, sockets } from '../../handlers/sockets.ts';
import { readConfig } from '../../lib/config.ts';
import type { Host } from '../../lib/host/index.ts';
import { createNodeUpstream } from '../../lib/host/node/upstream.ts';
import { createNodeDialBroker, createNodeDialUpstream } from '../../lib/host/node/upstream-socket.ts';
import type { Upstream } from '../../lib/host/upstream.ts';
import { type Clock, systemClock } from '../../lib/kit/clock.ts';
import { createLog } from '../../lib/log.ts';
import { createRelay, type Relay } from '../../lib/relay.ts';
import type { Channels } from '../../lib/socket/channel.ts';
import { createStores } from '../../storage/index.ts';
import type { Stores } from '../../storage/schema.ts';
import { createTestClock, type TestClock } from './clock.ts';
import { createTestHost } from './host.ts';
import type { Target } from './relay.ts';

export interface BuiltTarget extends Target {
  port: number;
  relay: Relay;
}

export interface BuiltOptions {
  /** Added to the relay's own channels. */
  channels?: Channels;
  clock?: Clock;
  env?: Record<string, string>;
  /** Sockets beside the relay's own. */
  rows?: readonly SocketRow[];
  /** Returns the environment of the host's programs for the relay's home. Default: that of this process. */
  hostEnv?(home: string): Record<string, string>;
  /** Calls the servers behind the relay. */
  upstream?: Upstream;
  /** Changes the host, or the stores, before the relay gets them. */
  withHost?(host: Host): Host;
  withStores?(stores: Stores): Stores;
  /** Milliseconds in which a client that is not read must take something of what is sent. */
  stallTimeout?: number;
}

/** A relay assembled from its parts on a real listener, with state in memory, for test clocks and test channels. */
export async function startBuiltTarget(options: BuiltOptions = {}) {
  const { channels = {}, clock = systemClock, env = {}, rows = [], hostEnv, upstream = createNodeUpstream() } = options;
  const { withHost = (host: Host) => host, withStores = (stores: Stores) => stores } = options;
  const agentHome = await mkdtemp(join(tmpdir(), 'svc-relay-test-'));
  const log: string[] = [];
  const { config } = readConfig(
    // Nothing listens on port 1, so no test calls the real release feed.
    { RELAY_HOST: '127.0.0.1', RELAY_UPDATE_FEED_URL: 'http://127.0.0.1:1/', ...env },
    { home: agentHome, agentHome },
  );
  const relay = await createRelay({
    version: '1.0.0',
    config,
    stores: withStores(createStores('node')),
    clock,
    log: createLog('DEBUG', (line) => log.push(line)),
    channels: (relay) => ({ ...createChannels(relay), ...channels }),
    host: withHost(createTestHost({ agentHome, env: hostEnv?.(agentHome) })),
    upstream,
    dialUpstream: createNodeDialUpstream({}),
    dialBroker: createNodeDialBroker({}),
    pages: loadPages,
  });
  const server = createRelayServer({
    log: relay.log,
    fetch: createFetch(relay),
    sockets: createSocketTable(relay, [...sockets, ...rows]),
    reading: relay.budgets.reading,
    stallTimeout: options.stallTimeout,
  });
  const listener = createServer(server.handler).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  server.serve(listener);
  const { port } = listener.address() as AddressInfo;
  relay.listener = { host: '127.0.0.1', port, tls: false };
  relay.start();
  relay.state = 'ready';
  const url = `http://127.0.0.1:${port}`;
  const target: BuiltTarget = {
    runtime: 'node',
    url,
    wsUrl: `ws://127.0.0.1:${port}/ws`,
    port,
    agentHome,
    log,
    relay,
    fetch: (path, init) => fetch(url + path, init),
    operator: (path, init) => fetch(url + path, init),
    restart: () => Promise.reject(new Error('its state is in memory')),
    async stop() {
      await relay.stop();
      await server.close();
      await rm(agentHome, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  return target;
}

/** Runs the pushed functions after each case, the last one first. */
export function cleanups(): (() => unknown)[] {
  const pending: (() => unknown)[] = [];
  afterEach(async () => {
    for (const cleanup of pending.splice(0).reverse()) await cleanup();
  });
  return pending;
}

/** Returns a function that starts a relay whose clock the case moves. The relay is stopped after the case. */
export function clockedTargets(): () => Promise<{ clock: TestClock; target: BuiltTarget }> {
  const cleanup = cleanups();
  return async () => {
    const clock = createTestClock();
    const target = await startBuiltTarget({ clock });
    cleanup.push(target.stop);
    return { clock, target };
  };
}
