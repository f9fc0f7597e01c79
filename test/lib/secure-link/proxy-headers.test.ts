import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { requestHeaders, responseHeaders, withoutStale } from '../../../lib/secure-link/proxy-headers.ts';

const RULES = { host: '127.0.0.1:8642', authority: 'relay.test:9443' };
const API = { ...RULES, namespace: 'api' as const };
const DASHBOARD = { ...RULES, namespace: 'dashboard' as const };
const TRANSPORT = '/api/plugins/svc-relay/transport/media/upload';

const fieldsOf = (headers: readonly string[]) =>
  headers.flatMap((name, at) => (at % 2 === 0 ? [`${name.toLowerCase()}: ${headers[at + 1]}`] : []));
const toApi = (...raw: string[]) => fieldsOf(requestHeaders(raw, API, '/x', '10.0.0.9'));
const toDashboard = (path: string, ...raw: string[]) => fieldsOf(requestHeaders(raw, DASHBOARD, path, '10.0.0.9'));

const FORWARDED = [
  'accept-encoding: identity',
  'x-forwarded-prefix: /dashboard',
  'x-forwarded-proto: https',
  'x-forwarded-host: relay.test:9443',
  'x-forwarded-for: 10.0.0.9',
];

describe('request headers (contract 08 §4.2)', () => {
  it.each([
    ['Connection', 'close'],
    ['Keep-Alive', 'timeout=5'],
    ['Proxy-Authorization', 'Basic x'],
    ['TE', 'trailers'],
    ['Trailer', 'X-End'],
    ['Transfer-Encoding', 'chunked'],
    ['Upgrade', 'h2c'],
    ['Content-Length', '4'],
    ['Expect', '100-continue'],
    ['HOST', 'evil.test'],
    ['Forwarded', 'for=127.0.0.1'],
    ['X-Forwarded-For', '127.0.0.1'],
    ['x-forwarded-anything', '1'],
    ['X_Forwarded_For', '127.0.0.1'],
    ['X-Real-IP', '127.0.0.1'],
    ['X-Svc-Relay-Session', 'token'],
    ['X_Svc_Relay_Session', 'token'],
    ['X-Svc-Operator', '1'],
    ['X-Svc-Operator-Key', 'key'],
    ['X-Svc-Proxy-Secret', 'x'],
    ['x-svc-proxy-peer', '127.0.0.1'],
    ['X-Svc-Dashboard-Proxy-Secret', 'x'],
    ['Sec-WebSocket-Key', 'x'],
  ])('%s: %s reaches neither upstream', (name, value) => {
    expect(toApi(name, value)).toEqual(['host: 127.0.0.1:8642']);
    expect(toDashboard('/x', name, value)).toEqual(['host: 127.0.0.1:8642', ...FORWARDED]);
  });

  it('drops what Connection names, but for the headers that the proxy sets', () => {
    const raw = [
      'Connection',
      'keep-alive, X-Once ,host',
      'X-Once',
      '1',
      'X-Twice',
      '2',
      'CONNECTION',
      'x_under',
      'X-Under',
      '3',
    ];
    expect(toApi(...raw)).toEqual(['host: 127.0.0.1:8642', 'x-twice: 2']);
    expect(toDashboard('/x', 'Connection', 'X-Forwarded-Host')).toContain('x-forwarded-host: relay.test:9443');
  });

  it('keeps cookies from the API, and the encoding of answers from the dashboard', () => {
    const raw = [
      'Cookie',
      'a=1',
      'Accept-Encoding',
      'br',
      'Authorization',
      'Bearer x',
      'Origin',
      'https://o',
      'X-A',
      '1',
      'X-A',
      '2',
    ];
    const rest = ['authorization: Bearer x', 'origin: https://o', 'x-a: 1', 'x-a: 2'];
    expect(toApi(...raw)).toEqual(['host: 127.0.0.1:8642', 'accept-encoding: br', ...rest]);
    expect(toDashboard('/x', ...raw)).toEqual(['host: 127.0.0.1:8642', 'cookie: a=1', ...rest, ...FORWARDED]);
  });

  it('keeps the relay session below the ingress of the dashboard only', () => {
    const session = ['X-Svc-Relay-Session', 'token'];
    expect(toDashboard(TRANSPORT, ...session)).toContain('x-svc-relay-session: token');
    for (const path of [
      '/api/plugins/svc-relay/transport',
      '/api/plugins/svc-relay/transportx/',
      `/x${TRANSPORT}`,
      '/x?/api/plugins/svc-relay/transport/',
    ]) {
      expect(toDashboard(path, ...session).join()).not.toContain('token');
    }
    expect(fieldsOf(requestHeaders(session, API, TRANSPORT, null)).join()).not.toContain('token');
  });

  it('names no address for a stream of Reach', () => {
    expect(fieldsOf(requestHeaders([], DASHBOARD, '/', null))).toContain('x-forwarded-for: unknown');
  });

  it('never lets a session out, however the headers are spelled', () => {
    const name = fc.constantFrom(
      'X-Svc-Relay-Session',
      'x-svc-relay-session',
      'X_SVC_RELAY_SESSION',
      'x-svc_relay-Session',
    );
    const other = fc.constantFrom('Connection', 'Accept', 'Cookie', 'Upgrade');
    const field = fc.oneof(
      fc.tuple(name, fc.constant('SECRET')),
      fc.tuple(other, fc.constantFrom('close', 'x-svc-relay-session', 'host')),
    );
    fc.assert(
      fc.property(fc.array(field), (fields) => {
        expect(toApi(...fields.flat()).join()).not.toContain('SECRET');
        expect(toDashboard('/page', ...fields.flat()).join()).not.toContain('SECRET');
      }),
    );
  });
});

describe('response headers (contract 08 §4.3)', () => {
  it('drops those of the hop, and cookies of the API', () => {
    const raw = [
      'Connection',
      'X-Hop, content-length',
      'X-Hop',
      '1',
      'Keep-Alive',
      '5',
      'Transfer-Encoding',
      'chunked',
    ];
    const kept = ['Content-Length', '3', 'ETag', '"x"', 'Location', '/x'];
    expect(responseHeaders([...raw, ...kept, 'Set-Cookie', 'a=1', 'Set-Cookie2', 'b'], API)).toEqual(kept);
  });

  it('keeps each cookie of the dashboard as a header of its own', () => {
    const raw = ['Set-Cookie', 'a=1; Path=/; HttpOnly', 'X-Frame-Options', 'DENY', 'set-cookie', 'b=2'];
    expect(responseHeaders(raw, { ...DASHBOARD, host: '127.0.0.1:9119' })).toEqual([
      ...[
        'Set-Cookie',
        'a=1; Path=/dashboard; HttpOnly',
        'X-Frame-Options',
        'DENY',
        'set-cookie',
        'b=2; Path=/dashboard',
      ],
    ]);
  });

  it('drops a Location that leads elsewhere without TLS', () => {
    expect(responseHeaders(['Location', 'http://evil.test/', 'A', 'b'], DASHBOARD)).toEqual(['A', 'b']);
  });

  it('takes from a rewritten answer what no longer fits', () => {
    expect(
      withoutStale([
        'ETag',
        '1',
        'content-md5',
        'x',
        'Digest',
        'y',
        'Content-Encoding',
        'identity',
        'Content-Length',
        '1',
        'A',
        'b',
      ]),
    ).toEqual(['A', 'b']);
  });
});
