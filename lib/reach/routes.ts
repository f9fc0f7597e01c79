import * as v from 'valibot';
import type { ReachRecord, ReachRouteRecord, Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { hexToBytes } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { loadAll, readAs } from '../kit/entries.ts';
import { mapLimit } from '../kit/semaphore.ts';
import { digestOf } from '../kit/sha256.ts';
import type { Log } from '../log.ts';
import { isDeviceId } from '../sessions/device.ts';
import { DAY } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { BrokerRequest } from './host-link.ts';
import { idOfBytes, isDigest, isId, newToken } from './ids.ts';

/** Maximum routes of this host: the broker stores 1024 credentials, some of which are bootstraps. */
const MAX_ROUTES = 960;
/** Revocations that wait for the broker. */
const MAX_REVOKES = 1024;
/** Seconds that the route of a session without an end lasts. */
const UNENDING = 30 * DAY;
/** Maximum seconds for which a broker accepts a route, less an hour for clocks that differ. */
const MAX_LIFE = 400 * DAY - 3600;
/** Seconds by which a route has to be shorter than its session before it is extended. */
const PROLONG_AFTER = 15 * DAY;
/**
 * Minimum seconds of a route to be published, since a broker closes the connection over one that has expired on its clock.
 */
const MIN_LIFE = 60;
/**
 * A broker drops the streams of a revoked route, so their buffered bytes are sent first. Milliseconds between checks, and
 * their maximum number.
 */
const FLUSH_INTERVAL = 50;
const MAX_FLUSH_LOOKS = 20;
/** Concurrent requests that send the changes made while offline. */
const CONCURRENCY = 16;

/** The present connection to the broker. Another connection is another object. */
export interface Broker {
  /** `wss://` and authority. */
  readonly url: string;
  readonly hostId: string;
  /** Number of its open streams, and their unsent bytes. */
  activeStreams(): number;
  unsentBytes(): number;
  /** @throws BrokerRequestError */
  request(message: BrokerRequest): Promise<void>;
}

/** Credential for a client to return through the broker; `expiresAt` is epoch seconds. */
export interface Route {
  credentialId: string;
  token: string;
  expiresAt: number;
}

export interface RoutesDeps {
  store: Store<'reach'>;
  sessions: Sessions;
  clock: Clock;
  log: Log;
  /** The connected broker. */
  broker(): Broker | undefined;
}

interface KnownRoute extends Route {
  readonly key: string;
  readonly family: string;
  readonly sessionHash: string;
  readonly brokerUrl: string;
  readonly hostId: string;
  readonly deviceHash: string;
  /** The connection on which it was last published, and the published expiry. */
  publishedTo: Broker | undefined;
  publishedEnd: number;
  /** The publication in flight. */
  publishing: Promise<void> | undefined;
  isDropped: boolean;
}

interface Revocation {
  brokerUrl: string;
  hostId: string;
}

const keyOf = ({ tokenHash }: Session): string => tokenHash.slice(0, 32);
const credentialIdOf = (key: string): string => idOfBytes(hexToBytes(key));

/** The broker knows a device by a digest only. */
const deviceHashOf = ({ device, token, tokenHash }: Session): string =>
  digestOf(isDeviceId(device.id) ? device.id : (token ?? tokenHash));

/**
 * Route credentials: one token per session, stored with the relay's state so that phones keep their route over a restart
 * (contract 08 §6.4). When a session ends, so does its route; the broker is told at once, or when it reconnects.
 */
export async function openRoutes({ store, sessions, clock, log, broker }: RoutesDeps) {
  const routes = new Map<string, KnownRoute>();
  /** Keyed as the routes were, oldest first. */
  const revocations = new Map<string, Revocation>();

  const now = () => seconds(clock);
  const isOf = ({ brokerUrl, hostId }: Revocation, to: Broker) => brokerUrl === to.url && hostId === to.hostId;

  function written(write: Promise<void>): Promise<void> {
    return write.catch((error) => log.error(`a route could not be saved: ${describeError(error)}`));
  }

  /** The end of a session's route, epoch seconds. */
  const endOf = ({ expiresAt }: Session): number =>
    Math.floor(Math.min(expiresAt ?? now() + UNENDING, now() + MAX_LIFE));

  const isLasting = (end: number): boolean => end > now() + MIN_LIFE;

  /** Follows the session's end if it is earlier, or much later. */
  function adjustEnd(route: KnownRoute, session: Session): boolean {
    const end = endOf(session);
    if (end >= route.expiresAt && end - route.expiresAt < PROLONG_AFTER) return false;
    route.expiresAt = end;
    return true;
  }

  const save = (route: KnownRoute): Promise<void> => store.setItem(route.key, { route: toStored(route) });

  function revoke(route: KnownRoute): void {
    route.isDropped = true;
    routes.delete(route.key);
    queueRevocation(route.key, { brokerUrl: route.brokerUrl, hostId: route.hostId });
    // This also forgets the token.
    void written(store.setItem(route.key, { revoke: { broker_url: route.brokerUrl, host_id: route.hostId } }));
  }

  function queueRevocation(key: string, revocation: Revocation): void {
    revocations.set(key, revocation);
    if (revocations.size <= MAX_REVOKES) return;
    const [oldest] = revocations.keys();
    log.warn('too many revoked routes wait for the broker: forgetting the oldest');
    forgetRevocation(oldest as string);
  }

  function forgetRevocation(key: string): void {
    revocations.delete(key);
    void written(store.removeItem(key));
  }

  /** Sends the broker a revocation. A failed one waits for the next connection. */
  async function sendRevocation(key: string, to: Broker): Promise<void> {
    try {
      await to.request({ type: 'revoke', credential_kind: 'route', credential_id: credentialIdOf(key) });
      forgetRevocation(key);
    } catch (error) {
      log.debug(`a route is not revoked yet: ${describeError(error)}`);
    }
  }

  /** The relay already refuses the session: its sockets get their 4401 before the broker drops their streams. */
  function end(route: KnownRoute): void {
    revoke(route);
    const to = broker();
    if (!to || !isOf(route, to)) return;
    if (to.activeStreams() === 0) void sendRevocation(route.key, to);
    else afterFlush(to, MAX_FLUSH_LOOKS, () => void sendRevocation(route.key, to));
  }

  /** Calls `then` once the streams have sent their buffered bytes, unless the connection ends before. */
  function afterFlush(to: Broker, attempts: number, then: () => void): void {
    clock.after(FLUSH_INTERVAL, () => {
      if (broker() !== to) return;
      if (attempts > 1 && to.unsentBytes() > 0) afterFlush(to, attempts - 1, then);
      else then();
    });
  }

  /** Publishes a route unless the connection already has this version. Concurrent callers share one publication. */
  function publish(route: KnownRoute, to: Broker): Promise<void> {
    route.publishing ??= publishUntilCurrent(route, to).finally(() => {
      route.publishing = undefined;
    });
    return route.publishing;
  }

  async function publishUntilCurrent(route: KnownRoute, to: Broker): Promise<void> {
    while (!route.isDropped && (route.publishedTo !== to || route.publishedEnd !== route.expiresAt)) {
      const { expiresAt, credentialId, token, deviceHash } = route;
      await to.request({
        type: 'publish_route',
        credential_id: credentialId,
        token_sha256: digestOf(token),
        expires_at: expiresAt,
        device_id_hash: deviceHash,
      });
      route.publishedTo = to;
      route.publishedEnd = expiresAt;
    }
  }

  function create(session: Session, to: Broker): KnownRoute {
    const key = keyOf(session);
    const route: KnownRoute = {
      key,
      family: session.family,
      sessionHash: session.tokenHash,
      credentialId: credentialIdOf(key),
      token: newToken(),
      expiresAt: endOf(session),
      brokerUrl: to.url,
      hostId: to.hostId,
      deviceHash: deviceHashOf(session),
      publishedTo: undefined,
      publishedEnd: 0,
      publishing: undefined,
      isDropped: false,
    };
    routes.set(key, route);
    return route;
  }

  /** The stored route of a session, if it belongs to this broker and has not expired. */
  function find(session: Session, to: Broker): KnownRoute | undefined {
    const route = routes.get(keyOf(session));
    if (route && isOf(route, to) && isLasting(route.expiresAt)) return route;
    if (route) {
      route.isDropped = true;
      routes.delete(route.key);
    }
    return undefined;
  }

  async function load(): Promise<void> {
    const records = await loadAll({ store, log, read: readRecord });
    for (const [key, record] of records) {
      if ('max_uses' in record) continue;
      if ('revoke' in record) {
        queueRevocation(key, { brokerUrl: record.revoke.broker_url, hostId: record.revoke.host_id });
        continue;
      }
      const route = fromStored(key, record.route);
      const session = sessions.byFamily(route.family);
      // The session ended, or got another token, just before the last process did.
      if (session?.tokenHash !== route.sessionHash) revoke(route);
      else {
        routes.set(key, route);
        if (adjustEnd(route, session)) void written(save(route));
      }
    }
  }

  await load();
  sessions.onEnd((session) => {
    const route = routes.get(keyOf(session));
    if (route) end(route);
  });
  sessions.onReduce((session) => {
    const route = routes.get(keyOf(session));
    if (!route || !adjustEnd(route, session)) return;
    if (!isLasting(route.expiresAt)) return end(route);
    void written(save(route));
    const to = broker();
    if (!to || !isOf(route, to)) return;
    publish(route, to).catch((error) => log.warn(`a route could not be shortened: ${describeError(error)}`));
  });

  return {
    /** Number of stored routes. */
    get size(): number {
      return routes.size;
    },

    /**
     * The published route of a session, the existing one or a new one. Undefined without a broker, for a session that is
     * about to end or has just ended, and if there are too many.
     * @throws BrokerRequestError
     */
    async credential(session: Session): Promise<Route | undefined> {
      const to = broker();
      if (!to || session.ended || !isLasting(endOf(session))) return undefined;
      let route = find(session, to);
      if (!route && routes.size >= MAX_ROUTES) {
        log.warn(`no route for session ${session.prefix}: ${MAX_ROUTES} exist already`);
        return undefined;
      }
      const isNew = route === undefined;
      route ??= create(session, to);
      const isAdjusted = !isNew && adjustEnd(route, session);
      try {
        await publish(route, to);
      } catch (error) {
        // Nobody has its token.
        if (isNew && routes.get(route.key) === route) routes.delete(route.key);
        throw error;
      }
      if (route.isDropped) return undefined;
      if (isNew || isAdjusted) await save(route);
      return route.isDropped ? undefined : route;
    },

    /**
     * A broker is connected: sends pending revocations, then publishes every route again, since the end of some has changed,
     * or the broker may have lost its state.
     */
    async connected(to: Broker): Promise<void> {
      const waiting: string[] = [];
      for (const [key, revocation] of revocations) {
        if (isOf(revocation, to)) waiting.push(key);
        else forgetRevocation(key);
      }
      await mapLimit(CONCURRENCY, waiting, (key) => sendRevocation(key, to));
      const lasting = [...routes.values()].filter((route) => isOf(route, to) && isLasting(route.expiresAt));
      try {
        await mapLimit(CONCURRENCY, lasting, (route) => publish(route, to));
      } catch (error) {
        log.debug(`routes are not published again: ${describeError(error)}`);
      }
    },
  };
}

const toStored = (route: KnownRoute): ReachRouteRecord['route'] => ({
  family: route.family,
  session_sha256: route.sessionHash,
  broker_url: route.brokerUrl,
  host_id: route.hostId,
  token: route.token,
  device_id_hash: route.deviceHash,
  expires_at: route.expiresAt,
});

const fromStored = (key: string, stored: ReachRouteRecord['route']): KnownRoute => ({
  key,
  family: stored.family,
  sessionHash: stored.session_sha256,
  credentialId: credentialIdOf(key),
  token: stored.token,
  expiresAt: stored.expires_at,
  brokerUrl: stored.broker_url,
  hostId: stored.host_id,
  deviceHash: stored.device_id_hash,
  publishedTo: undefined,
  publishedEnd: 0,
  publishing: undefined,
  isDropped: false,
});

const storedBroker = { broker_url: v.string(), host_id: v.custom<string>(isId) };
const StoredRoute = v.object({
  ...storedBroker,
  ...v.entriesFromList(['family', 'session_sha256'], v.string()),
  ...v.entriesFromList(['token', 'device_id_hash'], v.custom<string>(isDigest)),
  expires_at: v.pipe(v.number(), v.safeInteger()),
});
export const StoredBroker = v.object({ broker_url: v.string(), max_uses: v.literal(1), until: v.number() });
const Stored: v.GenericSchema<unknown, ReachRecord> = v.union([
  StoredBroker,
  v.object({ revoke: v.object(storedBroker) }),
  v.object({ route: StoredRoute }),
]);

/** A stored record, or undefined when it is malformed. */
function readRecord(value: unknown, key: string): ReachRecord | undefined {
  const record = readAs(Stored)(value);
  if (!record || 'max_uses' in record) return record;
  const isOwn = !('route' in record) || record.route.session_sha256.startsWith(key);
  return isOwn && /^[0-9a-f]{32}$/.test(key) ? record : undefined;
}
