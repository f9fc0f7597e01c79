import type { HostNetwork } from '../host/index.ts';
import { urlHost } from '../kit/addresses.ts';

const RESOLVE_TIMEOUT = 2_000;
const CONNECT_TIMEOUT = 1_000;

/**
 * The upstream with an address as host, so that no later name resolution redirects it. `localhost` becomes the loopback
 * address that answers, or 127.0.0.1 if none does.
 */
export async function loopbackLiteral(upstream: URL, network: HostNetwork): Promise<URL> {
  if (upstream.hostname !== 'localhost') return upstream;
  const found = await network.resolve('localhost', RESOLVE_TIMEOUT).catch((): string[] => []);
  const addresses = ['127.0.0.1', '::1'].filter((address) => found.includes(address));
  const port = Number(upstream.port) || 80;
  const answers = await Promise.all(addresses.map((address) => network.canConnect(address, port, CONNECT_TIMEOUT)));
  const literal = new URL(upstream);
  literal.hostname = urlHost(addresses.find((_, at) => answers[at]) ?? '127.0.0.1');
  return literal;
}
