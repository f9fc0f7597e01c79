import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RelayError } from '../../../lib/errors.ts';
import { openGate } from '../../../lib/operations/gate.ts';
import { createStores } from '../../../storage/index.ts';
import type { Store } from '../../../storage/schema.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

async function setUp(store: Store<'freeze'> = createStores('node').open('freeze')) {
  const clock = createTestClock();
  const gate = await openGate({ store, clock, log: createTestLog() });
  return { clock, gate, store, again: () => openGate({ store, clock, log: createTestLog() }) };
}

/** A store whose next writes fail. */
function failing() {
  const store = createStores('node').open('freeze');
  const state = { isBroken: false };
  const fails = () => {
    if (state.isBroken) throw new Error('EIO');
  };
  const broken = {
    ...store,
    async setItem(...args: Parameters<typeof store.setItem>) {
      fails();
      return store.setItem(...args);
    },
    async removeItem(...args: Parameters<typeof store.removeItem>) {
      fails();
      return store.removeItem(...args);
    },
  } as Store<'freeze'>;
  return { store: broken, state };
}

describe('the gate (contract 09 §3)', () => {
  it('stays frozen with an other side that freezes again while its thaw is being stored', async () => {
    const { gate, again } = await setUp();
    const freeze = (since: number) => ({ frozen: true, since, by: 'Pixel', reason: null }) as const;
    await gate.applyRemote(freeze(1));
    await Promise.all([gate.applyRemote(undefined), gate.applyRemote(freeze(2))]);
    expect(gate.state()).toEqual(freeze(2));
    expect((await again()).state()).toEqual(freeze(2));
  });

  it('stops what is under way before anything is awaited, each once, and refuses what comes', async () => {
    const { gate } = await setUp();
    const stopped: string[] = [];
    gate.enter(({ message }) => void stopped.push(`a ${message}`));
    gate.enter(() => void stopped.push('b')).end();
    gate.enter(() => {
      throw new Error('must not keep the others');
    });
    gate.enter(({ kind, extra }) => void stopped.push(`c ${kind} ${extra?.error_code}`));
    const saved = gate.freeze('Pixel', 'x');
    expect(stopped).toEqual(['a frozen by Pixel: x', 'c locked frozen']);
    expect(() => gate.enter(() => {})).toThrow('frozen by Pixel: x');
    await saved;
    await gate.freeze('other', 'y');
    expect(gate.state()).toMatchObject({ by: 'Pixel', reason: 'x' });
    expect(stopped).toHaveLength(2);
  });

  it.each(['freeze', 'other'])('holds if the record of a freeze is damaged: %s', async (key) => {
    const { store } = await setUp();
    for (const damaged of ['x', 1, [], {}, { frozen: true }, { frozen: true, since: 'x', by: 'Pixel', reason: null }]) {
      await store.setItem(key, damaged as never);
      const { gate, clock } = await setUp(store);
      expect(gate.state()).toEqual({
        frozen: true,
        since: Math.floor(clock.now() / 1000),
        by: 'operator',
        reason: 'the record of the freeze is damaged',
      });
    }
    // As a file with a wrong byte reads.
    const entries = async (): Promise<[string, unknown][]> => [[key, null]];
    const { gate } = await setUp({ ...store, entries } as Store<'freeze'>);
    expect(() => gate.enter(() => {})).toThrow('frozen by operator: the record of the freeze is damaged');
  });

  it('is in effect although it cannot be stored, says so, and is stored later', async () => {
    const { store, state } = failing();
    const { gate, clock, again } = await setUp(store);
    state.isBroken = true;
    const error = (await gate.freeze('operator', '').catch((reason) => reason)) as RelayError;
    expect(error).toMatchObject({ kind: 'unavailable', extra: { applied: true, stored: false } });
    expect(gate.state()).toMatchObject({ frozen: true, reason: null });
    await clock.advanceAsync(5_000);
    expect((await again()).state()).toBeUndefined();
    state.isBroken = false;
    await clock.advanceAsync(5_000);
    expect((await again()).state()).toEqual(gate.state());
  });

  it('stays while its end cannot be stored', async () => {
    const { store, state } = failing();
    const { gate, again } = await setUp(store);
    await gate.freeze('operator', '');
    state.isBroken = true;
    await expect(gate.thaw('operator')).rejects.toMatchObject({ kind: 'unavailable' });
    expect(gate.state()).toBeDefined();
    expect((await again()).state()).toBeDefined();
  });

  it('tells nobody that it is frozen for good before that is stored', async () => {
    const { store, state } = failing();
    const { gate, again } = await setUp(store);
    state.isBroken = true;
    await expect(gate.freeze('Pixel', 'x')).rejects.toMatchObject({ kind: 'unavailable' });
    await expect(gate.freeze('operator', '')).rejects.toMatchObject({ kind: 'unavailable' });
    state.isBroken = false;
    await gate.freeze('operator', '');
    expect((await again()).state()).toMatchObject({ by: 'Pixel' });
  });

  it('is frozen after an end and a freeze that come at once, in this order', async () => {
    const { gate, again } = await setUp();
    await gate.freeze('Pixel', 'x');
    const thawed = gate.thaw('tablet');
    const frozen = gate.freeze('watch', 'y');
    await Promise.all([thawed, frozen]);
    expect(gate.state()).toMatchObject({ by: 'watch', reason: 'y' });
    expect((await again()).state()).toEqual(gate.state());
  });

  it('is not frozen again by a restart when the record of an ended freeze could not be removed at first', async () => {
    const { store } = failing();
    let removals = 0;
    let release = () => {};
    const slow = {
      ...store,
      async setItem(...args: Parameters<typeof store.setItem>) {
        await new Promise<void>((resolve) => {
          release = resolve;
        });
        return store.setItem(...args);
      },
      async removeItem(...args: Parameters<typeof store.removeItem>) {
        if (++removals === 2) throw new Error('EIO');
        return store.removeItem(...args);
      },
    } as Store<'freeze'>;
    const { gate, clock, again } = await setUp(slow);
    const freezing = gate.freeze('Pixel', '').catch((error) => error);
    await gate.thaw('Pixel');
    release();
    await freezing;
    await clock.advanceAsync(5_000);
    expect(gate.state()).toBeUndefined();
    expect((await again()).state()).toBeUndefined();
  });

  it('whatever comes in whatever order, memory and store agree in the end', async () => {
    const step = fc.constantFrom('freeze', 'thaw', 'wait');
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
        const { gate, again } = await setUp();
        const calls: Promise<unknown>[] = [];
        for (const name of steps) {
          if (name === 'freeze') calls.push(gate.freeze('a', ''));
          else if (name === 'thaw') calls.push(gate.thaw('b'));
          else await Promise.all(calls);
        }
        await Promise.all(calls);
        expect((await again()).state()).toEqual(gate.state());
      }),
      { numRuns: 50 },
    );
  });
});
