import { expect, it, vi } from 'vitest';
import { say, start, stateOf, subscribe } from '../support/custody.ts';
import { describeMatrix, pair } from '../support/relay.ts';

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

describeMatrix('custody of messages (contract 04 §5.4a)', (start) => {
  it('§5.4a: a message outlives a kill of the relay that had written it', async () => {
    const target = await start();
    const phone = await pair(target);
    await subscribe(phone.client);
    phone.client.ignorePings();
    await say(target, 'm1');
    await target.restart();
    expect(await stateOf(target, 'm1')).toBe('queued');
    phone.client.terminate();
  });
});
