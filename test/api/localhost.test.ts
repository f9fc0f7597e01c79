import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startNodeBroker } from '../../cli/runtime/node/broker.ts';
import { createLoopbackGuard, type LoopbackGuard } from '../../lib/host/node/loopback-guard.ts';
import { createNodeUpstream } from '../../lib/host/node/upstream.ts';
import { createNodeDialUpstream } from '../../lib/host/node/upstream-socket.ts';
import { createUsers } from '../../lib/host/node/users.ts';
import { urlHost } from '../../lib/kit/addresses.ts';
import { createLog } from '../../lib/log.ts';
import { openBrokerStore } from '../../storage/broker.ts';
import { SIGNED_IN, startDashboard, TRANSPORT } from '../support/dashboard.ts';
import { canBeNobody, NOBODY, squatAsNobody } from '../support/other-user.ts';
import { openRaw } from '../support/raw-socket.ts';
import { describeMatrix, pair, post } from '../support/relay.ts';
import { startSecureLink } from '../support/secure-link.ts';

const KEY = 'api-key-of-the-owner';

function setUp(operatorUids: number[] = []) {
  const lines: string[] = [];
  const log = createLog('WARNING', (text) => lines.push(text));
  const guard = createLoopbackGuard({ users: createUsers(), operatorUids, log });
  return { guard, lines };
}

const call = (
  guard: LoopbackGuard,
  url: string,
  headers: Record<string, string> = { authorization: `Bearer ${KEY}` },
) => createNodeUpstream({ guard })({ method: 'GET', url, headers, signal: AbortSignal.timeout(10_000) });

async function startServer(host: string, port = 0): Promise<{ port: number; server: Server; asked: string[] }> {
  const asked: string[] = [];
  const server = createServer((req, res) => {
    asked.push(`${req.headers.host} ${req.headers.authorization}`);
    res.end('{}');
  }).listen(port, host);
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, server, asked };
}

describe.runIf(canBeNobody)('a server of another user on loopback (contract 01 §9.1a)', () => {
  it.each([
    ['127.0.0.1', '127.0.0.1'],
    ['127.0.0.1', '127.0.0.7'],
    ['::1', '[::1]'],
    ['::', '127.0.0.1'],
    ['127.0.0.1', 'localhost'],
    ['::1', 'localhost'],
  ])('on %s, called by http://%s, gets no credential, and one warning names it', async (listen, host) => {
    const squatter = await squatAsNobody(host === '127.0.0.7' ? host : listen);
    const { guard, lines } = setUp();
    const url = `http://${host}:${squatter.port}/v1`;
    await expect(call(guard, url)).rejects.toThrow(`is served by user ${NOBODY}`);
    await expect(call(guard, url, { 'x-api-key': KEY })).rejects.toThrow(`is served by user ${NOBODY}`);
    await expect(call(guard, `${url}?key=${KEY}`, {})).rejects.toThrow(`is served by user ${NOBODY}`);
    await expect(
      createNodeDialUpstream({ guard })(
        { url, headers: { authorization: KEY }, signal: AbortSignal.timeout(10_000), maxMessage: 100 },
        { message() {}, closed() {} },
      ),
    ).rejects.toThrow(`is served by user ${NOBODY}`);
    expect(squatter.heard()).toBe('');
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(new RegExp(`${squatter.port} is served by user ${NOBODY}.*RELAY_OPERATOR_UIDS`));
  });

  it('gets calls without a credential, and those of RELAY_OPERATOR_UIDS', async () => {
    const squatter = await squatAsNobody('127.0.0.1');
    const url = `http://127.0.0.1:${squatter.port}/v1`;
    expect((await call(setUp().guard, url, { accept: 'text/plain' })).status).toBe(200);
    expect((await call(setUp([NOBODY]).guard, url)).status).toBe(200);
    expect(squatter.heard()).toContain(KEY);
  });

  it('on the other address of localhost is passed over', async () => {
    const { guard } = setUp();
    const squatter = await squatAsNobody('127.0.0.1');
    const own = await startServer('::1', squatter.port);
    expect((await call(guard, `http://localhost:${own.port}/`)).status).toBe(200);
    expect(own.asked).toEqual([`localhost:${own.port} Bearer ${KEY}`]);
    expect(squatter.heard()).toBe('');
  });
});

describe('a URL that says localhost (contract 01 §9.1a)', () => {
  it.each(['127.0.0.1', '::1'])('reaches a server on %s alone, again and again', async (address) => {
    const { port, asked } = await startServer(address);
    const upstream = createNodeUpstream({ guard: setUp().guard });
    const ask = () =>
      upstream({
        method: 'POST',
        url: `http://localhost:${port}/`,
        headers: { authorization: KEY },
        signal: AbortSignal.timeout(10_000),
      });
    for (let count = 0; count < 3; count++) expect((await ask()).status).toBe(200);
    expect(asked).toHaveLength(3);
  });

  it('is refused as one where nobody listens', async () => {
    const { port, server } = await startServer('127.0.0.1');
    server.closeAllConnections();
    server.close();
    await expect(call(setUp().guard, `http://localhost:${port}/`)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('ends at once with the signal of its caller, while it connects', async () => {
    const { port } = await startServer('127.0.0.1');
    const stuck: LoopbackGuard = () => new Promise(() => {});
    const controller = new AbortController();
    const url = `http://127.0.0.1:${port}/`;
    const calling = createNodeUpstream({ guard: stuck })({
      method: 'GET',
      url,
      headers: { authorization: KEY },
      signal: controller.signal,
    });
    setImmediate(() => controller.abort());
    await expect(calling).rejects.toThrow('abort');
  });
});

describeMatrix(
  'the API server of the relay (contract 01 §9.1a)',
  (start) => {
    it.skipIf(!canBeNobody)('gets its key only from a listener of the relay’s own user', async () => {
      const squatter = await squatAsNobody('::1');
      const target = await start({
        env: { RELAY_WEBAPI_URL: `http://localhost:${squatter.port}`, API_SERVER_KEY: KEY },
      });
      const { client } = await pair(target);
      client.send('chat', 'chat.sessions.list', {}, 'a');
      const { payload } = await client.next({ channel: 'chat', id: 'a' });
      expect(JSON.stringify(payload)).toContain(`served by user ${NOBODY}`);
      const voice = await target.fetch('/voice/synthesize', {
        ...post({ text: 'x' }),
        headers: { authorization: `Bearer ${KEY}` },
      });
      expect(voice.status).toBe(401);
      expect(squatter.heard()).not.toContain(KEY);
      expect(target.log.filter((line) => line.includes(`is served by user ${NOBODY}`))).toHaveLength(1);
      client.terminate();
    });
  },
  ['node'],
);

describe.runIf(canBeNobody)('the servers behind Secure Link (contract 01 §9.1a)', () => {
  it('get neither bearer nor cookie when another user serves them', async () => {
    const squatter = await squatAsNobody('127.0.0.1');
    const { guard, lines } = setUp();
    const link = await startSecureLink({ upstreams: { api: `http://127.0.0.1:${squatter.port}` }, guard });
    for (const method of ['GET', 'POST']) {
      const answer = await link.ask(method, '/api/v1/models', {
        authorization: `Bearer ${KEY}`,
        'content-length': '0',
      });
      expect(answer.status).toBe(502);
    }
    expect(squatter.heard()).toBe('');
    expect(lines).toHaveLength(1);
    expect((await link.ask('GET', '/dashboard/page', { cookie: `a=${KEY}` })).status).toBe(200);
  });
});

describe('listeners that are advertised by name (contract 01 §9.1a)', () => {
  const startBroker = async (host: string, port = 0) => {
    const broker = await startNodeBroker({
      ...{ hosts: new Map(), store: openBrokerStore(), host, port },
      log: createLog('ERROR', () => {}),
    });
    onTestFinished(broker.stop);
    return broker.address.port;
  };

  it('hold both addresses of loopback', async () => {
    const { port } = await startSecureLink();
    const broker = await startBroker('localhost');
    for (const address of ['127.0.0.1', '::1']) {
      expect(await isListening(address, port)).toBe(true);
      expect((await fetch(`http://${urlHost(address)}:${broker}/health`)).status).toBe(200);
    }
    expect(await isListening('::1', await startBroker('127.0.0.1'))).toBe(false);
  });

  it.skipIf(!canBeNobody)('do not start while another user holds one', async () => {
    const { port } = await squatAsNobody('::1');
    const inUse = { code: 'EADDRINUSE', address: '::1' };
    await expect(startSecureLink({ port })).rejects.toMatchObject(inUse);
    await expect(startBroker('localhost', port)).rejects.toMatchObject({ code: 'EADDRINUSE' });
    expect(await isListening('127.0.0.1', port)).toBe(false);
  });
});

async function isListening(host: string, port: number): Promise<boolean> {
  const socket = connect({ host, port });
  const answer = await Promise.race([once(socket, 'connect'), once(socket, 'close')]).catch(() => [true]);
  socket.destroy();
  return answer.length === 0;
}

describe.runIf(canBeNobody)('the ingress of the dashboard (contract 01 §9.1a)', () => {
  it('attaches neither session nor marker for a program of another user in the place of the relay', async () => {
    const squatter = await squatAsNobody('127.0.0.1');
    const { url } = await startDashboard({ relayPort: squatter.port });
    const headers = { ...SIGNED_IN, 'x-svc-relay-session': KEY };
    for (const method of ['GET', 'POST']) {
      const path = method === 'GET' ? '/sessions' : '/chat/send';
      const answer = await fetch(`${url}${TRANSPORT}${path}`, { method, headers });
      if (method === 'GET')
        expect([answer.status, await answer.text()]).toEqual([502, expect.stringContaining(`user ${NOBODY}`)]);
    }
    const upgrade = await openRaw(Number(new URL(url).port), { path: `${TRANSPORT}/ws?ticket=good` }).catch(String);
    expect(JSON.stringify(upgrade)).not.toContain('101');
    expect(squatter.heard()).toBe('');
  });
});
