import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createOperatorCalls } from '../../cli/dashboard/operator-calls.ts';
import { createRelayLink } from '../../cli/dashboard/relay-link.ts';
import { draftOf } from '../lib/dashboard/pages/support.ts';
import { startBuiltTarget } from '../support/built-relay.ts';
import { selfSigned } from '../support/certificate.ts';
import { closedPort } from '../support/closed-port.ts';
import { serveOwnRoutes } from '../support/own-routes.ts';
import { pair } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

/** The plugin's own routes in front of a relay of this process. */
async function start(env: Record<string, string> = {}) {
  const target = await startBuiltTarget();
  onTestFinished(() => target.stop());
  const dashboard = await serveOwnRoutes({ relayPort: target.port, agentHome: target.agentHome, env });
  return { target, dashboard, ask: dashboard.ask };
}

/** The plugin's own routes in front of a server that is no relay, and what it was asked. */
async function startBehind(listener: RequestListener) {
  const asked: { method?: string; url?: string; headers: Record<string, unknown> }[] = [];
  const server = createServer((req, res) => {
    asked.push({ method: req.method, url: req.url, headers: req.headers });
    req.resume();
    listener(req, res);
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  const dashboard = await serveOwnRoutes({ relayPort: port, agentHome: await temporaryDirectory() });
  return { port, asked, ask: dashboard.ask };
}

it('GET /push says whether the relay calls devices (contract 07 §4.1)', async () => {
  let subscriptions = 2;
  const { ask } = await startBehind((_req, res) =>
    res.end(JSON.stringify({ subscriptions, contact: null, services: [] })),
  );
  expect((await ask('GET', '/push')).body).toMatchObject({ configured: true, subscriptions: 2, services: [] });
  subscriptions = 0;
  expect((await ask('GET', '/push')).body).toMatchObject({
    configured: false,
    reason: expect.stringContaining('no device has subscribed'),
  });
});

describe('management proxies of the dashboard plugin (contract 07 §4.1)', () => {
  it('passes on what the relay answers its operator', async () => {
    const { target, ask } = await start();
    const phone = await pair(target);
    onTestFinished(() => phone.client.terminate());
    expect(await ask('GET', '/overview')).toMatchObject({ status: 200, body: { version: '1.0.0', session_count: 1 } });
    const { body } = await ask('GET', '/sessions');
    expect(body.sessions).toHaveLength(1);
    expect(body.sessions[0]).toMatchObject({ token_prefix: phone.prefix, is_current: false });
    expect(await ask('GET', '/bridge-activity?limit=5')).toMatchObject({ status: 200, body: { activity: [] } });
    expect(await ask('GET', '/media')).toMatchObject({ status: 200, body: { media: [] } });
    expect(await ask('DELETE', `/sessions/${phone.prefix}`)).toMatchObject({
      status: 200,
      body: { ok: true, revoked: phone.prefix, revoked_self: false, shells_ended: 0 },
    });
    expect(await ask('DELETE', `/sessions/${phone.prefix}`)).toMatchObject({
      status: 404,
      body: { detail: { ok: false } },
    });
    expect((await ask('DELETE', '/sessions/abc')).status).toBe(400);
    expect((await ask('DELETE', `/sessions/${'a'.repeat(65)}`)).status).toBe(400);
    for (const id of ['a%2fb', '%20', '%20.%20', '%20..%20', '%e3%80%80..']) {
      expect([id, (await ask('DELETE', `/sessions/${id}`)).status]).toEqual([id, 400]);
    }
  });

  it('calls without Authorization, as the operator, and with no header of the browser', async () => {
    const { asked, port, ask } = await startBehind((_req, res) => res.end('{}'));
    const browser = {
      cookie: 'secret=1',
      authorization: 'Bearer x',
      origin: 'http://127.0.0.1:9119',
      'x-forwarded-for': '1.2.3.4',
    };
    await ask('GET', '/media?include_expired=yes&other=1', undefined, browser);
    await ask('GET', '/bridge-activity', undefined, browser);
    expect(asked.map(({ method, url }) => `${method} ${url}`)).toEqual([
      'GET /media/inspect?include_expired=true',
      'GET /bridge/activity',
    ]);
    for (const { headers } of asked) {
      expect(headers).toEqual({
        host: `127.0.0.1:${port}`,
        accept: 'application/json',
        'x-svc-operator': '1',
        connection: 'close',
      });
    }
  });

  it('answers with the status and detail of a refusal, as JSON or as text', async () => {
    const { ask } = await startBehind((req, res) => {
      res.statusCode = req.url === '/sessions' ? 429 : 404;
      res.end(req.url === '/sessions' ? 'slow down' : '{"error":"gone"}');
    });
    expect(await ask('GET', '/sessions')).toMatchObject({ status: 429, body: { detail: 'slow down' } });
    expect(await ask('GET', '/overview')).toMatchObject({ status: 404, body: { detail: { error: 'gone' } } });
  });

  it('takes a text for a JSON string', async () => {
    const { ask } = await startBehind((_req, res) => res.end('just text'));
    expect(await ask('GET', '/overview')).toMatchObject({ status: 200, body: 'just text' });
  });

  it.each([
    ['a 500', (res: Parameters<RequestListener>[1]) => res.writeHead(500).end('secret trace'), 'status 500'],
    [
      'a redirect',
      (res: Parameters<RequestListener>[1]) => res.writeHead(302, { location: '/health' }).end(),
      'status 302',
    ],
    [
      'a cut answer',
      (res: Parameters<RequestListener>[1]) => {
        res.writeHead(200, { 'content-length': 10 });
        res.write('x', () => res.destroy());
      },
      'relay unreachable',
    ],
    ['a closed connection', (res: Parameters<RequestListener>[1]) => res.destroy(), 'connection reset'],
  ])('answers 502 to %s, and asks once', async (_name, answer, cause) => {
    const { port, asked, ask } = await startBehind((_req, res) => void answer(res));
    const { status, body } = await ask('GET', '/overview');
    expect(status).toBe(502);
    expect(body.detail).toContain(`relay unreachable at 127.0.0.1:${port}: `);
    expect(body.detail).toContain(cause);
    expect(body.detail).not.toContain('secret');
    expect(asked).toHaveLength(1);
  });

  it('gives up a relay that does not answer', async () => {
    const { port } = await startBehind(() => {});
    const link = createRelayLink({ port: () => port, connectTimeout: 5_000 });
    const call = createOperatorCalls({ link, agentHome: await temporaryDirectory() });
    await expect(call({ method: 'GET', path: '/sessions', timeout: 50 })).rejects.toMatchObject({
      status: 502,
      data: `relay unreachable at 127.0.0.1:${port}: no answer within 0.05 s`,
    });
  });

  it('answers 502 without a relay', async () => {
    const port = await closedPort();
    const { ask } = await serveOwnRoutes({ relayPort: port, agentHome: await temporaryDirectory() });
    const { status, body } = await ask('GET', '/sessions');
    expect([status, body.detail]).toEqual([502, `relay unreachable at 127.0.0.1:${port}: connection refused`]);
  });

  it('mints a pairing code with the addresses of this host', async () => {
    const { target, ask } = await start();
    const given = {
      mode: 'public',
      public_url: 'https://relay.example.com',
      prefer: 'public',
      ttl_seconds: 60,
      endpoints: [],
    };
    const { status, body } = await ask('POST', '/pairing', given);
    expect(status).toBe(200);
    expect(body.endpoints).toMatchObject([
      { role: 'public', priority: 0, relay: { url: `wss://relay.example.com:${target.port}`, transport_hint: 'wss' } },
    ]);
    expect(body.code).toMatch(/^[A-Z0-9]{6}$/);
    expect((await ask('PUT', '/remote-access/public-url', { url: 'http://pinned.example' })).status).toBe(200);
    const pinned = await ask('POST', '/pairing', { mode: 'public' });
    expect(pinned.body.endpoints[0].relay.url).toBe(`ws://pinned.example:${target.port}`);
  });

  it.each([
    [{ mode: 'wifi' }, /mode/],
    [{ mode: 'public' }, /public_url/],
    [{ public_url: 'javascript:x' }, /url must be/],
    [{ mode: 'tailscale' }, /tailnet/],
    [{ prefer: 1 }, /prefer/],
    [{ port: 0 }, /port/],
  ])('refuses to pair with %j', async (given, reason) => {
    const { ask } = await start({ PATH: '/nowhere' });
    const { status, body } = await ask('POST', '/pairing', given);
    expect(status).toBe(400);
    expect(typeof body.detail === 'string' ? body.detail : body.detail.error).toMatch(reason);
  });

  it('tells settings in process, as they are in .env now', async () => {
    const { target, ask } = await start({ PHONE_ENABLED: '0' });
    expect((await ask('GET', '/phone/config')).body).toEqual({
      enabled: false,
      home_channel_id: 'phone',
      home_channel_name: 'Phone',
      name_env_key: 'PHONE_HOME_CHANNEL_NAME',
    });
    const { body } = await ask('GET', '/agent-context');
    expect(body.settings).toEqual({ RELAY_AGENT_CONTEXT_ENABLED: true, RELAY_CONTEXT_MEDIA_SENSITIVITY: true });
    expect(body.injected).toMatchObject({ enabled: true, blocks: [{ name: 'media-sensitivity' }] });
    await writeFile(
      join(target.agentHome, '.env'),
      'PHONE_ENABLED=1\nPHONE_HOME_CHANNEL_NAME=Pixel\nRELAY_AGENT_CONTEXT_ENABLED=0\n',
    );
    expect((await ask('GET', '/phone/config')).body).toMatchObject({ enabled: true, home_channel_name: 'Pixel' });
    expect((await ask('GET', '/agent-context')).body).toMatchObject({
      settings: { RELAY_AGENT_CONTEXT_ENABLED: false },
      injected: { enabled: false, blocks: [] },
    });
    expect((await ask('GET', '/push')).body).toMatchObject({ configured: false, reason: expect.any(String) });
  });

  it('keeps the result of the release feed for an hour', async () => {
    let asked = 0;
    const feed = await startBehind((_req, res) => {
      asked++;
      res.end(JSON.stringify([{ tag_name: 'server-v9.0.0' }]));
    });
    const { ask } = await start({ RELAY_UPDATE_FEED_URL: `http://127.0.0.1:${feed.port}/` });
    const first = await ask('GET', '/update-check');
    expect(first.body).toMatchObject({ latest: '9.0.0', update_available: true, error: null });
    expect(Math.abs(first.body.checked_at - Date.now() / 1000)).toBeLessThan(60);
    expect((await ask('GET', '/update-check')).body).toEqual(first.body);
    // A refresh within a minute is the same result too.
    expect((await ask('GET', '/update-check?refresh=true')).body).toEqual(first.body);
    expect(asked).toBe(1);
  });

  it('reports the usage of providers, and refuses an unknown profile', async () => {
    const { ask } = await start();
    const { status, body } = await ask('GET', '/provider-usage');
    expect(status).toBe(200);
    expect(body.providers.map(({ id, status }: Record<string, string>) => `${id} ${status}`)).toEqual([
      'openai-codex not_configured',
      'nous not_configured',
      'opencode-go not_configured',
      'supergrok not_configured',
    ]);
    for (const profile of ['absent', '..%2f..', 'A%00b']) {
      expect(await ask('GET', `/provider-usage?profile=${profile}`)).toMatchObject({
        status: 400,
        body: { detail: 'invalid or unknown profile' },
      });
    }
  });

  it('shows how the relay is reached, without its pin', async () => {
    const pin = 'ab'.repeat(32);
    const health = {
      status: 'ok',
      version: '1.0.0',
      secure_link: {
        enabled: true,
        status: 'available',
        role: 'secure_link',
        url: 'https://relay.example:8443',
        spki_pin: pin,
        capabilities: ['relay'],
        reach: { enabled: true, state: 'connected', pin, token: pin },
      },
    };
    const { ask } = await startBehind((_req, res) => res.end(JSON.stringify(health)));
    const { status, body } = await ask('GET', '/remote-access/status');
    expect(status).toBe(200);
    expect(body).toEqual({
      tailscale: { available: false, address: null, name: null, served_ports: [], funnel_ports: [] },
      secure_link: {
        enabled: true,
        state: 'available',
        role: 'secure_link',
        url: 'https://relay.example:8443',
        surfaces: ['relay'],
        reach: { enabled: true, state: 'connected' },
      },
      public: { url: null, reachable: null },
      upstream_canonical: true,
    });
    expect(JSON.stringify(body)).not.toContain(pin);
  });

  it('pins a public URL', async () => {
    const { target, ask } = await start();
    expect((await ask('GET', '/remote-access/public-url')).body).toEqual({ url: null, updated_at: null });
    const put = await ask('PUT', '/remote-access/public-url', { url: 'https://relay.example.com/' });
    expect(put).toMatchObject({
      status: 200,
      body: { url: 'https://relay.example.com', updated_at: expect.any(Number) },
    });
    expect(JSON.parse(await readFile(join(target.agentHome, 'relay-remote.json'), 'utf8'))).toEqual(put.body);
    expect((await ask('PUT', '/remote-access/public-url', { url: 'https://a/b' })).status).toBe(400);
    for (const nothing of [undefined, {}]) {
      expect((await ask('PUT', '/remote-access/public-url', nothing)).status).toBe(400);
    }
    expect((await ask('GET', '/remote-access/status')).body.public.url).toBe('https://relay.example.com');
    expect((await ask('PUT', '/remote-access/public-url', { url: '' })).body.url).toBeNull();
  });

  it('probes candidates at once, and says what is wrong with each', async () => {
    const { target, ask } = await start();
    const port = await closedPort();
    const candidates = [
      target.url,
      `ws://127.0.0.1:${target.port}/`,
      `http://127.0.0.1:${port}`,
      'file:///etc/passwd',
      7,
      `${target.url}/none`,
    ];
    const { status, body } = await ask('POST', '/remote-access/probe', { candidates });
    expect(status).toBe(200);
    expect(body.results.map(({ reachable, status }: Record<string, unknown>) => [reachable, status])).toEqual([
      [true, 200],
      [true, 200],
      [false, null],
      [false, null],
      [false, null],
      [false, 404],
    ]);
    expect(body.results[0]).toMatchObject({ url: target.url, latency_ms: expect.any(Number), error: null });
    expect(body.results[2]).toMatchObject({ latency_ms: null, error: 'connection refused' });
    for (const wrong of [{}, { candidates: 'x' }, { candidates: Array(17).fill(target.url) }]) {
      expect((await ask('POST', '/remote-access/probe', wrong)).status).toBe(400);
    }
  });

  it('lets the tailnet serve ports with arguments, never with a shell', async () => {
    const folder = await temporaryDirectory({
      tailscale:
        '#!/bin/sh\nprintf "%s\\n" "$@" >> "$LOG"\n[ ! -e "$LOG.fail" ] || { echo "access denied" >&2; echo "visit https://login.example"; exit 1; }\n',
    });
    await chmod(join(folder, 'tailscale'), 0o755);
    const log = join(folder, 'log');
    const { ask } = await start({ PATH: `${folder}:/bin:/usr/bin`, LOG: log });
    expect((await ask('POST', '/remote-access/tailscale/enable', { stack: true })).body).toEqual({
      ok: true,
      enabled: true,
      ports: [8767, 8642],
    });
    expect((await ask('POST', '/remote-access/tailscale/disable', { port: 8642 })).status).toBe(200);
    expect((await readFile(log, 'utf8')).trim().split('\n')).toEqual([
      ...['serve', '--bg', '--https=8767', 'http://127.0.0.1:8767'],
      ...['serve', '--bg', '--https=8642', 'http://127.0.0.1:8642'],
      ...['serve', '--https=8642', 'off'],
    ]);
    for (const wrong of [
      {},
      { port: 22 },
      { port: '8767' },
      { port: '8767; id' },
      { stack: 'true' },
      { stack: true, port: 8767 },
      { stack: false },
    ]) {
      expect((await ask('POST', '/remote-access/tailscale/enable', wrong)).status, JSON.stringify(wrong)).toBe(400);
    }
    await writeFile(`${log}.fail`, '');
    expect(await ask('POST', '/remote-access/tailscale/enable', { port: 8767 })).toMatchObject({
      status: 502,
      body: {
        detail: 'tailscale serve failed with exit code 1 for port 8767: visit https://login.example access denied',
      },
    });
  });

  it('says that there is no tailscale', async () => {
    const { ask } = await start({ PATH: '/nowhere' });
    expect((await ask('POST', '/remote-access/tailscale/enable', { port: 8767 })).status).toBe(503);
  });

  it('forwards the preflight of Secure Link', async () => {
    const { asked, ask } = await startBehind((_req, res) => res.end('{"ok":true}'));
    await ask('GET', '/remote-access/secure-link/preflight?host=a%26b&port=8443&x=1');
    expect(asked[0]?.url).toBe('/secure-link/preflight?host=a%26b&port=8443');
  });

  it('answers other paths 404, other methods 405, and foreign pages that would change something 403', async () => {
    const { dashboard, ask } = await start();
    for (const path of ['/', '/overview/', '/overview/x', '/Overview', '/%6fverview', '/mobile', '/mobile/plugins/']) {
      expect([path, (await ask('GET', path)).status]).toEqual([path, 404]);
    }
    const wrong = await ask('DELETE', '/overview');
    expect([wrong.status, wrong.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
    expect((await fetch(`${dashboard.url}/overview`, { method: 'HEAD' })).status).toBe(200);
    for (const site of ['cross-site', 'same-site']) {
      const headers = { 'sec-fetch-site': site };
      expect((await ask('PUT', '/remote-access/public-url', { url: '' }, headers)).status).toBe(403);
    }
    expect(
      (await ask('PUT', '/remote-access/public-url', { url: '' }, { 'sec-fetch-site': 'same-origin' })).status,
    ).toBe(200);
  });
});

describe('a relay with a certificate', () => {
  it('is called over TLS, and only with the certificate of that file', async (context) => {
    const files = await selfSigned(context, await temporaryDirectory());
    const other = await selfSigned(context, await temporaryDirectory());
    const [cert, key] = await Promise.all([readFile(files.cert), readFile(files.key)]);
    const server = createTlsServer({ cert, key }, (_req, res) => res.end('{"version":"x"}')).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    onTestFinished(() => {
      server.close();
      server.closeAllConnections();
    });
    const relayPort = (server.address() as AddressInfo).port;
    const agentHome = await temporaryDirectory();
    const right = await serveOwnRoutes({ relayPort, agentHome, certificate: files.cert });
    expect(await right.ask('GET', '/overview')).toMatchObject({ status: 200, body: { version: 'x' } });
    const wrong = await serveOwnRoutes({ relayPort, agentHome, certificate: other.cert });
    expect((await wrong.ask('GET', '/overview')).status).toBe(502);
  });
});

describe('routes of the mobile page store (contract 07 §4.4)', () => {
  it('drafts, shows, publishes and removes a page', async () => {
    const { ask } = await start();
    const drafted = await ask('PUT', '/mobile/plugins/Hello/draft', draftOf('Hello'));
    expect(drafted).toMatchObject({ status: 200, body: { id: 'hello', status: 'draft', revision: 1 } });
    const { digest } = drafted.body;
    expect((await ask('GET', '/mobile/plugins')).body.plugins).toEqual([
      expect.objectContaining({ id: 'hello', digest }),
    ]);
    expect((await ask('GET', '/mobile/plugins')).body.plugins[0]).not.toHaveProperty('document');
    expect((await ask('GET', '/mobile/plugins/hello')).body).toEqual(drafted.body);
    expect((await ask('GET', '/mobile/pages/hello')).body).toEqual({ ...drafted.body.document, host_revision: 1 });
    expect((await ask('GET', '/mobile/manifest')).body.contributions).toMatchObject([
      { title: 'Draft: Hello', digest },
    ]);
    expect((await ask('POST', '/mobile/plugins/hello/promote', {})).status).toBe(400);
    expect((await ask('POST', '/mobile/plugins/hello/promote', { expected_digest: 'sha256:0' })).status).toBe(409);
    const published = await ask('POST', '/mobile/plugins/hello/promote', { expected_digest: digest });
    expect(published).toMatchObject({
      status: 200,
      body: { status: 'published', lifecycle: 'persistent', revision: 2 },
    });
    expect((await ask('PUT', '/mobile/plugins/hello/draft', draftOf())).status).toBe(409);
    expect((await ask('POST', '/mobile/plugins/hello/remove', { expected_digest: digest })).status).toBe(409);
    const removed = await ask('POST', '/mobile/plugins/hello/remove', { expected_digest: published.body.digest });
    expect(removed).toMatchObject({ status: 200, body: { ok: true, id: 'hello' } });
    for (const path of ['/mobile/plugins/hello', '/mobile/pages/hello'])
      expect((await ask('GET', path)).status).toBe(404);
  });

  it('refuses ids that are no name of a page', async () => {
    const { target, ask } = await start();
    await mkdir(join(target.agentHome, 'mobile-plugins'), { recursive: true });
    await writeFile(join(target.agentHome, 'secret.json'), '{}');
    for (const id of ['%2e%2e', '..%2fsecret', '%2e%2e%5csecret', 'a%00', '-a', 'a'.repeat(65), '%ff', '%C3%A4']) {
      for (const [method, path] of [
        ['GET', `/mobile/pages/${id}`],
        ['GET', `/mobile/plugins/${id}`],
        ['PUT', `/mobile/plugins/${id}/draft`],
      ] as const) {
        const { status } = await ask(method, path, method === 'PUT' ? draftOf() : undefined);
        // `fetch` itself resolves encoded dots, so that those reach another path.
        expect([400, 404], `${method} ${path}`).toContain(status);
      }
    }
    expect((await ask('GET', '/mobile/plugins')).body).toEqual({ plugins: [] });
  });

  it('refuses bodies that are too large, or no JSON object', async () => {
    const { ask } = await start();
    expect((await ask('PUT', '/mobile/plugins/a/draft', '[]')).status).toBe(400);
    expect((await ask('PUT', '/mobile/plugins/a/draft', '{')).status).toBe(400);
    expect((await ask('PUT', '/mobile/plugins/a/draft', {})).status).toBe(400);
    expect((await ask('POST', '/mobile/plugins/a/promote', { expected_digest: 'x'.repeat(70_000) })).status).toBe(413);
    const large = { ...draftOf(), padding: 'x'.repeat(3 * 1024 * 1024) };
    expect((await ask('PUT', '/mobile/plugins/a/draft', large)).status).toBe(413);
  });
});
