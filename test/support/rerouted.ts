import { createNodeUpstream } from '../../lib/host/node/upstream.ts';
import type { Upstream } from '../../lib/host/upstream.ts';

/**
 * An upstream that reroutes the given origins to servers of the test and reaches nothing else outside this machine.
 * Code with fixed addresses runs unchanged, and no test reaches the network.
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
