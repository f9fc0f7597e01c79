import { RelayError } from '../errors.ts';
import type { HostNetwork, Tailnet } from '../host/index.ts';
import { defaultPort, joinUrl, splitUrl } from '../kit/addresses.ts';
import { isObject } from '../kit/json.ts';
import type { Json } from './canonical-json.ts';

/** One way to reach this relay and its API server: an element of `endpoints` (contract 01 §5.4). */
export type Candidate = { [key: string]: Json };

/** True if the services themselves speak TLS, without a front-end. */
export interface DirectSchemes {
  apiTls: boolean;
  relayTls: boolean;
}

const MAX_CANDIDATES = 16;

const hasFraction = (value: unknown): boolean =>
  typeof value === 'number'
    ? !Number.isSafeInteger(value)
    : typeof value === 'object' && value !== null && Object.values(value).some(hasFraction);

/**
 * Reads the candidates of a request body; undefined when `endpoints` is absent or `null`.
 * @throws RelayError `invalid`, also for fractions: phones drop a payload that has one.
 */
export function readCandidates(value: unknown): Candidate[] | undefined {
  if (value == null) return undefined;
  const invalid = (rule: string) => new RelayError('invalid', `endpoints must ${rule}`);
  if (!Array.isArray(value) || !value.every(isObject)) throw invalid('be an array of objects');
  if (value.length > MAX_CANDIDATES) throw invalid(`have at most ${MAX_CANDIDATES} entries`);
  if (value.some(hasFraction)) throw invalid('hold whole numbers only');
  for (const { role, priority } of value) {
    if (role != null && typeof role !== 'string') throw invalid('have a string as role');
    if (priority != null && typeof priority !== 'number') throw invalid('have an integer as priority');
  }
  return value as Candidate[];
}

/** Ranks of roles (contract 08 §6.2), in lower case. A candidate without one of them comes in between. */
const RANKS: Readonly<Record<string, number>> = {
  tailscale: 0,
  public: 1,
  plugin_proxy: 2,
  lan: 4,
  outbound_broker: 6,
  mailbox: 7,
};
const OTHER = 3;
const LEGACY = 5;

const roleOf = ({ role }: Candidate): string => (typeof role === 'string' ? role.toLowerCase() : '');

function rankOf(candidate: Candidate): number {
  const role = roleOf(candidate);
  const isLast = role === 'outbound_broker' || role === 'mailbox';
  return candidate.legacy === true && !isLast ? LEGACY : (RANKS[role] ?? OTHER);
}

/**
 * The order in which clients try the routes of a relay with Secure Link, with new priorities and recommendations. Routes of
 * one rank keep their order. Of several pinned routes to the same origin only the last one stays, since the others contain
 * an older pin.
 */
export function orderCandidates(candidates: readonly Candidate[]): Candidate[] {
  const latest = new Map(candidates.map((candidate) => [originOf(candidate), candidate]));
  return candidates
    .filter((candidate) => originOf(candidate) === null || latest.get(originOf(candidate)) === candidate)
    .sort((one, other) => rankOf(one) - rankOf(other))
    .map((candidate, priority) => ({ ...candidate, priority, ...recommended(candidate) }));
}

const originOf = (candidate: Candidate): Json =>
  roleOf(candidate) === 'plugin_proxy' && isObject(candidate.proxy) ? (candidate.proxy.url ?? null) : null;

function recommended(candidate: Candidate): { recommended?: boolean } {
  const role = roleOf(candidate);
  if (role === 'tailscale' || role === 'plugin_proxy') return { recommended: true };
  return role === 'outbound_broker' || role === 'mailbox' ? { recommended: false } : {};
}

const isTailscale = (candidate: Candidate): boolean => roleOf(candidate) === 'tailscale';

/** The candidates with tailnet addresses corrected by this host. */
export async function correctTailscale(
  candidates: Candidate[],
  direct: DirectSchemes,
  network: HostNetwork | undefined,
): Promise<Candidate[]> {
  if (!candidates.some(isTailscale)) return candidates;
  const tailnet = (await network?.tailnet()) ?? null;
  if (!tailnet) return candidates;
  return candidates.map((candidate) => (isTailscale(candidate) ? onTailnet(candidate, tailnet, direct) : candidate));
}

/**
 * Replaces host and scheme: TLS and the `.ts.net` name if the tailnet serves every port of the candidate, else the 100.x
 * address and the services' own schemes. Ports are kept.
 */
function onTailnet(candidate: Candidate, tailnet: Tailnet, direct: DirectSchemes): Candidate {
  const api = isObject(candidate.api) ? candidate.api : undefined;
  const relay = isObject(candidate.relay) ? candidate.relay : undefined;
  const url = typeof relay?.url === 'string' ? splitUrl(relay.url) : null;
  const ports = [...(api ? [api.port] : []), ...(url ? [url.port ?? defaultPort(url.scheme)] : [])];
  const served = ports.every((port) => typeof port === 'number' && tailnet.servedPorts.includes(port));
  const name = served && tailnet.name?.toLowerCase().endsWith('.ts.net') ? tailnet.name : null;
  const host = name ?? tailnet.address;
  if (host === null) return candidate;

  const corrected = { ...candidate };
  if (api) corrected.api = { ...api, host, tls: name !== null || direct.apiTls };
  if (relay && url) {
    const scheme = name !== null || direct.relayTls ? 'wss' : 'ws';
    // Without a port, the URL means its scheme's default, which is written out if the new scheme has another default.
    const port = url.port ?? (defaultPort(scheme) === defaultPort(url.scheme) ? undefined : defaultPort(url.scheme));
    corrected.relay = { ...relay, url: joinUrl({ ...url, scheme, host, port }) };
    if ('transport_hint' in relay) corrected.relay.transport_hint = scheme;
  }
  return corrected;
}
