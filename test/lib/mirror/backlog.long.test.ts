import { expect, it } from 'vitest';
import { RelayError } from '../../../lib/errors.ts';
import { MAX_WAITING } from '../../../lib/mirror/outbox.ts';
import { openWithDevice } from './device.ts';
import { policies, World } from './world.ts';

const MORE = 300;

/** Lets messages arrive until the edge has `count` sessions. */
async function arrive(world: World, count: number): Promise<void> {
  for (let tries = 0; tries < 40_000; tries++) {
    await world.deliverAll();
    if (!world.wire) await world.heal();
    if (world.edge.sessions.count() === count && (await world.home.mirror.status()).waiting.out === 0) return;
  }
  throw new Error(`the edge has ${world.edge.sessions.count()} sessions`);
}

it('gives the edge more sessions than may wait, as there is room, and an end that comes while too much waits', async () => {
  const world = await World.open({ maxSessions: 20_000 });
  await world.settle();
  await world.cut();
  let last = '';
  for (let n = 0; n < MAX_WAITING + MORE; n++) last = (await world.pair(`device-${n}`)).family;
  expect((await world.home.mirror.status()).waiting.out).toBe(MAX_WAITING);
  expect(await world.home.mirror.confirmed(last)).toBe('pending');
  // A session whose op waits ends: the edge must hear that.
  const [first] = world.home.sessions.list().filter(({ device }) => device.id === 'device-0');
  if (!first) throw new Error('not paired');
  await world.home.sessions.revoke(first);
  await world.heal();
  await arrive(world, MAX_WAITING + MORE - 1);
  expect(policies(world.edge.sessions)).toEqual(policies(world.home.sessions));

  // The edge comes back without its state: all of it again.
  await world.cut();
  await world.stores.edge.open('sessions').clear();
  await world.stores.edge.open('mirror').removeItem('applied');
  await world.startEdge();
  await world.heal();
  await arrive(world, MAX_WAITING + MORE - 1);
  expect(policies(world.edge.sessions)).toEqual(policies(world.home.sessions));
  world.home.mirror.stop();
}, 300_000);

it('12 §2: the edge refuses messages aloud once 10,000 changes wait for home, and none before them is lost or doubled', {
  timeout: 300_000,
}, async () => {
  const { world, device } = await openWithDevice();
  await world.cut();
  device.connect('edge');
  const accepted: string[] = [];
  let refused: unknown;
  while (!refused && accepted.length <= MAX_WAITING) {
    const id = `m${accepted.length}`;
    await world.edge.phone.push({ text: id, message_id: id }).then(
      () => accepted.push(id),
      (error) => {
        refused = error;
      },
    );
    device.receiveAll();
  }
  expect(refused).toBeInstanceOf(RelayError);
  expect(refused).toMatchObject({ kind: 'unavailable', extra: { error_code: 'mirror_backlog' } });
  expect(accepted.length).toBeGreaterThanOrEqual(MAX_WAITING / 2);
  expect(device.shown).toEqual(accepted);
  expect(world.edge.phone.history({ since: 0, limit: 1 }).items).toHaveLength(1);

  await world.heal();
  const waiting = async () => {
    const sides = [await world.home.mirror.status(), world.edge.mirror.status()];
    return sides.reduce((sum, { waiting }) => sum + waiting.out + waiting.in, 0);
  };
  // Home has each of them, and tells the edge its number in the history.
  for (let tries = 0; (await waiting()) > 0 && tries < 40_000; tries++) await world.deliverAll();
  await world.settle();
  const ids = (side: 'home' | 'edge') =>
    world[side].phone.history({ since: 0, limit: 500 }).items.map(({ message_id }) => message_id);
  expect(ids('home')).toEqual(accepted.slice(-500));
  expect(ids('edge')).toEqual(accepted.slice(-500));
  expect(device.repeated).toEqual([]);
  expect(await world.edge.phone.push({ text: 'again', message_id: 'again' })).toMatchObject({ delivered: true });
  world.home.mirror.stop();
});
