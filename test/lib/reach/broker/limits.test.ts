import { expect, it } from 'vitest';
import { SourceLimits } from '../../../../lib/reach/broker/limits.ts';
import { createTestClock } from '../../../support/clock.ts';

/** As many as are tracked. */
const SOURCES = 4096;

function fill(limits: SourceLimits) {
  for (let n = 0; n < SOURCES; n++) expect(limits.attempt(`source ${n}`)).toBe(true);
}

it('contract 08 §7.7: takes no further source while all that are tracked are recent, and then each as one expires', () => {
  const clock = createTestClock();
  const limits = new SourceLimits(clock);
  expect(limits.attempt('first')).toBe(true);
  clock.advance(30_000);
  for (let n = 1; n < SOURCES; n++) limits.attempt(`source ${n}`);
  expect(limits.attempt('late')).toBe(false);
  clock.advance(30_001);
  expect([limits.attempt('late'), limits.attempt('later')]).toEqual([true, false]);
});

it('tracks a source that connects again from its last attempt', () => {
  const clock = createTestClock();
  const limits = new SourceLimits(clock);
  fill(limits);
  clock.advance(30_000);
  expect(limits.attempt('source 0')).toBe(true);
  clock.advance(30_001);
  for (let n = 1; n < 30; n++) limits.attempt('source 0');
  for (let n = 1; n < SOURCES; n++) expect(limits.attempt(`new ${n}`)).toBe(true);
  expect(limits.attempt('one more')).toBe(false);
  expect(limits.attempt('source 0')).toBe(false);
});

it('refuses a flood of new sources without looking at all that are tracked', () => {
  const limits = new SourceLimits(createTestClock());
  fill(limits);
  const before = process.cpuUsage();
  let taken = 0;
  for (let n = 0; n < 50_000; n++) if (limits.attempt(`flood ${n}`)) taken++;
  const { user, system } = process.cpuUsage(before);
  expect((user + system) / 1000).toBeLessThan(400);
  expect(taken).toBe(0);
});
