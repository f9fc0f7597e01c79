import { createStorage } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import { describe, expect, it } from 'vitest';
import { createEndNotices } from '../../../lib/sessions/end-notices.ts';
import { endsSoon, needsNotice } from '../../../lib/sessions/ends-soon.ts';
import { openSteadyClock } from '../../../lib/steady-clock.ts';
import type { ClockRecord, SessionRecord } from '../../../storage/schema.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { memoryStores, sessionStores } from '../../support/states.ts';
import { DAY, PHONE, setup } from './setup.ts';

const HOUR = 3600;

describe('more time (11 §2)', () => {
  it('gives the durations of the pairing anew, counted from now; the token stays, after a restart too', async () => {
    const { sessions, store, clock, pair, now } = await setup();
    const { session, token } = await pair({}, { ttlSeconds: 30 * DAY, grants: { bridge: 2 * DAY }, without: ['tui'] });
    clock.advance(20 * DAY * 1000);
    await sessions.extend(session);
    const grants = { expiresAt: now() + 30 * DAY, bridge: now() + 2 * DAY, terminal: now() + 30 * DAY };
    const shown = (one = session) => ({
      expiresAt: one.expiresAt,
      bridge: one.grants.bridge,
      terminal: one.grants.terminal,
    });
    expect(shown()).toEqual(grants);
    expect(session.grants).not.toHaveProperty('tui');
    const again = await setup(store, clock);
    const loaded = again.sessions.authenticate(token);
    expect(loaded && shown(loaded)).toEqual(grants);
    clock.advance(29 * DAY * 1000);
    expect(again.sessions.authenticate(token)).toBeDefined();
  });

  it('takes another lifetime; a grant that was taken away whole stays away', async () => {
    const { sessions, pair, now } = await setup();
    const { session } = await pair();
    await sessions.reduce(session, { without: ['terminal', 'files'], ttlSeconds: DAY });
    expect(Object.keys(session.grants)).not.toContain('terminal');
    await sessions.extend(session, 90 * DAY);
    expect([session.expiresAt, session.grants.chat]).toEqual([now() + 90 * DAY, now() + 90 * DAY]);
    expect(session.grants).not.toHaveProperty('terminal');
    expect(session.grants).not.toHaveProperty('files');
    await sessions.extend(session, 0);
    expect([session.expiresAt, session.grants.chat]).toEqual([null, null]);
  });

  it('refuses what would end it earlier, and a session that is over', async () => {
    const { sessions, pair } = await setup();
    const { session } = await pair();
    const before = structuredClone(session.grants);
    await expect(sessions.extend(session, DAY)).rejects.toMatchObject({ kind: 'invalid' });
    expect(session.grants).toEqual(before);
    await sessions.revoke(session);
    await expect(sessions.extend(session)).rejects.toMatchObject({ kind: 'not-found' });
  });

  it('a reduction that comes while the extension is stored stands', async () => {
    const { sessions, store, clock, pair, now } = await setup();
    const { session } = await pair();
    clock.advance(DAY * 1000);
    const extending = sessions.extend(session);
    // Extending waits for nothing here, so its write is under way.
    const reducing = sessions.reduce(session, { ttlSeconds: 60 });
    await expect(extending).rejects.toMatchObject({ kind: 'conflict' });
    await reducing;
    expect(session.expiresAt).toBe(now() + 60);
    expect((await store.getItem(session.family))?.expires_at).toBe(now() + 60);
  });

  it('derives the durations of a session that was stored without them', async () => {
    const { sessions, store, clock, pair } = await setup();
    const { session, token } = await pair({}, { ttlSeconds: 10 * DAY, grants: { bridge: DAY } });
    await sessions.flush();
    const { policy: _, granted_at: __, ...older } = (await store.getItem(session.family)) as SessionRecord;
    await store.setItem(session.family, older);
    clock.advance(5 * DAY * 1000);
    const again = await setup(store, clock);
    const loaded = again.sessions.authenticate(token);
    if (!loaded) throw new Error('not loaded');
    await again.sessions.extend(loaded);
    expect([loaded.expiresAt, loaded.grants.bridge]).toEqual([again.now() + 10 * DAY, again.now() + DAY]);
  });
});

describe('names (11 §2)', () => {
  it("the owner's name wins over what the device sends, also after a refresh and a restart", async () => {
    const { sessions, store, clock, pair } = await setup();
    const { session, refreshToken } = await pair();
    await sessions.rename(session, 'Phone of Ada');
    sessions.resume(session, { ...PHONE, name: 'Pixel 11' });
    expect(session.device.name).toBe('Phone of Ada');
    const refreshed = await sessions.refresh(refreshToken as string, { ...PHONE, name: 'Pixel 11' });
    expect(refreshed?.session.device.name).toBe('Phone of Ada');
    const again = await setup(store, clock);
    const loaded = again.sessions.authenticate(refreshed?.token as string);
    expect(loaded?.device.name).toBe('Phone of Ada');
  });
});

describe('ended sessions (11 §2)', () => {
  it('lists why each ended, for 30 days, over a restart, and tells the holder of a dead token', async () => {
    const stores = memoryStores();
    const clock = createTestClock();
    const first = await setup(stores.open('sessions'), clock, sessionStores(stores));
    const a = await first.pair({ id: 'a', name: 'A' });
    const b = await first.pair({ id: 'b', name: 'B' }, { ttlSeconds: 60 });
    const c = await first.pair({ id: 'c', name: 'C' });
    await first.sessions.revoke(a.session, { by: 'Pixel' });
    await first.pair({ id: 'c', name: 'C' });
    clock.advance(61_000);
    first.sessions.sweep();
    const again = await setup(stores.open('sessions'), clock, sessionStores(stores));
    const listed = again.sessions.ended();
    expect(Object.fromEntries(listed.map((one) => [one.device_name, one.reason]))).toEqual({
      A: 'revoked by Pixel',
      B: 'expired',
      C: 'replaced',
    });
    expect(JSON.stringify(listed)).not.toContain('sha256');
    const date = new Date(clock.now() - 61_000).toISOString().slice(0, 10);
    expect(again.sessions.endedSentence({ token: a.token })).toBe(`session ended on ${date}: pair again`);
    expect(again.sessions.endedSentence({ refreshToken: b.refreshToken })).toMatch(/^session ended on /);
    expect(again.sessions.endedSentence({ token: c.token })).toMatch(/^session ended on /);
    expect(again.sessions.endedSentence({ token: crypto.randomUUID() })).toBeUndefined();
    clock.advance(31 * DAY * 1000);
    expect(again.sessions.ended().some(({ device_name }) => device_name === 'A')).toBe(false);
  });

  it('keeps the last 50', async () => {
    const { sessions, pair } = await setup();
    for (let i = 0; i < 60; i++) await sessions.revoke((await pair({ id: `device-${i}`, name: `${i}` })).session);
    const names = sessions.ended().map(({ device_name }) => device_name);
    expect(names).toEqual(Array.from({ length: 50 }, (_, i) => `${59 - i}`));
  });
});

describe('warnings about the end (11 §2)', () => {
  it.each([
    [30, 7.1, false],
    [30, 6.9, true],
    [14, 6.9, true],
    [8, 2.1, false],
    [8, 1.9, true],
    [1, 0.2, true],
  ])('of %d days, with %d left: %s', (life, left, warned) => {
    expect(endsSoon({ grantedAt: 0, expiresAt: life * DAY }, (life - left) * DAY)).toBe(warned);
    expect(endsSoon({ grantedAt: 0, expiresAt: null }, life * DAY)).toBe(false);
  });

  it('a push is due once for each end', async () => {
    const { sessions, clock, pair } = await setup();
    const { session } = await pair();
    clock.advance(26 * DAY * 1000);
    expect(await sessions.takeNotices()).toEqual([]);
    clock.advance(1.5 * DAY * 1000);
    expect(await sessions.takeNotices()).toEqual([session]);
    expect(await sessions.takeNotices()).toEqual([]);
    await sessions.extend(session);
    expect(needsNotice(session, clock.now() / 1000)).toBe(false);
    clock.advance(28 * DAY * 1000);
    expect(await sessions.takeNotices()).toEqual([session]);
  });

  it('comes with the first sweep, and once a day after that', async () => {
    const { sessions, clock, pair } = await setup();
    const { session } = await pair({}, { ttlSeconds: 20 * DAY });
    const published: string[] = [];
    const pushed: string[] = [];
    const notices = createEndNotices({ sessions, clock });
    notices.onWarning(({ prefix }) => published.push(prefix));
    notices.onPush(({ prefix }) => pushed.push(prefix));
    await notices.sweep();
    expect(published).toEqual([]);
    clock.advance(14 * DAY * 1000);
    for (let i = 0; i < 3; i++) await notices.sweep();
    expect(published).toEqual([session.prefix]);
    clock.advance(DAY * 1000);
    await notices.sweep();
    expect(published).toEqual([session.prefix, session.prefix]);
    expect(pushed).toEqual([]);
    clock.advance(2.5 * DAY * 1000);
    for (let i = 0; i < 3; i++) await notices.sweep();
    expect(pushed).toEqual([session.prefix]);
  });
});

/** A relay's sessions that are opened again and again, each time with the clock elsewhere. */
async function restarts(lifetimes: Record<string, number>) {
  const stores = memoryStores();
  let clock = createTestClock();
  const log = createTestLog();
  const start = async (days: number) => {
    clock = createTestClock(1_790_000_000_000 + days * DAY * 1000);
    const steady = await openSteadyClock({ clock, store: stores.open('clock'), log });
    const { sessions, pair } = await setup(stores.open('sessions'), clock, {
      ...sessionStores(stores),
      clock: steady,
      jump: steady.jump(),
      log,
    });
    const names = () =>
      sessions
        .list()
        .map(({ device }) => device.name)
        .sort();
    return { sessions, pair, names, clock, steady, stop: () => Promise.all([sessions.flush(), steady.stop()]) };
  };
  const first = await start(0);
  for (const [name, ttlSeconds] of Object.entries(lifetimes)) await first.pair({ id: name, name }, { ttlSeconds });
  await first.stop();
  return { start, log };
}

describe('a clock that jumps (11 §2)', () => {
  const LIVES = { short: 30 * DAY, long: 100 * DAY };

  it.each([40, 31])(
    '%d days ahead at a start: what has expired is kept aside, and back when the clock is',
    async (days) => {
      const { start, log } = await restarts(LIVES);
      const wrong = await start(days);
      expect(wrong.names()).toEqual(['long']);
      expect(wrong.sessions.ended()).toMatchObject([{ device_name: 'short', reason: 'clock?' }]);
      expect(log.lines.join('\n')).toMatch(/WARNING.*if it is wrong/);
      expect(log.lines.join('\n')).toContain(' 1 session has ended by a clock that may be wrong');
      await wrong.stop();
      const right = await start(0.1);
      expect(right.names()).toEqual(['long', 'short']);
      expect(right.sessions.ended()).toEqual([]);
      await right.stop();
      expect((await start(1)).names()).toEqual(['long', 'short']);
    },
  );

  it('comes back without a restart when the clock is set right', async () => {
    const { start, log } = await restarts(LIVES);
    const wrong = await start(40);
    expect(wrong.names()).toEqual(['long']);
    wrong.clock.set(1_790_000_000_000 + HOUR * 1000);
    wrong.sessions.sweep();
    await expect.poll(wrong.names).toEqual(['long', 'short']);
    expect(log.lines.join('\n')).toContain('1 session that was kept aside is back');
  });

  it('a clock that stays there for a day is right: what had expired is over', async () => {
    const { start } = await restarts(LIVES);
    const later = await start(40);
    await later.stop();
    const still = await start(40.5);
    expect(still.sessions.ended()).toMatchObject([{ reason: 'clock?' }]);
    still.clock.advance(DAY * 1000);
    still.sessions.sweep();
    await expect.poll(() => still.sessions.ended()).toMatchObject([{ device_name: 'short', reason: 'expired' }]);
    await still.stop();
    expect((await start(42)).names()).toEqual(['long']);
  });

  it('in 1970, the last write counts: nothing is revived, nothing new expires at once', async () => {
    const { start, log } = await restarts({ gone: HOUR, short: 30 * DAY });
    const before = await start(1);
    expect(before.names()).toEqual(['short']);
    await before.stop();
    const wrong = await start(-20_000);
    expect(wrong.names()).toEqual(['short']);
    const { session } = await wrong.pair({ id: 'new', name: 'new' }, { ttlSeconds: DAY });
    expect(session.expiresAt).toBeGreaterThan(1_790_000_000 + 1.9 * DAY);
    await wrong.stop();
    expect((await start(1.1)).names()).toEqual(['new', 'short']);
    expect(log.lines.join('\n')).toMatch(/WARNING.*before the last write/);
  });

  it('a device that paired meanwhile does not get its former session back', async () => {
    const { start } = await restarts(LIVES);
    const wrong = await start(40);
    await wrong.pair({ id: 'short', name: 'paired anew' });
    await wrong.stop();
    expect((await start(0.1)).names()).toEqual(['long', 'paired anew']);
  });

  it('says that the clock is ahead, before the last write, or stands still, and nothing of a right one (11 §5)', async () => {
    const store = createStorage<ClockRecord>({ driver: memoryDriver() });
    const at = 1_790_000_000;
    const start = async (offset: number) => {
      const clock = createTestClock((at + offset) * 1000);
      return { clock, steady: await openSteadyClock({ clock, store, log: createTestLog() }) };
    };
    const right = await start(0);
    right.steady.start();
    for (const step of [0, 59_000, HOUR * 1000, 25 * HOUR * 1000]) {
      await right.clock.advanceAsync(step);
      expect(right.steady.problem()).toBeUndefined();
    }
    const stopped = right.clock.now();
    right.steady.now();
    right.clock.advance(61_000);
    right.clock.set(stopped);
    expect(right.steady.problem()).toMatchObject({ state: 'stopped', reads_at: stopped / 1000 });
    right.clock.advance(600_000);
    right.clock.set(stopped + 600_000);
    expect(right.steady.problem()).toBeUndefined();
    right.clock.set(at * 1000);
    const behind = right.steady.problem();
    expect(behind).toMatchObject({ state: 'behind', reads_at: at });
    expect(behind?.last_write).toBeGreaterThan(at + 25 * HOUR);
    right.clock.set(stopped + 700_000);
    await right.steady.stop();
    expect((await start(stopped / 1000 - at + 720)).steady.problem()).toBeUndefined();
    const ahead = await start(60 * HOUR);
    expect(ahead.steady.problem()).toMatchObject({ state: 'ahead', reads_at: at + 60 * HOUR });
    ahead.clock.advance(DAY * 1000);
    expect(ahead.steady.problem()).toBeUndefined();
  });

  it.each([{ at: 'soon' }, { at: 1e300 }])('a record that cannot be read counts as none: %j', async (record) => {
    const store = createStorage<ClockRecord>({ driver: memoryDriver() });
    await store.setItem('clock', record as ClockRecord);
    const clock = await openSteadyClock({ clock: createTestClock(), store, log: createTestLog() });
    expect(clock.jump()).toBeUndefined();
  });
});
