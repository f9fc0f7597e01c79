import { describe, expect, it } from 'vitest';
import { type EvictedRelay, type LocalClient, startEvictedRelay } from '../support/evicted-relay.ts';

const SECOND = 1000;

const send = (object: EvictedRelay, id: string) => object.relay.phone.push({ text: id, message_id: id });
const stateOf = (object: EvictedRelay, id: string) =>
  object.relay.phone.history({ since: 0, limit: 9 }).items.find((item) => item.message_id === id)?.state;
/** A phone that gets messages. */
async function listener(object: EvictedRelay, token?: string): Promise<LocalClient> {
  const phone = await object.connect({}, token);
  phone.send('proactive', 'proactive.subscribe');
  return phone;
}
/** Answers the latest ping. */
const answer = (phone: LocalClient) => phone.send('system', 'pong', phone.received('ping').at(-1));
const idsAt = (phone: LocalClient) => phone.received('phone.message').map(({ message_id }) => message_id);
/** Lets time pass for a phone that says something at the end of every step. */
async function speakFor(object: EvictedRelay, phone: LocalClient, duration: number, step: number): Promise<void> {
  for (let passed = 0; passed < duration; passed += step) {
    await object.clock.advanceAsync(step);
    phone.send('bridge', 'bridge.status', { battery: passed });
  }
}

describe('contract 04 §5.4a: a phone that is heard, and gets nothing', () => {
  it('keeps no message from coming again when it has answered on no connection', async () => {
    const object = await startEvictedRelay();
    const phone = await listener(object);
    await send(object, 'm1');
    await speakFor(object, phone, 14 * SECOND, 2 * SECOND);
    await send(object, 'm2');
    phone.close();
    expect([stateOf(object, 'm1'), stateOf(object, 'm2')]).toEqual(['queued', 'queued']);
    const again = await listener(object, phone.token);
    expect(idsAt(again)).toEqual(['m1', 'm2']);
  });

  it('keeps none from coming again for however long it is heard, when it has answered before', async () => {
    const object = await startEvictedRelay();
    const before = await listener(object);
    await send(object, 'm0');
    answer(before);
    before.close();
    // Its session is known to answer on the next connection, also after a sleep.
    const phone = await listener(object, before.token);
    await object.evict();
    await send(object, 'm1');
    await speakFor(object, phone, 200 * SECOND, 5 * SECOND);
    expect([phone.isOpen, stateOf(object, 'm1')]).toEqual([true, 'sent']);
    await object.clock.advanceAsync(20 * SECOND);
    expect([phone.isOpen, stateOf(object, 'm0'), stateOf(object, 'm1')]).toEqual([false, 'sent', 'queued']);
    // It never had a second chance to be excused from answering.
    const again = await listener(object, phone.token);
    await object.clock.advanceAsync(10 * SECOND);
    expect([again.isOpen, stateOf(object, 'm1')]).toEqual([false, 'queued']);
  });
});

describe('contract 04 §5.4a: a phone that answers no system ping', () => {
  it('keeps its socket, is asked once, and has got a message when it speaks 90 s later', async () => {
    const object = await startEvictedRelay();
    const phone = await listener(object);
    // As the status of a phone, every 30 s (contract 03 §1.3).
    const statuses = (duration: number) => speakFor(object, phone, duration, 30 * SECOND);
    await object.clock.advanceAsync(22 * SECOND);
    await send(object, 'm1');
    await object.clock.advanceAsync(8 * SECOND);
    phone.send('bridge', 'bridge.status', {});
    await statuses(60 * SECOND);
    await send(object, 'm2');
    await statuses(30 * SECOND);
    expect([phone.isOpen, idsAt(phone)]).toEqual([true, ['m1', 'm2']]);
    await statuses(120 * SECOND);
    await send(object, 'm3');
    phone.close();
    const states = ['m1', 'm2', 'm3'].map((id) => stateOf(object, id));
    expect(states).toEqual(['sent', 'sent', 'queued']);
    expect(phone.received('ping')).toHaveLength(1);
  });

  it('loses one socket by its silence, and no other one, also over a sleep', async () => {
    const object = await startEvictedRelay();
    const first = await listener(object);
    await send(object, 'm1');
    await object.clock.advanceAsync(10 * SECOND);
    expect(first.isOpen).toBe(false);
    const phone = await listener(object, first.token);
    for (let minutes = 0; minutes < 5; minutes++) {
      await object.clock.advanceAsync(60 * SECOND);
      await object.evict();
      await send(object, `n${minutes}`);
    }
    expect([phone.isOpen, phone.received('ping').length]).toEqual([true, 1]);
    expect(idsAt(phone)).toEqual(['m1', 'n0', 'n1', 'n2', 'n3', 'n4']);
    phone.close();
    expect(['m1', 'n0', 'n4'].map((id) => stateOf(object, id))).toEqual(['queued', 'queued', 'queued']);
  });

  it('is as any other phone from its first answer on', async () => {
    const object = await startEvictedRelay();
    const first = await listener(object);
    await send(object, 'm1');
    await object.clock.advanceAsync(10 * SECOND);
    const dead = await listener(object, first.token);
    await object.clock.advanceAsync(60 * SECOND);
    expect(dead.isOpen).toBe(true);
    const phone = await listener(object, first.token);
    await send(object, 'm2');
    answer(phone);
    await object.clock.advanceAsync(10 * SECOND);
    expect([dead.isOpen, phone.isOpen]).toEqual([false, true]);
    expect(idsAt(phone)).toEqual(['m2', 'm1']);
  });
});
