import { onTestFinished } from 'vitest';
import { markerHeaders, markerSecret } from '../../lib/dashboard/marker.ts';
import { type BuiltTarget, startBuiltTarget } from './built-relay.ts';
import { exchange, request } from './raw-socket.ts';

export const SHARED = { SVC_RELAY_DASHBOARD_PROXY_SECRET: 'shared by both' };

export async function start(env: Record<string, string> = SHARED): Promise<BuiltTarget> {
  const target = await startBuiltTarget({ env });
  onTestFinished(target.stop);
  return target;
}

/** The headers of a request that the ingress forwards for a client. */
export async function marked(
  address = '192.0.2.7',
  isSecure = true,
  configured = SHARED.SVC_RELAY_DASHBOARD_PROXY_SECRET,
) {
  const secret = await markerSecret({ configured, signingSecret: async () => null });
  return asObject(markerHeaders(secret as string, address, isSecure));
}

export const asObject = (list: string[]): Record<string, string> =>
  Object.fromEntries(list.flatMap((name, index) => (index % 2 === 0 ? [[name, list[index + 1] as string]] : [])));

/** A path of the route table with every parameter filled in. */
export const fill = (path: string): string => path.replace(/\(\?!.*\)(?=:)/, '').replace(/:\w+/g, 'A'.repeat(32));

export const send = ({ port }: BuiltTarget, method: string, path: string, headers: Record<string, string>, body = '') =>
  exchange(port, request(method, path, { 'content-length': String(body.length), ...headers }, body), method);
