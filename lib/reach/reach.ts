import type { Store } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { DialBroker } from '../host/broker-socket.ts';
import type { Host } from '../host/index.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { deferred } from '../kit/deferred.ts';
import { readAs } from '../kit/entries.ts';
import { createEvent } from '../kit/event.ts';
import { digestOf } from '../kit/sha256.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import type { SecureLink } from '../secure-link/secure-link.ts';
import { DAY } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { Connector, type ConnectorStatus } from './connector.ts';
import { BrokerRequestError, type HostLink } from './host-link.ts';
import { type OpenLocalEnd, STREAM_LIMIT } from './host-streams.ts';
import { newId, newToken } from './ids.ts';
import { openRoutes, type Route, StoredBroker } from './routes.ts';
import { CONNECT_PATH, openHostId, readReachSettings } from './settings.ts';

/** Milliseconds for which an authentication waits for its route credential. */
const ROUTE_TIMEOUT = 3_000;
/** Uses of a bootstrap: the phone's reachability probe spends one before the real connection. */
const BOOTSTRAP_USES = 4;
/** Milliseconds for the connection to return after a broker has refused more than one use. */
const RETURN_TIMEOUT = 5_000;
/** Seconds for which a broker is assumed not to support more than one use. */
const ONE_USE_FOR = 7 * DAY;
/** Key of the broker's record in the store. */
const BROKER_KEY = 'broker';

/** `route_credential` of `auth.ok` (contract 08 §6.4). */
export interface RouteCredential extends Route {
  kind: 'broker_route';
  broker_url: string;
  host_id: string;
}

export interface ReachDeps {
  config: Config;
  host: Pick<Host, 'agentHome' | 'files'>;
  store: Store<'reach'>;
  sessions: Sessions;
  secureLink: Pick<SecureLink, 'status' | 'advertised' | 'onChange'>;
  dialBroker: DialBroker;
  clock: Clock;
  log: Log;
}

export type Reach = Awaited<ReturnType<typeof openReach>>;

/**
 * Reach: this host behind a broker (contract 08 §6). The connector runs while Secure Link is available and the runtime
 * serves its streams. No failure here affects the relay or Secure Link.
 */
export async function openReach(deps: ReachDeps) {
  const { config, host, store, sessions, secureLink, dialBroker, clock, log } = deps;
  const settings = readReachSettings(config);
  /** Why there is no connector although a broker is configured. */
  let problem = settings.kind === 'unavailable' ? settings.problem : null;
  let hostId: string | undefined;
  let openLocalEnd: OpenLocalEnd | undefined;
  let connector: Connector | undefined;
  let isStarting = false;
  let isStopped = false;
  const connections = createEvent<[]>();
  /** True if the connected broker has accepted a bootstrap with all uses. */
  let coversAllUses = false;
  /** Time (epoch seconds) until which the broker is assumed to support one use only. */
  let oneUseUntil = await readOneUse();

  const routes = await openRoutes({
    store,
    sessions,
    clock,
    log,
    broker: () => connector?.broker,
  });
  if (problem !== null) log.warn(`Reach is unavailable: ${problem}`);

  async function readOneUse(): Promise<number> {
    const known = readAs(StoredBroker)(await store.getItem(BROKER_KEY));
    return settings.kind === 'ready' && known?.broker_url === settings.brokerUrl ? known.until : 0;
  }

  const usesPerBootstrap = (): number => (oneUseUntil > seconds(clock) ? 1 : BOOTSTRAP_USES);

  /** Starts or stops the connector as Secure Link requires. */
  function update(): void {
    if (isStopped || settings.kind !== 'ready') return;
    if (secureLink.status === 'available' && openLocalEnd) void start(settings, openLocalEnd);
    else void end();
  }

  async function start({ brokerUrl, token }: { brokerUrl: string; token: string }, open: OpenLocalEnd): Promise<void> {
    if (connector || isStarting) return;
    isStarting = true;
    try {
      hostId ??= await openHostId(config.secureLinkHostIdFile, host.agentHome, host.files);
      problem = null;
    } catch (error) {
      problem = describeError(error);
      log.error(`Reach is unavailable: ${problem}`);
      return;
    } finally {
      isStarting = false;
    }
    if (isStopped || secureLink.status !== 'available') return;
    connector = new Connector({
      brokerUrl,
      hostId,
      token,
      dial: dialBroker,
      openLocalEnd: open,
      clock,
      log,
      onConnected(broker) {
        connections.emit();
        void routes.connected(broker);
      },
    });
    connector.start();
  }

  async function end(): Promise<void> {
    const ending = connector;
    connector = undefined;
    await ending?.stop();
  }

  async function untilConnected(): Promise<void> {
    if (connector?.broker) return;
    const connected = deferred();
    const stop = connections.on(connected.resolve);
    await withTimeout({ clock, timeout: RETURN_TIMEOUT }, connected.promise, () => {});
    stop();
  }

  /** Publishes a bootstrap credential: its token. @throws BrokerRequestError */
  async function publishBootstrap(to: HostLink, expiresAt: number): Promise<string> {
    const token = newToken();
    const uses = usesPerBootstrap();
    await to.request({
      type: 'publish_bootstrap',
      pairing_id: newId(),
      token_sha256: digestOf(token),
      expires_at: expiresAt,
      max_uses: uses,
    });
    coversAllUses ||= uses === BOOTSTRAP_USES;
    return token;
  }

  /** Remembers that the broker supports one use only. Returns true if it is worth trying again with that. */
  async function fallBackToOneUse(error: unknown, to: HostLink): Promise<boolean> {
    if (coversAllUses || !(error instanceof BrokerRequestError) || error.code !== 'unauthorized') return false;
    if (usesPerBootstrap() !== 1) {
      oneUseUntil = Math.floor(seconds(clock)) + ONE_USE_FOR;
      log.info('the broker accepts bootstrap credentials with one use only');
      const record = { broker_url: to.brokerUrl, max_uses: 1 as const, until: oneUseUntil };
      // A failed write only means that this is found out again after a restart.
      await store
        .setItem(BROKER_KEY, record)
        .catch((error) =>
          log.error(`the number of uses that the broker accepts could not be saved: ${describeError(error)}`),
        );
    }
    await untilConnected();
    return true;
  }

  const isEnabled = config.reachEnabled && settings.kind !== 'disabled';

  function state(): { state: string; lastError: string | null } {
    if (settings.kind === 'disabled') return { state: 'disabled', lastError: null };
    if (problem !== null) return { state: 'unavailable', lastError: problem };
    if (isStopped) return { state: 'stopped', lastError: null };
    if (secureLink.status !== 'available') return { state: 'unavailable', lastError: 'Secure Link is not available' };
    return { state: 'stopped', lastError: null };
  }

  /** `secure_link.reach` of `/health` (contract 08 §6.1). */
  function health(isLoopback: boolean) {
    const status = connector?.status;
    const { state: name, lastError } = status ? { ...status } : state();
    const connected = name === 'connected';
    const common = { enabled: isEnabled, state: name, status: name, connected, transport: 'opaque_inner_tls' as const };
    if (!isLoopback) return common;
    if (settings.kind !== 'ready' || name === 'unavailable') return { ...common, last_error: lastError };
    return { ...common, ...details(status), broker_url: settings.brokerUrl, last_error: lastError };
  }

  const details = (status: ConnectorStatus | undefined) => ({
    host_id: hostId ?? null,
    local_target: `127.0.0.1:${secureLink.advertised?.authority.replace(/^.*:/, '') ?? config.secureLinkPort}`,
    active_streams: status?.activeStreams ?? 0,
    stream_limit: STREAM_LIMIT,
    completed_streams: status?.completedStreams ?? 0,
    connect_attempts: status?.connectAttempts ?? 0,
    connected_at: status?.connectedAt ?? null,
  });

  const unsubscribe = secureLink.onChange(update);

  return {
    health,

    /** The runtime serves streams with `open` from now on. */
    serve(open: OpenLocalEnd): void {
      openLocalEnd = open;
      update();
    },

    /**
     * Publishes a bootstrap credential for a pairing code. Resolves with the broker's part of its candidate (contract 08
     * §6.2), undefined unless the broker has acknowledged it.
     */
    async bootstrap(expiresAt: number) {
      const end = Math.floor(expiresAt);
      for (let attempt = 1; ; attempt++) {
        const to = connector?.broker;
        if (!to) return undefined;
        try {
          const token = await publishBootstrap(to, end);
          const { brokerUrl, hostId } = to;
          const credential = { credential_kind: 'bootstrap', token, expires_at: end } as const;
          return { protocol_version: 1 as const, url: brokerUrl + CONNECT_PATH, host_id: hostId, ...credential };
        } catch (error) {
          if (attempt === 1 && (await fallBackToOneUse(error, to))) continue;
          log.warn(`no route through the broker in this pairing code: ${describeError(error)}`);
          return undefined;
        }
      }
    },

    /** The route credential of a session that has just authenticated over Secure Link; undefined if it takes over 3 s. */
    async routeCredential(session: Session): Promise<RouteCredential | undefined> {
      const to = connector?.broker;
      if (!to) return undefined;
      try {
        const route = await withTimeout({ clock, timeout: ROUTE_TIMEOUT }, routes.credential(session), () => undefined);
        const { brokerUrl, hostId } = to;
        return route && { kind: 'broker_route', broker_url: brokerUrl + CONNECT_PATH, host_id: hostId, ...route };
      } catch (error) {
        log.warn(`no route for session ${session.prefix}: ${describeError(error)}`);
        return undefined;
      }
    },

    /** Closes streams and connection. Resolves within three seconds. */
    stop(): Promise<void> {
      isStopped = true;
      unsubscribe();
      routes.stop();
      return end();
    },
  };
}
