import type { HostNetwork } from '../../lib/host/index.ts';
import { defaultPort, isLoopbackName, splitUrl } from '../../lib/kit/addresses.ts';
import { asObject } from '../../lib/kit/json.ts';
import { readDiskProblem } from '../../lib/operator/disk-problem.ts';
import { printable } from '../output.ts';
import { callRelay, type RelayAddress } from '../relay-client.ts';
import type { Notice } from './print.ts';

/**
 * Reports, before other problems, that the relay may refuse the device because it cannot store its session: its disk is full
 * or read-only (contract 11 §5). Empty for a relay that does not report its disk.
 */
export async function storageProblem(relay: RelayAddress): Promise<Notice[]> {
  const call = { method: 'GET', path: '/relay/info', timeout: TIMEOUT, headers: { 'x-svc-operator': '1' } } as const;
  const disk = readDiskProblem((await callRelay(relay, call).catch(() => null))?.body);
  if (disk?.status !== 'error') return [];
  const text = `the relay may refuse the device, because it cannot store it: ${printable(disk.problem)}`;
  return [{ text, next: printable(disk.next), isFirst: true }];
}

/** Milliseconds for each attempt; all run at once. */
const TIMEOUT = 1500;

const LISTEN_EVERYWHERE = 'Listen on every address with: svc relay start --host 0.0.0.0 (or RELAY_HOST)';

/**
 * Tries each route to the relay in a code with one connection (contract 01 §9.4), and reports those that nothing answers,
 * and whether the code is for this machine only. `listenerHost` is the address on which the relay listens, as reported by
 * itself.
 */
export async function routeProblems(
  payload: Record<string, unknown>,
  listenerHost: string | undefined,
  network: HostNetwork,
): Promise<Notice[]> {
  const { relay, endpoints } = payload;
  const routes = Array.isArray(endpoints) ? endpoints.map((one) => asObject(asObject(one)?.relay)?.url) : [];
  const urls = (routes.length > 0 ? routes : [asObject(relay)?.url]).filter((url) => typeof url === 'string');
  const answers = await Promise.all(
    [...new Set(urls)].map(async (url) => {
      const { scheme = 'ws', host = '', port = defaultPort(scheme) } = splitUrl(url) ?? {};
      return { url, host, isOpen: await network.canConnect(host, port, TIMEOUT) };
    }),
  );
  const isLocal = listenerHost !== undefined && isLoopbackName(listenerHost);
  const isForHere = isLocal && answers.length > 0 && answers.every(({ host }) => isLoopbackName(host));
  const here: Notice = {
    text: `only programs on this machine can use this code: the relay listens on loopback alone (${answers[0]?.url})`,
    next: LISTEN_EVERYWHERE,
    isFirst: true,
  };
  const closed = answers.filter(({ isOpen }) => !isOpen).map(({ url }) => url);
  const silent: Notice = {
    text: `nothing answers on ${closed.join(' and ')}, which this code names`,
    next: 'Leave the route out with --mode, or see every step of a phone with: svc pair --check',
  };
  return [...(isForHere ? [here] : []), ...(closed.length > 0 ? [silent] : [])];
}
