import { once } from 'node:events';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { createIdentities } from '../../lib/host/node/identity.ts';
import { MAX_FRAME } from '../../lib/reach/frames.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { parseHostMessage, parseRegister } from '../../lib/reach/messages.ts';
import { privateAuthority } from '../support/certificate.ts';
import { dataFrame } from '../support/frames.ts';
import { TIMEOUT } from '../support/limits.ts';
import { countMajors } from '../support/majors.ts';
import { closing, temporaryHome } from '../support/process.ts';
import {
  agentOf,
  authenticateThrough,
  drain,
  fetchThrough,
  openStream,
  openTunnel,
  type ReachRoute,
  withCredential,
} from '../support/reach-client.ts';
import { startReachRelay, startReachStack } from '../support/reach-stack.ts';

const MIB = 1024 * 1024;
/** MiB moved in each direction: `REACH_MIB=500 npx vitest run test/e2e/reach` for the real amount. */
const BULK = Number(process.env.REACH_MIB ?? 20);
/** Resident memory that may be added while they are moved, MiB. */
const FLAT = 120;

type Stack = Awaited<ReturnType<typeof startReachStack>>;

/** Pairs over Reach: the token of the session, and the route that came with it. */
async function pairThrough(stack: Stack, device = 'phone-é') {
  const { code, route } = await stack.mint();
  const { frame, socket } = await authenticateThrough(route, { pairing_code: code, device_id: device });
  expect(frame.type).toBe('auth.ok');
  const credential = frame.payload.route_credential as Record<string, unknown>;
  return { frame, socket, credential, token: frame.payload.session_token as string, bootstrap: route };
}

const residentMib = async (pid: number): Promise<number> => {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1]) / 1024;
};

const statusThrough = async (route: ReachRoute, path: string, headers: Record<string, string> = {}) => {
  const tls = await openTunnel(route);
  const response = await fetchThrough(agentOf(tls), route, { path, headers });
  await drain(response);
  tls.destroy();
  return response.statusCode;
};

describe('contract 08 §6, §7.9: a phone behind the broker', () => {
  it('pairs, gets a route, comes back with it, and loses it with its session', async (context) => {
    const stack = await startReachStack(context);
    const { relay, host } = stack;
    expect(await stack.reach()).toMatchObject({
      enabled: true,
      connected: true,
      host_id: host.id,
      local_target: `127.0.0.1:${stack.linkPort}`,
      connect_attempts: 1,
      last_error: null,
    });
    expect((await stat(stack.hostIdFile)).mode & 0o777).toBe(0o600);
    expect((await stat(dirname(stack.hostIdFile))).mode & 0o777).toBe(0o700);

    const { code, route } = await stack.mint();
    // The phone's probe spends a use of the bootstrap before the real connection.
    expect(await statusThrough(route, '/relay/health')).toBe(200);
    const { frame, socket } = await authenticateThrough(route, { pairing_code: code, device_id: 'phone-é' });
    expect(frame).toMatchObject({ type: 'auth.ok', payload: { transport_hint: 'wss' } });
    const credential = frame.payload.route_credential as Record<string, unknown>;
    expect(Object.keys(credential)).toEqual(['kind', 'broker_url', 'host_id', 'credential_id', 'token', 'expires_at']);
    const back = withCredential(route, credential);
    socket.close();

    const token = frame.payload.session_token as string;
    const again = await authenticateThrough(back, { session_token: token });
    expect(again.frame).toMatchObject({ type: 'auth.ok', payload: { route_credential: credential } });
    expect(await statusThrough(back, '/relay/sessions')).toBe(401);
    expect(await statusThrough(back, '/relay/sessions', { authorization: `Bearer ${token}` })).toBe(200);
    expect(await statusThrough(back, '/relay/pairing/mint', { authorization: `Bearer ${token}` })).toBe(404);

    // Also on a stream that the bootstrap has opened.
    const first = await authenticateThrough(route, { session_token: token });
    const closed = Promise.all([again, first].map(({ socket }) => closing(socket)));
    const prefix = token.slice(0, 8);
    const { status } = await relay.ask(`/sessions/${prefix}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${token}` },
    });
    expect(status).toBe(200);
    const end = { code: 4401, reason: 'session revoked' };
    expect(await closed).toEqual([end, end]);
    await vi.waitFor(() => expect(openStream(back)).rejects.toMatchObject({ code: 'unauthorized' }), TIMEOUT);
    const direct = await relay.offer({ pairing_code: (await stack.mint()).code, device_id: 'lan' });
    expect(direct.frame.payload).not.toHaveProperty('route_credential');
    for (const secret of [host.token, credential.token as string, route.token, code]) {
      expect(relay.output + stack.broker.child.stderr).not.toContain(secret);
    }
  });

  it(
    `moves ${BULK} MiB each way with flat memory`,
    async (context) => {
      const stack = await startReachStack(context);
      const { relay, broker } = stack;
      const { credential, bootstrap, socket } = await pairThrough(stack);
      const route = withCredential(bootstrap, credential);
      const processes = { relay: relay.child.pid, broker: broker.child.pid };
      const before = { relay: await residentMib(processes.relay), broker: await residentMib(processes.broker) };
      const most = { ...before };
      const watch = async () => {
        for (const name of ['relay', 'broker'] as const)
          most[name] = Math.max(most[name], await residentMib(processes[name]));
      };
      const body = Buffer.alloc(10 * MIB, 'u');
      const rates: Record<string, number> = {};
      for (const direction of ['down', 'up'] as const) {
        const began = performance.now();
        const tls = await openTunnel(route);
        const agent = agentOf(tls);
        for (let moved = 0; moved < BULK; moved += 10) {
          const down = { path: `/api/bulk?bytes=${body.length}` };
          const up = { path: '/api/bulk', method: 'POST', headers: { 'content-length': body.length } };
          const response =
            direction === 'down' ? await fetchThrough(agent, route, down) : await fetchThrough(agent, route, up, body);
          expect(response.statusCode).toBe(200);
          if (direction === 'down') expect(await drain(response)).toBe(body.length);
          else expect(Number((await response.toArray()).join(''))).toBe(body.length);
          await watch();
        }
        tls.destroy();
        rates[direction] = BULK / ((performance.now() - began) / 1000);
      }
      if (process.env.REACH_MIB) process.stderr.write(`${JSON.stringify({ MiBs: rates, before, most })}\n`);
      for (const name of ['relay', 'broker'] as const) expect(most[name] - before[name], name).toBeLessThan(FLAT);
      socket.close();
    },
    60_000 + BULK * 2_000,
  );

  it('carries large bodies without marking the whole heap over and over', async (context) => {
    const majors = await countMajors();
    const stack = await startReachStack(context, majors.env);
    const { credential, bootstrap, socket } = await pairThrough(stack);
    const route = withCredential(bootstrap, credential);
    const tls = await openTunnel(route);
    const agent = agentOf(tls);
    const body = Buffer.alloc(10 * MIB, 'u');
    const carry = async () => {
      for (let moved = 0; moved < 200; moved += 10) {
        await drain(await fetchThrough(agent, route, { path: `/api/bulk?bytes=${body.length}` }));
        const up = { path: '/api/bulk', method: 'POST', headers: { 'content-length': body.length } };
        await drain(await fetchThrough(agent, route, up, body));
      }
    };
    await carry();
    const marked = await majors.start(stack.relay.child.pid);
    await carry();
    // V8 would do so every 8 MiB.
    expect(await marked()).toBeLessThan(10);
    tls.destroy();
    socket.close();
  });

  it('survives kill -9 of the relay, of the broker, and of both', async (context) => {
    const stack = await startReachStack(context);
    const { relay, broker } = stack;
    const { token, credential, bootstrap, socket } = await pairThrough(stack);
    const route = withCredential(bootstrap, credential);
    const comesBack = () =>
      vi.waitFor(
        async () => {
          const { frame, socket: open } = await authenticateThrough(route, { session_token: token });
          open.close();
          expect(frame.payload.route_credential).toEqual(credential);
        },
        { timeout: TIMEOUT, interval: 200 },
      );
    const lost = closing(socket);
    await relay.restart();
    await lost;
    await stack.until('connected');
    await comesBack();

    await broker.kill();
    await stack.until('backoff');
    expect((await relay.ask('/health')).status).toBe(200);
    const minted = await relay.ask('/pairing/mint', { method: 'POST', body: {} });
    expect([minted.status, minted.text.includes('outbound_broker')]).toEqual([200, false]);
    await broker.begin();
    await stack.until('connected');
    await comesBack();

    await Promise.all([relay.kill(), broker.kill()]);
    relay.begin();
    await broker.begin();
    await stack.until('connected');
    await comesBack();
  });

  it('is refused with a wrong pin or certificate, before anything is sent', async (context) => {
    const stack = await startReachStack(context);
    const { route } = await stack.mint();
    await expect(openTunnel({ ...route, pin: `sha256/${'A'.repeat(43)}=` })).rejects.toThrow(/pin/);
    const other = await readFile((await privateAuthority(context, await temporaryHome())).ca, 'utf8');
    const certDer = other.replaceAll(/-----[^-]+-----|\s/g, '');
    await expect(openTunnel({ ...route, certDer })).rejects.toThrow(/self-signed certificate|unable to/);
    await expect(openTunnel({ ...route, token: newToken() })).rejects.toMatchObject({ code: 'unauthorized' });
    await expect(openTunnel({ ...route, hostId: newId() })).rejects.toMatchObject({ code: 'unauthorized' });
    expect(await statusThrough(route, '/relay/health')).toBe(200);
  });
});

/** A broker that accepts the host, checks every message, and otherwise follows the test's orders. */
async function startLiar(made = Date.now()) {
  const { cert, key } = await createIdentities().generate('localhost', made);
  const ca = join(await temporaryHome(), 'ca.pem');
  await writeFile(ca, cert);
  const server = createServer({ cert, key });
  const wss = new WebSocketServer({ server, maxPayload: MAX_FRAME });
  const hosts: { socket: WebSocket; id: string; frames: Buffer[]; close: Promise<{ code: number }> }[] = [];
  const problems: string[] = [];
  wss.on('connection', (socket) => {
    socket.on('error', () => {});
    socket.once('message', (data) => {
      const message = parseRegister(String(data));
      if (typeof message === 'string') return problems.push(message);
      const frames: Buffer[] = [];
      socket.on('message', (next: Buffer, isBinary) => {
        if (isBinary) frames.push(next);
        else if (!parseHostMessage(String(next))) problems.push(String(next));
      });
      hosts.push({ socket, id: message.connection_id, frames, close: closing(socket) });
      socket.send('{"type":"registered","protocol_version":1}');
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => {
    for (const socket of wss.clients) socket.terminate();
    server.close();
    expect(problems).toEqual([]);
  });
  return { ca, url: `wss://localhost:${(server.address() as AddressInfo).port}`, hosts };
}

describe('contract 08 §6.4, §7.8: a broker that lies', () => {
  const open = (to: string, id = newId()) =>
    JSON.stringify({ type: 'open', protocol_version: 1, stream_id: id, host_connection_id: to });

  /** A relay behind a liar. Every connection after the first takes it twice as long. */
  async function deceived() {
    const liar = await startLiar();
    const stack = await startReachRelay({ brokerUrl: liar.url, ca: liar.ca, host: { id: newId(), token: newToken() } });
    const connected = async (count: number) => {
      await vi.waitFor(() => expect(liar.hosts).toHaveLength(count), TIMEOUT);
      await stack.until('connected');
      return liar.hosts[count - 1] as (typeof liar.hosts)[0];
    };
    return { ...stack, connected };
  }

  it('harms nothing: streams of others', async () => {
    const { relay, connected, until } = await deceived();
    const first = await connected(1);
    first.socket.send(open(newId()));
    await first.close;
    expect(await until('backoff')).toMatchObject({
      active_streams: 0,
      last_error: expect.stringContaining('violation'),
    });
    const second = await connected(2);
    second.socket.send(open(first.id));
    await second.close;
    expect((await relay.ask('/health')).status).toBe(200);
  });

  it('harms nothing: garbage, floods, replays and silence', async () => {
    const { relay, reach, connected } = await deceived();
    const first = await connected(1);
    // Streams whose bytes are no TLS, more than there may be, and frames of an earlier stream again.
    const ids = Array.from({ length: 20 }, () => newId());
    for (const id of ids) first.socket.send(open(first.id, id));
    const replayed = dataFrame(ids[0] as string, Buffer.alloc(64 * 1024, 22));
    for (let count = 0; count < 200; count++) {
      first.socket.send(replayed);
      first.socket.send(dataFrame(newId(), Buffer.from('for nobody')));
    }
    await vi.waitFor(async () => expect(first.frames.length).toBeGreaterThan(100), TIMEOUT);
    expect(await reach()).toMatchObject({ state: 'connected' });
    expect((await relay.ask('/health')).status).toBe(200);
    // A code for which the broker never answers is left without the route: here once the connection has ended.
    const asked = new Promise<void>((resolve) =>
      first.socket.on('message', (data) => String(data).includes('publish_bootstrap') && resolve()),
    );
    const minting = relay.ask('/pairing/mint', { method: 'POST', body: {} });
    await asked;
    first.socket.send(Buffer.alloc(MAX_FRAME + 1));
    const minted = await minting;
    expect([minted.status, minted.text.includes('outbound_broker')]).toEqual([200, false]);
    await first.close;

    const second = await connected(2);
    second.socket.close(1000);
    await connected(3);
    expect(relay.child.running()).toBe(true);
    const { frame } = await relay.offer({ pairing_code: minted.json.code, device_id: 'lan' });
    expect(frame.type).toBe('auth.ok');
  });

  it('is not connected to with an expired certificate, or one of an unknown authority', async () => {
    const expired = await startLiar(Date.now() - 3651 * 86_400_000);
    const host = { id: newId(), token: newToken() };
    const stack = await startReachRelay({ brokerUrl: expired.url, ca: expired.ca, host });
    expect(await stack.until('backoff')).toMatchObject({ last_error: expect.stringContaining('expired') });
    const unknown = await startReachRelay({
      brokerUrl: (await startLiar()).url,
      ca: expired.ca,
      host,
      env: { NODE_TLS_REJECT_UNAUTHORIZED: '0' },
    });
    expect(await unknown.until('backoff')).toMatchObject({ last_error: expect.stringContaining('certificate') });
    expect(expired.hosts).toEqual([]);
  });
});
