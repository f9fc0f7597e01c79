import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { request } from 'node:https';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { startDemoProcess } from '../support/demo.ts';
import { POLL, TIMEOUT } from '../support/limits.ts';
import { freePort, startRelayProcess, temporaryHome } from '../support/process.ts';

interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: string;
}

/** A relay with Secure Link before `svc relay dashboard-demo`, as separate processes. */
async function start() {
  const home = await temporaryHome();
  const [relayPort, port] = [await freePort(), await freePort()];
  const demo = await startDemoProcess({ home, relayPort });
  const relay = await startRelayProcess({
    home,
    port: relayPort,
    env: {
      RELAY_SECURE_LINK_ENABLED: '1',
      RELAY_SECURE_LINK_HOST: '127.0.0.1',
      RELAY_SECURE_LINK_PORT: String(port),
      RELAY_SECURE_LINK_DASHBOARD_URL: demo.url,
    },
  });
  const origin = `https://127.0.0.1:${port}`;
  const certificate = () => readFile(join(home, 'relay-secure-link/cert.pem'), 'utf8');

  async function ask(path: string, method = 'GET', headers: Record<string, string> = {}, body = ''): Promise<Answer> {
    const call = request(origin + path, { method, headers, ca: await certificate(), agent: false });
    call.end(body);
    const [response] = await once(call, 'response');
    let text = '';
    for await (const chunk of response) text += chunk;
    return { status: response.statusCode, headers: response.headers, body: text };
  }

  /** Waits until the relay answers through Secure Link. */
  async function listens(): Promise<void> {
    const status = () =>
      ask('/relay/health').then(
        ({ status }) => status,
        () => 0,
      );
    await expect.poll(status, { timeout: TIMEOUT, interval: POLL }).toBe(200);
  }

  await listens();
  return { relay, demo, port, origin, ask, certificate, listens };
}

/** The first message of a socket, as JSON. */
async function firstMessage(socket: WebSocket): Promise<Record<string, unknown>> {
  onTestFinished(() => socket.terminate());
  const [data] = await once(socket, 'message');
  return JSON.parse(String(data));
}

describe('Secure Link between real processes (contract 08)', () => {
  it('pairs, signs in to the dashboard, and reaches the relay through it', async () => {
    const { relay, demo, origin, ask, certificate } = await start();
    const ca = await certificate();
    const health = JSON.parse((await ask('/relay/health')).body);
    expect(health.services).toMatchObject({ api: { available: false }, dashboard: { available: true } });

    expect((await relay.ask('/pairing/register', { method: 'POST', body: { code: 'SECURE' } })).status).toBe(200);
    const phone = new WebSocket(`${origin.replace('https', 'wss')}/relay/ws`, { ca });
    await once(phone, 'open');
    const payload = { pairing_code: 'SECURE', device_id: 'phone', device_name: 'Phone' };
    phone.send(JSON.stringify({ channel: 'system', type: 'auth', id: '1', payload }));
    const ok = await firstMessage(phone);
    expect([ok.type, (ok.payload as { transport_hint: string }).transport_hint]).toEqual(['auth.ok', 'wss']);
    const token = (ok.payload as { session_token: string }).session_token;
    const sessions = await ask('/relay/sessions', 'GET', { authorization: `Bearer ${token}` });
    expect([sessions.status, JSON.parse(sessions.body).sessions.length]).toEqual([200, 1]);
    expect((await ask('/relay/sessions')).status).toBe(401);
    expect((await ask('/relay/pairing/mint', 'POST', { host: '127.0.0.1', 'x-svc-operator': '1' })).status).toBe(404);

    const page = await ask('/dashboard/');
    expect(page.body).toContain('action="/dashboard/auth/login"');
    const form = `username=demo&password=${encodeURIComponent(demo.password)}`;
    const headers = {
      'content-type': 'application/x-www-form-urlencoded',
      'content-length': String(form.length),
      origin,
    };
    const foreign = await ask('/dashboard/auth/login', 'POST', { ...headers, origin: 'https://evil.test' }, form);
    expect(foreign.status).toBe(403);
    const signedIn = await ask('/dashboard/auth/login', 'POST', headers, form);
    expect([signedIn.status, signedIn.headers.location]).toEqual([303, '/dashboard/']);
    const [cookie = ''] = signedIn.headers['set-cookie'] as string[];
    expect(cookie).toContain('Path=/dashboard;');
    const user = { cookie: cookie.split(';', 1)[0] as string };
    expect((await ask('/dashboard/', 'GET', user)).body).toContain('Signed in');
    expect((await ask('/dashboard/dashboard/tab.css', 'GET', user)).status).toBe(200);

    const transport = '/dashboard/api/plugins/svc-relay/transport';
    const through = await ask(`${transport}/sessions`, 'GET', { ...user, 'x-svc-relay-session': token });
    expect([through.status, JSON.parse(through.body).sessions.length]).toEqual([200, 1]);

    const minted = await ask('/dashboard/api/ws', 'POST', { ...user, origin, 'content-length': '0' });
    const { ticket } = JSON.parse(minted.body);
    const live = new WebSocket(`${origin.replace('https', 'wss')}/dashboard/api/ws?ticket=${ticket}`, { ca, origin });
    expect(await firstMessage(live)).toMatchObject({ type: 'ready' });

    const ends = Promise.all([phone, live].map((socket) => once(socket, 'close').then(([code]) => code)));
    await relay.kill('SIGTERM');
    expect(await ends).toEqual([1001, 1001]);
  });

  it('keeps its identity over a restart, and never keeps the relay from starting', async () => {
    const { relay, port, certificate, listens } = await start();
    const before = await certificate();
    await relay.restart();
    await listens();
    expect(await certificate()).toBe(before);
    await relay.kill('SIGTERM');
    const squatter = createServer((socket) => socket.destroy()).listen(port, '127.0.0.1');
    onTestFinished(() => void squatter.close());
    await once(squatter, 'listening');
    await relay.restart();
    expect((await relay.ask('/health')).status).toBe(200);
    await expect
      .poll(() => relay.output, { timeout: TIMEOUT })
      .toMatch(/Secure Link is unavailable: cannot listen on 127\.0\.0\.1:\d+ \(EADDRINUSE\)/);
  });
});
