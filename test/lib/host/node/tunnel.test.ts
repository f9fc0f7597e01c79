import { once } from 'node:events';
import { connect as connectTcp, type Socket } from 'node:net';
import { describe, expect, it, vi } from 'vitest';
import type { WebSocket } from 'ws';
import { NotListening, type TunnelRequest } from '../../../../lib/host/dial.ts';
import { createPinnedConnector } from '../../../../lib/host/node/pinned.ts';
import { openTunnel } from '../../../../lib/host/node/tunnel.ts';
import { newId } from '../../../../lib/reach/ids.ts';
import { encodeMessage } from '../../../../lib/reach/messages.ts';
import { closedPort } from '../../../support/closed-port.ts';
import { MIB, setup } from './tunnel-support.ts';

/** Sends messages so that they arrive together. */
function inOneChunk(client: WebSocket, messages: (string | Buffer)[]): void {
  const { _socket: socket } = client as unknown as { _socket: Socket };
  socket.cork();
  for (const message of messages) client.send(message);
  socket.uncork();
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
    else expect(failures).toEqual(['the broker sent an unexpected message']);
  });

  it('rejects when an unexpected message comes together with the match', async (context) => {
    const { broker, connect } = await setup(context);
    broker.behave((client) =>
      inOneChunk(client, [encodeMessage({ type: 'matched', stream_id: newId() }), 'unexpected']),
    );
    await expect(connect()).rejects.toThrow('the broker sent an unexpected message');
  });

  it('rejects when an unexpected message comes together with the end of the TLS handshake', async (context) => {
    const { broker, connect, port } = await setup(context);
    broker.behave((client) => {
      const upstream = connectTcp(port, '127.0.0.1');
      client.send(encodeMessage({ type: 'matched', stream_id: newId() }));
      client.on('message', (data: Buffer) => upstream.write(data));
      client.on('close', () => upstream.destroy());
      upstream.on('data', (bytes) => inOneChunk(client, [bytes, 'unexpected']));
      upstream.on('error', () => {});
    });
    await expect(connect()).rejects.toThrow('the broker sent an unexpected message');
  });
});
