import { readHome } from '../../../lib/companion/link/auth.ts';
import { type Endpoint, isSecure } from '../../../lib/companion/link/endpoints.ts';
import { atHome, storeHome } from '../../../lib/companion/link/new-routes.ts';
import { readCandidates } from '../../../lib/companion/link/pairing-url.ts';
import type { Pairing, PairingStore } from '../../../lib/companion/link/settings.ts';
import { hasPublicName } from '../../../lib/kit/addresses.ts';
import type { Log } from '../../../lib/log.ts';
import type { Payload } from '../../../lib/socket/envelope.ts';
import { httpBase } from './stored-pairing.ts';

export { withMailbox } from '../../../lib/companion/link/new-routes.ts';

const MAX_ADDRESSES = 4;

/** Routes of a list that a browser can use, best first. @throws RelayError `invalid` for anything but a list of routes. */
const plainRoutes = (endpoints: unknown): Endpoint[] =>
  readCandidates(endpoints)
    .usable.filter(({ pinned, broker }) => !pinned && !broker)
    .sort((one, other) => one.priority - other.priority);

/**
 * The addresses of this page on the routes of `routes.updated` (contract 11 §2), best first, without the one at `base`; null
 * for anything else.
 */
export function readPageAddresses(endpoints: unknown, base: string): string[] | null {
  try {
    const pages = plainRoutes(endpoints).map(({ url }) => url.replace(/^ws/i, 'http').replace(/\/ws$/, '/app/'));
    return [...new Set(pages)]
      .filter((page) => new URL('.', page).origin !== new URL(base).origin)
      .slice(0, MAX_ADDRESSES);
  } catch {
    return null;
  }
}

/** Routes to home from the page of its edge, as far as its policy allows them (lib/mirror/home-pages.ts). */
const homeRoutes = (endpoints: unknown): Endpoint[] =>
  plainRoutes(endpoints)
    .filter(({ url }) => url.endsWith('/ws'))
    .filter(({ role, url }) => hasPublicName(url) || (role.toLowerCase() === 'public' && mayConnect(url)))
    .map(({ role, url }, priority) => ({ role, url, priority }));

/** A page loaded over TLS can connect to nothing else. */
const mayConnect = (url: string): boolean => location.protocol !== 'https:' || isSecure(url);

/**
 * Stores the routes of `routes.updated`: links to other addresses of this page, or the routes home from the page of the
 * edge.
 */
export function withRoutes(
  base: string,
  { mailbox, endpoints: known }: Pairing,
  given: unknown,
): Partial<Pairing> | null {
  const addresses = readPageAddresses(given, base);
  if (!addresses || mailbox === undefined || httpBase(mailbox.url) !== base) return addresses && { addresses };
  const endpoints = homeRoutes(given);
  return endpoints.length === 0 || JSON.stringify(endpoints) === JSON.stringify(known) ? null : { endpoints };
}

/**
 * Stores the home of a page that has paired at the edge, whose relay is its mailbox from now on (contract 12 §3). A home
 * that no browser can reach has no routes, so the page stays at its mailbox. False if nothing has changed.
 */
export const takeHome = (parts: { store: PairingStore; log: Log }, payload: Payload, via: Endpoint): Promise<boolean> =>
  storeHome(parts, (pairing) => withHome(pairing, payload, via));

function withHome(pairing: Pairing, payload: Payload, via: Endpoint): Partial<Pairing> | null {
  const given = readHome(payload.home);
  if (!given || (via.mailbox && !pairing.paired_at_edge)) return null;
  const endpoints = homeRoutes(payload.endpoints);
  const isKnown = given.session_token === pairing.session_token;
  if (isKnown && JSON.stringify(endpoints) === JSON.stringify(pairing.endpoints)) return null;
  return atHome(pairing, { ...given, endpoints }, via);
}
