import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  createIngressMatcher,
  ingressRoutes,
  ingressSockets,
  matchIngressSocket,
} from '../../../lib/dashboard/ingress-routes.ts';
import { runs } from '../../support/runs.ts';

const match = createIngressMatcher();
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'get', '__proto__'];

/** Valid values of every parameter. */
const VALUES: Record<string, string> = {
  token: 'T'.repeat(32),
  token_prefix: 'abcd1234',
  name: 'work space',
  filename: 'note.md',
  id: 'open%ai',
  session_id: 's'.repeat(20),
};
const filled = (path: string, values = VALUES) =>
  path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name] as string));

/** Whether a path, decoded once, is one of the list, by a reading of its own. */
function isListed(method: string, path: string): boolean {
  const forms: Record<string, string> = { token: '[\\w-]{20,64}', token_prefix: '[\\w-]{8,64}' };
  return ingressRoutes.some(([allowed, pattern]) => {
    if (allowed !== method && !(allowed === 'GET' && method === 'HEAD')) return false;
    const source = pattern.replace(/\{(\w+)\}/g, (_, name) => forms[name] ?? '(?!\\.{1,2}(?:/|$))[^/\\\\]+');
    return new RegExp(`^${source}$`, 's').test(path);
  });
}

describe('the allowlist (contract 07 §4.3)', () => {
  it.each(ingressRoutes)('%s %s reaches the relay with its parameters encoded anew', (method, path) => {
    expect(match(method, filled(path))).toEqual({ kind: 'route', path: filled(path) });
  });

  it.each(ingressRoutes)('%s %s: any method that is not listed is refused', (_method, path) => {
    const allowed = new Set(ingressRoutes.filter((route) => route[1] === path).map(([listed]) => listed));
    if (allowed.has('GET')) allowed.add('HEAD');
    for (const method of METHODS.filter((name) => !allowed.has(name))) {
      expect(match(method, filled(path))).toEqual({ kind: 'method', allow: [...allowed].sort().join(', ') });
    }
  });

  it.each([
    '/pairing',
    '/pairing/mint',
    '/pairing/register',
    '/media/register',
    '/media/inspect',
    `/media/${'T'.repeat(32)}/sensitive`,
    '/bridge/status',
    '/ping',
    '/tap',
    '/desktop/health',
    '/relay/security',
    '/phone/message',
    '/phone/replies',
    '/phone/outbound',
    '/notifications/recent',
    '/secure-link/preflight',
    '/api/skills/toggle',
    '/ws',
    '/',
    '',
    '//',
    '/health/',
    '//health',
    '/./health',
    '/x/../health',
    '/%68ealth',
    '/HEALTH',
    '/health;x',
    '/health%00',
    '/media/..',
    '/media/%2e%2e',
    `/media/${'T'.repeat(19)}`,
    `/media/${'T'.repeat(65)}`,
    '/sessions/abcd123',
    '/sessions/abcd1234/',
    '/api/profiles//config',
    '/api/profiles/./config',
    '/api/profiles/%2e%2e/config',
    '/api/profiles/a%2fb/config',
    '/api/profiles/a%5Cb/config',
    '/api/profiles/a\\b/config',
    '/api/profiles/%/config',
    '/api/profiles/%ff/config',
    '/api/profiles/%c0%ae%c0%ae/config',
    '/voice/output/providers//options',
    '/voice/other/config',
    '/voice/output/%2e%2e/config',
    '/__proto__',
    '/constructor',
  ])('%s is no route by any method', (path) => {
    for (const method of METHODS) expect(match(method, path).kind).toBe('none');
  });

  it('forwards nothing that is outside the list, whatever the path is made of', () => {
    const piece = fc.oneof(
      { weight: 4, arbitrary: fc.constantFrom(...ingressRoutes.flatMap(([, path]) => filled(path).split('/'))) },
      fc.constantFrom('pairing', 'mint', 'register', 'inspect', 'sensitive', 'security', 'bridge', 'desktop', 'status'),
      fc.constantFrom('.', '..', '%2e', '%2E%2e', '.%2e', '%252e%252e', '', '%2f', '%5c', '\\', '..%2f..', '%00', '%'),
      fc.constantFrom(';', '?', '#', '%3f', '%23', '%ff', '\u00e9', '*', '...', ' ', '%20', '%0d%0a', '{token}'),
      fc.string({ maxLength: 40 }),
    );
    const path = fc
      .tuple(fc.array(piece, { maxLength: 7 }), fc.boolean())
      .map(([pieces, slash]) => `${slash ? '/' : ''}${pieces.join('/')}`);
    fc.assert(
      fc.property(fc.constantFrom(...METHODS), path, (method, asked) => {
        const matched = match(method, asked);
        if (matched.kind !== 'route') return;
        const decoded = decodeURIComponent(matched.path);
        expect(isListed(method, decoded)).toBe(true);
        // The relay, which may resolve dots and decode once, arrives at the same place.
        expect(new URL(`http://relay${matched.path}`).pathname).toBe(matched.path);
        expect(matched.path.split('/').length).toBe(decoded.split('/').length);
        expect(matched.path).toMatch(/^[\w\-.~!*'()%/]+$/);
      }),
      { numRuns: runs(20_000) },
    );
  });
});

describe('the sockets (contract 07 §4.3)', () => {
  it.each(ingressSockets)('%s', (path) => {
    expect(matchIngressSocket(filled(path))).toEqual({ path: filled(path), needsSession: path !== '/ws' });
  });

  it.each(['short', 's'.repeat(129), '%2e%2e', 'a%2fbbbbbbbbbbbbbbbbbbb', '', '%'])('%s is no session id', (id) => {
    expect(matchIngressSocket(`/voice/output/${id}`)).toEqual({ path: null, needsSession: true });
  });

  it.each(['', '/', '/ws/', '/WS', '/%77s', '/health', '/voice/output', '/voice/x/ssssssssssssssssssss'])(
    '%s is no socket',
    (path) => {
      expect(matchIngressSocket(path)).toBeNull();
    },
  );
});
