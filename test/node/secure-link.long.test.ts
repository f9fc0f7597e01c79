import { once } from 'node:events';
import { createServer as createTcpServer } from 'node:net';
import { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { closedPort } from '../support/closed-port.ts';
import { POLL } from '../support/limits.ts';
import { connectRaw, handshakeHeaders, request } from '../support/raw-socket.ts';
import { bearer, pair } from '../support/relay.ts';
import { AUTHORITY, startSecureLink, withGate } from '../support/secure-link.ts';

const MiB = 1024 * 1024;
const SHORT = {
  maxRequest: 16 * MiB,
  maxResponse: 64 * MiB,
  connect: 1_500,
  idle: 1_500,
  total: 5_000,
};
/** Headers by which a caller would be the operator, another peer, or the ingress, on the plain port. */
const FORGED = {
  host: '127.0.0.1',
  'x-svc-operator': '1',
  'x-svc-proxy-secret': 'x',
  'x-svc-proxy-peer': '127.0.0.1',
  'x-svc-dashboard-proxy-secret': 'x',
  'x-forwarded-for': '127.0.0.1',
  forwarded: 'for=127.0.0.1',
  'x-svc-relay-session': 'x'.repeat(36),
};

/** A TCP server in an upstream's place that answers each connection with these bytes, after its first chunk. */
async function startRawUpstream(answer: string | Buffer, { isCut = false } = {}): Promise<string> {
  const server = createTcpServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => {
      socket.write(answer);
      if (isCut) socket.end();
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as { port: number }).port}`;
}

describe('/sessions, /relay/info and /voice at the root (contract 08 §3)', () => {
  it('answer bearers as they do below /relay, and nobody else', async () => {
    const link = await startSecureLink();
    const { token } = await pair(link.target);
    for (const path of ['/sessions', '/relay/info', '/voice/config']) {
      expect([path, (await link.ask('GET', path)).status]).toEqual([path, 401]);
      expect([path, (await link.ask('GET', path, FORGED)).status]).toEqual([path, 401]);
      expect([path, (await link.ask('GET', path, bearer('x'.repeat(36)))).status]).toEqual([path, 401]);
      expect([path, (await link.ask('GET', path, bearer(token))).status]).toEqual([path, 200]);
    }
    await expect(link.open(`/voice/output/${'s'.repeat(20)}`)).rejects.toMatchObject({ status: 401 });
  });

  it('serve nothing of the operator, to a bearer either', async () => {
    const link = await startSecureLink();
    const { token } = await pair(link.target);
    for (const path of ['/relay/log', '/relay/events', '/relay/security', '/relay/devices', '/pairing/pending']) {
      expect([path, (await link.ask('GET', path, { ...FORGED, ...bearer(token) })).status]).toEqual([path, 404]);
    }
    const body = '{}';
    const type = { 'content-type': 'application/json' };
    expect((await link.ask('POST', '/pairing/mint', { ...type, ...bearer(token) }, body)).status).toBe(404);
  });
});

describe('/relay, in process (contract 08 §3)', () => {
  it('answers health with the counters of the relay, and probes once in 15 s', async () => {
    const link = await startSecureLink();
    await pair(link.target);
    const answers = await Promise.all(Array.from({ length: 20 }, () => link.ask('GET', '/relay/health')));
    for (const { status, body } of answers) {
      expect(status).toBe(200);
      expect(JSON.parse(body)).toMatchObject({
        status: 'ok',
        version: '1.0.0',
        clients: 1,
        sessions: 1,
        surface: 'svc_secure_proxy',
        security: 'pinned_tls',
        namespaces: ['relay', 'api', 'dashboard'],
        services: { relay: { available: true }, api: { available: true }, dashboard: { available: true } },
      });
    }
    expect(link.api.requests.map(({ url }) => url)).toEqual(['/health']);
    expect(link.dashboard.requests.map(({ url }) => url)).toEqual(['/api/health']);
    expect((await link.ask('HEAD', '/relay/health')).body).toBe('');
  });

  it('serves the mounted routes to a bearer only, and nobody as the operator', async () => {
    const link = await startSecureLink();
    const { token, prefix } = await pair(link.target);
    const direct = await link.target.fetch('/sessions', { headers: bearer(token) });
    const { status, body } = await link.ask('GET', '/relay/sessions', bearer(token));
    expect([status, JSON.parse(body).sessions.length]).toEqual([200, (await direct.json()).sessions.length]);
    for (const headers of [
      {},
      FORGED,
      { ...FORGED, authorization: '' },
      bearer('wrong'),
      { authorization: 'Basic x' },
    ]) {
      for (const [method, path] of [
        ['GET', '/relay/sessions'],
        ['DELETE', `/relay/sessions/${prefix}`],
        ['GET', '/relay/context/injected'],
        ['GET', '/relay/voice/config'],
        ['POST', '/relay/clipboard/inbox'],
      ] as const) {
        expect((await link.ask(method, path, headers)).status, `${method} ${path}`).toBe(401);
      }
    }
    expect((await link.ask('GET', '/relay/voice/config', bearer(token))).status).toBe(200);
    expect((await link.ask('POST', '/relay/health')).status).toBe(405);
    expect((await link.ask('GET', '/relay/ws')).status).toBe(426);
    expect((await link.ask('DELETE', `/relay/sessions/${prefix}`, bearer(token))).status).toBe(200);
    expect((await link.ask('GET', '/relay/sessions', bearer(token))).status).toBe(401);
  });

  it('keeps every other route of the relay unreachable, whatever is claimed', async () => {
    const link = await startSecureLink();
    const { token } = await pair(link.target);
    for (const path of [
      '/health',
      '/ws',
      '/pairing/mint',
      '/relay/pairing/mint',
      '/relay/relay/info',
      '/relay/bridge/status',
      '/relay/desktop/health',
      '/relay/notifications/recent',
      '/relay/ws/../sessions',
      '/relay/%2e%2e/sessions',
      '/apix',
      '/dashboards',
    ]) {
      for (const headers of [FORGED, bearer(token)])
        expect((await link.ask('GET', path, headers)).status, path).toBe(404);
    }
    const { status, body } = await link.ask('GET', 'http://127.0.0.1/relay/sessions', bearer(token));
    expect([status, JSON.parse(body).ok]).toEqual([400, false]);
    expect(link.api.requests).toEqual([]);
    expect(link.dashboard.requests).toEqual([]);
  });

  it('CONNECT and TRACE get 405 and lose their connection', async () => {
    const link = await startSecureLink();
    for (const method of ['CONNECT', 'TRACE']) {
      const connection = await link.connect();
      connection.write(`${method} ${method === 'CONNECT' ? 'example.org:443' : '/api'} HTTP/1.1\r\nhost: x\r\n\r\n`);
      expect((await connection.response()).status).toBe(405);
      await connection.ended();
      connection.destroy();
    }
  });
});

describe('proxying (contract 08 §4)', () => {
  it('forwards raw targets, bodies and headers, and hides the hop', async () => {
    const bodies: string[] = [];
    const link = await startSecureLink({
      api: async (req, res) => {
        let body = '';
        for await (const chunk of req) body += chunk;
        bodies.push(body);
        res.writeHead(201, [
          'X-Up',
          '1',
          'Set-Cookie',
          'a=1',
          'Connection',
          'X-Hop',
          'X-Hop',
          '1',
          'Content-Encoding',
          'gzip',
        ]);
        res.end('raw bytes');
      },
    });
    const headers = { ...FORGED, authorization: 'Bearer key', cookie: 'a=1', 'accept-encoding': 'br', 'x-own': '1' };
    const answer = await link.ask('POST', `/api/v1/%C3%BC;p?q=a//b/../%2e&x=http://h`, headers, 'hello');
    expect(answer).toMatchObject({
      status: 201,
      body: 'raw bytes',
      headers: { 'x-up': '1', 'content-encoding': 'gzip' },
    });
    expect(Object.keys(answer.headers)).not.toEqual(expect.arrayContaining(['set-cookie']));
    expect(answer.headers['x-hop']).toBeUndefined();
    const [sent] = link.api.requests;
    expect(sent).toMatchObject({ method: 'POST', url: '/v1/%C3%BC;p?q=a//b/../%2e&x=http://h' });
    expect(sent?.headers).toEqual({
      host: `127.0.0.1:${link.api.port}`,
      authorization: 'Bearer key',
      'accept-encoding': 'br',
      'x-own': '1',
      'content-length': '5',
      connection: 'close',
    });
    const chunked = '5\r\nfirst\r\n3\r\nend\r\n0\r\nX-Trailer: 1\r\n\r\n';
    const connection = await link.connect();
    connection.write(request('PUT', '/api', { 'transfer-encoding': 'chunked', connection: 'close' }, chunked));
    expect((await connection.response()).status).toBe(201);
    connection.destroy();
    expect(bodies).toContain('firstend');
    expect(link.api.requests.at(-1)).toMatchObject({ url: '/', headers: { 'transfer-encoding': 'chunked' } });
  });

  it('rewrites a dashboard for its prefix, and names the advertised authority', async () => {
    const page = `<a href="/login">in</a><script>fetch('/auth/x')</script>`;
    const link = await startSecureLink({
      dashboard: withGate((req, res) => {
        if (req.url === '/login') {
          res.writeHead(200, {
            'content-type': 'text/html; charset=utf-8',
            etag: '"1"',
            'content-length': page.length,
          });
          res.end(page);
        } else if (req.url === '/auth') {
          res.writeHead(302, ['Location', '/home', 'Set-Cookie', 'a=1; Path=/', 'Set-Cookie', 'b=2; Domain=x']);
          res.end();
        } else if (req.url === '/json') res.writeHead(200, { 'content-type': 'application/json' }).end('{"next":"/"}');
        else if (req.url === '/encoded') {
          res.writeHead(200, { 'content-type': 'text/html', 'content-encoding': 'gzip' }).end('x');
        } else if (req.url === '/long') {
          res.writeHead(200, { 'content-type': 'text/html', etag: '"2"' }).end(page.repeat(30_000));
        } else res.end('plain href="/login"');
      }),
    });
    const login = await link.ask('GET', '/dashboard/login', { ...FORGED, cookie: 'a=1', 'accept-encoding': 'br' });
    expect(login.body).toBe(`<a href="/dashboard/login">in</a><script>fetch('/dashboard/auth/x')</script>`);
    expect(login.headers).toMatchObject({ 'content-length': String(page.length + 20) });
    expect(login.headers.etag).toBeUndefined();
    expect(link.dashboard.requests.at(-1)?.headers).toEqual({
      host: `127.0.0.1:${link.dashboard.port}`,
      cookie: 'a=1',
      'accept-encoding': 'identity',
      'x-forwarded-prefix': '/dashboard',
      'x-forwarded-proto': 'https',
      'x-forwarded-host': AUTHORITY,
      'x-forwarded-for': '127.0.0.1',
      connection: 'keep-alive',
    });
    const head = await link.ask('HEAD', '/dashboard/login');
    expect([head.status, head.headers['content-length'], head.headers.etag]).toEqual([200, undefined, undefined]);
    const redirect = await link.ask('GET', '/dashboard/auth');
    expect(redirect).toMatchObject({ status: 302, headers: { location: '/dashboard/home' } });
    expect(redirect.headers['set-cookie']).toContain('Path=/dashboard');
    expect((await link.ask('GET', '/dashboard/json')).body).toBe('{"next":"/dashboard/"}');
    expect((await link.ask('GET', '/dashboard/encoded')).status).toBe(502);
    expect((await link.ask('GET', '/dashboard')).body).toBe('plain href="/login"');
    const long = await link.ask('GET', '/dashboard/long');
    expect([long.headers.etag, long.body === page.repeat(30_000)]).toEqual(['"2"', true]);
    const session = { 'x-svc-relay-session': 'token' };
    await link.ask('GET', '/dashboard/api/plugins/svc-relay/transport/sessions', session);
    expect(link.dashboard.requests.at(-1)?.headers).toMatchObject(session);
  });

  it('sends nothing but the probe to a dashboard without sign-in', async () => {
    const link = await startSecureLink({ dashboard: (_req, res) => void res.end('{"auth_required":false}') });
    for (const path of ['/dashboard', '/dashboard/api/health', '/dashboard/x']) {
      expect((await link.ask('GET', path)).status).toBe(503);
    }
    await expect(link.open('/dashboard/ws')).rejects.toMatchObject({ status: 503 });
    expect(link.dashboard.requests.map(({ url }) => url)).toEqual(['/api/health']);
    expect(link.dashboard.upgrades).toEqual([]);
  });

  it('passes events on as they are produced', async () => {
    let emit = (_text: string) => {};
    const link = await startSecureLink({
      api: (_req, res) => {
        res.writeHead(200, { 'content-type': 'text/event-stream' });
        res.flushHeaders();
        emit = (text) => void res.write(text);
      },
    });
    const connection = await link.connect();
    connection.write(request('GET', '/api/events'));
    expect((await connection.head()).headers['content-type']).toBe('text/event-stream');
    for (const event of ['data: 1\n\n', 'data: 2\n\n']) {
      emit(event);
      await expect.poll(() => connection.unread(), { interval: POLL }).toBeGreaterThan(event.length);
    }
    connection.destroy();
  });

  it('ends the call upstream when the client goes', async () => {
    const link = await startSecureLink({ api: () => {} });
    const asked = once(link.api.server, 'request');
    const connection = await link.connect();
    connection.write(request('GET', '/api/slow'));
    const [, answer] = await asked;
    connection.destroy();
    await once(answer, 'close');
  });

  it('repeats a read when a kept connection turns out to be closed', async () => {
    let count = 0;
    const link = await startSecureLink({
      api: (req, res) => {
        count++;
        if (count === 2) req.socket.destroy();
        else res.end('ok');
      },
    });
    expect((await link.ask('GET', '/api/a')).status).toBe(200);
    expect((await link.ask('GET', '/api/b')).status).toBe(200);
    expect(count).toBe(3);
  });
});

describe('upstreams that fail (contract 08 §4.4)', () => {
  it.each<[string, string | Buffer, boolean]>([
    ['breaks off before an answer', '', true],
    ['answers nonsense', 'SSH-2.0-x\r\n', true],
    [
      'changes the protocol by itself',
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n',
      false,
    ],
    ['announces too much', `HTTP/1.1 200 OK\r\nContent-Length: ${64 * MiB + 1}\r\n\r\n`, false],
    ['sends too long a head', `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(40_000)}\r\n\r\n`, false],
    ['answers nothing', '', false],
    ['only announces an answer', 'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n', false],
  ])('502 for one that %s', async (_, answer, isCut) => {
    const url = await startRawUpstream(answer, { isCut });
    const link = await startSecureLink({ upstreams: { api: url }, limits: { http: SHORT } });
    const { status, body } = await link.ask('GET', '/api/x');
    expect([status, JSON.parse(body).ok]).toEqual([502, false]);
    expect(body).not.toMatch(/127\.0\.0\.1|ECONN|Parse/);
  });

  it('502 for one that is not there', async () => {
    const link = await startSecureLink({ upstreams: { api: `http://127.0.0.1:${await closedPort()}` } });
    expect((await link.ask('POST', '/api/x', {}, 'body')).status).toBe(502);
  });

  it('skips interim answers', async () => {
    const url = await startRawUpstream(
      'HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n',
    );
    const link = await startSecureLink({ upstreams: { api: url } });
    expect((await link.ask('GET', '/api/x')).status).toBe(204);
  });

  it.each<[string, string, boolean]>([
    ['dies in a body of known length', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart', true],
    ['dies in a chunked body', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n', true],
    ['falls silent in a body', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n', false],
  ])('one that %s is no clean end for the client', async (_, answer, isCut) => {
    const url = await startRawUpstream(answer, { isCut });
    const link = await startSecureLink({ upstreams: { api: url }, limits: { http: SHORT } });
    const connection = await link.connect();
    connection.write(request('GET', '/api/x'));
    expect((await connection.head()).status).toBe(200);
    await connection.ended();
    expect(connection.unread()).toBeLessThan(20);
  });

  it('breaks off an answer that exceeds the limit, without a clean end', async () => {
    const maxResponse = MiB;
    const link = await startSecureLink({
      api: (_req, res) => {
        res.on('error', () => {});
        const more = () => {
          while (!res.destroyed && res.write(Buffer.alloc(64 * 1024, 'x')));
        };
        res.on('drain', more);
        more();
      },
      limits: { http: { ...SHORT, idle: 60_000, total: 60_000, maxResponse } },
    });
    const connection = await link.connect();
    connection.write(request('GET', '/api/x'));
    expect((await connection.head()).status).toBe(200);
    await connection.ended();
    const end = connection.unread();
    expect(end).toBeLessThan(maxResponse * 1.1);
  });

  it('413 for a body that is announced, or turns out, to be too large', async () => {
    const link = await startSecureLink({
      api: (req) => void req.resume(),
      limits: { http: { ...SHORT, idle: 60_000, total: 60_000, maxRequest: MiB } },
    });
    const waiting = await link.connect();
    waiting.write(request('PUT', '/api/x', { 'content-length': String(MiB + 1), expect: '100-continue' }));
    expect((await waiting.response()).status).toBe(413);
    waiting.destroy();
    expect(link.api.requests).toEqual([]);
    const chunked = await link.connect();
    chunked.write(request('PUT', '/api/x', { 'transfer-encoding': 'chunked' }));
    const chunk = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(0x10000), Buffer.from('\r\n')]);
    for (let count = 0; count < 17; count++) chunked.write(chunk);
    expect((await chunked.response()).status).toBe(413);
    chunked.destroy();
  });
});

describe('connections (contract 08 §4.4, §2.5)', () => {
  it('speaks TLS 1.2 and HTTP/1.1 at least, to clients that offer more or name no host', async () => {
    const link = await startSecureLink();
    for (const options of [{ ALPNProtocols: ['h2', 'http/1.1'] }, { maxVersion: 'TLSv1.2' as const }, {}]) {
      const socket = connectTls({ host: '127.0.0.1', port: link.port, ...link.secure, ...options });
      await once(socket, 'secureConnect');
      if ('ALPNProtocols' in options) expect(socket.alpnProtocol).toBe('http/1.1');
      socket.destroy();
    }
    const old = connectTls({
      host: '127.0.0.1',
      port: link.port,
      ...link.secure,
      maxVersion: 'TLSv1.1',
      minVersion: 'TLSv1.1',
      ciphers: 'DEFAULT@SECLEVEL=0',
    });
    await expect(once(old, 'secureConnect')).rejects.toThrow();
  });

  it('431 for a head over 16 KiB, 408 for one that does not end, and no end for no handshake', async () => {
    const link = await startSecureLink({
      limits: { serve: { head: 1_500, request: 5_000, idle: 5_000, check: 50 }, handshake: 300 },
    });
    expect((await link.ask('GET', '/api/x', { a: 'x'.repeat(17 * 1024) })).status).toBe(431);
    const slow = await link.connect();
    slow.write('GET /api/x HTTP/1.1\r\nhost: x\r\n');
    expect((await slow.response()).status).toBe(408);
    const silent = await connectRaw(link.port);
    await silent.ended();
  });

  it('refuses connections over the limits, and counts ended ones no more', async () => {
    const link = await startSecureLink({ limits: { maxPerPeer: 2 } });
    const held = await Promise.all([link.connect(), link.connect()]);
    await expect(link.connect()).rejects.toThrow();
    held[0]?.destroy();
    await expect
      .poll(
        () =>
          link.connect().then(
            (third) => third.destroy(),
            () => 'refused',
          ),
        { interval: POLL },
      )
      .toBeUndefined();
    held[1]?.destroy();
  });

  it('serves a stream of Reach as a peer without an address', async () => {
    const link = await startSecureLink({ limits: { maxConnections: 0 } });
    const [near, far] = pipe();
    link.listener.accept(far);
    const socket = connectTls({ socket: near, ...link.secure, host: '127.0.0.1' });
    await once(socket, 'secureConnect');
    socket.write(request('GET', '/dashboard/x', { ...FORGED, connection: 'close' }));
    let text = '';
    for await (const chunk of socket) text += chunk;
    expect(text).toMatch(/^HTTP\/1\.1 200 /);
    expect(link.dashboard.requests.at(-1)?.headers).toMatchObject({ 'x-forwarded-for': 'unknown' });
  });

  it('answers pipelined requests one after another', async () => {
    let [running, most] = [0, 0];
    const link = await startSecureLink({
      api: (_req, res) => {
        most = Math.max(most, ++running);
        setImmediate(() => {
          running--;
          res.end('ok');
        });
      },
    });
    const connection = await link.connect();
    connection.write(Buffer.concat(Array.from({ length: 10 }, (_, at) => request('GET', `/api/${at}`))));
    for (let at = 0; at < 10; at++) {
      const { status, headers } = await connection.head();
      expect([status, headers['transfer-encoding'] ?? headers['content-length']]).toEqual([200, '2']);
      await expect.poll(() => connection.unread()).toBeGreaterThanOrEqual(2);
      await connection.take(2);
    }
    expect(most).toBe(1);
    connection.destroy();
  });

  it('an upgrade below /api, or an incomplete one, gets 400; elsewhere, one to h2c is ignored', async () => {
    const link = await startSecureLink();
    await expect(link.open('/api/ws')).rejects.toMatchObject({ status: 400 });
    await expect(link.open('/dashboard/ws', { 'sec-websocket-version': '8' })).rejects.toMatchObject({ status: 400 });
    await expect(link.open('/relay/sessions')).rejects.toMatchObject({ status: 400 });
    await expect(link.open('/ws')).rejects.toMatchObject({ status: 404 });
    await expect(link.open('/api/%2e%2e/ws', handshakeHeaders())).rejects.toMatchObject({ status: 400 });
    const toHttp2 = { connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c', 'http2-settings': '' };
    const refusal = await link.ask('GET', '/api/x', toHttp2);
    expect([refusal.status, JSON.parse(String(refusal.body))]).toEqual([
      400,
      { ok: false, error: 'there are no upgrades here' },
    ]);
    expect(link.api.requests).toEqual([]);
    expect(link.api.upgrades).toEqual([]);
    expect((await link.ask('GET', '/dashboard/x', toHttp2)).status).toBe(200);
    // An offer without `Connection: upgrade` is none (RFC 9110 §7.8).
    expect((await link.ask('GET', '/api/x', { upgrade: 'h2c' })).status).toBe(200);
  });

  it('logs neither query, headers nor host', async () => {
    const link = await startSecureLink();
    await link.ask('GET', '/api/x?secret-query', { host: 'secret-host', cookie: 'secret-cookie' });
    await expect.poll(() => link.target.log.join('\n')).toMatch(/secure-link: api GET 200, 0 bytes in, 2 out/);
    expect(link.target.log.join('\n')).not.toContain('secret');
  });
});

/** Two ends of a byte stream that is no socket. */
function pipe(): [Duplex, Duplex] {
  const ends: Duplex[] = [0, 1].map(
    (at) =>
      new Duplex({
        read() {},
        write(chunk, _encoding, done) {
          ends[1 - at]?.push(chunk);
          done();
        },
        final(done) {
          ends[1 - at]?.push(null);
          done();
        },
      }),
  );
  return ends as [Duplex, Duplex];
}
