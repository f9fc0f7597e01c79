import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Event, type State, step } from '../../../lib/terminal/states.ts';

const EVENTS: Event[] = [
  'opened',
  'reattach',
  'exit',
  'detach',
  'kill',
  'lost',
  'grant-lost',
  'write-failed',
  'shutdown',
  'expired',
];

describe('session states', () => {
  test.each<[Event, boolean, State, string | undefined, boolean]>([
    ['exit', true, 'closed', 'eof', false],
    ['detach', false, 'closed', 'client detach', true],
    ['detach', true, 'parked', 'client detach', false],
    ['kill', true, 'closed', 'client kill', true],
    ['lost', false, 'closed', undefined, true],
    ['lost', true, 'parked', undefined, false],
    ['grant-lost', true, 'closed', 'grant expired', true],
    ['write-failed', true, 'closed', 'write failed', true],
    ['shutdown', true, 'closed', 'server shutdown', true],
  ])('attached, %s (parks: %s): %s, %s', (event, parks, state, reason, end) => {
    expect(step('attached', event, parks)).toEqual({ state, end, ...(reason ? { reason } : {}) });
  });

  test('every attach gets at most one farewell, and a closed session stays closed', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...EVENTS)), fc.boolean(), (events, parks) => {
        let state: State = 'attaching';
        let viewers = 0;
        let ended = 0;
        for (const event of events) {
          const next = step(state, event, parks);
          if (!next) continue;
          expect(state).not.toBe('closed');
          if (next.state === 'attached') viewers++;
          if (next.reason) {
            expect(state).toBe('attached');
            viewers--;
          } else if (state === 'attached' && event === 'lost') viewers--;
          if (next.end) ended++;
          if (next.state === 'parked') expect(parks).toBe(true);
          expect(viewers).toBe(next.state === 'attached' ? 1 : 0);
          state = next.state;
        }
        expect(ended).toBeLessThanOrEqual(1);
      }),
    );
  });
});
