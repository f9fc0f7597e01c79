import type { HostNetwork } from '../../lib/host/index.ts';
import { isLoopbackName, unbracket, urlHost } from '../../lib/kit/addresses.ts';
import { asObject } from '../../lib/kit/json.ts';

/** Milliseconds for each of the two attempts. */
const TIMEOUT = 1500;

/**
 * The API server as reached from the address in a payload: `open` admits callers without a key, `keyed` refuses them,
 * `local` is only reachable on this machine, `absent` is not in the payload.
 */
export type ApiState = 'open' | 'keyed' | 'answers' | 'local' | 'silent' | 'absent';

/** The address of the API server in a payload. */
export const apiOf = (
  payload: Record<string, unknown>,
): { host: string; port: number; url: string; key: string } | null => {
  const { host, port, tls, key } = payload;
  if (typeof host !== 'string' || typeof port !== 'number') return null;
  return {
    host,
    port,
    url: `${tls ? 'https' : 'http'}://${urlHost(host)}:${port}`,
    key: typeof key === 'string' ? key : '',
  };
};

/** Checks whether the API server of a payload can be reached. Sends no key. */
export async function findApiState(payload: Record<string, unknown>, network: HostNetwork): Promise<ApiState> {
  const api = apiOf(payload);
  if (!api) return 'absent';
  const { port, url } = api;
  const host = unbracket(api.host);
  if (!(await network.canConnect(host, port, TIMEOUT))) {
    const isHere = network.addresses().includes(host) && !isLoopbackName(host);
    return isHere && (await network.canConnect('127.0.0.1', port, TIMEOUT)) ? 'local' : 'silent';
  }
  if (api.key !== '') return 'answers';
  const { probe } = await import('../../lib/host/node/probe.ts');
  const { status } = await probe('GET', `${url}/v1/models`, TIMEOUT);
  if (status === null) return 'silent';
  if (status === 401 || status === 403) return 'keyed';
  return status < 400 ? 'open' : 'answers';
}

/** Describes the problem with an API server and how to fix it. Returns null if the device can use the server. */
export function apiProblem(payload: Record<string, unknown>, state: ApiState): { text: string; next: string } | null {
  const api = apiOf(payload);
  if (!api) return null;
  const hasOtherRoute =
    Array.isArray(payload.endpoints) && payload.endpoints.some((one) => asObject(one)?.role === 'plugin_proxy');
  if (state === 'silent') {
    return {
      text: `the API server on ${api.url} does not answer: the device pairs, but cannot chat`,
      next: 'Start the agent, or say where its API server is with --host and --port. See: svc relay doctor',
    };
  }
  if (state === 'local' && !hasOtherRoute) {
    return {
      text: `the API server answers on 127.0.0.1:${api.port} only, and the device looks for it on ${api.url}`,
      next: 'Let it listen on that address too, or start the relay with: svc relay start --secure-link',
    };
  }
  if (state === 'keyed') {
    return {
      text: `the API server on ${api.url} requires a key, and none was found on this machine`,
      next: 'Set API_SERVER_KEY in the .env of the agent home to its key, and pair again.',
    };
  }
  return null;
}
