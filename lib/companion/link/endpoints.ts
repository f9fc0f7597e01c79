import { defaultPort, splitUrl, urlHost } from '../../kit/addresses.ts';

/** One way to the relay's socket. */
export interface Endpoint {
  /** `lan`, `tailscale`, `public`, …: an open word. */
  role: string;
  /** `ws` or `wss`. */
  url: string;
  /** Lower is tried first. */
  priority: number;
}

/** The order of one round of attempts: where it worked last, then by priority. */
export function attemptOrder(endpoints: readonly Endpoint[], lastGood?: string): Endpoint[] {
  const rank = ({ url, priority }: Endpoint) => (url === lastGood ? Number.NEGATIVE_INFINITY : priority);
  // -Infinity minus itself is NaN, so ranks are compared, not subtracted.
  return [...endpoints].sort((a, b) => (rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0));
}

/** The endpoints with those of `role` (any case) in front, or null when there is none. */
export function preferRole(endpoints: readonly Endpoint[], role: string): Endpoint[] | null {
  const isWanted = (endpoint: Endpoint) => endpoint.role.toLowerCase() === role.trim().toLowerCase();
  if (!endpoints.some(isWanted)) return null;
  const sorted = [...endpoints.filter(isWanted), ...endpoints.filter((endpoint) => !isWanted(endpoint))];
  return sorted.map((endpoint, priority) => ({ ...endpoint, priority }));
}

/** `host:port` of an endpoint: what people are shown, and what a pin belongs to. */
export function authority(url: string): string {
  const parts = splitUrl(url);
  return parts ? `${urlHost(parts.host.toLowerCase())}:${parts.port ?? defaultPort(parts.scheme)}` : url;
}

/** Whether an endpoint is spoken to over TLS. */
export const isSecure = (url: string): boolean => /^wss:/i.test(url);
