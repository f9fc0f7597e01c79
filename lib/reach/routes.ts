import * as v from 'valibot';
import type { ReachRecord, ReachRevocationRecord, ReachRouteRecord, Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { hexToBytes } from '../kit/bytes.ts';
import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import { loadAll, readAs } from '../kit/entries.ts';
import { mapLimit } from '../kit/semaphore.ts';
import { digestOf } from '../kit/sha256.ts';
import type { Log } from '../log.ts';
import { isDeviceId } from '../sessions/device.ts';
import { DAY } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { HostLink } from './host-link.ts';
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
/**
 * Milliseconds for the response with a replaced session's new credentials, which may arrive over a stream of the old route
 * and waits up to three seconds for the new one.
 */
const REPLACED_DELAY = 4_000;
/** Concurrent requests that send the changes made while offline. */
const CONCURRENCY = 16;

/** Credential for a client to return through the broker; `expires_at` is epoch seconds. */
export interface Route {
  credential_id: string;
  token: string;
  expires_at: number;
}

export interface RoutesDeps {
  store: Store<'reach'>;
  sessions: Sessions;
  clock: Clock;
  log: Log;
  /** The present connection to the broker. Another connection is another object. */
  broker(): HostLink | undefined;
}

interface KnownRoute {
  readonly key: string;
  readonly stored: ReachRouteRecord['route'];
  /** The connection on which it was last published, and the published expiry. */
  publishedTo?: HostLink;
  publishedEnd?: number;
  /** The publication in flight. */
  publishing?: Promise<void>;
}

type Revocation = ReachRevocationRecord['revoke'];

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
  const timers = new Set<Cancel>();

  const now = () => seconds(clock);
  const isOf = ({ broker_url, host_id }: Revocation, to: HostLink) =>
    broker_url === to.brokerUrl && host_id === to.hostId;
  /** False once the session of a route has ended, or has got another route. */
  const isHeld = (route: KnownRoute): boolean => routes.get(route.key) === route;

  function written(write: Promise<void>): Promise<void> {
    return write.catch((error) => log.error(`a route could not be saved: ${describeError(error)}`));
  }

  /** The end of a session's route, epoch seconds. */
  const endOf = ({ expiresAt }: Session): number =>
    Math.floor(Math.min(expiresAt ?? now() + UNENDING, now() + MAX_LIFE));

  const isLasting = (end: number): boolean => end > now() + MIN_LIFE;

  /** Follows the session's end if it is earlier, or much later. */
  function adjustEnd({ stored }: KnownRoute, session: Session): boolean {
    const end = endOf(session);
    if (end >= stored.expires_at && end - stored.expires_at < PROLONG_AFTER) return false;
    stored.expires_at = end;
    return true;
  }

  const save = ({ key, stored }: KnownRoute): Promise<void> => store.setItem(key, { route: { ...stored } });

  function revoke({ key, stored: { broker_url, host_id } }: KnownRoute): void {
    routes.delete(key);
    queueRevocation(key, { broker_url, host_id });
    // This also forgets the token.
    void written(store.setItem(key, { revoke: { broker_url, host_id } }));
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
  async function sendRevocation(key: string, to: HostLink): Promise<void> {
    try {
      await to.request({ type: 'revoke', credential_kind: 'route', credential_id: credentialIdOf(key) });
      forgetRevocation(key);
    } catch (error) {
      log.debug(`a route is not revoked yet: ${describeError(error)}`);
    }
  }

  /** The relay already refuses the session: its sockets get their 4401 before the broker drops their streams. */
  function end(route: KnownRoute, delay = FLUSH_INTERVAL): void {
    revoke(route);
    const to = broker();
    if (!to || !isOf(route.stored, to)) return;
    if (to.activeStreams === 0) void sendRevocation(route.key, to);
    else afterFlush(to, MAX_FLUSH_LOOKS, () => void sendRevocation(route.key, to), delay);
  }

  /** Calls `then` after the delay, once the streams have sent their buffered bytes, unless the connection ends before. */
  function afterFlush(to: HostLink, attempts: number, then: () => void, delay = FLUSH_INTERVAL): void {
    const cancel = clock.after(delay, () => {
      timers.delete(cancel);
      if (broker() !== to) return;
      if (attempts > 1 && to.unsentBytes > 0) afterFlush(to, attempts - 1, then);
      else then();
    });
    timers.add(cancel);
  }

  /** Publishes a route unless the connection already has this version. Concurrent callers share one publication. */
  function publish(route: KnownRoute, to: HostLink): Promise<void> {
    route.publishing ??= publishUntilCurrent(route, to).finally(() => {
      route.publishing = undefined;
    });
    return route.publishing;
  }

  async function publishUntilCurrent(route: KnownRoute, to: HostLink): Promise<void> {
    const { key, stored } = route;
    while (isHeld(route) && (route.publishedTo !== to || route.publishedEnd !== stored.expires_at)) {
      const { expires_at, token, device_id_hash } = stored;
      const token_sha256 = digestOf(token);
      const credential_id = credentialIdOf(key);
      await to.request({ type: 'publish_route', credential_id, token_sha256, expires_at, device_id_hash });
      route.publishedTo = to;
      route.publishedEnd = expires_at;
    }
  }

  function create(session: Session, to: HostLink): KnownRoute {
    const stored = {
      family: session.family,
      session_sha256: session.tokenHash,
      broker_url: to.brokerUrl,
      host_id: to.hostId,
      token: newToken(),
      device_id_hash: deviceHashOf(session),
      expires_at: endOf(session),
    };
    const route = { key: keyOf(session), stored };
    routes.set(route.key, route);
    return route;
  }

  /** The stored route of a session, if it belongs to this broker and has not expired. */
  function find(session: Session, to: HostLink): KnownRoute | undefined {
    const route = routes.get(keyOf(session));
    if (route && isOf(route.stored, to) && isLasting(route.stored.expires_at)) return route;
    routes.delete(keyOf(session));
    return undefined;
  }

  async function load(): Promise<void> {
    const records = await loadAll({ store, log, read: readRecord });
    for (const [key, record] of records) {
      if ('max_uses' in record) continue;
      if ('revoke' in record) {
        queueRevocation(key, record.revoke);
        continue;
      }
      const route: KnownRoute = { key, stored: record.route };
      const session = sessions.byFamily(record.route.family);
      // The session ended, or got another token, just before the last process did.
      if (session?.tokenHash !== record.route.session_sha256) revoke(route);
      else {
        routes.set(key, route);
        if (adjustEnd(route, session)) void written(save(route));
      }
    }
  }

  await load();
  sessions.onEnd((session, reason) => {
    const route = routes.get(keyOf(session));
    if (route) end(route, reason === 'replaced' ? REPLACED_DELAY : undefined);
  });
  sessions.onReduce((session) => {
    const route = routes.get(keyOf(session));
    if (!route || !adjustEnd(route, session)) return;
    if (!isLasting(route.stored.expires_at)) return end(route);
    void written(save(route));
    const to = broker();
    if (!to || !isOf(route.stored, to)) return;
    publish(route, to).catch((error) => log.warn(`a route could not be shortened: ${describeError(error)}`));
  });

  return {
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
        if (isNew && isHeld(route)) routes.delete(route.key);
        throw error;
      }
      if (isHeld(route) && (isNew || isAdjusted)) await save(route);
      const { token, expires_at } = route.stored;
      return isHeld(route) ? { credential_id: credentialIdOf(route.key), token, expires_at } : undefined;
    },

    /**
     * A broker is connected: sends pending revocations, then publishes every route again, since the end of some has changed,
     * or the broker may have lost its state.
     */
    async connected(to: HostLink): Promise<void> {
      const waiting: string[] = [];
      for (const [key, revocation] of revocations) {
        if (isOf(revocation, to)) waiting.push(key);
        else forgetRevocation(key);
      }
      await mapLimit(CONCURRENCY, waiting, (key) => sendRevocation(key, to));
      const lasting = [...routes.values()].filter(({ stored }) => isOf(stored, to) && isLasting(stored.expires_at));
      try {
        await mapLimit(CONCURRENCY, lasting, (route) => publish(route, to));
      } catch (error) {
        log.debug(`routes are not published again: ${describeError(error)}`);
      }
    },

    /** Leaves pending revocations to the next process. */
    stop(): void {
      for (const cancel of timers) cancel();
      timers.clear();
    },
  };
}

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
