import { once } from 'node:events';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startDemo } from '../../cli/dashboard/demo.ts';
import { createDashboardPlugin } from '../../cli/dashboard/plugin.ts';
import { createLog } from '../../lib/log.ts';
import { MOUNT, startRecorder, TRANSPORT } from '../support/dashboard.ts';
import { connectRaw, exchange, handshakeHeaders, type RawResponse, request } from '../support/raw-socket.ts';
import { temporaryDirectory } from '../support/temp.ts';

/** The demo in this process, signed in, in front of a server in the relay's place. */
async function start() {
  const relay = await startRecorder();
  const agentHome = await temporaryDirectory();
  const log: string[] = [];
  const demo = await startDemo({
    port: 0,
    version: '1.0.0',
    assets: agentHome,
    createPlugin: (host) => createDashboardPlugin({ host, relayPort: relay.port, agentHome, env: {} }),
    log: createLog('DEBUG', (line) => log.push(line)),
  });
  onTestFinished(() => demo.close());
  const port = Number(new URL(demo.url).port);
  const body = new URLSearchParams({ username: 'demo', password: demo.password });
  const signedIn = await fetch(`${demo.url}/auth/login`, { method: 'POST', body, redirect: 'manual' });
  const cookie = (signedIn.headers.getSetCookie()[0] ?? '').split(';', 1)[0] as string;
  return { relay, demo, port, cookie, log };
}

/** The status of a request with exactly these header lines. */
async function statusOf(port: number, target: string, lines: string[], version = '1.1'): Promise<number> {
  const head = [`GET ${target} HTTP/${version}`, ...lines, 'connection: close', '', ''].join('\r\n');
  return (await exchange(port, Buffer.from(head, 'latin1'))).status;
}

describe('names and origins of the demo', () => {
  it('are those of loopback and its port, in any case, once', async () => {
    const { port, cookie } = await start();
    const ask = (...lines: string[]) => statusOf(port, `${MOUNT}/push`, [`cookie: ${cookie}`, ...lines]);
    for (const host of ['127.0.0.1', 'localhost', 'LocalHost']) expect(await ask(`Host: ${host}:${port}`)).toBe(200);
    const foreign = ['127.0.0.1', 'localhost', `localhost.:${port}`, `127.0.0.1.:${port}`, `[::1]:${port}`];
    const odd = [`127.1:${port}`, `2130706433:${port}`, `0x7f.1:${port}`, `0.0.0.0:${port}`, `a@localhost:${port}`, ''];
    for (const host of [...foreign, ...odd, `localhost:${port}, evil`, `localhost:0${port}`]) {
      expect([host, await ask(`Host: ${host}`)]).toEqual([host, 421]);
    }
    expect(await ask(`Host: evil.example`, `Host: localhost:${port}`)).toBe(421);
    expect(await ask()).toBe(400);
    expect(await statusOf(port, `${MOUNT}/push`, [`cookie: ${cookie}`], '1.0')).toBe(421);
  });

  it('are compared as a whole', async () => {
    const { port, cookie } = await start();
    const own = `http://localhost:${port}`;
    const ask = (...lines: string[]) =>
      statusOf(port, `${MOUNT}/push`, [`Host: localhost:${port}`, `cookie: ${cookie}`, ...lines]);
    expect(await ask(`Origin: ${own}`)).toBe(200);
    const others = [
      'http://localhost',
      `https://localhost:${port}`,
      `http://127.0.0.1:${port}`,
      `http://localhost.:${port}`,
      `${own}/`,
      `${own}.evil.example`,
      'null',
      '',
      '*',
    ];
    for (const origin of others) expect([origin, await ask(`Origin: ${origin}`)]).toEqual([origin, 403]);
    expect(await ask(`Origin: ${own}`, 'Origin: http://evil.example')).toBe(403);
    expect(await ask('Origin: http://evil.example', `Origin: ${own}`)).toBe(403);
  });

  it('are asked of a request whose target is a whole URL, too', async () => {
    const { port, cookie, relay } = await start();
    const lines = [`Host: localhost:${port}`, `cookie: ${cookie}`];
    expect(await statusOf(port, `http://evil.example${MOUNT}/overview`, lines)).toBe(404);
    expect(await statusOf(port, `//evil.example${MOUNT}/overview`, lines)).toBe(404);
    expect(relay.requests).toEqual([]);
  });
});

describe('tickets of the demo', () => {
  it('admit one of two sockets that race for them, and no HTTP request', async () => {
    const { demo, port, cookie, relay } = await start();
    const minted = await fetch(`${demo.url}/api/ws`, { method: 'POST', headers: { cookie } });
    const { ticket } = await minted.json();
    for (const path of [`${TRANSPORT}/health`, `${MOUNT}/overview`]) {
      expect((await fetch(`${demo.url}${path}?ticket=${ticket}`)).status).toBe(401);
    }
    const headers = { ...handshakeHeaders(), host: `127.0.0.1:${port}` };
    const upgrade = request('GET', `${TRANSPORT}/ws?ticket=${ticket}`, headers);
    const racing = await Promise.all(Array.from({ length: 8 }, () => connectRaw(port)));
    onTestFinished(() => {
      for (const each of racing) each.destroy();
    });
    for (const each of racing) each.write(upgrade);
    const answers: Pick<RawResponse, 'status'>[] = await Promise.all(racing.map((each) => each.head()));
    expect(answers.map(({ status }) => status).sort()).toEqual([101, ...Array(7).fill(403)]);
    expect(relay.upgrades).toHaveLength(1);
    expect(relay.upgrades[0]?.url).toBe('/ws');
  });

  it('are not used up by a foreign page, and by the wrong path', async () => {
    const { demo, port, cookie } = await start();
    const { ticket } = await (await fetch(`${demo.url}/api/ws`, { method: 'POST', headers: { cookie } })).json();
    const own = { ...handshakeHeaders(), host: `127.0.0.1:${port}` };
    const ask = async (path: string, headers: Record<string, string>) => {
      const connection = await connectRaw(port);
      onTestFinished(connection.destroy);
      connection.write(request('GET', `${path}?ticket=${ticket}`, { ...own, ...headers }));
      return (await connection.head()).status;
    };
    expect(await ask(`${TRANSPORT}/ws`, { origin: 'http://evil.example' })).toBe(403);
    expect(await ask(`${TRANSPORT}/ws`, { host: `localhost.:${port}` })).toBe(403);
    expect(await ask(`${TRANSPORT}/sessions`, {})).toBe(404);
    expect(await ask('/api/ws/', {})).toBe(404);
    expect(await ask(`${TRANSPORT}/ws`, { origin: `http://127.0.0.1:${port}` })).toBe(101);
  });
});

describe('routes of the demo', () => {
  it('are reached by exactly their paths, with a query or without', async () => {
    const { port, cookie } = await start();
    const ask = (target: string) => statusOf(port, target, [`Host: localhost:${port}`, `cookie: ${cookie}`]);
    for (const target of ['/relay', '/relay?', '/relay?x=%']) {
      expect([target, await ask(target)]).toEqual([target, 200]);
    }
    const others = [
      '/relay/',
      '/x/../relay',
      '//relay',
      '/%72elay',
      '/relay%2f',
      '/relay%00',
      '/RELAY',
      '/relay;x',
      '/%',
      '/*',
      '*',
    ];
    for (const target of [...others, `http://localhost:${port}/relay`, `//localhost:${port}/relay`]) {
      expect([target, await ask(target)]).toEqual([target, 404]);
    }
  });

  it('answer HEAD with the head of GET', async () => {
    const { demo, cookie } = await start();
    for (const path of ['/', '/relay', '/demo.js', '/api/status', '/nope', '/auth/login', '/dashboard/tab.js']) {
      const [get, head] = await Promise.all(
        ['GET', 'HEAD'].map((method) => fetch(demo.url + path, { method, headers: { cookie, connection: 'close' } })),
      );
      expect(await head?.text()).toBe('');
      const headersOf = (response?: Response) => ({ ...Object.fromEntries(response?.headers ?? []), date: '' });
      expect([path, head?.status, headersOf(head)]).toEqual([path, get?.status, headersOf(get)]);
    }
  });

  it('answer an error of the plugin with a 500, and log it once', async () => {
    const log: string[] = [];
    const handle = () => Promise.reject(new Error('broken'));
    const demo = await startDemo({
      port: 0,
      version: '1.0.0',
      assets: '/nowhere',
      createPlugin: () => ({ handle, upgrade: handle, close: async () => {} }),
      log: createLog('DEBUG', (line) => log.push(line)),
    });
    onTestFinished(() => demo.close());
    const response = await fetch(demo.url);
    expect([response.status, await response.json()]).toEqual([500, { detail: 'internal error' }]);
    expect(log).toEqual([expect.stringContaining('GET request failed: broken')]);
  });
});

describe('forms of the demo', () => {
  it.each([
    ['too large', `enabled=false&x=${'x'.repeat(5_000)}`, 'application/x-www-form-urlencoded', 413],
    ['no JSON', '{"enabled":', 'application/json', 400],
  ])('change nothing when they are %s', async (_what, body, type, status) => {
    const { demo, cookie } = await start();
    const headers = { cookie, 'content-type': type };
    const response = await fetch(`${demo.url}/demo/plugin`, { method: 'POST', headers, body, redirect: 'manual' });
    expect([response.status, await response.json()]).toEqual([status, { detail: expect.any(String) }]);
    expect((await fetch(`${demo.url}${MOUNT}/push`, { headers: { cookie } })).status).toBe(200);
  });

  it.each([
    ['announced', { 'content-length': '5000' }, ''],
    ['chunked', { 'transfer-encoding': 'chunked' }, `1388\r\n${'x'.repeat(5_000)}\r\n`],
  ])('are refused before they end when they are large and %s', async (_what, framing, body) => {
    const { port } = await start();
    const connection = await connectRaw(port);
    onTestFinished(connection.destroy);
    connection.write(request('POST', '/auth/login', { host: `127.0.0.1:${port}`, ...framing }, body));
    expect(await connection.head()).toMatchObject({ status: 413, headers: { connection: 'close' } });
  });
});

it('a form that is cut off is no error of the demo', async () => {
  const { demo, port, log } = await start();
  const cut = await connectRaw(port);
  const headers = { host: `127.0.0.1:${port}`, 'content-length': '100' };
  cut.write(request('POST', '/auth/login', headers, 'username=demo'));
  cut.socket.end();
  await once(cut.socket, 'close');
  expect((await fetch(demo.url)).status).toBe(200);
  expect(log).toEqual([]);
});
