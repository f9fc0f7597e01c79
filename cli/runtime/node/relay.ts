import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname } from 'node:path';
import { createSecureContext } from 'node:tls';
import { createChannels } from '../../../handlers/channels/index.ts';
import { createFetch } from '../../../handlers/routes.ts';
import { createSocketTable } from '../../../handlers/sockets.ts';
import type { Config } from '../../../lib/config.ts';
import { describeError } from '../../../lib/errors.ts';
import type { Host } from '../../../lib/host/index.ts';
import { makeDirectory } from '../../../lib/host/node/files.ts';
import { createNodeHost } from '../../../lib/host/node/index.ts';
import { createLoopbackGuard, type LoopbackGuard } from '../../../lib/host/node/loopback-guard.ts';
import { readTrust } from '../../../lib/host/node/trust.ts';
import { createNodeUpstream } from '../../../lib/host/node/upstream.ts';
import { createNodeDialBroker, createNodeDialUpstream } from '../../../lib/host/node/upstream-socket.ts';
import type { YamlThread } from '../../../lib/host/node/yaml.ts';
import { urlHost } from '../../../lib/kit/addresses.ts';
import { type Clock, systemClock } from '../../../lib/kit/clock.ts';
import type { Log } from '../../../lib/log.ts';
import type { Diagnosis } from '../../../lib/operator/doctor/doctor.ts';
import { createRelay, type Relay } from '../../../lib/relay.ts';
import { createStores } from '../../../storage/index.ts';
import { sqlBackend } from '../../../storage/sql-backend.ts';
import { openStateFile } from '../../../storage/sqlite.ts';
import { ownPackage } from '../../own-package.ts';
import { updateCommandOf } from '../../update-command.ts';
import { tuneCollection } from './gc.ts';
import {
  isWithoutAddress,
  type Listening,
  type ListenOptions,
  missingLoopbacks,
  openListener,
  type Tls,
} from './listen.ts';
import { loadPages } from './pages.ts';
import { type MainDeps, openSecureLink, type SecureLinkListener } from './secure-link/listener.ts';
import { acceptStreams } from './secure-link/streams.ts';
import { createRelayServer, type RelayServer } from './server.ts';

export interface NodeRelayOptions {
  version: string;
  config: Config;
  log: Log;
  /** Environment of the host and its programs; by default that of this process. */
  env?: Record<string, string | undefined>;
  /** Serve plain HTTP although a certificate is configured. */
  noTls?: boolean;
  /** The YAML thread shared by several relays; by default a new one. */
  yaml?: YamlThread;
  /** By default the clock of this machine. */
  clock?: Clock;
  /** Files that this process may open. */
  descriptors?: number;
}

export type NodeRelay = Awaited<ReturnType<typeof startNodeRelay>>;

/** The certificate could not be read or used. */
export class CertificateError extends Error {}

/**
 * Starts a relay on this machine: state, host, domain, listener.
 * @throws StateInUseError, CertificateError, or Node's listening error, in which case nothing stays open.
 */
export async function startNodeRelay({
  version,
  config,
  log,
  env,
  noTls,
  yaml,
  clock = systemClock,
  descriptors = MAX_CONNECTIONS,
}: NodeRelayOptions) {
  tuneCollection();
  const tls = noTls ? undefined : await readCertificate(config);
  const trust = await readTrust(config, log.named('host').warn);
  const state = log.named('state');
  if (config.stateFile !== null) await makeDirectory(dirname(config.stateFile));
  const backend =
    config.stateFile === null
      ? undefined
      : sqlBackend(openStateFile(config.stateFile, (message) => state.warn(message)));
  const stores = createStores('node', backend);
  try {
    const host = createNodeHost({ agentHome: config.agentHome, env, log: log.named('host'), yaml });
    const { users } = host;
    const guard = createLoopbackGuard({ users, operatorUids: config.operatorUids, log: log.named('access') });
    const relay: Relay = await createRelay({
      version,
      config,
      stores,
      clock,
      log,
      channels: createChannels,
      host,
      upstream: createNodeUpstream({ trust, guard }),
      dialUpstream: createNodeDialUpstream({ trust, guard }),
      dialBroker: createNodeDialBroker({ trust, guard }),
      updateCommand: (latest) => updateCommandOf(ownPackage(), latest),
      diagnose: () => diagnoseRelay(relay, host, env ?? process.env),
      pages: loadPages,
    });
    if (config.pairingCode !== undefined) await relay.codes.register(config.pairingCode, {});
    const { reading } = relay.budgets;
    const main: MainDeps = { log, fetch: createFetch(relay), sockets: createSocketTable(relay), reading };
    const server = createRelayServer(main);
    let listening: Listening;
    try {
      const limit: ConnectionLimit = {
        connections: maxConnections(descriptors),
        reached: (held) => log.warn(`a listener has ${held} connections, its maximum: it closes more`),
      };
      listening = await listen(server, { host: config.host, port: config.port, tls }, limit);
      relay.listener = { host: config.host, port: listening.address.port, tls: tls !== undefined };
    } catch (error) {
      await server.close();
      throw error;
    }
    // Profiles are read while the relay already answers, since a slow disk must not delay the first healthy answer. Only the
    // handshake of a client waits for them.
    const ready = relay.profiles.rescan().then(() => {
      if (relay.state === 'starting') relay.state = 'ready';
    });
    relay.start();
    const secureLink = await startSecureLink(relay, main, guard);
    return {
      relay,
      urls: listening.urls,

      /** Releases everything: sockets, listener, timers, state. */
      async stop(): Promise<void> {
        await relay.stop();
        await Promise.all([server.close(), secureLink?.close()]);
        await ready;
        stores.close();
      },
    };
  } catch (error) {
    stores.close();
    throw error;
  }
}

/** The checks of `svc relay doctor`, run by the relay itself. Loaded on first use. */
async function diagnoseRelay(relay: Relay, host: Host, env: Record<string, string | undefined>): Promise<Diagnosis> {
  const [{ diagnose }, { doctorDeps }, { operatorHeaders }] = await Promise.all([
    import('../../../lib/operator/doctor/doctor.ts'),
    import('../../doctor-deps.ts'),
    import('../../operator-key.ts'),
  ]);
  const { config, listener } = relay;
  const { agentHome } = config;
  const environment = { env, directories: { home: env.HOME ?? homedir(), agentHome }, fileLoaded: false };
  const installation = { createHost: () => host, ownPackage: { ...ownPackage(), version: relay.version }, env };
  const headers = await operatorHeaders(agentHome, listener.port);
  const deps = await doctorDeps(environment, installation, {
    relay: { port: listener.port, tls: listener.tls, headers },
    port: listener.port,
    // The relay runs, so it has loaded.
    modules: { relay: async () => {}, terminal: () => import('@lydell/node-pty') },
    config: { ...config, port: listener.port },
    process: async () => process.pid,
  });
  return diagnose(deps);
}

/** Opens the listener of Secure Link, if enabled. A failure does not affect the relay. Never rejects. */
async function startSecureLink(
  relay: Relay,
  main: MainDeps,
  guard: LoopbackGuard,
): Promise<SecureLinkListener | undefined> {
  const { secureLink } = relay;
  const plan = await secureLink?.prepare();
  if (!secureLink || !plan) return undefined;
  try {
    const listener = await openSecureLink(relay, plan, { ...main, guard });
    relay.reach?.serve(acceptStreams(listener.accept));
    // Closed for a reason, such as the end of its certificate. `stop` closes it as well.
    secureLink.onChange(() => {
      if (secureLink.problem !== null) void listener.close();
    });
    secureLink.listening(listener.port);
    return listener;
  } catch (error) {
    const { code, address = plan.bindHost } = error as NodeJS.ErrnoException & { address?: string };
    secureLink.failed(`cannot listen on ${urlHost(address)}:${plan.port} (${code ?? describeError(error)})`);
    return undefined;
  }
}

/** Connections for which there is memory: each takes some 10 KiB before it has sent anything. */
const MAX_CONNECTIONS = 8192;

/** Maximum connections of all listeners: others must not take the descriptors that the relay needs for files and programs. */
const maxConnections = (descriptors: number): number => Math.min(MAX_CONNECTIONS, Math.floor(descriptors / 2));

interface ConnectionLimit {
  /** On all listeners together. */
  connections: number;
  /** Called once for each listener that has closed one connection too many. */
  reached(held: number): void;
}

/** Attempts to find a port that is free on every address, if any port will do. */
const MAX_ATTEMPTS = 5;

/**
 * Listens on the configured address and on both loopback addresses (contract 01 §9.1a): host tools expect the relay there,
 * and another program on one of them would receive traffic for `localhost`.
 */
async function listen(server: RelayServer, options: ListenOptions, limit: ConnectionLimit): Promise<Listening> {
  for (let attempt = 1; ; attempt++) {
    const opened: Listening[] = [];
    try {
      const first = await openListener(server.handler, options);
      opened.push(first);
      const { address, port } = first.address;
      for (const host of missingLoopbacks(address)) {
        const listening = await openListener(server.handler, { ...options, host, port }).catch((error) => {
          if (!isWithoutAddress(error)) throw error;
        });
        if (listening) opened.push(listening);
      }
      const each = Math.floor(limit.connections / opened.length);
      for (const listening of opened) {
        listening.server.maxConnections = each;
        listening.server.once('drop', () => limit.reached(each));
        server.serve(listening.server);
      }
      return first;
    } catch (error) {
      for (const listening of opened) listening.server.close();
      // Another process may have taken the port meanwhile, or hold it on another address; any other port will do.
      if (options.port !== 0 || attempt === MAX_ATTEMPTS) throw error;
    }
  }
}

async function readCertificate({ sslCert, sslKey }: Config): Promise<Tls | undefined> {
  if (!sslCert || !sslKey) return undefined;
  const read = async (path: string) => {
    try {
      return await readFile(path);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      throw new CertificateError(`cannot read the TLS certificate or key ${path} (${code})`);
    }
  };
  const tls: Tls = {
    files: { cert: sslCert, key: sslKey },
    cert: await read(sslCert),
    key: await read(sslKey),
  };
  try {
    createSecureContext({ cert: tls.cert, key: tls.key });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new CertificateError(`the TLS certificate ${sslCert} and the key ${sslKey} cannot be used (${code})`);
  }
  return tls;
}
