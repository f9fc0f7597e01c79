import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { type HostHandler, register } from '../../cli/compat/index.ts';

function app(native: string[], checkAuth: (request: Request) => unknown) {
  const added = new Map<string, HostHandler>();
  return {
    added,
    hasRoute: (method: string, path: string) => native.includes(`${method} ${path}`),
    addRoute: (method: string, path: string, handler: HostHandler) => void added.set(`${method} ${path}`, handler),
    checkAuth,
  };
}

const TOGGLE = 'PUT /api/skills/toggle';
const toggle = () => new Request('http://host/api/skills/toggle', { method: 'PUT' });

describe('the compat entry (07 §5.4)', () => {
  it('adds the routes that the server lacks, and never overrides one', () => {
    const bare = app([], () => true);
    register(bare);
    expect([...bare.added.keys()]).toEqual([TOGGLE]);
    const full = app([TOGGLE], () => true);
    register(full);
    expect(full.added.size).toBe(0);
  });

  it('answers admitted callers with the stub of 07 §1.5', async () => {
    const server = app([], () => undefined);
    register(server);
    const answer = await server.added.get(TOGGLE)?.(toggle());
    expect(answer?.status).toBe(501);
    expect(await answer?.json()).toMatchObject({ ok: false, error: 'skill_toggle_not_implemented' });
  });

  it.each([
    ['false', () => false, 401],
    ['a later false', async () => false, 401],
    [
      'a throw',
      () => {
        throw new Error('no');
      },
      401,
    ],
    ['its own answer', () => new Response(null, { status: 403 }), 403],
  ])("is under the server's authentication: %s", async (_name, checkAuth, status) => {
    const server = app([], checkAuth);
    register(server);
    expect((await server.added.get(TOGGLE)?.(toggle()))?.status).toBe(status);
  });
});

it('plugin.yaml has the name, version and entry of the package', async () => {
  const [manifest, own] = await Promise.all([readFile('plugin.yaml', 'utf8'), readFile('package.json', 'utf8')]);
  const { version, bin } = JSON.parse(own);
  expect(parse(manifest)).toMatchObject({ name: 'svc-relay', version, entry: bin['svc-relay'] });
});
