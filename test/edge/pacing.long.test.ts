import { describe, expect, it } from 'vitest';
import { connect } from '../support/client.ts';
import { startEdgeTarget } from '../support/edge.ts';
import { startFakeApi } from '../support/fake-api-server.ts';
import { pair } from '../support/relay.ts';

const MiB = 1024 * 1024;

describe('what a socket at the edge may send and gets', () => {
  it('contract 01 §12: a client that never sends a frame gets 1 MiB, and the producer pauses', async () => {
    const api = await startFakeApi();
    const target = await startEdgeTarget({ env: { RELAY_WEBAPI_URL: api.url } });
    const { client } = await pair(target);
    const delta = 'x'.repeat(32 * 1024);
    const total = 512;
    let written = 0;
    api.onStream(async (exchange) => {
      exchange.open();
      for (; written < total && !exchange.abandoned; written++) {
        await exchange.event({ type: 'assistant.delta', delta });
      }
      exchange.end();
    });
    let received = 0;
    client.socket.on('message', (data: Buffer) => {
      received += data.length;
    });
    const settled = async () => {
      for (let last = -1; last !== received; ) {
        last = received;
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
      return received;
    };

    client.send('chat', 'chat.send', { message: 'hi', session_id: 's1' }, 'c1');
    await expect.poll(() => received).toBeGreaterThan(MiB);
    const first = await settled();
    // A chunk of the upstream may hold a few events.
    expect(first).toBeLessThan(1.5 * MiB);
    expect(written, 'the upstream is not read').toBeLessThan(total);

    client.send('system', 'ping', {}, 'p1');
    await client.next({ type: 'pong', id: 'p1' });
    await expect.poll(() => received).toBeGreaterThan(first + MiB / 2);
    const second = await settled();
    expect(second).toBeLessThan(first + 1.5 * MiB);

    // A client that answers gets everything.
    const pings = setInterval(() => client.send('system', 'ping'), 20);
    await expect.poll(() => received).toBeGreaterThan(total * delta.length);
    clearInterval(pings);
    client.close();
  });

  it('contract 02 §1.1: a message over 30 MiB closes the socket with 1009, one below is delivered', async () => {
    const target = await startEdgeTarget();
    const { client, token } = await pair(target);
    const frame = (size: number) => {
      const head = '{"channel":"bridge","type":"bridge.unknown","id":"x","payload":{"filler":"';
      return `${head}${'x'.repeat(size - head.length - 3)}"}}`;
    };
    client.socket.send(frame(29 * MiB));
    client.send('system', 'ping', {}, 'alive');
    await client.next({ id: 'alive' });
    client.socket.send(frame(31 * MiB));
    expect(await client.closed()).toMatchObject({ code: 1009 });

    const again = await connect(target.wsUrl);
    again.send('system', 'auth', { session_token: token });
    await again.next({ type: 'auth.ok' });
    again.close();
  });
});

describe('contract 01 §12: /relay/info lists chat only where it works', () => {
  const listed = async (env: Record<string, string>) => {
    const target = await startEdgeTarget({ env });
    const { capabilities } = await (await target.operator('/relay/info')).json();
    return capabilities.includes('chat');
  };

  it('not without RELAY_WEBAPI_URL, nor with one that nothing answers', async () => {
    expect(await listed({})).toBe(false);
    expect(await listed({ RELAY_WEBAPI_URL: 'http://127.0.0.1:1' })).toBe(false);
  });

  it('with one that answers, and without sending it a credential', async () => {
    const server = await startFakeApi();
    expect(await listed({ RELAY_WEBAPI_URL: server.url, API_SERVER_KEY: 'secret' })).toBe(true);
    expect(server.requests.map(({ path }) => path)).toEqual(['/health']);
    expect(JSON.stringify(server.requests.map(({ headers }) => headers))).not.toContain('secret');
  });
});
