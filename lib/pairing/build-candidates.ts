import type { Tailnet } from '../host/index.ts';
import { splitUrl, urlHost } from '../kit/addresses.ts';

export type Mode = 'auto' | 'lan' | 'tailscale' | 'public';

/** A candidate built on the host. The relay may still correct it. */
export type BuiltCandidate = {
  role: string;
  priority: number;
  api?: { host: string; port: number; tls: boolean };
  relay: { url: string; transport_hint: 'ws' | 'wss' };
};

export interface CandidateSources {
  mode: Mode;
  /** The agent's API server; null when disabled. `host` is set only when it runs elsewhere. */
  api: { host?: string; port: number; tls: boolean } | null;
  /** The relay's listener; `isLocal` if it listens for this machine only. */
  relay: { port: number; tls: boolean; isLocal?: boolean };
  lanAddress: string | null;
  tailnet: Tailnet | null;
  /** http(s) URL under which the operator publishes this relay. */
  publicUrl?: string;
}

type Route = Omit<BuiltCandidate, 'priority'>;

/**
 * The addresses that `svc pair` offers, best first: tailnet, public URL or funnel, LAN. A mode other than `auto` selects
 * that role only (contract 01 §9.4). Roles that this host cannot serve are omitted.
 */
export function buildCandidates(facts: CandidateSources): BuiltCandidate[] {
  const routes = { tailscale: tailscaleRoute, public: publicRoute, lan: lanRoute };
  const wanted = Object.keys(routes).filter((role) => facts.mode === 'auto' || facts.mode === role);
  const found = wanted.flatMap((role) => routes[role as keyof typeof routes](facts) ?? []);
  return numbered(found);
}

/** Moves the first candidate of `role` (in any case) to the front. Returns null if no candidate has the role. */
export function preferRole(candidates: BuiltCandidate[], role: string): BuiltCandidate[] | null {
  const chosen = candidates.find((candidate) => candidate.role.toLowerCase() === role.trim().toLowerCase());
  return chosen ? numbered([chosen, ...candidates.filter((candidate) => candidate !== chosen)]) : null;
}

const numbered = (routes: Route[]): BuiltCandidate[] =>
  routes.map(({ role, api, relay }, priority) => ({ role, priority, ...(api && { api }), relay }));

const relayAt = (tls: boolean, host: string, rest: string): BuiltCandidate['relay'] => {
  const scheme = tls ? 'wss' : 'ws';
  return { url: `${scheme}://${urlHost(host)}${rest}`, transport_hint: scheme };
};

function lanRoute({ lanAddress, api, relay }: CandidateSources): Route | null {
  if (lanAddress === null || relay.isLocal) return null;
  return {
    role: 'lan',
    ...(api && { api: { host: api.host ?? lanAddress, port: api.port, tls: api.tls } }),
    relay: relayAt(relay.tls, lanAddress, `:${relay.port}`),
  };
}

/** TLS and the `.ts.net` name if the tailnet serves all of the ports, else the 100.x address. */
function tailscaleRoute({ tailnet, api, relay }: CandidateSources): Route | null {
  if (!tailnet) return null;
  const ports = [relay.port, ...(api ? [api.port] : [])];
  const name = tailnet.name && ports.every((port) => tailnet.servedPorts.includes(port)) ? tailnet.name : null;
  // The tailnet forwards its services to loopback.
  const host = name ?? (relay.isLocal ? null : tailnet.address);
  if (host === null) return null;
  return {
    role: 'tailscale',
    ...(api && { api: { host, port: api.port, tls: name !== null || api.tls } }),
    relay: relayAt(name !== null || relay.tls, host, `:${relay.port}`),
  };
}

function publicRoute(facts: CandidateSources): Route | null {
  const { api, relay, tailnet } = facts;
  const funnel = tailnet?.name && tailnet.funnelPorts.includes(relay.port) ? tailnet.name : null;
  const url = splitUrl(facts.publicUrl ?? (funnel ? `https://${funnel}` : ''));
  if (!url) return null;
  const tls = url.scheme === 'https';
  const path = url.rest.replace(/\/+$/, '');
  const port = url.port ?? (tls ? 443 : 80);
  // A funnel is reached on its own port, not on the port of the relay behind it.
  const relayPort = url.host.toLowerCase() === funnel?.toLowerCase() ? 443 : relay.port;
  return {
    role: 'public',
    ...(api && { api: { host: url.host, port, tls } }),
    relay: relayAt(tls, url.host, path === '' ? `:${relayPort}` : `${url.port ? `:${url.port}` : ''}${path}`),
  };
}
