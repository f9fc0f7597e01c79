import { describeError } from '../../errors.ts';
import type { Log } from '../../log.ts';
import type { Payload } from '../../socket/envelope.ts';
import { newerMailbox, readHome, readMailbox } from './auth.ts';
import { authority, type Endpoint, endpointId, inPreference, isSecure } from './endpoints.ts';
import { readCandidates } from './pairing-url.ts';
import type { Pairing, PairingStore } from './settings.ts';
import type { MailboxAccess } from './settings-document.ts';

/** Maximum routes of one pairing: those of its link and those that came later. */
const MAX_ENDPOINTS = 32;

const roleOf = ({ role }: Endpoint): string => role.toLowerCase();

/**
 * Applies `routes.updated` to a pairing (contract 11 §2): routes replace those with the same role, at the same rank.
 * Others stay, such as those through a broker, whose credentials are in no update. Null if nothing changes. A pinned
 * route may move, but never to another key; the first pinned route of a pairing has to come over TLS.
 * @throws RelayError `invalid` if the value is not a list of candidates.
 */
export function withRoutes(
  { endpoints, tofu_pins: pins }: Pairing,
  value: unknown,
  via: Endpoint,
): Pick<Pairing, 'endpoints' | 'tofu_pins'> | null {
  const knownPins = new Set(endpoints.flatMap(({ pinned }) => pinned?.pin ?? []));
  const isTrusted = ({ pinned, broker }: Endpoint) =>
    !broker && (!pinned || (knownPins.size > 0 ? knownPins.has(pinned.pin) : isSecure(via.url)));
  const usable = readCandidates(value).usable.filter(isTrusted);
  if (usable.length === 0) return null;
  const given = new Set(usable.map(roleOf));
  const before = (endpoint: Endpoint) => endpoints.find((other) => roleOf(other) === roleOf(endpoint));
  const ranked = usable.map((endpoint) => ({ ...endpoint, priority: before(endpoint)?.priority ?? endpoint.priority }));
  const stay = endpoints.filter((endpoint) => endpoint.broker || !given.has(roleOf(endpoint)));
  // An authority with a pin is used with that pin or not at all.
  const authorities = new Set(ranked.map(({ url }) => authority(url)));
  const remaining = stay.filter((endpoint) => endpoint.broker || !authorities.has(authority(endpoint.url)));
  const all = inPreference([...ranked, ...remaining])
    .filter((endpoint, index, list) => list.findIndex((one) => endpointId(one) === endpointId(endpoint)) === index)
    .slice(0, MAX_ENDPOINTS)
    .map((endpoint, priority) => ({ ...endpoint, priority }));
  if (JSON.stringify(all) === JSON.stringify(endpoints)) return null;
  return { endpoints: all, tofu_pins: { ...pins, ...movedPins(ranked, endpoints, pins) } };
}

/**
 * The relay keeps the key that it had in the local network, so that nobody can put another relay at its new address.
 */
function movedPins(ranked: readonly Endpoint[], old: readonly Endpoint[], pins: Pairing['tofu_pins']) {
  const lanOf = (list: readonly Endpoint[]) =>
    list.filter((endpoint) => roleOf(endpoint) === 'lan' && !endpoint.pinned && isSecure(endpoint.url));
  const pin = lanOf(old)
    .map(({ url }) => pins[authority(url)])
    .find((known) => known !== undefined);
  const authorities = lanOf(ranked).map(({ url }) => authority(url));
  return Object.fromEntries(authorities.flatMap((place) => (pin === undefined || pins[place] ? [] : [[place, pin]])));
}

/**
 * The mailbox of a pairing after `routes.updated` (contract 12 §3): the credentials of the message, else the mailbox
 * among its candidates, without credentials if that has changed. Undefined without a mailbox.
 * @throws RelayError `invalid` if the value is not a list of candidates.
 */
export function withMailbox({ mailbox: known }: Pairing, { endpoints, mailbox }: Payload): MailboxAccess | undefined {
  const given = readMailbox(mailbox);
  const { mailbox: url } = readCandidates(endpoints);
  if (given) return newerMailbox(known, given);
  if (url === undefined) return undefined;
  return url === known?.url ? known : { url };
}

/**
 * The pairing of a device that has paired at the edge, once home has credentials for it (contract 12 §3): home's routes
 * come first, and the edge becomes its mailbox. Null if the message names no home, or if the pairing already is with a
 * home, which the mailbox must not replace.
 * @throws RelayError `invalid` if the value is not a list of candidates.
 */
function withHome(pairing: Pairing, { endpoints, home }: Payload, via: Endpoint): Partial<Pairing> | null {
  const given = readHome(home);
  if (!given || (via.mailbox && !pairing.paired_at_edge) || given.session_token === pairing.session_token) return null;
  const named = endpoints === undefined ? [] : readCandidates(endpoints).usable;
  const usable = named.filter(({ pinned, broker }) => !broker && (!pinned || isSecure(via.url)));
  const plain = given.urls.map((url, priority): Endpoint => ({ role: 'home', url, priority }));
  const routes = inPreference(usable.length > 0 ? usable : plain).slice(0, MAX_ENDPOINTS);
  const others = routes.filter(({ url }) => url !== via.url);
  if (others.length === 0) return null;
  return atHome(pairing, { ...given, endpoints: others.map((endpoint, priority) => ({ ...endpoint, priority })) }, via);
}

type HomeAccess = Required<Pick<Pairing, 'endpoints' | 'session_token' | 'refresh_token'>>;

/** A pairing with credentials for home that came by `via`, which becomes its mailbox unless it already is. */
export function atHome(
  { session_token, refresh_token, mailbox }: Pairing,
  home: HomeAccess,
  via: Endpoint,
): Partial<Pairing> {
  return {
    endpoints: home.endpoints,
    session_token: home.session_token,
    refresh_token: home.refresh_token,
    mailbox: via.mailbox ? mailbox : { url: via.url, session_token, refresh_token },
    paired_at_edge: true,
  };
}

/**
 * Stores the home that the edge gives to a device that has paired there, as read by `change` (contract 12 §3). Resolves
 * to true once it is stored, after which the link connects there. A failure is logged and changes nothing.
 */
export async function storeHome(
  { store, log }: { store: PairingStore; log: Log },
  change: (pairing: Pairing) => Partial<Pairing> | null,
): Promise<boolean> {
  try {
    const pairing = store.pairing();
    const changed = pairing && change(pairing);
    if (!changed) return false;
    await store.updatePairing(changed);
    log.info('home has taken this device in, and the edge is its mailbox');
    return true;
  } catch (error) {
    log.warn(`the home of this device could not be stored: ${describeError(error)}`);
    return false;
  }
}

/** Like `storeHome`, for a device that may use every route. */
export const takeHome = (parts: { store: PairingStore; log: Log }, payload: Payload, via: Endpoint): Promise<boolean> =>
  storeHome(parts, (pairing) => withHome(pairing, payload, via));
