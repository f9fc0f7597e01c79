import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { documentOf } from '../lib/dashboard/pages/support.ts';
import { startDemoProcess } from '../support/demo.ts';
import { runSvc, startRelayProcess } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

const PLUGIN = '/api/plugins/svc-relay';

/** Runs curl as a person would, with a cookie jar. Returns status and body. */
async function createCurl(url: string) {
  const jar = join(await temporaryDirectory(), 'cookies');
  return async (path: string, ...args: string[]) => {
    const all = ['-sS', '-b', jar, '-c', jar, '-w', '\n%{http_code}', '--max-time', '20', ...args, url + path];
    const { stdout } = await promisify(execFile)('curl', all, { maxBuffer: 16 * 1024 * 1024 });
    const at = stdout.lastIndexOf('\n');
    return { status: Number(stdout.slice(at + 1)), body: stdout.slice(0, at) };
  };
}

type Curl = Awaited<ReturnType<typeof createCurl>>;

const signIn = (curl: Curl, password: string) =>
  curl('/auth/login', '--data-urlencode', 'username=demo', '--data-urlencode', `password=${password}`);

/** A relay, a paired phone, and the demo, signed in. */
async function start() {
  const relay = await startRelayProcess();
  const code = randomCode();
  await relay.ask('/pairing/register', { method: 'POST', body: { code } });
  const phone = { pairing_code: code, device_name: 'Pixel', device_id: crypto.randomUUID() };
  const { frame, socket } = await relay.offer(phone);
  expect(frame.type).toBe('auth.ok');
  onTestFinished(() => socket.terminate());
  const demo = await startDemoProcess({ home: relay.home, relayPort: relay.port });
  const curl = await createCurl(demo.url);
  expect((await signIn(curl, demo.password)).status).toBe(303);
  return { relay, demo, curl, token: frame.payload.session_token as string };
}

async function ticketOf(curl: Curl): Promise<string> {
  return JSON.parse((await curl('/api/ws', '-X', 'POST')).body).ticket;
}

/** Opens a socket. Returns its first message, or the status of a refusal. */
async function open(url: string, headers: Record<string, string> = {}): Promise<string | number> {
  const socket = new WebSocket(url.replace('http', 'ws'), { headers });
  socket.on('error', () => {});
  onTestFinished(() => socket.terminate());
  return Promise.race([
    once(socket, 'message').then(([data]) => String(data)),
    once(socket, 'unexpected-response').then(([request, response]) => {
      request.destroy();
      return response.statusCode as number;
    }),
  ]);
}

describe('svc relay dashboard-demo', () => {
  it('serves the plugin to its one user, as curl sees it', async () => {
    const { relay, curl, token } = await start();
    const overview = await curl(`${PLUGIN}/overview`);
    expect([overview.status, JSON.parse(overview.body)]).toMatchObject([200, { session_count: 1, health: 'ok' }]);
    expect(JSON.parse((await curl(`${PLUGIN}/sessions`)).body).sessions).toMatchObject([{ device_name: 'Pixel' }]);
    expect(JSON.parse((await curl(`${PLUGIN}/agent-context`)).body).injected.enabled).toBe(true);
    expect(JSON.parse((await curl(`${PLUGIN}/remote-access/status`)).body).upstream_canonical).toBe(true);
    const minted = await curl(`${PLUGIN}/pairing`, '-X', 'POST', '-H', 'content-type: application/json', '-d', '{}');
    expect([minted.status, JSON.parse(minted.body).pairing_url]).toEqual([200, expect.stringMatching(/^svc-relay:/)]);

    const through = await curl(`${PLUGIN}/transport/sessions`, '-H', `X-Svc-Relay-Session: ${token}`);
    expect([through.status, JSON.parse(through.body).sessions]).toMatchObject([200, [{ is_current: true }]]);
    expect((await curl(`${PLUGIN}/transport/sessions`)).status).toBe(401);
    expect((await curl(`${PLUGIN}/transport/pairing/mint`, '-X', 'POST')).status).toBe(404);
    const health = JSON.parse((await curl(`${PLUGIN}/transport/health`)).body);
    expect(health).toMatchObject({ status: 'ok', dashboard_ingress: { available: true } });

    await relay.kill();
    const gone = await curl(`${PLUGIN}/overview`);
    expect([gone.status, JSON.parse(gone.body).detail]).toEqual([502, expect.stringContaining('relay unreachable')]);
    await relay.restart();
    expect((await curl(`${PLUGIN}/overview`)).status).toBe(200);
  });

  it('shows the operator key to a relay that requires it of everybody', async () => {
    const relay = await startRelayProcess({ env: { RELAY_REQUIRE_OPERATOR_KEY: '1' } });
    expect((await relay.ask('/sessions', { headers: { 'x-svc-operator': '1' } })).status).toBe(401);
    const demo = await startDemoProcess({ home: relay.home, relayPort: relay.port });
    const curl = await createCurl(demo.url);
    await signIn(curl, demo.password);
    expect((await curl(`${PLUGIN}/sessions`)).status).toBe(200);
    // Without the key the dashboard is a stranger, whose refusal it passes on.
    await rm(join(relay.home, 'svc-relay/operator-key'));
    expect((await curl(`${PLUGIN}/sessions`)).status).toBe(401);
  });

  it('keeps pages for the phone', async () => {
    const { relay, curl } = await start();
    const json = ['-H', 'content-type: application/json'];
    const body = JSON.stringify({ title: 'Hello', document: documentOf() });
    const drafted = await curl(`${PLUGIN}/mobile/plugins/hello/draft`, '-X', 'PUT', ...json, '-d', body);
    expect(drafted.status).toBe(200);
    const { digest } = JSON.parse(drafted.body);
    expect(JSON.parse((await curl(`${PLUGIN}/mobile/manifest`)).body).contributions).toMatchObject([
      { id: 'hello', title: 'Draft: Hello', digest },
    ]);
    expect(JSON.parse(await readFile(join(relay.home, 'mobile-plugins/hello.json'), 'utf8')).digest).toBe(digest);
    const promote = JSON.stringify({ expected_digest: digest });
    expect((await curl(`${PLUGIN}/mobile/plugins/hello/promote`, ...json, '-d', promote)).status).toBe(200);
    expect(JSON.parse((await curl(`${PLUGIN}/mobile/pages/hello`)).body)).toEqual({
      ...documentOf(),
      host_revision: 2,
    });
  });

  it('lets nobody in without the password', async () => {
    const { demo } = await start();
    const stranger = await createCurl(demo.url);
    for (const path of ['/overview', '/mobile/manifest', '/transport/health', '/transport']) {
      expect([path, (await stranger(PLUGIN + path)).status]).toEqual([path, 401]);
    }
    expect((await stranger('/api/ws', '-X', 'POST')).status).toBe(401);
    expect((await stranger('/relay')).status).toBe(303);
    expect((await stranger('/')).body).toContain('Sign in');
    expect(JSON.parse((await stranger('/api/status')).body)).toMatchObject({ demo: true, auth_flows: ['password'] });
    for (let attempt = 0; attempt < 10; attempt++) expect((await signIn(stranger, 'wrong')).status).toBe(401);
    expect((await signIn(stranger, demo.password)).status).toBe(429);
  });

  it('ends a session when its user signs out', async () => {
    const { demo, curl } = await start();
    const jar = await createCurl(demo.url);
    await signIn(jar, demo.password);
    expect((await jar(`${PLUGIN}/overview`)).status).toBe(200);
    await jar('/auth/logout', '-X', 'POST');
    expect((await jar(`${PLUGIN}/overview`)).status).toBe(401);
    expect((await curl(`${PLUGIN}/overview`)).status).toBe(200);
  });

  it('takes each ticket once, and those of its own pages only', async () => {
    const { demo, curl } = await start();
    const ticket = await ticketOf(curl);
    expect(await open(`${demo.url}/api/ws?ticket=${ticket}`)).toContain('ready');
    expect(await open(`${demo.url}/api/ws?ticket=${ticket}`)).toBe(403);
    expect(await open(`${demo.url}/api/ws`)).toBe(403);
    expect(await open(`${demo.url}${PLUGIN}/transport/ws?ticket=${ticket}`)).toBe(403);
    const origin = 'https://evil.example';
    expect(await open(`${demo.url}/api/ws?ticket=${await ticketOf(curl)}`, { origin })).toBe(403);
    expect(await open(`${demo.url}${PLUGIN}/transport/ws?ticket=${await ticketOf(curl)}`, { origin })).toBe(403);
    const ended = await createCurl(demo.url);
    await signIn(ended, demo.password);
    const late = await ticketOf(ended);
    await ended('/auth/logout', '-X', 'POST');
    expect(await open(`${demo.url}/api/ws?ticket=${late}`)).toBe(403);
  });

  it('answers to its own names and pages only', async () => {
    const { demo, curl } = await start();
    const status = async (...args: string[]) => (await curl(`${PLUGIN}/overview`, ...args)).status;
    expect(await status('-H', `Host: localhost:${demo.port}`)).not.toBe(421);
    for (const host of ['evil.example', `evil.example:${demo.port}`, '127.0.0.1:1', '127.0.0.1.evil.example']) {
      expect([host, await status('-H', `Host: ${host}`)]).toEqual([host, 421]);
    }
    for (const origin of ['https://evil.example', 'null', `https://127.0.0.1:${demo.port}`]) {
      expect([origin, await status('-H', `Origin: ${origin}`)]).toEqual([origin, 403]);
    }
    expect(await status('-H', 'Sec-Fetch-Site: cross-site')).toBe(403);
  });

  it('listens on 127.0.0.1 only, and stores the password nowhere', async () => {
    const { demo, relay } = await start();
    const socket = connect(demo.port, '127.0.0.2');
    const [error] = await once(socket, 'error');
    expect(error.code).toBe('ECONNREFUSED');
    const { stdout } = await promisify(execFile)('grep', ['-r', '-l', demo.password, relay.home]).catch((e) => e);
    expect(stdout).toBe('');
    expect(demo.stderr()).toBe('');
  });

  it('closes the sockets of the plugin when it is switched off', async () => {
    const { demo, curl } = await start();
    const url = `${demo.url}${PLUGIN}/transport/ws?ticket=${await ticketOf(curl)}`;
    const socket = new WebSocket(url.replace('http', 'ws'));
    await once(socket, 'open');
    const closed = once(socket, 'close');
    expect((await curl('/demo/plugin', '-d', 'enabled=false')).status).toBe(303);
    const [code, reason] = await closed;
    expect([code, String(reason)]).toEqual([1008, 'Relay plugin is disabled']);
    expect((await curl(`${PLUGIN}/overview`)).status).toBe(404);
    await curl('/demo/plugin', '-d', 'enabled=true');
    expect((await curl(`${PLUGIN}/overview`)).status).toBe(200);
  });

  it('stops on SIGTERM, and says when its port is taken', async () => {
    const { demo, relay } = await start();
    const second = await runSvc(['relay', 'dashboard-demo', '--port', String(demo.port)], { home: relay.home });
    expect([second.code, second.stderr]).toEqual([1, expect.stringContaining('cannot listen')]);
    expect(await demo.stop('SIGTERM')).toEqual({ code: 0, signal: null });
  });
});
