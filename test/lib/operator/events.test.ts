import { expect, it } from 'vitest';
import { createEvents, type RelayEvent } from '../../../lib/operator/events.ts';
import { createTestClock } from '../../support/clock.ts';

const start = () => {
  const clock = createTestClock();
  return { clock, events: createEvents(clock) };
};

it('09 §4: a listener gets every event, and resumes after the last one it saw', () => {
  const { events } = start();
  const seen: RelayEvent[] = [];
  const first = events.subscribe(undefined, (event) => void seen.push(event));
  expect(first?.missed).toBe(null);
  events.publish('queue', () => ({ queued: 1 }));
  expect(seen).toEqual([{ id: (first?.latest ?? 0) + 1, event: 'queue', data: '{"queued":1}' }]);
  first?.end();
  events.publish('queue', () => ({ queued: 2 }));
  const again = events.subscribe(seen[0]?.id, () => {});
  expect(again?.missed?.map(({ data }) => data)).toEqual(['{"queued":2}']);
});

it('09 §4: what is no longer known is not resumed', () => {
  const { clock, events } = start();
  const first = events.subscribe(undefined, () => {});
  const { latest = 0 } = first ?? {};
  for (let n = 0; n < 501; n++) events.publish('log', () => n);
  expect(events.subscribe(latest, () => {})?.missed).toBe(null);
  expect(events.subscribe(latest + 1, () => {})?.missed).toHaveLength(500);
  // An id of the future is one of another process.
  expect(events.subscribe(latest + 1000, () => {})?.missed).toBe(null);
  expect(events.subscribe(3, () => {})?.missed).toBe(null);
  for (let n = 0; n < 8; n++) events.publish('log', () => 'x'.repeat(512 * 1024));
  expect(events.subscribe(latest + 502, () => {})?.missed).toBe(null);
  clock.advance(1);
});

it('09 §4: nothing is written down while nobody listens or may resume', () => {
  const { clock, events } = start();
  const unused = () => {
    throw new Error('the value was asked for');
  };
  events.publish('log', unused);
  const first = events.subscribe(undefined, () => {});
  const { latest } = first ?? {};
  first?.end();
  clock.advance(59_000);
  events.publish('log', () => 'kept');
  const again = events.subscribe(latest, () => {});
  expect(again?.missed).toHaveLength(1);
  again?.end();
  clock.advance(60_000);
  events.publish('log', unused);
  expect(events.subscribe(latest, () => {})?.missed).toBe(null);
});

it('09 §4: at most 32 listeners', () => {
  const { events } = start();
  const all = Array.from({ length: 32 }, () => events.subscribe(undefined, () => {}));
  expect(events.subscribe(undefined, () => {})).toBeUndefined();
  all[0]?.end();
  all[0]?.end();
  expect(events.subscribe(undefined, () => {})).toBeDefined();
});
