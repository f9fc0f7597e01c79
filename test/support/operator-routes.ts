import { expect, onTestFinished } from 'vitest';
import type { BuiltTarget } from './built-relay.ts';
import { type RawResponse, request } from './raw-socket.ts';
import { authenticate, pair } from './relay.ts';

export interface OperatorRoute {
  method: string;
  path: string;
  headers: Record<string, string>;
  body: string;
  /** Status for the operator, and for everyone else. */
  operator: number;
  stranger: number;
  /** Status for the operator at the edge, where it is another one. */
  edge?: number;
}

/** Every kind of route that does more for the operator than for others. */
export const OPERATOR_ROUTES: OperatorRoute[] = [
  { method: 'POST', path: '/pairing/register', body: '{"code":"STOLEN"}', operator: 200, stranger: 403 },
  { method: 'POST', path: '/pairing/approve', body: '{"code":"STOLEN"}', operator: 200, stranger: 403 },
  { method: 'POST', path: '/pairing/mint', body: '{"host":"192.0.2.1"}', operator: 200, stranger: 403 },
  { method: 'POST', path: '/pairing', body: '{}', operator: 200, stranger: 202 },
  { method: 'GET', path: '/relay/security', operator: 200, stranger: 403 },
  {
    method: 'PATCH',
    path: '/relay/security',
    body: '{"allow_insecure_api_bearer":true}',
    operator: 200,
    stranger: 403,
  },
  { method: 'GET', path: '/secure-link/preflight', operator: 200, stranger: 403, edge: 501 },
  { method: 'GET', path: '/relay/devices', operator: 200, stranger: 403 },
  { method: 'GET', path: '/pairing/routes', operator: 200, stranger: 403 },
  { method: 'GET', path: '/push/status', operator: 200, stranger: 403 },
  { method: 'GET', path: '/desktop/activity', operator: 200, stranger: 403 },
  { method: 'GET', path: '/relay/log', operator: 200, stranger: 403 },
  { method: 'GET', path: '/relay/info', operator: 200, stranger: 403 },
  { method: 'GET', path: '/relay/update-check', operator: 200, stranger: 403 },
  { method: 'GET', path: '/sessions', headers: { 'x-svc-operator': '1' }, operator: 200, stranger: 401 },
  { method: 'DELETE', path: '/sessions/none', headers: { 'x-svc-operator': '1' }, operator: 404, stranger: 401 },
].map((route) => ({ headers: {}, body: '', ...route }));

/** A request to an operator route, as the operator would send it, with further headers. */
export const operatorRequest = (
  { method, path, headers, body }: OperatorRoute,
  further: Record<string, string> = {},
): Buffer => request(method, path, { 'content-length': String(body.length), ...headers, ...further }, body);

/** How many operator calls were refused so far, by the log. */
export function countRefusals(target: BuiltTarget): number {
  target.relay.refusals.stop();
  const lines = target.log.filter((line) => line.includes('refused an operator call'));
  return lines.reduce((sum, line) => sum + 1 + Number(/\(and (\d+) times/.exec(line)?.[1] ?? 0), 0);
}

/**
 * Makes every operator call by `ask` as somebody else, and checks that each is refused, with a warning in the log, and
 * that nothing has changed.
 */
export async function attackOperatorRoutes(
  target: BuiltTarget,
  ask: (route: OperatorRoute) => Promise<RawResponse>,
  /** Status of every refusal, where it does not depend on the route. */
  refused?: number,
): Promise<void> {
  const victim = await pair(target);
  onTestFinished(() => victim.client.terminate());
  // One line stands for all of a minute: those of earlier calls are over.
  target.relay.refusals.stop();
  const before = target.log.length;
  for (const row of OPERATOR_ROUTES) {
    target.relay.limiter.clear();
    const route = row.method === 'DELETE' ? { ...row, path: `/sessions/${victim.prefix}` } : row;
    const { path } = route;
    const answer = await ask(route);
    expect({ path, status: answer.status }).toEqual({ path, status: refused ?? route.stranger });
    expect(answer.headers['cache-control']).toBe('no-store');
    expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
    const body = JSON.parse(answer.body);
    for (const name of ['code', 'qr_payload', 'sessions', 'version']) expect(body).not.toHaveProperty(name);
    if (answer.status === 403) {
      const warnings = target.log.slice(before).filter((line) => line.includes('[WARNING]') && line.includes(path));
      expect(warnings.length, `a warning for ${path}`).toBeGreaterThan(0);
    }
  }
  expect(target.relay.security.allowInsecureApiBearer).toBe(false);
  expect((await authenticate(target, { pairing_code: 'STOLEN' })).frame.type).toBe('auth.fail');
  const id = crypto.randomUUID();
  victim.client.send('system', 'ping', {}, id);
  expect((await victim.client.next({ id })).type).toBe('pong');
}
