import { asObject, type JsonObject } from '../../kit/json.ts';
import type { Tailnet } from '../index.ts';

const object = (value: unknown): JsonObject => asObject(value) ?? {};

/**
 * Parses the outputs of `tailscale status --json` and `tailscale serve status --json`. Null if they are malformed or
 * the tailnet is down. Never throws (contract 01 §9.4, 08 §6).
 */
export function readTailnet(status: string, serve: string): Tailnet | null {
  try {
    const state = object(JSON.parse(status));
    if (state.BackendState !== undefined && state.BackendState !== 'Running') return null;
    const self = object(state.Self);
    const address = addressOf(self.TailscaleIPs ?? state.TailscaleIPs);
    const name = nameOf(self.DNSName);
    if (address === null && name === null) return null;
    return { address, name, ...portsOf(object(JSON.parse(serve.trim() || '{}'))) };
  } catch {
    return null;
  }
}

function addressOf(addresses: unknown): string | null {
  if (!Array.isArray(addresses)) return null;
  return addresses.find((address) => typeof address === 'string' && /^100(?:\.\d{1,3}){3}$/.test(address)) ?? null;
}

function nameOf(name: unknown): string | null {
  const host = typeof name === 'string' ? name.toLowerCase().replace(/\.$/, '') : '';
  return /^[a-z0-9.-]+\.ts\.net$/.test(host) ? host : null;
}

/**
 * A port is served when the tailnet terminates TLS at the *same* number, because candidates keep their ports. A funnel
 * counts at 443, the port of its URL (contract 01 §5.4, §9.4).
 */
function portsOf(serve: JsonObject): Pick<Tailnet, 'servedPorts' | 'funnelPorts'> {
  const served = new Set<number>();
  const funnels = new Set<number>();
  // `tailscale serve` without `--bg` keeps its configuration per terminal session.
  for (const config of [serve, ...Object.values(object(serve.Foreground)).map(object)]) {
    for (const [port, local] of tlsPorts(config)) if (port === local) served.add(local);
    for (const [at, allowed] of Object.entries({ ...object(serve.AllowFunnel), ...object(config.AllowFunnel) })) {
      if (allowed !== true || !at.endsWith(':443')) continue;
      const local = tlsPorts(config).get(443);
      if (local !== undefined) funnels.add(local);
    }
  }
  const sorted = (ports: Set<number>) => [...ports].sort((a, b) => a - b);
  return { servedPorts: sorted(served), funnelPorts: sorted(funnels) };
}

/** Maps each tailnet port that terminates TLS to the local port behind it. */
function tlsPorts(config: JsonObject): Map<number, number> {
  const ports = new Map<number, number>();
  const web = Object.entries(object(config.Web));
  for (const [text, value] of Object.entries(object(config.TCP))) {
    const port = portOf(text);
    const listener = object(value);
    if (port === null) continue;
    if (listener.HTTPS === true) {
      const sites = web.filter(([at]) => at.endsWith(`:${port}`)).map(([, site]) => object(object(site).Handlers));
      const local = sites.length === 0 ? port : sites.map((handlers) => localPort(object(handlers['/']).Proxy))[0];
      if (local) ports.set(port, local);
    } else if (typeof listener.TerminateTLS === 'string' && listener.TerminateTLS !== '') {
      const local = localPort(listener.TCPForward);
      if (local) ports.set(port, local);
    }
  }
  return ports;
}

const TARGET = /^(?:[a-z+]+:\/\/)?(?:(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]):)?(\d{1,5})\/?$/i;

/** Port of a proxy target on this machine: `http://127.0.0.1:8767`, `localhost:8767`, `8767`. */
function localPort(target: unknown): number | null {
  return typeof target === 'string' ? portOf(TARGET.exec(target)?.[1] ?? '') : null;
}

function portOf(text: string): number | null {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 65535 ? port : null;
}
