import { createNodeUpstream } from '../../lib/host/node/upstream.ts';
import type { Upstream } from '../../lib/host/upstream.ts';

/**
 * An upstream that finds the given origins at servers of the test, and nothing else outside of this machine: fixed
 * addresses are called as they are in the field, and no test reaches the network.
 */
export function rerouted(
  origins: Record<string, string>,
  upstream: Upstream = createNodeUpstream(),
): Upstream & { called: string[] } {
  const called: string[] = [];
  const reroute: Upstream = async (request) => {
    called.push(request.url);
    const { origin, hostname } = new URL(request.url);
    const target = origins[origin] ?? (hostname === '127.0.0.1' ? origin : undefined);
    if (target === undefined) throw new Error('the network is out of reach');
    return upstream({ ...request, url: target + request.url.slice(origin.length) });
  };
  return Object.assign(reroute, { called });
}
