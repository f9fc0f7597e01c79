import { expect, it, onTestFinished } from 'vitest';
import { device, expectAlive, health, hostOf, kept, portOf, STRANGER } from '../support/attacks.ts';
import { type BuiltTarget, startBuiltTarget } from '../support/built-relay.ts';
import { connect } from '../support/client.ts';
import {
  attackOperatorRoutes,
  OPERATOR_ROUTES,
  type OperatorRoute,
  operatorRequest,
} from '../support/operator-routes.ts';
import { exchange, request } from '../support/raw-socket.ts';
import {
  authenticate,
  bearer,
  describeMatrix,
  itOnNode,
  randomCode,
  registerCode,
  type Target,
} from '../support/relay.ts';

describeMatrix('attacks (contract 01)', (start, runtime) => {
  it('§3.4: a known id with a wrong proof does not disturb the live session', async () => {
    const target = await start();
    const victim = await device(target, { device: { device_id: 'victim' } });
    const almost = victim.token.slice(0, -1) + (victim.token.endsWith('0') ? '1' : '0');
    for (const payload of [
      { session_token: victim.prefix, device_id: 'victim' },
      { session_token: almost, refresh_token: victim.refreshToken.slice(1), device_id: 'victim' },
      { refresh_token: victim.refreshToken, device_id: 'thief' },
      { pairing_code: 'WRONG1', device_id: 'victim' },
      { session_token: victim.token.toUpperCase(), device_id: 'VICTIM' },
      { refresh_token: victim.token, device_id: 'victim' },
    ]) {
      const { client, frame } = await authenticate(target, payload);
      expect(frame.type).toBe('auth.fail');
      expect((await kept(client).closed()).code).toBe(1008);
      await expectAlive(victim.client);
    }
    await expect.poll(async () => (await health(target)).clients).toBe(1);
    const rows = await (await target.fetch('/sessions', { headers: bearer(victim.token) })).json();
    expect(rows.sessions).toHaveLength(1);
    // The peer is blocked by now; the live socket goes on, and so does its token over HTTP.
    await expect(connect(target.wsUrl)).rejects.toMatchObject({ status: 429 });
    if (target.relay) expect(target.relay.sockets.refusal('127.0.0.1')?.blocked).toBe(true);
    await expectAlive(victim.client);
    await registerCode(target, randomCode());
    expect((await authenticate(target, { session_token: victim.token })).frame.type).toBe('auth.ok');
  });

  it('§6.5: one refresh token used twice at once leaves one session and one socket', async () => {
    for (let round = 0; round < 5; round++) {
      const target = await start();
      const old = await device(target, { device: { device_id: 'twice' } });
      const payload = { refresh_token: old.refreshToken, device_id: 'twice' };
      const both = await Promise.all([connect(target.wsUrl), connect(target.wsUrl)]);
      for (const client of both) kept(client).send('system', 'auth', payload);
      const frames = await Promise.all(both.map((client) => client.next({ channel: 'system' })));
      expect(frames.map(({ type }) => type)).toContain('auth.ok');
      expect(await old.client.closed()).toEqual({ code: 4401, reason: 'session revoked' });
      await expect.poll(async () => await health(target)).toMatchObject({ clients: 1, sessions: 1 });
    }
  });

  it.each(OPERATOR_ROUTES)('§1.3: $method $path serves the operator and no one else', async (route) => {
    const target = await start();
    const { method, path, headers } = route;
    const init = { method, headers, body: method === 'GET' ? undefined : route.body };
    const expected = runtime === 'edge' ? (route.edge ?? route.operator) : route.operator;
    expect((await target.operator(path, init)).status).toBe(expected);
    const foreign = { ...headers, 'x-forwarded-for': STRANGER, origin: 'https://evil.example' };
    expect((await target.fetch(path, { ...init, headers: foreign })).status).toBe(route.stranger);
  });

  it('§1.1: a preflight is 405 without CORS headers', async () => {
    const target = await start();
    for (const { path } of OPERATOR_ROUTES) {
      const headers = { origin: 'https://evil.example', 'access-control-request-method': 'POST' };
      const answer = await exchange(portOf(target), request('OPTIONS', path, { ...headers, host: hostOf(target) }));
      expect(answer.status).toBe(405);
      expect(answer.headers.allow).toMatch(/[A-Z]/);
      expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
    }
  });

  const EVIL = { origin: 'https://evil.example' };

  /** Five bad tokens, after which a peer is blocked (§4). */
  async function blockWith(target: Target, headers: Record<string, string>): Promise<void> {
    for (let count = 0; count < 5; count++) {
      const client = kept(await connect(target.wsUrl, { headers }));
      client.send('system', 'auth', { session_token: crypto.randomUUID() });
      expect((await client.next()).type).toBe('auth.fail');
      await client.closed();
    }
  }

  it('§1.4: a foreign page that fails locks out only itself', async () => {
    const target = await start();
    await blockWith(target, EVIL);
    await expect(connect(target.wsUrl, { headers: EVIL })).rejects.toMatchObject({ status: 429 });
    const own = { origin: target.url };
    for (const headers of [{}, own, { origin: 'https://good.example' }, { origin: 'null' }] as Record<
      string,
      string
    >[]) {
      kept(await connect(target.wsUrl, { headers })).terminate();
    }
    // Phones and tools of the same address are not affected.
    await device(target);
  });

  it('§1.4: a foreign page has its own bucket of code requests', async () => {
    const target = await start();
    const ask = async (headers: Record<string, string>) =>
      (await target.fetch('/pairing', { method: 'POST', headers })).status;
    for (let count = 0; count < 5; count++) expect(await ask(EVIL)).toBe(202);
    expect(await ask(EVIL)).toBe(429);
    expect([202, 200]).toContain(await ask({}));
    expect(await ask({ origin: 'https://good.example' })).toBe(202);
  });

  it('§1.4: no Origin lifts the block of its address, and rotating it gains nothing', async () => {
    const target = await start();
    await blockWith(target, {});
    await expect(connect(target.wsUrl, { headers: EVIL })).rejects.toMatchObject({ status: 429 });
    expect((await target.fetch('/pairing', { method: 'POST', headers: EVIL })).status).toBe(429);
    await registerCode(target, randomCode());
    for (const name of ['a', 'b', 'c']) await blockWith(target, { origin: `https://${name}.example` });
    await expect(connect(target.wsUrl, { headers: EVIL })).rejects.toMatchObject({ status: 429 });
    kept(await connect(target.wsUrl)).terminate();
  });

  it('§1.2: a token in a query, a cookie or the header of the ingress is not a credential', async () => {
    const target = await start();
    const { token, prefix, client } = await device(target);
    const query = `?token=${token}&session_token=${token}&access_token=${token}&authorization=Bearer%20${token}`;
    const headers = {
      host: hostOf(target),
      cookie: `session_token=${token}; svc_session=${token}; Authorization=Bearer ${token}`,
      'x-svc-relay-session': token,
      'x-forwarded-for': STRANGER,
    };
    for (const [method, path] of [
      ['GET', '/sessions'],
      ['DELETE', `/sessions/${prefix}`],
      ['PATCH', `/sessions/${prefix}`],
      ['POST', '/clipboard/inbox'],
    ] as const) {
      expect((await exchange(portOf(target), request(method, path + query, headers))).status, path).toBe(401);
    }
    for (const path of ['/relay/info', '/relay/update-check']) {
      expect((await exchange(portOf(target), request('GET', path + query, headers))).status, path).toBe(403);
    }
    const socket = kept(await connect(`${target.wsUrl}${query}`, { headers: { ...headers, ...bearer(token) } }));
    socket.send('system', 'ping');
    expect(await socket.next()).toMatchObject({ payload: { reason: 'First message must be system/auth' } });
    await expectAlive(client);
    expect(target.log.join('\n')).not.toContain(token);
  });
});

async function startHost(): Promise<BuiltTarget> {
  const target = await startBuiltTarget();
  onTestFinished(target.stop);
  return target;
}

/** Pages of the relay itself send this to operator routes (rule 4). */
const OWN_PAGE = { 'x-svc-operator': '1' };

itOnNode.each(OPERATOR_ROUTES)('contract 01 §1.3: $method $path is for the operator', async (route) => {
  const target = await startHost();
  const own: Record<string, string>[] = [
    {},
    { host: 'localhost:8767' },
    { host: '[::1]:1' },
    { host: 'LOCALHOST' },
    { ...OWN_PAGE, host: '127.0.0.1:9', origin: 'http://127.0.0.1:9' },
    { ...OWN_PAGE, host: '[::1]', origin: 'http://[::1]', 'sec-fetch-site': 'same-origin' },
    ...(route.method === 'GET' ? [{ ...OWN_PAGE, 'sec-fetch-site': 'none' }] : []),
  ];
  for (const headers of own) {
    target.relay.limiter.clear();
    const answer = await exchange(target.port, operatorRequest(route, headers), route.method);
    expect({ headers, status: answer.status }).toEqual({ headers, status: route.operator });
  }
  // §1.1: a wrong bearer is never downgraded to loopback trust; what is open to anyone stays so.
  const wrong = operatorRequest(route, { authorization: 'Bearer nonsense' });
  expect((await exchange(target.port, wrong, route.method)).status).toBe(route.stranger === 202 ? 202 : 401);
});

const FOREIGN: [name: string, headers: Record<string, string>][] = [
  ['a foreign Origin', { ...OWN_PAGE, origin: 'https://evil.example' }],
  ['the null Origin of a sandboxed frame', { ...OWN_PAGE, origin: 'null' }],
  ['an Origin that only begins like loopback', { ...OWN_PAGE, origin: 'http://127.0.0.1.evil.example' }],
  ['an Origin with loopback as its user', { ...OWN_PAGE, origin: 'http://127.0.0.1@evil.example' }],
  ['an Origin of another address of 127/8', { ...OWN_PAGE, origin: 'http://127.0.0.2' }],
  ['a page on another local port', { ...OWN_PAGE, origin: 'http://127.0.0.1:9999' }],
  [
    'a page on another local port, in a browser that says so',
    { ...OWN_PAGE, origin: 'http://127.0.0.1:9999', 'sec-fetch-site': 'same-site' },
  ],
  ['a local Origin with another scheme', { ...OWN_PAGE, origin: 'https://127.0.0.1' }],
  ['a local Origin by another name', { ...OWN_PAGE, origin: 'http://localhost' }],
  ['the app on localhost', { ...OWN_PAGE, host: 'localhost:9', origin: 'http://localhost:9' }],
  ['the app on localhost, by GET', { ...OWN_PAGE, host: 'localhost', 'sec-fetch-site': 'same-origin' }],
  ['Sec-Fetch-Site cross-site', { ...OWN_PAGE, 'sec-fetch-site': 'cross-site' }],
  ['Sec-Fetch-Site same-site', { ...OWN_PAGE, 'sec-fetch-site': 'same-site' }],
  ['the own Origin without X-Svc-Operator', { origin: 'http://127.0.0.1', 'x-svc-operator': '' }],
  ['Sec-Fetch-Site same-origin without X-Svc-Operator', { 'sec-fetch-site': 'same-origin', 'x-svc-operator': '0' }],
  ['Sec-Fetch-Site none without X-Svc-Operator', { 'sec-fetch-site': 'none', 'x-svc-operator': 'true' }],
  ['a rebound Host', { host: 'evil.example' }],
  ['a rebound Host and its Origin', { ...OWN_PAGE, host: 'evil.example:8767', origin: 'http://evil.example:8767' }],
  ['a Host that only begins like loopback', { host: '127.0.0.1.evil.example' }],
  ['a Host of the LAN', { host: '192.168.1.2:8767' }],
  ['a Host of another address of 127/8', { host: '127.0.0.2' }],
  ['an empty Host', { host: '' }],
  ['Forwarded', { forwarded: 'for=127.0.0.1' }],
  ['X-Forwarded-For', { 'x-forwarded-for': '127.0.0.1' }],
  ['X-Forwarded-Host', { 'x-forwarded-host': 'localhost' }],
  ['X-Forwarded-Proto', { 'x-forwarded-proto': 'http' }],
  ['X-Real-IP', { 'x-real-ip': '127.0.0.1' }],
  ['Via', { via: '1.1 localhost' }],
  ['CF-Connecting-IP', { 'cf-connecting-ip': '127.0.0.1' }],
  ['True-Client-IP', { 'true-client-ip': '127.0.0.1' }],
  ['Tailscale-User-Login', { 'tailscale-user-login': 'me@example.com' }],
  ['X-Forwarded-Port', { 'x-forwarded-port': '443' }],
  ['X-Forwarded-Anything', { 'x-forwarded-anything': 'x' }],
  ['X-Client-IP', { 'x-client-ip': '127.0.0.1' }],
  ['X-Cluster-Client-IP', { 'x-cluster-client-ip': '127.0.0.1' }],
  ['Fly-Client-IP', { 'fly-client-ip': '127.0.0.1' }],
  ['CDN-Loop', { 'cdn-loop': 'localhost' }],
  ['CF-Ray', { 'cf-ray': '230b030023ae2822-SJC' }],
  ['X-Envoy-External-Address', { 'x-envoy-external-address': '127.0.0.1' }],
  ['X-Envoy-Anything', { 'x-envoy-anything': 'x' }],
  ['X-Original-URL', { 'x-original-url': '/health' }],
  ['X-Original-Anything', { 'x-original-anything': 'x' }],
  ['an empty proxy header', { 'x-forwarded-for': '' }],
  ['an empty proxy header known by its beginning', { 'x-envoy-anything': '' }],
  ['a proxy header in capitals', { 'X-FORWARDED-FOR': '127.0.0.1' }],
];

itOnNode.each(FOREIGN)(
  'contract 01 §1.3: %s makes a caller a stranger on every operator route',
  async (_name, headers) => {
    const target = await startHost();
    // A browser under a name of somebody else gets no further than that (contract 01 §9.1a).
    const isRebound = 'host' in headers && 'origin' in headers && headers.host.startsWith('evil.example');
    const ask = (route: OperatorRoute) => exchange(target.port, operatorRequest(route, headers), route.method);
    await attackOperatorRoutes(target, ask, isRebound ? 421 : undefined);
  },
);

itOnNode.each<[string, (line: string) => string]>([
  ['HTTP/1.0', (line) => line.replace('HTTP/1.1', 'HTTP/1.0')],
  ['a target in absolute form', (line) => line.replace(' /', ' http://127.0.0.1/')],
  ['a target in absolute form over https', (line) => line.replace(' /', ' https://127.0.0.1/')],
  ['a target of another host', (line) => line.replace(' /', ' http://evil.example/')],
])('contract 01 §1.3 rule 7: %s makes a caller a stranger on every operator route', async (_name, change) => {
  const target = await startHost();
  await attackOperatorRoutes(target, (route) => {
    const [line = '', ...rest] = operatorRequest(route).toString('latin1').split('\r\n');
    return exchange(target.port, Buffer.from([change(line), ...rest].join('\r\n'), 'latin1'), route.method);
  });
});

itOnNode.each([
  ['127.0.0.1', 'evil.example'],
  ['evil.example', '127.0.0.1'],
])('RFC 9112 §3.2: a request with the hosts %s and %s is 400 on every operator route', async (first, second) => {
  const target = await startHost();
  for (const route of OPERATOR_ROUTES) {
    const text = operatorRequest(route, { host: first }).toString('latin1').replace('\r\n', `\r\nHOST: ${second}\r\n`);
    const answer = await exchange(target.port, Buffer.from(text, 'latin1'), route.method);
    expect({ path: route.path, status: answer.status }).toEqual({ path: route.path, status: 400 });
    expect(JSON.parse(answer.body)).toEqual({ ok: false, error: 'more than one Host' });
  }
});
