import { expect, it } from 'vitest';
import { MAX_WAITING } from '../../../lib/mirror/outbox.ts';
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
