import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  givesAway,
  isLater,
  isStanding,
  type Known,
  laterOf,
  reception,
  type Situation,
} from '../../../lib/phone/custody.ts';
import type { MessageStanding } from '../../../storage/schema.ts';

const STANDINGS: MessageStanding[] = [
  'queued',
  'dropped',
  'expired',
  'cancelled',
  'sent',
  'shown',
  'withdrawn',
  'answered',
];
const standing = fc.constantFrom(...STANDINGS);
const situation = fc.record({ isLinked: fc.boolean(), isHeardHere: fc.boolean(), isHeardThere: fc.boolean() });

describe('the rules of custody (contract 12 §2)', () => {
  it('states only advance, and both sides get to the same one in whatever order they hear of them', () => {
    fc.assert(
      fc.property(fc.array(standing, { minLength: 1 }), fc.array(fc.nat()), (heard, order) => {
        const shuffled = heard.map((one, n) => ({ one, at: order[n] ?? 0 })).sort((a, b) => a.at - b.at);
        const [here, there] = [heard.reduce(laterOf), shuffled.map(({ one }) => one).reduce(laterOf)];
        expect(here).toBe(there);
        expect(heard.some((one) => isLater(one, here))).toBe(false);
        expect(heard.every(isStanding)).toBe(true);
      }),
    );
  });

  it('no two sides give the same message to each other for ever, and none does without a link', () => {
    fc.assert(
      fc.property(situation, (at) => {
        const home: Situation = { side: 'home', ...at };
        const edge: Situation = { side: 'edge', ...at, isHeardHere: at.isHeardThere, isHeardThere: at.isHeardHere };
        expect(givesAway(home) && givesAway(edge)).toBe(false);
        if (!at.isLinked) expect(givesAway(home) || givesAway(edge)).toBe(false);
        if (at.isHeardHere) expect(givesAway(home)).toBe(false);
      }),
    );
  });

  it('a side that is given a message has it, has delivered it, or says what has become of it', () => {
    const known: fc.Arbitrary<Known> = fc.record({
      standing: fc.option(standing, { nil: undefined }),
      hasArrived: fc.boolean(),
      isHeld: fc.boolean(),
    });
    fc.assert(
      fc.property(known, (at) => {
        const what = reception(at);
        if (what === 'keep') expect(at.isHeld).toBe(true);
        if (what === 'tell')
          expect(at.hasArrived || (at.standing !== undefined && at.standing !== 'queued')).toBe(true);
        if (at.hasArrived) expect(what, 'an id that has arrived is not delivered again').toBe('tell');
        if (what === 'take') expect(at.isHeld).toBe(false);
      }),
    );
  });
});
