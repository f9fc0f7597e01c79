import { expect, it } from 'vitest';
import { openReplyReaders } from '../../../lib/phone/reply-readers.ts';
import type { Transport } from '../../../lib/socket/transport.ts';
import { createTestClock } from '../../support/clock.ts';
import { memoryStores, noLog } from '../../support/states.ts';

const nothing = () => {};

/** A socket with what closed it. */
function socketOf(id: string) {
  const ends: [number, string][] = [];
  const transport: Transport = {
    id,
    send: nothing,
    close: (code, reason) => ends.push([code, reason]),
    terminate: nothing,
    unsent: () => 0,
    pause: () => true,
    resume: nothing,
  };
  return { transport, ends };
}

it('12 §6: the socket of an operator ends with its token, also over a sleep', async () => {
  const clock = createTestClock();
  const store = memoryStores().open('phone-subscribers');
  const replies = { read: nothing, unread: nothing, acknowledgeOne: async () => {}, settleReaders: nothing };
  const sessions = { byFamily: () => undefined, onEnd: nothing };
  const wake = () => openReplyReaders({ replies, sessions, grant: 'phone', clock, log: noLog, store });
  const until = clock.now() / 1000 + 900;

  const first = await wake();
  const soon = socketOf('soon');
  const late = socketOf('late');
  const ever = socketOf('ever');
  first.open(soon.transport, undefined, until - 300);
  first.open(late.transport, undefined, until);
  first.open(ever.transport, undefined, null);
  clock.advance(599_999);
  expect(soon.ends).toEqual([]);
  clock.advance(1);
  expect([soon.ends, late.ends]).toEqual([[[4401, 'operator token expired']], []]);

  // Without its timers, as an object that sleeps.
  const second = await wake();
  expect(second.restore(late.transport)).toBeDefined();
  expect(second.restore(ever.transport), 'as a record of an earlier version').toBeUndefined();
  expect(ever.ends).toEqual([[1012, 'the relay was asleep']]);
  clock.advance(300_000);
  expect(late.ends).toContainEqual([4401, 'operator token expired']);
  const third = await wake();
  const again = socketOf('late');
  expect(third.restore(again.transport)).toBeUndefined();
  expect(again.ends).toHaveLength(1);
});
