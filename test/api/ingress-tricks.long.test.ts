import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ingressRoutes } from '../../lib/dashboard/ingress-routes.ts';
import { MOUNT, startDashboard, startRecorder, TRANSPORT } from '../support/dashboard.ts';
import { connectRaw } from '../support/raw-socket.ts';

const filled = (path: string) =>
  path
    .replace('{token}', 'T'.repeat(32))
    .replace('{token_prefix}', 'abcd1234')
    .replace(/\{\w+\}/g, 'work');
const LISTED = ingressRoutes.map(([method, path]) => [method, filled(path)] as const);
const FORBIDDEN = [
  '/pairing/mint',
  '/pairing/register',
  '/pairing',
  '/media/register',
  '/media/inspect',
  `/media/${'T'.repeat(32)}/sensitive`,
  '/bridge/status',
  '/tap',
  '/desktop/health',
  '/relay/security',
  '/phone/message',
  '/phone/replies',
  '/notifications/recent',
  '/secure-link/preflight',
];

/** Paths that may reach the relay: one of the list, with any parameters. */
const PATTERNS = ingressRoutes.map(([method, path]) => {
  const source = path.replace('{token}', '[\\w-]{20,64}').replace('{token_prefix}', '[\\w-]{8,64}');
  return { method, form: new RegExp(`^${source.replace(/\{\w+\}/g, '(?!\\.{1,2}(?:/|$))[^/\\\\?#]+')}$`) };
});
function isListed(method: string, url: string): boolean {
  const [path = ''] = url.split('?', 1);
  const paths = [path, decodeURIComponent(path), new URL(`http://relay${path}`).pathname];
  return paths.every((place) =>
    PATTERNS.some(
      (row) => (row.method === method || (row.method === 'GET' && method === 'HEAD')) && row.form.test(place),
    ),
  );
}

const dots = fc.constantFrom('..', '.', '%2e%2e', '%2E.', '.%2e', '%252e%252e', '..;', '..%00', '%c0%ae%c0%ae', '…');
const slash = fc.constantFrom('/', '//', '%2f', '%2F', '\\', '%5c', '%252f', '/./', ';/', '%c0%af');
const insert = (text: string, at: number, part: string) => {
  const index = at % (text.length + 1);
  return text.slice(0, index) + part + text.slice(index);
};
const listed = fc.constantFrom(...LISTED.map(([, path]) => path));
const forbidden = fc.constantFrom(...FORBIDDEN);
const path = fc.oneof(
  fc.tuple(listed, slash, dots, slash, forbidden).map(([a, b, c, d, e]) => a + b + c + d + e.slice(1)),
  fc.tuple(listed, slash, dots, slash, dots, forbidden).map(([a, b, c, d, e, f]) => a + b + c + d + e + f),
  fc.tuple(fc.oneof(listed, forbidden), fc.nat(), fc.oneof(dots, slash)).map(([a, b, c]) => insert(a, b, c)),
  fc.tuple(forbidden, listed).map(([a, b]) => `${a}?${b}`),
  fc.tuple(forbidden, listed).map(([a, b]) => `${b}#${a}`),
  fc.tuple(fc.oneof(listed, forbidden), fc.nat()).map(([a, b]) => {
    const at = b % a.length;
    return `${a.slice(0, at)}%${a.charCodeAt(at).toString(16)}${a.slice(at + 1)}`;
  }),
  fc.tuple(forbidden, fc.constantFrom('', '/', '%20', '?x', ';a=b', '%00', '.json')).map(([a, b]) => a + b),
  forbidden.map((a) => `/api/profiles/${encodeURIComponent(`..${a}`)}/config`),
  listed,
);
const target = fc.oneof(
  { weight: 8, arbitrary: path.map((below) => TRANSPORT + below) },
  { weight: 1, arbitrary: path.map((below) => `${MOUNT}/${below}`) },
  { weight: 1, arbitrary: path.map((below) => `http://127.0.0.1:8767${below}`) },
  { weight: 1, arbitrary: path.map((below) => `${TRANSPORT}/health/../../transport${below}`) },
);
const method = fc.constantFrom('GET', 'GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS', 'PROPFIND', 'TRACE');
/** Headers that a confused proxy might obey. */
const header = fc.constantFrom(
  'X-HTTP-Method-Override: POST',
  'X-Original-URL: /pairing/mint',
  'X-Rewrite-URL: /pairing/mint',
  'X-Forwarded-For: 127.0.0.1',
  'X-Svc-Operator: 1',
  'X-Svc-Operator-Key: key',
  'Authorization: Bearer other',
  'X-Svc-Dashboard-Proxy-Secret: 00',
  'X-Svc-Proxy-Peer: 127.0.0.1',
  'Connection: X-Svc-Dashboard-Proxy-Secret, close',
  'Connection: X-Svc-Proxy-Peer',
  'Origin: http://127.0.0.1:8767',
  'Cookie: session=1',
  'Upgrade: h2c',
  'Trailer: Authorization',
  'TE: trailers',
);
const FORWARDED = new Set(
  [
    'host connection authorization content-length transfer-encoding accept accept-encoding content-encoding content-type',
    'if-match if-modified-since if-none-match if-range range user-agent x-svc-dashboard-proxy-secret x-svc-proxy-peer',
    'x-svc-proxy-proto',
  ].flatMap((line) => line.split(' ')),
);

it('10,000 path and header tricks reach no route outside the list, and smuggle no header (contract 07 §4.3)', async () => {
  const recorder = await startRecorder();
  const { port } = await startDashboard({ relayPort: recorder.port });
  const runs = fc.sample(fc.tuple(method, target, fc.uniqueArray(header, { maxLength: 3 })), {
    numRuns: 10_000,
    seed: 7,
  });
  const answered = new Map<number, number>();
  let connection = await connectRaw(port);
  for (const [asked, url, headers] of runs) {
    if (connection.isOver()) connection = await connectRaw(port);
    const lines = [`${asked} ${url} HTTP/1.1`, 'host: d', 'cookie: user=1', 'x-svc-relay-session: s', ...headers];
    // An answer may come with a closed connection, as Node does for what it cannot parse.
    connection.write(Buffer.from(`${lines.join('\r\n')}\r\ncontent-length: 0\r\n\r\n`));
    const { status, headers: answer } = await connection
      .response(asked)
      .catch(() => ({ status: 0, headers: {} as Record<string, string> }));
    answered.set(status, (answered.get(status) ?? 0) + 1);
    if (status === 0 || answer.connection === 'close') {
      connection.socket.destroy();
      connection = await connectRaw(port);
    }
  }
  connection.socket.destroy();
  const strays = recorder.requests.filter((seen) => !isListed(seen.method, seen.url));
  expect(strays).toEqual([]);
  expect(recorder.upgrades).toEqual([]);
  for (const { headers } of recorder.requests) {
    expect(Object.keys(headers).filter((name) => !FORWARDED.has(name))).toEqual([]);
    expect(headers['x-svc-proxy-peer']).toBe('127.0.0.1');
    expect(headers['x-svc-dashboard-proxy-secret']).toMatch(/^[0-9a-f]{64}$/);
    expect([undefined, 'Bearer s']).toContain(headers.authorization);
  }
  // The tricks were answered, and what is listed got through.
  expect(recorder.requests.length).toBeGreaterThan(100);
  expect(answered.get(404) ?? 0).toBeGreaterThan(1000);
});
