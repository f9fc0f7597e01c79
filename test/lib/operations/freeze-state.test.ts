import { expect, it } from 'vitest';
import { readFreeze } from '../../../lib/operations/freeze-state.ts';

it.each([
  [
    { frozen: true, since: 5, by: 'Pixel 9', reason: 'lost' },
    { since: 5, by: 'Pixel 9', reason: 'lost' },
  ],
  [
    { frozen: true, since: 5, by: 'operator', reason: null },
    { since: 5, by: 'operator', reason: null },
  ],
  // Whatever else it says, a relay that is frozen is shown as such.
  [
    { frozen: true, since: 'x', reason: '' },
    { since: 0, by: '', reason: null },
  ],
  [{ frozen: false }, null],
  [{ frozen: 'yes' }, null],
  [undefined, null],
  ['frozen', null],
])('09 §3: reads %j', (payload, state) => {
  expect(readFreeze(payload)).toEqual(state);
});
