import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { describe, expect, it, onTestFinished, type TestContext, vi } from 'vitest';
import { routeTo } from '../../../../lib/companion/link/reach.ts';
import { NotListening, type PinnedRoute, type TunnelRequest } from '../../../../lib/host/dial.ts';
import { createPinnedConnector } from '../../../../lib/host/node/pinned.ts';
import { createCallRelay } from '../../../../lib/host/node/relay-call.ts';
import { createTrust } from '../../../../lib/host/node/trust.ts';
import { openTunnel } from '../../../../lib/host/node/tunnel.ts';
import { newId, newToken } from '../../../../lib/reach/ids.ts';
import { encodeMessage } from '../../../../lib/reach/messages.ts';
import { makeIdentity } from '../../../support/certificate.ts';
import { closedPort } from '../../../support/closed-port.ts';
import { startFakeBroker } from '../../../support/fake-broker.ts';

const MIB = 1024 * 1024;

/** A pinned origin behind a broker, and the ways to reach it. */
async function setup(context: TestContext) {
  const identity = await makeIdentity(context, { san: 'DNS:relay.home' });
  let open = 0;
  const received: number[] = [];
  const server = createServer({ cert: identity.cert, key: identity.key }, async (request, response) => {
    let size = 0;
    for await (const chunk of request) size += chunk.length;
    received.push(size);
    const bytes = Number(request.headers['x-bytes'] ?? 0);
    response.end(Buffer.alloc(bytes, 'x'));
  });
  server.on('secureConnection', (socket: TLSSocket) => {
    open++;
    socket.on('close', () => open--);
    socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const broker = await startFakeBroker(context, { port: (server.address() as AddressInfo).port });
  const trust = createTrust([await readFile(broker.ca, 'utf8')]);
  const pinned = createPinnedConnector({ trust });
  const { pin, certDer } = identity;
  const bootstrap = { token: newToken(), expiresAt: 2e9 };
  const endpoint = {
    role: 'outbound_broker',
    url: 'wss://relay.home:9443/relay/ws',
    priority: 0,
    pinned: { pin, certDer },
    broker: { url: broker.url, hostId: newId(), bootstrap },
  };
  const route = routeTo(endpoint, null, 1) as PinnedRoute;
  const never = new AbortController().signal;
  const connect = (signal = never) => pinned.connect(endpoint.url, route, signal);
  const call = (headers: Record<string, string> = {}, body?: Uint8Array) =>
    createCallRelay(pinned)({
      socketUrl: endpoint.url,
      route,
      refuse: () => null,
      method: 'POST',
      path: '/media/upload',
      headers,
      body,
      limit: 64 * MIB,
    });
  return { broker, endpoint, trust, route, connect, call, received, identity, open: () => open };
}

describe('a tunnel through a broker (08 §7.9)', () => {
  it('registers with exact keys and a fresh connection ID, and carries TLS both ways', async (context) => {
    const { broker, endpoint, call, received, open } = await setup(context);
    const body = new Uint8Array(3 * MIB).fill(7);
    const answers = await Promise.all([call({ 'x-bytes': `${5 * MIB}` }, body), call({}, body), call()]);
    expect(answers.map(({ status, bytes }) => [status, bytes.length])).toEqual([
      [200, 5 * MIB],
      [200, 0],
      [200, 0],
    ]);
    expect(received.sort()).toEqual([0, 3 * MIB, 3 * MIB]);
    const { hostId, bootstrap } = endpoint.broker;
    expect(broker.registered).toHaveLength(3);
    for (const register of broker.registered) {
      expect(register).toMatchObject({
        role: 'client',
        host_id: hostId,
        credential_kind: 'bootstrap',
        token: bootstrap.token,
      });
    }
    expect(new Set(broker.registered.map(({ connection_id }) => connection_id)).size).toBe(3);
    expect(broker.problems).toEqual([]);
    expect(broker.largest).toBeLessThanOrEqual(64 * 1024);
    // Every tunnel ends with its call.
    await vi.waitFor(() => expect([broker.tunnels, open()]).toEqual([0, 0]));
  });

  it('ends with the connection inside it, and the other way round', async (context) => {
    const { broker, connect, open } = await setup(context);
    const first = await connect();
    first.destroy();
    await vi.waitFor(() => expect([broker.tunnels, open()]).toEqual([0, 0]));
    const second = await connect();
    second.on('error', () => {});
    const ended = once(second, 'close');
    broker.drop();
    await ended;
    await vi.waitFor(() => expect([broker.tunnels, open()]).toEqual([0, 0]));
  });

  it('needs a broker whose certificate is of a known authority', async (context) => {
    const { endpoint, route } = await setup(context);
    const stranger = createPinnedConnector().connect(endpoint.url, route, new AbortController().signal);
    await expect(stranger).rejects.toThrow(/^broker: .*certificate/);
  });

  it('does not reach another relay, whatever the broker does', async (context) => {
    const { endpoint, route, trust, broker } = await setup(context);
    const other = await makeIdentity(context, { san: 'DNS:relay.home' });
    const origin = { pin: other.pin, certDer: other.certDer };
    const pinned = createPinnedConnector({ trust });
    await expect(pinned.connect(endpoint.url, { ...route, origin }, new AbortController().signal)).rejects.toThrow(
      /neither the paired one/,
    );
    await vi.waitFor(() => expect(broker.tunnels).toBe(0));
  });

  it.for([
    ['refuses', encodeMessage({ type: 'error', code: 'host_offline' }), /not connected to the broker \(host_offline\)/],
    ['refuses with a code of its own', encodeMessage({ type: 'error', code: '\u001b[2Jnews' }), /\(\?\?2Jnews\)$/],
    ['adds a key', JSON.stringify({ type: 'matched', protocol_version: 1, stream_id: newId(), x: 1 }), /no answer/],
    ['has a wrong ID', JSON.stringify({ type: 'matched', protocol_version: 1, stream_id: 'x' }), /no answer/],
    ['has another version', JSON.stringify({ type: 'matched', protocol_version: 2, stream_id: newId() }), /no answer/],
    ['answers for a host', encodeMessage({ type: 'registered' }), /no answer/],
    ['answers with bytes', Buffer.from([1, 2, 3]), /no answer/],
    ['talks without an end', 'x'.repeat(2 * MIB), /broker/],
  ] as const)('a broker that %s gets no further', async ([_name, answer, reason], context) => {
    const { broker, connect } = await setup(context);
    broker.behave((client) => client.send(answer));
    await expect(connect()).rejects.toThrow(reason);
    expect(broker.registered).toHaveLength(1);
  });

  it('tells a relay or a broker that is away from any other refusal (issue 23 §2.4)', async (context) => {
    const { broker, connect, route, trust } = await setup(context);
    const failure = (attempt: Promise<unknown>) => attempt.catch((error) => error);
    broker.behave((client) => client.send(encodeMessage({ type: 'error', code: 'host_offline' })));
    expect(await failure(connect())).toBeInstanceOf(NotListening);
    broker.behave((client) => client.send(encodeMessage({ type: 'error', code: 'unauthorized' })));
    expect(await failure(connect())).not.toBeInstanceOf(NotListening);
    const away = { ...(route.tunnel as TunnelRequest), url: `wss://127.0.0.1:${await closedPort()}/v1/connect` };
    const { signal } = new AbortController();
    expect(await failure(openTunnel(away, { trust, signal }))).toBeInstanceOf(NotListening);
  });

  it('a broker that closes, refuses the upgrade, or stalls fails in time', async (context) => {
    const { broker, connect, route, trust } = await setup(context);
    broker.behave((client) => client.close(1008));
    await expect(connect()).rejects.toThrow(/closed the connection/);
    broker.behave(() => {});
    const tunnel = route.tunnel as NonNullable<typeof route.tunnel>;
    const signal = new AbortController().signal;
    await expect(openTunnel(tunnel, { trust, signal, answerTimeout: 50 })).rejects.toThrow(/in time/);
    await expect(openTunnel({ ...tunnel, url: tunnel.url.replace('connect', 'x') }, { trust, signal })).rejects.toThrow(
      /HTTP 400/,
    );
    const abort = new AbortController();
    const stalled = connect(abort.signal);
    broker.behave(() => abort.abort());
    await expect(stalled).rejects.toThrow(/aborted/);
  });

  it.for([
    ['text', 'hello'],
    ['an empty message', Buffer.alloc(0)],
    ['the end', null],
  ] as const)('after the match, %s instead of data ends the stream', async ([_name, message], context) => {
    const { broker, trust, route } = await setup(context);
    const tunnel = route.tunnel as NonNullable<typeof route.tunnel>;
    broker.behave((client) => {
      client.send(encodeMessage({ type: 'matched', stream_id: newId() }));
      client.send(Buffer.from('ok'));
      if (message === null) client.close(1000);
      else client.send(message);
    });
    const stream = await openTunnel(tunnel, { trust, signal: new AbortController().signal });
    const failures: string[] = [];
    stream.on('error', ({ message }) => failures.push(message));
    const closed = new Promise((resolve) => stream.on('close', resolve));
    const seen: string[] = [];
    stream.on('data', (bytes) => seen.push(String(bytes)));
    await closed;
    // Data before an orderly end is delivered.
    if (message === null) expect([seen.join(''), failures]).toEqual(['ok', []]);
    else expect(failures).toEqual(['the broker sent what is no data']);
  });

  it('stops reading while nobody reads the stream, and writes no faster than the broker takes', async (context) => {
    const { broker, trust, route } = await setup(context);
    const tunnel = route.tunnel as NonNullable<typeof route.tunnel>;
    let sent = 0;
    let taken = 0;
    let resume = () => {};
    broker.behave((client) => {
      client.pause();
      resume = () => client.resume();
      client.on('message', (data: Buffer) => {
        taken += data.length;
      });
      client.send(encodeMessage({ type: 'matched', stream_id: newId() }));
      const more = () => {
        if (sent >= 64 * MIB || client.readyState !== client.OPEN) return;
        sent += MIB;
        client.send(Buffer.alloc(MIB), more);
      };
      more();
    });
    const stream: Duplex = await openTunnel(tunnel, { trust, signal: new AbortController().signal });
    onTestFinished(() => void stream.destroy());
    const settled = async (value: () => number) => {
      let before = -1;
      await vi.waitFor(
        () => {
          const now = value();
          const isStill = now === before && now > 0;
          before = now;
          expect(isStill).toBe(true);
        },
        { interval: 300 },
      );
    };
    stream.once('readable', () => {});
    await settled(() => sent);
    expect(sent).toBeLessThan(32 * MIB);
    expect(stream.readableLength).toBeLessThan(4 * MIB);
    let written = 0;
    while (written < 64 * MIB) {
      const isAccepted = stream.write(Buffer.alloc(MIB));
      written += MIB;
      if (!isAccepted && !(await Promise.race([once(stream, 'drain').then(() => true), later(500)]))) break;
    }
    expect(written).toBeLessThan(32 * MIB);
    resume();
    await vi.waitFor(() => expect(taken).toBe(written));
  });
});

const later = (ms: number) => new Promise<false>((resolve) => setTimeout(() => resolve(false), ms));
