import { expect, it, vi } from 'vitest';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import type { Client } from '../support/client.ts';
import { createTestClock } from '../support/clock.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { authenticate, describeMatrix, pair, post, type Target } from '../support/relay.ts';

const pending = cleanups();
const asTool = { headers: { 'x-svc-operator': '1' } };

async function say(target: Target, id: string) {
  const response = await target.operator('/phone/message', { ...post({ text: id, message_id: id }), ...asTool });
  return response.json();
}

async function stateOf(target: Target, id: string): Promise<string | undefined> {
  const answer = await (await target.operator('/phone/history', asTool)).json();
  const { items } = answer as { items: { message_id: string; state: string }[] };
  return items.find((item) => item.message_id === id)?.state;
}

async function subscribe(client: Client): Promise<void> {
  client.send('proactive', 'proactive.subscribe');
  await client.next({ type: 'proactive.subscribed' });
}

/** A relay on a test clock, and a phone that reaches it through a proxy. */
async function start() {
  const clock = createTestClock();
  const target = await startBuiltTarget({ clock });
  const proxy = await startFlakyProxy({ port: target.port, seed: 1, faults: ['none'] });
  pending.push(target.stop, proxy.close);
  const through = { ...target, wsUrl: `ws://127.0.0.1:${proxy.port}/ws` };
  const { client, token } = await pair(through);
  pending.push(() => client.terminate());
  await subscribe(client);
  const comeBack = async () => {
    const { client } = await authenticate(target, { session_token: token });
    pending.push(() => client.terminate());
    await subscribe(client);
    return client;
  };
  return { clock, target, proxy, client, comeBack };
}

it('§5.4a: a message written to a dead connection is queued again within 12 s, and delivered under its id', async () => {
  const { clock, target, proxy, comeBack } = await start();
  proxy.strike('stall');
  expect(await say(target, 'm1')).toEqual({ delivered: true, message_id: 'm1' });
  expect(await say(target, 'm2')).toMatchObject({ delivered: true });
  expect(await stateOf(target, 'm1')).toBe('sent');
  await clock.advanceAsync(12_000);
  expect(target.relay.sockets.count()).toBe(0);
  expect([await stateOf(target, 'm1'), await stateOf(target, 'm2')]).toEqual(['queued', 'queued']);
  const again = await comeBack();
  for (const id of ['m1', 'm2']) {
    expect((await again.next({ type: 'phone.message' })).payload).toMatchObject({
      message_id: id,
      queued_delivery: true,
    });
  }
  expect((await again.next({ type: 'proactive.backlog.complete' })).payload).toMatchObject({ count: 2 });
  expect(await stateOf(target, 'm2')).toBe('sent');
});

it('§5.4a: what a phone sends while it gets nothing proves nothing', async () => {
  const { clock, target, proxy, client, comeBack } = await start();
  proxy.strike('half-open', 'down');
  await say(target, 'm1');
  for (let seconds = 0; seconds < 30; seconds += 5) {
    client.send('bridge', 'bridge.status', { ts: seconds });
    await clock.advanceAsync(5_000);
  }
  client.terminate();
  await vi.waitFor(async () => expect(await stateOf(target, 'm1')).toBe('queued'));
  expect((await (await comeBack()).next({ type: 'phone.message' })).id).toBe('m1');
});

it('§5.4a: a phone that answers keeps its socket and gets nothing twice; the answer alone frees the message', async () => {
  const { clock, target, client, comeBack } = await start();
  const pinged = new Promise((resolve) => client.socket.once('ping', resolve));
  await say(target, 'm1');
  await pinged;
  await client.next({ id: 'm1' });
  // The answer to this follows the pong.
  client.send('system', 'ping', {}, 'p');
  await client.next({ id: 'p' });
  await clock.advanceAsync(12_000);
  expect(target.relay.sockets.count()).toBe(1);
  client.terminate();
  await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(0));
  const again = await comeBack();
  await say(target, 'm2');
  expect((await again.next({ type: 'phone.message' })).id).toBe('m2');
  expect(await stateOf(target, 'm1')).toBe('sent');
});

describeMatrix('custody of messages (contract 04 §5.4a)', (start, runtime) => {
  it('§5.4a: a receipt or an answer frees the message; without one it outlives the socket', async () => {
    const target = await start();
    const phone = await pair(target);
    await subscribe(phone.client);
    await say(target, 'm0');
    if (runtime === 'edge') {
      const { payload } = await phone.client.next({ channel: 'system', type: 'ping' });
      phone.client.send('system', 'pong', payload);
    } else await new Promise((resolve) => phone.client.socket.once('ping', resolve));
    // No ping is answered any more.
    (phone.client.socket as unknown as { _autoPong: boolean })._autoPong = false;
    for (const id of ['m1', 'm2', 'm3']) await say(target, id);
    phone.client.send('proactive', 'proactive.shown', { message_id: 'm1' });
    phone.client.send('proactive', 'proactive.reply', { text: 'yes', reply_to: 'm3', message_id: 'r' }, 'r');
    await phone.client.next({ id: 'r' });
    phone.client.terminate();
    await vi.waitFor(async () => expect(await stateOf(target, 'm2')).toBe('queued'));
    expect([await stateOf(target, 'm1'), await stateOf(target, 'm3')]).toEqual(['shown', 'answered']);
    const { client } = await authenticate(target, { session_token: phone.token });
    await subscribe(client);
    expect((await client.next({ type: 'proactive.backlog.complete' })).payload).toMatchObject({ count: 1 });
    expect(client.frames.filter(({ type }) => type === 'phone.message').map(({ id }) => id)).toEqual(['m2']);
    client.close();
  });

  it('§5.4a: a message outlives a kill of the relay that had written it', async () => {
    const target = await start();
    const phone = await pair(target);
    await subscribe(phone.client);
    (phone.client.socket as unknown as { _autoPong: boolean })._autoPong = false;
    await say(target, 'm1');
    await target.restart();
    expect(await stateOf(target, 'm1')).toBe('queued');
    phone.client.terminate();
  });
});
