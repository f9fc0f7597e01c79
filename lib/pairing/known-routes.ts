import { canonicalAddress, isLoopbackName, splitUrl } from '../kit/addresses.ts';
import { asObject } from '../kit/json.ts';
import type { Candidate } from './candidates.ts';

/** The routes to this relay that a device knows: by addresses of this machine, which may change, and by other names. */
export interface KnownRoutes {
  /** URLs whose host was an address of this machine when the device learned them. */
  own: string[];
  /** True if it knows another route: a name, the tailnet, a broker. */
  others: boolean;
}

const MAX_OWN = 4;
/** Roles whose address follows the machine by itself. */
const FOLLOWS = new Set(['tailscale', 'outbound_broker', 'mailbox']);

/** An IP address; null for a name, a loopback address and anything that is not a URL. */
function addressOf(url: string): string | null {
  const host = splitUrl(url)?.host ?? '';
  return isLoopbackName(host) ? null : canonicalAddress(host);
}

const urlOf = ({ relay, proxy }: Candidate): unknown => asObject(relay)?.url ?? asObject(proxy)?.url;

/** The routes of a device that got these candidates and URLs. `addresses` are the present ones of this machine. */
export function routesOf(
  candidates: readonly Candidate[],
  urls: readonly string[],
  addresses: readonly string[],
): KnownRoutes {
  const here = new Set(addresses.map(canonicalAddress));
  const own = new Set<string>();
  let others = false;
  const add = (url: string) => {
    const address = addressOf(url);
    if (address !== null && here.has(address)) own.add(url);
    else others = true;
  };
  for (const candidate of candidates) {
    const url = urlOf(candidate);
    if (typeof url !== 'string' || FOLLOWS.has(String(candidate.role).toLowerCase())) others = true;
    else add(url);
  }
  for (const url of urls) add(url);
  return { own: [...own].slice(0, MAX_OWN), others: others || own.size > MAX_OWN };
}

/**
 * True if the machine still answers on a URL of `own`. The relay's port may change too; that of Secure Link belongs to its
 * own listener.
 */
export function isStillOwn(url: string, addresses: ReadonlySet<string>, relayPort: number): boolean {
  const { scheme, port } = splitUrl(url) ?? {};
  const address = addressOf(url);
  if (address === null || !addresses.has(address)) return false;
  return !/^wss?$/.test(scheme ?? '') || port === undefined || port === relayPort;
}
