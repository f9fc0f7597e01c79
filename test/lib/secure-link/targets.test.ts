import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ingressRoutes } from '../../../lib/dashboard/ingress-routes.ts';
import { createTargets, mountedRoutes, mountedSockets } from '../../../lib/secure-link/targets.ts';
import { runs } from '../../support/runs.ts';

const targetOf = createTargets();
const statusOf = (method: string, target: string) => {
  const decided = targetOf(method, target);
  return decided.kind === 'refused' ? decided.status : decided.kind;
};
const VALUES: Record<string, string> = {
  token: 'T'.repeat(32),
  token_prefix: 'abcd1234',
  name: 'work',
  filename: 'note.md',
  id: 'openai',
  session_id: 's'.repeat(20),
};
const filled = (path: string) => path.replace(/\{(\w+)\}/g, (_, name) => VALUES[name] as string);

describe('the table of the listener (contract 08 §3)', () => {
  it.each(mountedRoutes)('%s /relay%s is the route without the prefix', (method, path) => {
    expect(targetOf(method, `/relay${filled(path)}?a=%2F`)).toEqual({
      kind: 'route',
      path: `${filled(path)}?a=%2F`,
      needsBearer: !path.startsWith('/voice/'),
    });
    expect(statusOf('PROPFIND', `/relay${filled(path)}`)).toBe(405);
  });

  it.each(mountedSockets)('/relay%s is a socket, without its query', (path) => {
    expect(targetOf('GET', `/relay${filled(path)}?ticket=1`)).toEqual({ kind: 'socket', path: filled(path) });
    expect(statusOf('POST', `/relay${filled(path)}`)).toBe(405);
  });

  const AT_ROOT = /^\/(?:sessions|voice)(?:\/|$)/;

  it.each(mountedRoutes.filter(([, path]) => AT_ROOT.test(path)))(
    '%s %s is that route at the root too',
    (method, path) => {
      for (const query of ['', '?a=%2F']) {
        expect(targetOf(method, filled(path) + query)).toEqual(targetOf(method, `/relay${filled(path)}${query}`));
      }
    },
  );

  it.each(mountedSockets.filter((path) => AT_ROOT.test(path)))('%s is that socket at the root too', (path) => {
    expect(targetOf('GET', `${filled(path)}?ticket=1`)).toEqual({ kind: 'socket', path: filled(path) });
  });

  it('/relay/info is the route of that name, for bearers', () => {
    for (const method of ['GET', 'HEAD']) {
      const route = { kind: 'route', path: '/relay/info?a=1', needsBearer: true };
      expect(targetOf(method, '/relay/info?a=1')).toEqual(route);
    }
  });

  it('mounts all of the allowlist but health and /relay/*', () => {
    expect(ingressRoutes.length - mountedRoutes.length).toBe(4);
  });

  it.each([
    ['GET', '/api', '/'],
    ['GET', '/api/', '/'],
    ['PUT', '/api?x=/../%2e', '/?x=/../%2e'],
    ['OPTIONS', '/api/v1/%C3%BC;a=b?q=a//b&u=http://x', '/v1/%C3%BC;a=b?q=a//b&u=http://x'],
    ['GET', '/api/...', '/...'],
    ['GET', '/api/.well-known/x..y', '/.well-known/x..y'],
  ])('%s %s goes to the API as %s', (method, target, path) => {
    expect(targetOf(method, target)).toEqual({ kind: 'proxy', namespace: 'api', path });
  });

  it('goes to the dashboard below /dashboard', () => {
    expect(targetOf('POST', '/dashboard/auth/login?next=/x')).toEqual({
      kind: 'proxy',
      namespace: 'dashboard',
      path: '/auth/login?next=/x',
    });
  });

  it.each([
    ['GET', '/', 404],
    ['GET', '', 404],
    ['OPTIONS', '*', 404],
    ['GET', '/health', 404],
    ['GET', '/sessions/', 404],
    ['GET', '/relay/info/', 404],
    ['GET', '/relay/info/x', 404],
    ['GET', '/relay/log', 404],
    ['POST', '/relay/doctor', 404],
    ['GET', '/voice', 404],
    ['GET', '/voice/../relay/log', 404],
    ['GET', '/sessions/../relay/log', 404],
    ['POST', '/sessions', 405],
    ['POST', '/relay/info', 405],
    ['GET', '/voicex', 404],
    ['GET', '/ws', 404],
    ['POST', '/pairing/mint', 404],
    ['GET', '/apix', 404],
    ['GET', '/dashboards', 404],
    ['GET', '/API/x', 404],
    ['GET', '/%61pi/x', 404],
    ['GET', '//api/x', 404],
    ['GET', '/relay', 404],
    ['GET', '/relay/', 404],
    ['GET', '/relay/ws/', 404],
    ['GET', '/relay/ws/../sessions', 404],
    ['GET', '/relay/%2e%2e/sessions', 404],
    ['GET', '/relay//sessions', 404],
    ['GET', '/relay/relay/info', 404],
    ['POST', '/relay/relay/model-capabilities', 404],
    ['POST', '/relay/pairing/mint', 404],
    ['POST', '/relay/media/register', 404],
    ['GET', '/relay/media/inspect', 404],
    ['POST', `/relay/media/${'T'.repeat(32)}/sensitive`, 404],
    ['POST', '/relay/phone/message', 404],
    ['GET', '/relay/notifications/recent', 404],
    ['GET', '/relay/secure-link/preflight', 404],
    ['GET', '/relay/voice/output/short', 404],
    ['POST', '/relay/health', 405],
    ['CONNECT', 'example.org:443', 405],
    ['TRACE', '/api/x', 405],
    ['GET', 'http://127.0.0.1/relay/health', 400],
    ['GET', 'HTTPS://x/api', 400],
    ['GET', '/api/../relay/health', 400],
    ['GET', '/api/.', 400],
    ['GET', '/api/x/..', 400],
    ['GET', '/api//x', 400],
    ['GET', '/api/%2Fetc', 400],
    ['GET', '/api/%5c', 400],
    ['GET', '/api/%2e%2e/x', 400],
    ['GET', '/api/a\\b', 400],
    ['GET', '/dashboard/a#b', 400],
  ])('%s %s is refused with %i', (method, target, status) => {
    expect(statusOf(method, target)).toBe(status);
  });
});

/** Paths built from the words of the table and of tricks. */
const trick = fc
  .array(
    fc.constantFrom(
      ...[
        '/',
        '//',
        '/.',
        '/..',
        '/./',
        '%2e',
        '%2E%2e',
        '%2f',
        '%5C',
        '\\',
        '?',
        '#',
        ';',
        '%00',
        '%',
        '%25',
        ' ',
        '@',
      ],
      ...['/relay', '/api', '/dashboard', '/ws', '/health', '/sessions', '/pairing/mint', '/media/', '/voice/output/'],
      ...['relay', 'api', 'T'.repeat(32), 'abcd1234', 'http://127.0.0.1', '/desktop/health', '/phone/message', 'é'],
    ),
    { maxLength: 8 },
  )
  .map((parts) => parts.join(''));

describe('nothing outside the table is reached', () => {
  const routes = mountedRoutes.map(([method, path]) => ({ method, path: new RegExp(`^${source(path)}$`) }));
  function source(path: string): string {
    return path.replaceAll('.', '\\.').replace(/\{\w+\}/g, '(?!\\.{1,2}(?:/|$))[^/\\\\]+');
  }

  it('holds for any spelling of a target', () => {
    const method = fc.constantFrom('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT');
    fc.assert(
      fc.property(
        method,
        fc.oneof(
          trick,
          trick.map((path) => `/relay${path}`),
          trick.map((path) => `/api${path}`),
        ),
        (verb, target) => {
          const decided = targetOf(verb, target);
          if (decided.kind === 'refused') return;
          const [path = ''] = target.split('?', 1);
          expect(['TRACE', 'CONNECT']).not.toContain(verb);
          if (decided.kind === 'proxy') {
            // The upstream gets the target unchanged, and no server can read another path into it.
            const query = target.slice(path.length);
            const below = path.slice(decided.namespace.length + 1);
            expect(decided.path).toBe((below || '/') + query);
            const [sent = ''] = decided.path.split('?', 1);
            for (const read of [sent, decodeLax(sent)]) {
              expect(new URL(`http://x${read.replaceAll('?', '')}`).pathname.split('/')).not.toContain('..');
              expect(read.slice(1)).not.toMatch(/\\|^\/|\/\//);
              expect(read.split('/')).not.toContain('..');
            }
          } else if (decided.kind === 'health') expect(path).toBe('/relay/health');
          else if (decided.kind === 'socket')
            expect([`/relay${decided.path}`, decided.path]).toContain(decodeLax(path));
          else {
            const [route = ''] = decided.path.split('?', 1);
            const asked = verb === 'HEAD' ? 'GET' : verb;
            expect(routes.some((row) => row.method === asked && row.path.test(route))).toBe(true);
            expect(path).toMatch(/^\/(?:relay\/|(?:sessions|voice)(?:\/|$))/);
          }
        },
      ),
      { numRuns: runs(5_000) },
    );
  });
});

function decodeLax(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
