import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ByteBudget, RELEASED_LATE, type Reservation } from '../../../lib/kit/byte-budget.ts';
import { createTestClock } from '../../support/clock.ts';

const MiB = 1024 * 1024;

it('is never exceeded but by one that holds all of it; grants in turn, and everything comes back', () => {
  const step = fc.oneof(fc.record({ reserve: fc.integer({ min: 1, max: 150 }) }), fc.record({ release: fc.nat() }));
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const clock = createTestClock();
      const budget = new ByteBudget(100, clock);
      const open: { size: number; reservation: Reservation }[] = [];
      const granted: number[] = [];
      const check = () => {
        const held = open.filter(({ reservation }) => reservation.isGranted);
        const sum = held.reduce((total, { size }) => total + size, 0);
        expect(budget.used).toBe(sum);
        expect(budget.waiting).toBe(open.length - held.length);
        if (sum > 100) expect(held).toHaveLength(1);
        // Nobody waits while nobody holds anything.
        if (held.length === 0) expect(open).toHaveLength(0);
      };
      for (const [number, action] of steps.entries()) {
        if ('reserve' in action) {
          const reservation = budget.reserve(action.reserve, () => granted.push(number));
          if (reservation.isGranted) granted.push(number);
          open.push({ size: action.reserve, reservation });
        } else if (open.length > 0) {
          const [gone] = open.splice(action.release % open.length, 1);
          gone?.reservation.release();
          gone?.reservation.release();
        }
        check();
      }
      // First come, first served, whoever leaves the line.
      expect(granted).toEqual([...granted].sort((one, other) => one - other));
      while (open.length > 0) {
        const [held] = open.splice(
          open.findIndex(({ reservation }) => reservation.isGranted),
          1,
        );
        held?.reservation.release();
        check();
      }
      expect([budget.used, budget.waiting, clock.pending]).toEqual([0, 0, 0]);
    }),
  );
});

it('a grant may release at once, or reserve again, and nobody is forgotten', () => {
  const budget = new ByteBudget(10, createTestClock());
  const turns: string[] = [];
  const first = budget.reserve(10, () => {});
  const second: Reservation = budget.reserve(10, () => {
    turns.push('second');
    second.release();
    budget.reserve(10, () => turns.push('fourth'));
  });
  const third = budget.reserve(10, () => turns.push('third'));
  first.release();
  expect(turns).toEqual(['second', 'third']);
  third.release();
  expect(turns).toEqual(['second', 'third', 'fourth']);
});

it('tells one that receives less than 1 MiB in 15 s while others wait, and only then', () => {
  const clock = createTestClock();
  const budget = new ByteBudget(10, clock);
  const received = { slow: 0, fast: 0 };
  const stalled: string[] = [];
  const hold = (name: 'slow' | 'fast') =>
    budget.reserve(5, () => {}, {
      received: () => received[name],
      stalled: ({ release }) => {
        stalled.push(name);
        release();
      },
    });
  hold('slow');
  const fast = hold('fast');
  clock.advance(600_000);
  expect([stalled, clock.pending]).toEqual([[], 0]);
  const next = budget.reserve(5, () => {}, RELEASED_LATE);
  for (let period = 0; period < 3; period++) {
    clock.advance(14_000);
    received.fast += MiB;
    received.slow += MiB - 1;
    clock.advance(1_000);
  }
  expect([stalled, next.isGranted, clock.pending]).toEqual([['slow'], true, 0]);
  // Work that takes no time of its own is not missed for longer.
  const last = budget.reserve(5, () => {}, RELEASED_LATE);
  for (let period = 0; period < 2; period++) {
    expect(last.isGranted).toBe(false);
    received.fast += MiB;
    clock.advance(15_000);
  }
  expect([stalled, last.isGranted]).toEqual([['slow'], true]);
  fast.release();
  expect(clock.pending).toBe(0);
});
