import { authority, type Endpoint, routeKind, routeName } from '../../lib/companion/link/endpoints.ts';
import { printable } from '../output.ts';

/** `Reach through reach.example:443`, `Secure Link 192.0.2.7:9443`, `lan 192.0.2.7:8767`. */
export function routeText(endpoint: Endpoint): string {
  const { url, broker } = endpoint;
  return broker
    ? `${routeName(endpoint)} through ${authority(broker.url)}`
    : `${printable(routeName(endpoint))} ${authority(url)}`;
}

/** The same for scripts, without credentials. */
export const routeFacts = (endpoint: Endpoint) => ({
  route: routeKind(endpoint),
  role: endpoint.role,
  url: endpoint.url,
  ...(endpoint.pinned && { pin: endpoint.pinned.pin }),
  ...(endpoint.broker && { broker: endpoint.broker.url }),
});
