import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createPluginRoutes, type PluginRoute } from '../../cli/dashboard/plugin-routes.ts';
import type { Method } from '../../cli/dashboard/route-app.ts';
import { createLog } from '../../lib/log.ts';
import { runs } from '../support/runs.ts';

/** A request as the socket brings it: `Request` would resolve dots in the path, and refuse some methods. */
const withTarget = (request: Request, method: string, path: string): Request =>
  Object.defineProperties(request, {
    method: { value: method },
    url: { value: `http://plugin${path}` },
    runtime: { value: { node: { req: { url: path } } } },
  });

function routesOf() {
  const reached: string[] = [];
  const row = (method: Method, path: string): PluginRoute => [
    method,
    path,
    async ({ params }) => {
      reached.push(`${method} ${path} ${JSON.stringify(params)}`);
      return {};
    },
  ];
  const routes = createPluginRoutes(
    [row('GET', '/overview'), row('GET', '/sessions'), row('DELETE', '/sessions/:id'), row('POST', '/a/b/:id/c')],
    '',
    createLog('ERROR', () => {}),
  );
  const ask = (method: string, path: string, headers: Record<string, string> = {}) =>
    routes.fetch(withTarget(new Request('http://plugin', { headers }), method, path));
  return { ask, reached };
}

/** Whether a decoded segment is neither dots nor several segments. */
const isName = (id: string) => !['.', '..'].includes(id) && !['/', '\\', '\0'].some((part) => id.includes(part));

describe("the plugin's own routes (contract 07 §4)", () => {
  it('reach a route by exactly its path, whatever path is asked', async () => {
    const { ask, reached } = routesOf();
    const pieces = [
      'overview',
      'sessions',
      'a',
      'b',
      'c',
      '/',
      '//',
      '.',
      '..',
      '%2e',
      '%2E%2e',
      '%2f',
      '%5c',
      '\\',
      '%00',
      '%',
    ];
    const more = ['%25', ';x', '?', '#', ' ', 'OVERVIEW', '%6fverview', '%u002f', '\u0000', '%c0%af', 'é', '12345678'];
    const paths = fc.array(fc.constantFrom(...pieces, ...more), { maxLength: 8 }).map((parts) => `/${parts.join('')}`);
    let found = 0;
    const methods = fc.constantFrom('GET', 'HEAD', 'DELETE', 'POST', 'PUT', 'PATCH', 'OPTIONS', 'get', 'TRACE');
    await fc.assert(
      fc.asyncProperty(methods, paths, async (method, path) => {
        reached.length = 0;
        const { status } = await ask(method, path);
        expect(reached).toHaveLength(status === 200 ? 1 : 0);
        if (status !== 200) return;
        found++;
        // Without a query, which is not part of the path.
        expect(path.split(/[?#]/, 1)[0]).toMatch(/^(?:\/overview|\/sessions|\/sessions\/[^/]+|\/a\/b\/[^/]+\/c)$/);
        const { id } = JSON.parse((reached[0] as string).replace(/^\S+ \S+ /, ''));
        if (id !== undefined) expect(isName(id)).toBe(true);
      }),
      {
        numRuns: runs(5_000),
        examples: [
          ['GET', '/overview'],
          ['DELETE', '/sessions/%25'],
          ['GET', '/%6fverview'],
          ['GET', '/overview/'],
          ['GET', '/a/../overview'],
        ],
      },
    );
    expect(found).toBeGreaterThanOrEqual(2);
  });

  it.each([
    ['/sessions/..', 404],
    ['/sessions/%2e%2e', 404],
    ['/sessions/.', 404],
    ['/sessions/a%2fb', 400],
    ['/sessions/a%5cb', 400],
    ['/sessions/a\\b', 404],
    ['/sessions/%', 400],
    ['/sessions/%ff', 400],
    ['/sessions/', 404],
    ['/sessions/a/b', 404],
    ['/sessions/%252e%252e', 200],
    ['/sessions/a.b', 200],
  ])('DELETE %s answers %i', async (path, status) => {
    expect((await routesOf().ask('DELETE', path)).status).toBe(status);
  });

  it('names the methods of a path, and counts HEAD as GET', async () => {
    const { ask } = routesOf();
    for (const [method, path, allow] of [
      ['POST', '/sessions', 'GET, HEAD'],
      ['GET', '/sessions/a', 'DELETE'],
    ] as const) {
      const { status, headers } = await ask(method, path);
      expect([status, headers.get('allow')]).toEqual([405, allow]);
    }
    expect((await ask('HEAD', '/sessions')).status).toBe(200);
  });

  it('lets no page of another site change anything', async () => {
    const { ask, reached } = routesOf();
    for (const site of ['cross-site', 'same-site', 'unknown', ''])
      expect((await ask('DELETE', '/sessions/a', { 'sec-fetch-site': site })).status).toBe(403);
    expect(reached).toEqual([]);
    for (const site of ['same-origin', 'none'])
      expect((await ask('DELETE', '/sessions/a', { 'sec-fetch-site': site })).status).toBe(200);
  });
});
