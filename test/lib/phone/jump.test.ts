import { describe, expect, it } from 'vitest';
import { openPhoneMessaging, type PhoneLink } from '../../../lib/phone/phone.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import { openSteadyClock } from '../../../lib/steady-clock.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { memoryStores } from '../../support/states.ts';

const START = 1_790_000_000_000;
const HOUR = 3_600_000;

/** A relay's queue that is opened again and again, each time with the clock elsewhere. */
function restarts() {
  const stores = memoryStores();
  const log = createTestLog();
  return async (hours: number) => {
    const clock = createTestClock(START + hours * HOUR);
    const steady = await openSteadyClock({ clock, store: stores.open('clock'), log });
    const phone = await openPhoneMessaging({
      sessions: { isAlive: () => true },
      ...{ clock: steady, jump: steady.jump(), log },
      queue: stores.open('phone'),
      replies: stores.open('phone-replies'),
      history: stores.open('phone-history'),
      delivered: stores.open('phone-delivered'),
    });
    const push = (message_id: string, change = {}) => phone.push({ message_id, text: 'x', ...change });
    const queued = () => phone.queued().map(({ message_id }) => message_id);
    const stateOf = (id: string) => phone.stateWithin(id, 0);
    const stop = async () => {
      await phone.stop();
      await steady.stop();
    };
    return { phone, clock, steady, log, push, queued, stateOf, stop };
  };
}

/** A queue with `old` (24 h old at the last write), `a` and `b`, whose relay starts again 40 days ahead. */
async function ahead() {
  const start = restarts();
  const first = await start(0);
  await first.push('old');
  await first.stop();
  const second = await start(12);
  await second.push('a');
  await second.push('b', { answers: ['yes', 'no'] });
  await second.stop();
  const third = await start(24.5);
  expect(third.queued()).toEqual(['a', 'b']);
  await third.stop();
  return { start, wrong: await start(40 * 24) };
}

describe('the queue of messages, when the clock jumps (contract 11 §2)', () => {
  it('keeps aside what has expired meanwhile, and delivers it when the clock is right at a start', async () => {
    const { start, wrong } = await ahead();
    expect(wrong.queued()).toEqual([]);
    expect(wrong.log.lines.join('\n')).toMatch(/WARNING.*2 queued messages expired by a clock that may be wrong/);
    expect([await wrong.stateOf('old'), await wrong.stateOf('a')]).toEqual(['expired', 'queued']);
    await wrong.stop();
    const still = await start(40 * 24 + 1);
    expect(still.queued()).toEqual([]);
    await still.stop();
    const right = await start(25);
    expect(right.queued()).toEqual(['a', 'b']);
  });

  it('delivers it without a restart when the clock is set right', async () => {
    const { wrong } = await ahead();
    const sent: unknown[] = [];
    const session = { prefix: 'p', grants: { phone: null }, device: {} } as unknown as Session;
    const link: PhoneLink = {
      ...{ id: 'x', session, isWritable: true },
      probe() {},
      send: (_channel, type, payload) => type === 'phone.message' && sent.push(payload.message_id),
    };
    wrong.phone.subscribe(link, 's');
    await wrong.phone.settleJump();
    expect(sent).toEqual([]);
    wrong.clock.set(START + 25 * HOUR);
    // Sessions may settle the jump first.
    wrong.steady.jump()?.settle();
    await wrong.phone.settleJump();
    expect(sent).toEqual(['a', 'b']);
    expect(wrong.log.lines.join('\n')).toContain('the clock was set back, which brings back 2 queued messages');
    await wrong.phone.settleJump();
    expect(sent).toEqual(['a', 'b']);
  });

  it('has expired once the clock has stayed there for a day', async () => {
    const { start, wrong } = await ahead();
    wrong.clock.advance(24 * HOUR);
    await wrong.phone.settleJump();
    expect([wrong.queued(), await wrong.stateOf('a'), await wrong.stateOf('b')]).toEqual([[], 'expired', 'expired']);
    await wrong.stop();
    expect((await start(25)).queued()).toEqual([]);
  });

  it('stays cancelled or replaced when it was meanwhile, and a full queue drops the oldest', async () => {
    const { start, wrong } = await ahead();
    expect(await wrong.phone.cancel('b')).toBe(1);
    expect(await wrong.stateOf('b')).toBe('cancelled');
    await wrong.push('a', { text: 'new' });
    wrong.clock.set(START + 25 * HOUR);
    await wrong.phone.settleJump();
    expect(wrong.phone.queued()).toMatchObject([{ message_id: 'a', text: 'new' }]);
    await wrong.stop();
    expect((await start(25)).queued()).toEqual(['a']);

    const full = (await ahead()).wrong;
    for (let at = 0; at < 50; at++) await full.push(`m${at}`);
    full.clock.set(START + 25 * HOUR);
    await full.phone.settleJump();
    expect(full.queued()).toHaveLength(50);
    expect([await full.stateOf('a'), await full.stateOf('b')]).toEqual(['dropped', 'dropped']);
    const other = (await ahead()).wrong;
    expect(await other.phone.cancel()).toBe(2);
  });
});
