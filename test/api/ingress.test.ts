import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { describe, expect, it } from 'vitest';
import { ingressRoutes } from '../../lib/dashboard/ingress-routes.ts';
import { closedPort } from '../support/closed-port.ts';
import { MOUNT, SIGNED_IN, startDashboard, startRecorder, TRANSPORT } from '../support/dashboard.ts';

const SESSION = { ...SIGNED_IN, 'x-svc-relay-session': 'a-session' };
const filled = (path: string) =>
  path
    .replace('{token}', 'T'.repeat(32))
    .replace('{token_prefix}', 'abcd1234')
    .replace(/\{\w+\}/g, 'x');

describe('admission to the ingress (contract 07 §4)', () => {
  it('a disabled plugin answers 404 before it authenticates', async () => {
    const { port } = await startRecorder();
    const dashboard = await startDashboard({ relayPort: port });
    dashboard.host.isPluginEnabled = () => false;
    const answer = await fetch(`${dashboard.url}${TRANSPORT}/health`);
    expect([answer.status, await answer.json()]).toEqual([404, { detail: 'plugin disabled' }]);
    expect(dashboard.asked).toEqual(['isPluginEnabled']);
  });

  it('a stranger gets 401 on every path, and reaches nothing', async () => {
    const recorder = await startRecorder();
    const { url } = await startDashboard({ relayPort: recorder.port });
    for (const path of ['', '/health', '/sessions', '/nothing']) {
      const answer = await fetch(`${url}${TRANSPORT}${path}`, { headers: { 'x-svc-relay-session': 'a' } });
      expect(answer.status).toBe(401);
      expect(await answer.json()).toHaveProperty('detail');
    }
    expect(recorder.requests).toEqual([]);
  });

  it('answers 503 when the dashboard cannot tell', async () => {
    const recorder = await startRecorder();
    const dashboard = await startDashboard({ relayPort: recorder.port });
    dashboard.host.authenticate = () => Promise.reject(new Error('the database is gone'));
    const answer = await fetch(`${dashboard.url}${TRANSPORT}/health`);
    expect(answer.status).toBe(503);
    expect(await answer.text()).not.toContain('database');
    expect(recorder.requests).toEqual([]);
  });

  it.each(['isPluginEnabled', 'authenticate'] as const)('answers 503 when %s hangs', async (name) => {
    const recorder = await startRecorder();
    const dashboard = await startDashboard({ relayPort: recorder.port, limits: { decision: 50 } });
    dashboard.host[name] = () => new Promise<never>(() => {});
    for (const path of [`${TRANSPORT}/health`, `${MOUNT}/overview`, `${MOUNT}/mobile/manifest`]) {
      const answer = await fetch(dashboard.url + path, { headers: SIGNED_IN });
      expect([answer.status, await answer.json()]).toEqual([503, { detail: 'the plugin cannot answer now' }]);
    }
    expect(recorder.requests).toEqual([]);
  });

  it('leaves paths beside the mount to the dashboard', async () => {
    const { url, asked } = await startDashboard({ relayPort: 1 });
    for (const path of ['/', '/api/plugins/svc-relayed', '/api/plugins', '/API/plugins/svc-relay/transport']) {
      expect((await fetch(url + path)).status).toBe(418);
    }
    expect(asked).toEqual([]);
  });

  it.each(['/hub/relay', '/hub/relay/'])('is mounted where the dashboard says: %s', async (mountPath) => {
    const { url } = await startDashboard({ relayPort: 1, mountPath });
    const answer = await fetch(`${url}/hub/relay/transport`, { headers: SIGNED_IN });
    expect([answer.status, (await answer.json()).path]).toEqual([200, '/hub/relay/transport']);
    expect((await fetch(`${url}/hub/relay`, { headers: SIGNED_IN })).status).toBe(404);
    expect((await fetch(url + TRANSPORT, { headers: SIGNED_IN })).status).toBe(418);
  });

  it('describes itself at its base', async () => {
    const { url } = await startDashboard({ relayPort: 1 });
    const answer = await fetch(`${url}${TRANSPORT}`, { headers: SIGNED_IN });
    expect(await answer.json()).toEqual({
      available: true,
      path: TRANSPORT,
      capabilities: ['relay_http', 'relay_websocket'],
      schema_version: 1,
      session_header: 'X-Svc-Relay-Session',
      routes: ingressRoutes.map(([method, path]) => ({ method, path })),
      websockets: [
        '/ws',
        '/voice/output/{session_id}',
        '/voice/realtime/{session_id}',
        '/voice/realtime-agent/{session_id}',
      ],
    });
  });

  it('demands a session header of every route but health', async () => {
    const recorder = await startRecorder();
    const { url } = await startDashboard({ relayPort: recorder.port });
    for (const [method, path] of ingressRoutes.filter(([, listed]) => listed !== '/health')) {
      const answer = await fetch(`${url}${TRANSPORT}${filled(path)}`, { method, headers: SIGNED_IN });
      expect([answer.status, await answer.json()]).toEqual([401, { detail: 'relay session header required' }]);
    }
    const long = { ...SIGNED_IN, 'x-svc-relay-session': 'x'.repeat(8193) };
    expect((await fetch(`${url}${TRANSPORT}/sessions`, { headers: long })).status).toBe(400);
    expect(recorder.requests).toEqual([]);
  });
});

describe('forwarding (contract 07 §4.3)', () => {
  it('sends exactly the listed headers, the session as a bearer, and the marker', async () => {
    const recorder = await startRecorder();
    const { url } = await startDashboard({ relayPort: recorder.port });
    const headers = {
      ...SESSION,
      authorization: 'Bearer of-the-dashboard',
      origin: 'http://evil.test',
      'x-svc-operator': '1',
      'x-svc-operator-key': 'k',
      'x-forwarded-for': '203.0.113.1',
      'x-svc-proxy-peer': '203.0.113.1',
      'x-svc-proxy-proto': 'wss',
      'x-svc-dashboard-proxy-secret': 'forged',
      range: 'bytes=0-1',
      'if-none-match': '"x"',
      accept: 'image/png',
      'accept-encoding': 'br',
      'user-agent': 'test',
    };
    await fetch(`${url}${TRANSPORT}/media/by-path?path=%2Fa%20b&x`, { headers });
    const [seen] = recorder.requests;
    expect(seen?.url).toBe('/media/by-path?path=%2Fa%20b&x');
    const { 'x-svc-dashboard-proxy-secret': secret, ...others } = seen?.headers ?? {};
    expect(secret).toMatch(/^[0-9a-f]{64}$/);
    expect(others).toEqual({
      host: `127.0.0.1:${recorder.port}`,
      connection: 'keep-alive',
      authorization: 'Bearer a-session',
      'x-svc-proxy-peer': '127.0.0.1',
      'x-svc-proxy-proto': 'ws',
      range: 'bytes=0-1',
      'if-none-match': '"x"',
      accept: 'image/png',
      // The client here adds `identity` to a range.
      'accept-encoding': 'br, identity',
      'user-agent': 'test',
    });
  });

  it('returns exactly the listed headers, and status and body as they are', async () => {
    const { port } = await startRecorder((_req, res) => {
      res.writeHead(418, { 'set-cookie': 'a=b', location: '/x', server: 's', etag: '"e"', 'x-media-sensitive': '1' });
      res.end('short and stout');
    });
    const { url } = await startDashboard({ relayPort: port });
    const answer = await fetch(`${url}${TRANSPORT}/sessions`, { headers: SESSION, redirect: 'manual' });
    expect([answer.status, await answer.text()]).toEqual([418, 'short and stout']);
    expect([...answer.headers.keys()].sort()).toEqual([
      'connection',
      'date',
      'etag',
      'keep-alive',
      'transfer-encoding',
      'x-media-sensitive',
    ]);
  });

  it('forwards a body with its framing, and no body of a GET', async () => {
    const bodies: string[] = [];
    const recorder = await startRecorder((req, res) => {
      let body = '';
      req.setEncoding('utf8');
      req.on('data', (part) => {
        body += part;
      });
      req.on('end', () => {
        bodies.push(body);
        res.end();
      });
    });
    const { port } = await startDashboard({ relayPort: recorder.port });
    const send = async (method: string, path: string, headers: Record<string, string>, parts: string[]) => {
      const asked = httpRequest({ port, method, path: TRANSPORT + path, headers: { ...SESSION, ...headers } });
      for (const part of parts) asked.write(part);
      asked.end();
      const [answer] = await once(asked, 'response');
      answer.resume();
      await once(answer, 'end');
    };
    await send('POST', '/voice/transcribe', { 'content-length': '4' }, ['ab', 'cd']);
    await send('POST', '/voice/transcribe', { 'transfer-encoding': 'chunked' }, ['ab', 'cd']);
    await send('DELETE', '/sessions/abcd1234', {}, []);
    await send('GET', '/sessions', { 'content-length': '4' }, ['abcd']);
    expect(bodies).toEqual(['abcd', 'abcd', '', '']);
    const framing = recorder.requests.map(({ headers }) => [headers['content-length'], headers['transfer-encoding']]);
    expect(framing).toEqual([
      ['4', undefined],
      [undefined, 'chunked'],
      ['0', undefined],
      [undefined, undefined],
    ]);
  });

  it('adds where the ingress is to the health of the relay', async () => {
    const recorder = await startRecorder((_req, res) => res.end('{"status":"ok"}'));
    const { url } = await startDashboard({ relayPort: recorder.port });
    const answer = await fetch(`${url}${TRANSPORT}/health`, { headers: SESSION });
    expect(await answer.json()).toEqual({
      status: 'ok',
      dashboard_ingress: { available: true, path: TRANSPORT, capabilities: ['relay_http', 'relay_websocket'] },
    });
    expect(recorder.requests[0]?.headers.authorization).toBeUndefined();
    const head = await fetch(`${url}${TRANSPORT}/health`, { method: 'HEAD', headers: SESSION });
    expect([head.status, await head.text()]).toEqual([200, '']);
  });

  it.each(['no JSON', '[]', 'null', ''])('passes on a health that is %j', async (body) => {
    const { port } = await startRecorder((_req, res) => res.writeHead(503).end(body));
    const { url } = await startDashboard({ relayPort: port });
    const answer = await fetch(`${url}${TRANSPORT}/health`, { headers: SIGNED_IN });
    expect([answer.status, await answer.text()]).toEqual([503, body]);
  });

  it('streams an answer while it is made', async () => {
    const { port, server } = await startRecorder((_req, res) => {
      res.write('first');
      server.once('more', () => res.end('second'));
    });
    const { url } = await startDashboard({ relayPort: port });
    const answer = await fetch(`${url}${TRANSPORT}/sessions`, { headers: SESSION });
    const reader = answer.body?.getReader();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('first');
    server.emit('more');
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('second');
  });
});

describe('limits of the ingress (contract 07 §4.3)', () => {
  it('refuses an announced body over the limit without asking the relay', async () => {
    const recorder = await startRecorder();
    const { url } = await startDashboard({ relayPort: recorder.port, limits: { http: { maxRequest: 1000 } } });
    const upload = (size: number) =>
      fetch(`${url}${TRANSPORT}/media/upload`, { method: 'POST', headers: SESSION, body: 'x'.repeat(size) });
    const refused = await upload(1001);
    expect([refused.status, await refused.json()]).toEqual([413, { detail: 'request too large' }]);
    expect(recorder.requests).toEqual([]);
    expect((await upload(1000)).status).toBe(200);
  });

  it('ends a chunked body over the limit with 413, and the relay never sees its end', async () => {
    let hasEnded = false;
    const { port } = await startRecorder((req) => {
      req.on('end', () => {
        hasEnded = true;
      });
      req.resume();
    });
    const dashboard = await startDashboard({ relayPort: port, limits: { http: { maxRequest: 100_000 } } });
    const path = `${TRANSPORT}/media/upload`;
    const asked = httpRequest({ port: dashboard.port, method: 'POST', path, headers: SESSION });
    asked.on('error', () => {});
    asked.write('x'.repeat(60_000));
    asked.write('x'.repeat(60_000));
    const [answer] = await once(asked, 'response');
    expect(answer.statusCode).toBe(413);
    expect(hasEnded).toBe(false);
    asked.destroy();
  });

  it('answers 502 for an announced response over the limit, and breaks off one that grows over it', async () => {
    const { port } = await startRecorder((req, res) => {
      if (req.url === '/sessions') res.writeHead(200, { 'content-length': '1001' });
      res.write('x'.repeat(500));
      res.end('x'.repeat(501));
    });
    const { url } = await startDashboard({ relayPort: port, limits: { http: { maxResponse: 1000 } } });
    const announced = await fetch(`${url}${TRANSPORT}/sessions`, { headers: SESSION });
    expect([announced.status, await announced.json()]).toEqual([502, { detail: 'relay response too large' }]);
    const grown = fetch(`${url}${TRANSPORT}/context/injected`, { headers: SESSION }).then((answer) => answer.text());
    await expect(grown).rejects.toThrow();
  });

  it.each([['total'], ['idle']])('answers 504 when the %s time is over', async (limit) => {
    const { port } = await startRecorder(() => {});
    const { url } = await startDashboard({ relayPort: port, limits: { http: { [limit]: 50 } } });
    const answer = await fetch(`${url}${TRANSPORT}/sessions`, { headers: SESSION });
    expect([answer.status, await answer.json()]).toEqual([504, { detail: 'relay transport timed out' }]);
  });

  it('answers 502 when the relay is not there, or hangs up', async () => {
    const closed = await closedPort();
    const nobody = await startDashboard({ relayPort: closed });
    const answer = await fetch(`${nobody.url}${TRANSPORT}/sessions`, { headers: SESSION });
    const detail = `relay unreachable at 127.0.0.1:${closed}: connection refused`;
    expect([answer.status, await answer.json()]).toEqual([502, { detail }]);
    const { port } = await startRecorder((req) => req.socket.destroy());
    const hangingUp = await startDashboard({ relayPort: port });
    const hungUp = await fetch(`${hangingUp.url}${TRANSPORT}/sessions`, { headers: SESSION });
    expect([hungUp.status, await hungUp.json()]).toEqual([
      502,
      { detail: `relay unreachable at 127.0.0.1:${port}: connection reset` },
    ]);
  });

  it('breaks off an answer that the relay has broken off', async () => {
    const { port } = await startRecorder((_req, res) => {
      res.writeHead(200, { 'content-length': '100' });
      res.write('part', () => res.destroy());
    });
    const { url } = await startDashboard({ relayPort: port });
    const body = fetch(`${url}${TRANSPORT}/sessions`, { headers: SESSION }).then((answer) => answer.text());
    await expect(body).rejects.toThrow();
  });

  it('ends the call to the relay with the client', async () => {
    const recorder = await startRecorder((req) => {
      req.socket.once('close', () => recorder.server.emit('gone'));
      recorder.server.emit('asked');
    });
    const { url } = await startDashboard({ relayPort: recorder.port });
    const [asked, gone] = [once(recorder.server, 'asked'), once(recorder.server, 'gone')];
    const controller = new AbortController();
    const call = fetch(`${url}${TRANSPORT}/sessions`, { headers: SESSION, signal: controller.signal });
    await asked;
    const refused = expect(call).rejects.toThrow();
    controller.abort();
    await Promise.all([gone, refused]);
  });

  it('repeats a GET on a kept connection that the relay has closed meanwhile', async () => {
    const { port, requests } = await startRecorder((req, res) => {
      // Answers once per connection, and drops it when asked again.
      const { socket } = req as { socket: typeof req.socket & { isUsed?: boolean } };
      if (socket.isUsed) socket.destroy();
      else res.end('{}');
      socket.isUsed = true;
    });
    const { url } = await startDashboard({ relayPort: port });
    for (let count = 0; count < 3; count++) {
      const answer = await fetch(`${url}${TRANSPORT}/sessions`, { headers: SESSION });
      expect([answer.status, await answer.text()]).toEqual([200, '{}']);
    }
    // The second call is dropped and repeated on a connection of its own; the third one finds no kept connection.
    expect(requests.length).toBe(4);
  });
});

it('the package exports the plugin', async () => {
  // By its name in the package: as a dashboard imports it.
  const name: string = 'svc-relay/dashboard-plugin';
  const built = (await import(/* @vite-ignore */ name)) as typeof import('../../cli/dashboard/plugin.ts');
  const host = { isPluginEnabled: () => false } as never;
  const plugin = built.createDashboardPlugin({ host, env: {}, relayPort: 1 });
  expect(await plugin.handle({ url: '/elsewhere' } as never, {} as never)).toBe(false);
  await plugin.close();
});
