import { expect, it } from 'vitest';
import { clockText, readClockProblem } from '../../../lib/operator/clock-problem.ts';
import { clockChecks } from '../../../lib/operator/doctor/relay.ts';

const facts = { reads_at: 1_790_000_000, last_write: 1_790_086_400, kept_aside: 0 };
const answer = (clock_problem: unknown) => ({ ok: true, json: { clock_problem } }) as never;

it('contract 11 §5: the doctor says what is wrong with the clock, and what to do', () => {
  expect(clockChecks(answer({ state: 'behind', ...facts }))).toEqual([
    {
      id: 'relay-clock',
      status: 'warn',
      summary:
        'the clock reads 2026-09-21 14:13 UTC, before the last write: 2026-09-22 14:13 UTC counts until it has passed that',
      next: 'Set the clock of that machine, for example with: timedatectl set-ntp true',
    },
  ]);
  const [ahead] = clockChecks(answer({ state: 'ahead', ...facts, kept_aside: 2 }));
  expect(ahead?.summary).toContain('2 sessions that have ended by it can come back for a day');
  expect(ahead?.next).toContain('svc devices --ended');
  expect(clockText({ ...facts, state: 'stopped' })).toContain('stands still');
});

it('an answer without a problem, or with one that cannot be read, has no check', () => {
  const wrong = [undefined, null, 7, { ...facts, state: 'late' }, { ...facts, state: 'behind', reads_at: 1e300 }, {}];
  for (const problem of wrong) expect(readClockProblem({ clock_problem: problem })).toBeNull();
  expect(clockChecks(answer(undefined))).toEqual([]);
});
