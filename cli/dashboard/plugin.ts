import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { variables } from '../../lib/config.ts';
import { createFiles } from '../../lib/host/node/files.ts';
import { createLoopbackGuard } from '../../lib/host/node/loopback-guard.ts';
import { readRelayLock } from '../../lib/host/node/relay-lock.ts';
import { createUsers } from '../../lib/host/node/users.ts';
import { type Clock, systemClock } from '../../lib/kit/clock.ts';
import { createLog } from '../../lib/log.ts';
import type { LiveCredential } from '../../lib/usage/usage.ts';
import { loadEnvironment, readVariable } from '../environment.ts';
import type { ForwardLimits } from '../runtime/node/forward.ts';
import { refuse } from './answers.ts';
import { createDecisions } from './decisions.ts';
import { createIngress, INGRESS_LIMITS } from './ingress.ts';
import { createIngressSockets, SOCKET_LIMITS, type SocketLimits } from './ingress-sockets.ts';
import { createMarker } from './marker.ts';
import { createOwnRoutes } from './own-routes.ts';
import { createRelayLink } from './relay-link.ts';

/** Settings that the dashboard passes to its plugin. */
export interface DashboardHost {
  /** The user of a dashboard cookie or native bearer. */
  authenticate(req: IncomingMessage): Promise<{ principal: string } | null>;
  /** The dashboard's policy on Host, Origin and peer of a WebSocket. */
  checkHostOrigin(req: IncomingMessage): boolean;
  /** Uses up the single-use ticket of an upgrade. */
  consumeWsTicket(req: IncomingMessage): Promise<{ subprotocol?: string } | null>;
  isPluginEnabled(): boolean | Promise<boolean>;
  /** The credential that a live session uses; it counts only for the profile that it belongs to (contract 07 §4.2). */
  activeCredential?(sessionId: string): Promise<LiveCredential | null>;
}

export interface DashboardPluginOptions {
  host: DashboardHost;
  /** Default: `SVC_RELAY_PORT`, else where the relay on this state runs, else `RELAY_PORT`, else 8767. */
  relayPort?: number;
  /** Default: `SVC_HOME`, else `~/.svc`. */
  agentHome?: string;
  /** Default: the environment of this process. `<agent_home>/.env` is read over it. */
  env?: NodeJS.ProcessEnv;
  /** Where the dashboard mounts the plugin; a slash at its end makes no difference. */
  mountPath?: string;
}

/** The plugin as the dashboard's HTTP server uses it. Both calls return false for a path that is not the plugin's. */
export interface DashboardPlugin {
  handle(req: IncomingMessage, res: ServerResponse): Promise<boolean>;
  upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): Promise<boolean>;
  close(): Promise<void>;
}

/** The target of a request without the mount path, as it was sent. */
export interface RequestTarget {
  /** Begins with a slash, or is empty. */
  path: string;
  /** Begins with a question mark, or is empty. */
  query: string;
}

const MOUNT_PATH = '/api/plugins/svc-relay';
const CONNECT_TIMEOUT = 5_000;

/** Overrides for tests. */
export interface PluginLimits {
  http?: Partial<ForwardLimits>;
  sockets?: Partial<SocketLimits>;
  connectTimeout?: number;
  /** Milliseconds for each decision of the dashboard. */
  decision?: number;
}

/** Milliseconds for which the address of the relay is cached: a page makes many requests at once. */
const CACHE_TIME = 1_000;

interface RunningOptions {
  stateFile: string | null;
  otherwise: { port: number; tls: boolean };
  clock: Clock;
}

/** Where the relay on this state runs, by its lock; without one, where it is configured to (contract 11 §1). */
function createRunningRelay({ stateFile, otherwise, clock }: RunningOptions): () => { port: number; tls: boolean } {
  let found = otherwise;
  let until = Number.NEGATIVE_INFINITY;
  return () => {
    if (stateFile === null || clock.monotonic() < until) return found;
    until = clock.monotonic() + CACHE_TIME;
    try {
      found = readRelayLock(stateFile) ?? otherwise;
    } catch {
      // The lock cannot be read now, so the last address is the best guess.
    }
    return found;
  };
}

/**
 * The relay's plugin for the agent's dashboard (contract 07 §4). The dashboard hands it the requests and upgrades that its
 * own routes do not take.
 * @throws RelayError when a port in the environment is invalid.
 */
export function createDashboardPlugin(options: DashboardPluginOptions, limits: PluginLimits = {}): DashboardPlugin {
  const { host } = options;
  const mountPath = (options.mountPath ?? MOUNT_PATH).replace(/\/+$/, '');
  const processEnv = { ...(options.env ?? process.env) };
  if (options.agentHome !== undefined) processEnv.SVC_HOME = options.agentHome;
  const environment = loadEnvironment(processEnv);
  const { agentHome } = environment.directories;
  const [certificate, key] = [
    readVariable(variables.sslCert, environment),
    readVariable(variables.sslKey, environment),
  ];
  const named = options.relayPort ?? readVariable(variables.dashboardPort, environment);
  const pinned = key === undefined ? undefined : certificate;
  const running = createRunningRelay({
    stateFile: readVariable(variables.stateFile, environment),
    otherwise: { port: readVariable(variables.port, environment), tls: pinned !== undefined },
    clock: systemClock,
  });
  const port = () => named ?? running().port;
  const log = createLog('WARNING', (line) => process.stderr.write(`${line}\n`)).named('dashboard');
  const operatorUids = readVariable(variables.operatorUids, environment);
  const link = createRelayLink({
    port,
    // Neither a session nor the marker is for a program that took the port of a stopped relay.
    guard: createLoopbackGuard({ users: createUsers(), operatorUids, log }),
    certificate: () => (running().tls ? pinned : undefined),
    connectTimeout: limits.connectTimeout ?? CONNECT_TIMEOUT,
    idle: limits.http?.idle ?? INGRESS_LIMITS.idle,
  });
  const marker = createMarker({
    configured: readVariable(variables.dashboardProxySecret, environment),
    files: createFiles(),
    agentHome,
    log,
  });
  const ingress = createIngress({
    link,
    marker,
    limits: { ...INGRESS_LIMITS, ...limits.http },
    base: `${mountPath}/transport`,
  });
  const decisions = createDecisions(limits.decision);
  const sockets = createIngressSockets({
    host,
    decisions,
    link,
    marker,
    limits: { ...SOCKET_LIMITS, ...limits.sockets },
  });
  const { activeCredential } = host;
  const own = createOwnRoutes({
    link,
    relay: {
      get port() {
        return port();
      },
      get tls() {
        return running().tls;
      },
    },
    env: processEnv,
    mountPath,
    activeCredential: activeCredential && (async (sessionId) => decisions(activeCredential.call(host, sessionId))),
    log,
  });
  let isClosed = false;

  async function answer(req: IncomingMessage, res: ServerResponse, { path, query }: RequestTarget): Promise<void> {
    const isEnabled = isClosed ? false : host.isPluginEnabled();
    // Awaiting a known value would cost a turn of the microtask queue.
    if (!(typeof isEnabled === 'boolean' ? isEnabled : await decisions(isEnabled)))
      return refuse(res, 404, 'plugin disabled');
    const user = await decisions(host.authenticate(req));
    if (!user) return refuse(res, 401, 'dashboard authentication required');
    if (res.destroyed) return;
    const below = pathBelow('/transport', path);
    if (below !== null) return ingress.handle({ req, res, path: below, query, principal: user.principal });
    if (isClosed) return refuse(res, 404, 'plugin disabled');
    await own.handle(req, res);
  }

  return {
    async handle(req, res) {
      const target = targetBelow(mountPath, req.url);
      if (!target) return false;
      try {
        await answer(req, res, target);
      } catch {
        // The dashboard cannot tell whether the request is allowed, or an answer failed.
        if (res.headersSent) res.destroy();
        else refuse(res, 503, 'the plugin cannot answer now');
      }
      return true;
    },

    async upgrade(req, socket, head) {
      const target = targetBelow(mountPath, req.url);
      const path = target && pathBelow('/transport', target.path);
      if (!target) return false;
      await sockets.upgrade(req, socket, head, path ?? null);
      return true;
    },

    async close() {
      isClosed = true;
      await sockets.close();
      link.close();
      own.close();
    },
  };
}

/** Path and query of a request's target below the mount path; null for any other target. */
function targetBelow(mountPath: string, url = ''): RequestTarget | null {
  const fragment = url.indexOf('#');
  const target = fragment < 0 ? url : url.slice(0, fragment);
  const at = target.indexOf('?');
  const path = pathBelow(mountPath, at < 0 ? target : target.slice(0, at));
  return path === null ? null : { path, query: at < 0 ? '' : target.slice(at) };
}

/** The path without a prefix of whole segments; null when the path does not begin with it. */
function pathBelow(prefix: string, path: string): string | null {
  if (!path.startsWith(prefix)) return null;
  const below = path.slice(prefix.length);
  return below === '' || below.startsWith('/') ? below : null;
}
