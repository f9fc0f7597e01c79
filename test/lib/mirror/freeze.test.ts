import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../support/runs.ts';
import { World } from './world.ts';

const isFrozen = (world: World) => [world.home.gate.state() !== undefined, world.edge.gate.state() !== undefined];

describe('a freeze on both sides (12 §2)', () => {
  it('begins on both, and whoever ends it on one side ends it on both', async () => {
    const world = await World.open();
    await world.settle();
    for (const [side, other] of [
      ['home', 'edge'],
      ['edge', 'home'],
    ] as const) {
      await world[side].gate.freeze('Pixel', 'lost');
      await world.settle();
      expect(world[other].gate.state()).toMatchObject({ frozen: true, by: 'Pixel', reason: 'lost' });
      expect(() => world[other].gate.requireThawed()).toThrow('frozen by Pixel: lost');
      const thawed = world[other].gate.thaw('operator');
      await world.settle();
      await thawed;
      expect(isFrozen(world)).toEqual([false, false]);
    }
  });

  it('stops at once what is under way on the other side, and tells every listener', async () => {
    const world = await World.open();
    await world.settle();
    const stopped: string[] = [];
    const heard: boolean[] = [];
    world.edge.gate.enter((why) => stopped.push(why.message));
    world.edge.gate.onChange((freeze) => heard.push(freeze !== undefined));
    await world.home.gate.freeze('operator', '');
    await world.settle();
    expect(stopped).toEqual(['frozen by operator']);
    await world.home.gate.thaw('operator');
    await world.settle();
    expect(heard).toEqual([true, false]);
  });

  it('of the other side cannot be ended while the link is down: this side stays frozen, also after a restart', async () => {
    const world = await World.open();
    await world.settle();
    await world.home.gate.freeze('Pixel', '');
    await world.settle();
    await world.cut();
    await expect(world.edge.gate.thaw('operator')).rejects.toThrow(
      'home is frozen too, and cannot be reached: end it there with svc unfreeze, and it ends here once they are linked again',
    );
    await world.crashEdge();
    expect(isFrozen(world)).toEqual([true, true]);
    // Home ends its own, which the edge hears when it is linked.
    await world.home.gate.thaw('operator');
    expect(isFrozen(world)).toEqual([false, true]);
    await world.settle();
    expect(isFrozen(world)).toEqual([false, false]);
  });

  it('is over with the mirror, where it was of the other side', async () => {
    const world = await World.open();
    await world.settle();
    await world.edge.gate.freeze('operator', '');
    await world.settle();
    await world.home.mirror.disable();
    expect(isFrozen(world)).toEqual([false, true]);
  });
});

type Step =
  | { do: 'freeze' | 'thaw'; side: 'home' | 'edge' }
  | { do: 'toHome' | 'toEdge'; count: number }
  | { do: 'cut' | 'heal' | 'crashHome' | 'crashEdge' | 'sleepEdge' | 'second' };

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constantFrom('freeze', 'thaw'), side: fc.constantFrom('home', 'edge') }),
  fc.record({ do: fc.constantFrom('toHome', 'toEdge'), count: fc.integer({ min: 1, max: 5 }) }),
  fc.record({ do: fc.constantFrom('cut', 'heal', 'crashHome', 'crashEdge', 'sleepEdge', 'second') }),
) as fc.Arbitrary<Step>;

async function play(steps: readonly Step[]): Promise<void> {
  const world = await World.open();
  for (const one of steps) {
    switch (one.do) {
      case 'freeze':
        await world[one.side].gate.freeze(one.side, '');
        break;
      case 'thaw':
        // It may have to wait for the other side.
        void world[one.side].gate.thaw('operator').catch(() => {});
        await Promise.resolve();
        break;
      case 'second':
        await world.clock.advanceAsync(1_000);
        break;
      case 'toHome':
      case 'toEdge':
        for (let n = 0; n < one.count; n++) await world.deliver(one.do);
        break;
      default:
        await world[one.do]();
    }
    for (const side of ['home', 'edge'] as const) {
      const { gate } = world[side];
      if (gate.own()) expect(gate.state(), `${side} is frozen by itself`).toBeDefined();
    }
  }
  await world.settle();
  const isOwn = world.home.gate.own() !== undefined || world.edge.gate.own() !== undefined;
  expect(isFrozen(world), 'both are frozen while either is').toEqual([isOwn, isOwn]);
  world.home.mirror.stop();
}

it('both sides are frozen while either is, after any freezes, ends, cuts and crashes', async () => {
  await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), play), { numRuns: runs(100) });
});
