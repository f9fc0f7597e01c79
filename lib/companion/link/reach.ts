import type { PinnedRoute, TunnelRequest } from '../../host/dial.ts';
import { isObject } from '../../kit/json.ts';
import { isDigest, isId, newId } from '../../reach/ids.ts';
import { encodeMessage, parseClientAnswer } from '../../reach/messages.ts';
import { isEpoch, readBrokerUrl } from './candidates.ts';
import type { Endpoint } from './endpoints.ts';
import type { Broker, Pairing, RouteCredential } from './settings-document.ts';

/**
 * Reads `route_credential` of an `auth.ok`. Valid only on a pinned endpoint, and for a broker and host that the pairing
 * link names for the same origin (contract 08 §7.9, step 6); null otherwise.
 * @param now epoch seconds
 */
export function readRouteCredential(
  value: unknown,
  { endpoint, endpoints, now }: { endpoint: Endpoint; endpoints: readonly Endpoint[]; now: number },
): RouteCredential | null {
  if (!endpoint.pinned || !isObject(value) || Object.keys(value).length !== 6) return null;
  const { kind, host_id, credential_id, token, expires_at } = value;
  const broker_url = readBrokerUrl(value.broker_url);
  if (kind !== 'broker_route' || !broker_url || !isId(host_id) || !isId(credential_id)) return null;
  if (!isDigest(token) || !isEpoch(expires_at) || expires_at <= now) return null;
  const named = endpoint.broker ? [endpoint] : endpoints.filter((other) => isSameOrigin(other, endpoint));
  const isNamed = named.some(({ broker }) => broker?.url === broker_url && broker.hostId === host_id);
  return isNamed ? { broker_url, host_id, credential_id, token, expires_at } : null;
}

const isSameOrigin = (a: Endpoint, b: Endpoint): boolean => a.url === b.url && a.pinned?.pin === b.pinned?.pin;

/** The credential for tunnels through a broker: the long-term one once it exists. */
function accessTo(
  { url, hostId, bootstrap }: Broker,
  route: RouteCredential | undefined,
  now: number,
): { kind: 'bootstrap' | 'route'; token: string } | null {
  if (route?.broker_url === url && route.host_id === hostId && route.expires_at > now) {
    return { kind: 'route', token: route.token };
  }
  return bootstrap.expiresAt > now ? { kind: 'bootstrap', token: bootstrap.token } : null;
}

/** True if an endpoint can be tried. Reach needs a credential that has not expired. `now` is epoch seconds. */
export const isUsable = ({ broker }: Endpoint, pairing: Pairing | null, now: number): boolean =>
  !broker || accessTo(broker, pairing?.route_credential, now) !== null;

/** The route to an endpoint; undefined unless it is pinned. `now` is epoch seconds. */
export function routeTo(endpoint: Endpoint, pairing: Pairing | null, now: number): PinnedRoute | undefined {
  const { pinned: origin, broker } = endpoint;
  if (!origin) return undefined;
  if (!broker) return { origin };
  // The broker refuses an expired credential, with an answer that says so.
  const { kind, token } = accessTo(broker, pairing?.route_credential, now) ?? {
    kind: 'bootstrap' as const,
    token: broker.bootstrap.token,
  };
  return { origin, tunnel: tunnelTo(broker, kind, token) };
}

/** Registration with a broker (contract 08 §7.3), with a new connection ID each time. */
const tunnelTo = ({ url, hostId }: Broker, kind: 'bootstrap' | 'route', token: string): TunnelRequest => ({
  url,
  hello: () =>
    encodeMessage({
      type: 'register',
      role: 'client',
      host_id: hostId,
      connection_id: newId(),
      credential_kind: kind,
      token,
    }),
  refuse(text) {
    const answer = parseClientAnswer(text);
    if (!answer) return 'the broker answered with what is no answer';
    return answer.type === 'matched' ? null : refusalText(answer.code);
  },
  isOffline(text) {
    const answer = parseClientAnswer(text);
    return answer?.type === 'error' && answer.code === 'host_offline';
  },
});

const REFUSALS: Record<string, string> = {
  unauthorized:
    'the broker does not accept the credential of this device: connect over another route once, or pair again',
  unsupported_version: 'the broker speaks another version',
  replayed: 'the credential of the pairing link is used up: create a new one',
  expired: 'the credential for the broker has expired: connect over another route once, or pair again',
  host_offline: 'the relay is not connected to the broker',
  host_busy: 'the relay has too many connections through the broker',
  quota_exceeded: 'the broker says that a limit is exceeded',
};

const refusalText = (code: string): string => {
  const text = Object.hasOwn(REFUSALS, code) ? REFUSALS[code] : 'the broker refuses the connection';
  return `${text} (${code.replace(/[^\w-]/g, '?').slice(0, 40)})`;
};
