import fc from 'fast-check';
import { Router } from 'itty-router';
import { expect, it } from 'vitest';
import type { Route } from '../../handlers/request.ts';
import { indexRoutes, readQuery } from '../../handlers/route-index.ts';
import { routes } from '../../handlers/routes.ts';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { exchange, request } from '../support/raw-socket.ts';

const pending = cleanups();

it('the index leads to the route that a router with the whole table takes', async () => {
  const router = Router();
  for (const route of routes) router[route[0].toLowerCase()]?.(route[1], () => route);
  const index = indexRoutes(routes);
  expect(index.size).toBeGreaterThan(60);
  for (const [key, { route, params }] of index) {
    const [method = '', path = ''] = key.split(' ');
    const incoming = { method, url: `http://localhost${path}`, params: {} };
    const found: Route = await router.fetch(incoming);
    expect([key, found === route, { ...incoming.params }]).toEqual([key, true, params]);
  }
});

it('reads the query of an indexed path as the router does', async () => {
  const router = Router();
  router.get('/x', () => true);
  // A request line has no blanks.
  const part = fc.constantFrom('a', 'b', '=', '&', '&', '?', '#', '+', '%20', '%', '%ff', '%C3%BC', 'ü', '__proto__');
  await fc.assert(
    fc.asyncProperty(fc.constantFrom('?', '#'), fc.array(part, { maxLength: 20 }), async (mark, parts) => {
      const end = mark + parts.join('');
      const incoming = { method: 'GET', url: `http://localhost/x${end}`, query: {} };
      expect(await router.fetch(incoming)).toBe(true);
      expect(Object.entries(readQuery(end))).toEqual(Object.entries(incoming.query));
    }),
  );
});

it('reads a query of many values of one name in linear time', () => {
  const start = process.cpuUsage();
  expect(readQuery(`?${'a=1&'.repeat(20_000)}`).a).toHaveLength(20_000);
  const { user, system } = process.cpuUsage(start);
  // Quadratic time was half a minute.
  expect((user + system) / 1000).toBeLessThan(5000);
});

it.each([
  ['/health', 200],
  ['/health/', 200],
  ['/health?x=1', 200],
  ['/health?x=1?y#z', 200],
  ['/health?', 200],
  ['/sessions?x', 401],
  ['/nowhere?/health', 404],
  ['/nowhere/../health', 200],
  ['/sessions/../health', 200],
  ['/nowhere/%2e%2e/health', 200],
  ['/health/../sessions', 401],
  ['/health/../nowhere', 404],
  ['//health', 404],
  ['/HEALTH', 404],
  ['/%68ealth', 404],
  ['/health/x', 404],
  ['/', 426],
  ['/?x', 426],
  ['/x/..', 426],
])('GET %s: %i', async (path, status) => {
  const target = await startBuiltTarget();
  pending.push(target.stop);
  expect((await exchange(target.port, request('GET', path))).status).toBe(status);
});
