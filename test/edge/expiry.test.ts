import { expect, it } from 'vitest';
import { createExpiry, ENDS, UNUSED_FOR } from '../../cli/runtime/edge/expiry.ts';
import { type EvictedRelay, startEvictedRelay } from '../support/evicted-relay.ts';
import { noLog } from '../support/states.ts';

const DAY = 86_400_000;
/** Milliseconds for which a pairing code is good. */
const CODE = 600_000;
/** A P-256 public key, base64url, as home has one. */
async function homeKey(): Promise<string> {
  const { publicKey } = (await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, [
    'sign',
  ])) as CryptoKeyPair;
  return Buffer.from(await crypto.subtle.exportKey('raw', publicKey)).toString('base64url');
}

/** The expiry of a relay whose memory can be taken away. `left().alarms` are its pending timers. */
async function start() {
  const object = await startEvictedRelay();
  const stored = new Map<string, number>();
  const alarms = new Set<number>();
  let writes = 0;
  const wake = () =>
    createExpiry({
      storage: {
        put: async (key, value) => {
          stored.set(key, value);
          writes++;
        },
        delete: async (key) => stored.delete(key) && void writes++,
      },
      relay: object.relay,
      stores: object.stores,
      clock: {
        ...object.clock,
        after(delay, run) {
          const at = object.clock.now() + delay;
          alarms.add(at);
          const cancel = object.clock.after(delay, () => {
            alarms.delete(at);
            run();
          });
          return () => {
            alarms.delete(at);
            cancel();
          };
        },
      },
      log: noLog,
      ends: stored.get(ENDS),
    });
  let expiry = wake();
  return {
    object,
    /** Days until the end and until each alarm, as they are after an event. */
    left() {
      expiry.check();
      const days = (at: number) => Math.round(((at - object.clock.now()) / DAY) * 1_000) / 1_000;
      const ends = stored.get(ENDS);
      return { ends: ends === undefined ? undefined : days(ends), alarms: [...alarms].map(days) };
    },
    writes: () => writes,
    isOver: () => expiry.isOver(),
    async evict() {
      alarms.clear();
      await object.evict();
      expiry = wake();
    },
  };
}

const revoke = async ({ relay }: EvictedRelay, token: string) => {
  const session = relay.sessions.authenticate(token);
  if (session) await relay.sessions.revoke(session, { by: 'operator' });
};

it('an object without use ends 30 days after its first one, over any sleep, and writes that once', async () => {
  const { object, left, isOver, evict, writes } = await start();
  expect(left()).toEqual({ ends: 30, alarms: [30] });
  await object.clock.advanceAsync(20 * DAY);
  await evict();
  expect(left().ends).toBeCloseTo(10, 3);
  for (let event = 0; event < 100; event++) left();
  expect(writes()).toBe(1);
  expect(await isOver()).toBe(false);
  await object.clock.advanceAsync(10 * DAY - 2_000);
  expect(await isOver()).toBe(false);
  await object.clock.advanceAsync(2_000);
  expect(await isOver()).toBe(true);
});

it('a usable code puts the end off, and a request to pair does not', async () => {
  const { object, left, isOver } = await start();
  left();
  await object.clock.advanceAsync(29 * DAY);
  await object.relay.codes.request('192.0.2.1');
  expect(left().ends).toBeCloseTo(1, 3);
  await object.relay.codes.register('ABC123', {});
  const whole = 30 + CODE / DAY;
  expect(left()).toEqual({ ends: expect.closeTo(whole, 2), alarms: [expect.closeTo(whole, 2)] });
  await object.clock.advanceAsync(30 * DAY);
  expect(await isOver()).toBe(false);
  await object.clock.advanceAsync(CODE);
  expect(await isOver()).toBe(true);
});

it('a session cancels it, and the 30 days count from the end of the last one', async () => {
  const { object, left, isOver, evict } = await start();
  left();
  await object.clock.advanceAsync(25 * DAY);
  const phone = await object.connect({ device_id: 'a' });
  const other = await object.connect({ device_id: 'b' });
  // The alarm is now that of the next end of a session, which may be the last.
  expect(left()).toEqual({ ends: undefined, alarms: [expect.closeTo(30, 2)] });
  await object.clock.advanceAsync(6 * DAY);
  expect(await isOver()).toBe(false);
  await revoke(object, phone.token);
  await evict();
  expect(left().ends).toBeUndefined();
  await revoke(object, other.token);
  expect(left()).toEqual({ ends: 30, alarms: [30] });
  // One that comes and goes between two checks counts.
  await object.clock.advanceAsync(29 * DAY);
  const third = await object.connect({ device_id: 'c' });
  await revoke(object, third.token);
  expect(left().ends).toBeGreaterThan(29.99);
});

it('a session that expires while the object sleeps counts from its alarm', async () => {
  const { object, left, isOver, evict } = await start();
  await object.connect();
  expect(left().ends).toBeUndefined();
  await object.clock.advanceAsync(30 * DAY);
  await evict();
  await object.relay.sweep();
  expect(await isOver()).toBe(false);
  expect(left()).toEqual({ ends: 30, alarms: [30] });
  await object.clock.advanceAsync(30 * DAY);
  expect(await isOver()).toBe(true);
});

it('a pinned home has no alarm at all, and its relay never ends', async () => {
  const { object, left, isOver, evict } = await start();
  left();
  await object.relay.edgeMirror?.pin(await homeKey());
  expect(left()).toEqual({ ends: undefined, alarms: [] });
  await object.connect();
  expect(left()).toEqual({ ends: undefined, alarms: [] });
  await object.clock.advanceAsync(400 * DAY);
  await evict();
  await object.relay.sweep();
  expect(await isOver()).toBe(false);
  expect(left()).toEqual({ ends: undefined, alarms: [] });
  await object.relay.edgeMirror?.unpin();
  await object.relay.sweep();
  expect(left()).toEqual({ ends: 30, alarms: [30] });
});

it.each([
  ['sessions', 'f'.repeat(32)],
  ['mirror', 'peer'],
] as const)('fails closed: with a record in %s that cannot be read, the relay stays', async (store, key) => {
  const { object, left, isOver } = await start();
  left();
  await object.stores.open(store).setItem(key, 'damaged' as never);
  await object.clock.advanceAsync(UNUSED_FOR);
  expect(await isOver()).toBe(false);
  expect(left()).toEqual({ ends: 30, alarms: [30] });
  await object.stores.open(store).removeItem(key);
  await object.clock.advanceAsync(UNUSED_FOR);
  expect(await isOver()).toBe(true);
});
