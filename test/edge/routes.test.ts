import { expect, it, onTestFinished } from 'vitest';
import { routes } from '../../handlers/routes.ts';
import { startEdgeTarget } from '../support/edge.ts';
import { bearer, pair, startNodeTarget, type Target } from '../support/relay.ts';

/** A request for each row of the table, with something plausible for its parameters. */
const REQUESTS = routes.map(([method, path]) => ({
  method: method === 'ALL' ? 'POST' : method,
  path: path
    .replace(/^\/:device\(.*$/, '/tap')
    .replace(/:\w+(?:\([^)]*\))?\+?/g, 'x')
    .replace('*', ''),
}));

const HOST_TOOL = { 'x-svc-operator': '1' };

/** Status of every route for a stranger, a paired device and the operator. */
async function statusesOf(target: Target, isTool = false): Promise<Record<string, number[]>> {
  const { client, token } = await pair(target);
  // On Node, it makes a caller on this machine a stranger.
  const stranger = { 'x-forwarded-for': '192.0.2.7' };
  const callers = [
    (path: string, init: RequestInit) => target.fetch(path, { ...init, headers: stranger }),
    (path: string, init: RequestInit) => target.fetch(path, { ...init, headers: { ...stranger, ...bearer(token) } }),
    // A tool on this host says that it is one. At the edge the operator's token does.
    (path: string, init: RequestInit) => target.operator(path, { ...init, ...(isTool && { headers: HOST_TOOL }) }),
  ];
  const statuses: Record<string, number[]> = {};
  for (const { method, path } of REQUESTS) {
    const init: RequestInit = { method, redirect: 'manual', ...(method === 'GET' ? {} : { body: '{}' }) };
    const row: number[] = [];
    for (const call of callers) {
      const response = await call(path === '/phone/replies' ? `${path}?timeout=0` : path, init);
      row.push(response.status);
      await response.body?.cancel();
    }
    statuses[`${method} ${path}`] = row;
  }
  client.terminate();
  return statuses;
}

it('every route answers strangers, devices and the operator as on Node, but for what needs a host', async () => {
  const node = await startNodeTarget();
  onTestFinished(() => node.stop());
  const [onNode, atEdge] = await Promise.all([
    statusesOf(node, true),
    startEdgeTarget().then((edge) => statusesOf(edge)),
  ]);
  expect(Object.keys(onNode).length).toBeGreaterThan(80);
  const same = Object.entries(atEdge).map(([route, row]) => [
    route,
    row.map((status, caller) => (status === 501 ? onNode[route]?.[caller] : status)),
  ]);
  const needHost = Object.keys(atEdge).filter((route) => atEdge[route]?.includes(501) && !onNode[route]?.includes(501));
  expect(Object.fromEntries(same)).toEqual({
    ...onNode,
    // The Worker answers for pages: there is no second name of this machine to lead to, and no loopback to ask from.
    'GET /app/': [200, 200, 200],
    'GET /console/': [200, 200, 200],
  });
  expect(needHost.sort()).toEqual([
    'GET /api/profiles/x/avatar',
    'GET /api/profiles/x/config',
    'GET /api/profiles/x/memory',
    'GET /api/profiles/x/skills',
    'GET /api/profiles/x/soul',
    'GET /chat/image-activity',
    'GET /media/folder',
    'GET /media/recent',
    'GET /secure-link/preflight',
    'GET /usage/providers',
    'POST /clipboard/inbox',
    'POST /relay/doctor',
    'POST /relay/snapshot',
    'PUT /api/profiles/x/memory/x',
    'PUT /api/profiles/x/soul',
  ]);
});
