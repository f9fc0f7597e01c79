import { expect, it } from 'vitest';
import { createRedemption } from '../../../lib/pairing/redemption.ts';
import { World } from './world.ts';

const MINUTES = 60_000;

/** What makes codes at each side. */
const sides = (world: World) => ({
  home: createRedemption({ codes: world.home.codes, home: () => world.home.mirror }),
  edge: createRedemption({ codes: world.edge.codes, edge: () => world.edge.mirror }),
});

/** Lets the two sides talk until a call is answered. */
async function answered<T>(world: World, call: Promise<T>): Promise<T> {
  await Promise.race([call.catch(() => {}), world.settle()]);
  return call;
}

it('a code that home makes for the edge is good there alone, once (12 §2)', async () => {
  const world = await World.open();
  await world.settle();
  const { home } = sides(world);
  const minted = await answered(world, home.mint({ ttlSeconds: 3600, without: ['terminal'] }, undefined, 'edge'));
  expect(minted.url).toBe('wss://edge.example/ws');
  expect(await world.home.codes.consume(minted.code, { secret: minted.secret })).toBeUndefined();
  await world.sleepEdge();
  const use = { secret: minted.secret };
  expect(await world.edge.codes.consume(minted.code, { secret: 'another' })).toBeUndefined();
  expect(await world.edge.codes.consume(minted.code, use)).toEqual({ ttlSeconds: 3600, without: ['terminal'] });
  expect(await world.edge.codes.consume(minted.code, use)).toBeUndefined();
});

it('a code has one redeemer, whichever side is asked first (12 §2)', async () => {
  const world = await World.open();
  await world.settle();
  const { home } = sides(world);
  expect(await answered(world, home.register('ABC123', {}, 'edge'))).toBe('wss://edge.example/ws');
  await expect(home.register('ABC123', {})).rejects.toThrow('good at the edge');
  await world.crashHome();
  await world.settle();
  await expect(sides(world).home.register('ABC123', {}, 'home')).rejects.toThrow('good at the edge');
  await sides(world).home.register('XYZ789', {}, 'home');
  await expect(sides(world).home.register('XYZ789', {}, 'edge')).rejects.toThrow('good at home');
  const raced = await Promise.all([world.home, world.edge].map(({ codes }) => codes.consume('ABC123')));
  expect(raced).toEqual([undefined, {}]);
  await world.clock.advanceAsync(11 * MINUTES);
  // Home knows it for longer: a device may have used it while the link was down.
  await expect(sides(world).home.register('ABC123', {})).rejects.toThrow('good at the edge');
});

it('refuses a code for the edge aloud without a mirror, and while the link is down', async () => {
  const world = await World.open();
  await world.settle();
  await world.cut();
  const { home, edge } = sides(world);
  const refused = { kind: 'unavailable', message: expect.stringContaining('cannot be reached now') };
  await expect(home.mint({}, undefined, 'edge')).rejects.toMatchObject(refused);
  expect((await world.stores.home.open('mirror').getKeys()).filter((key) => key.startsWith('edge-code'))).toEqual([]);
  await world.home.mirror.disable();
  await expect(home.register('ABC123', {}, 'edge')).rejects.toMatchObject({ kind: 'conflict' });
  // The edge makes its own while home is off, and none for home.
  await edge.register('ABC123', {}, 'edge');
  expect(world.edge.codes.waiting().codes).toMatchObject([{ forHome: true }]);
  await expect(edge.register('ABC124', {}, 'home')).rejects.toMatchObject({ kind: 'conflict' });
  await edge.register('ABC125', {});
  await edge.mint({});
  expect(world.edge.codes.waiting().codes.map(({ forHome }) => forHome)).toEqual([true, false, true]);
});

it('keeps what the edge may have got when its answer is lost, and fails the call', async () => {
  const world = await World.open();
  await world.settle();
  const { home } = sides(world);
  const call = home.register('ABC123', {}, 'edge');
  const lost = expect(call).rejects.toMatchObject({ kind: 'unavailable' });
  await new Promise((resolve) => setTimeout(resolve, 0));
  await world.deliver('toEdge');
  await world.cut();
  await lost;
  expect(world.edge.codes.waiting().codes).toHaveLength(1);
  await expect(home.register('ABC123', {})).rejects.toThrow('good at the edge');
});
