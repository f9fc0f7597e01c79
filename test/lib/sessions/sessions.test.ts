import { createStorage, type Driver } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import { describe, expect, it } from 'vitest';
import { sha256 } from '../../../lib/kit/sha256.ts';
import type { Store } from '../../../storage/schema.ts';
import { PHONE, setup } from './setup.ts';

const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A store in memory, and the keys written to it. */
function counting() {
  const writes: string[] = [];
  const memory = memoryDriver();
  const driver = {
    ...memory,
    setItem(key, value, options) {
      writes.push(key);
      return memory.setItem?.(key, value, options);
    },
  } as Driver;
  return { store: createStorage({ driver }) as unknown as Store<'sessions'>, writes };
}

describe('creation (01 §6.1, 6.2)', () => {
  it('makes a live session with a UUID token', async () => {
    const { sessions, pair, now } = await setup();
    const { session, token, refreshToken } = await pair();
    expect(token).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(refreshToken).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(session).toMatchObject({
      prefix: token.slice(0, 8),
      tokenHash: sha256(token),
      createdAt: now(),
      firstSeen: now(),
      lastSeen: now(),
      expiresAt: now() + 30 * 86_400,
    });
    expect(sessions.authenticate(token)).toBe(session);
    expect(sessions.count()).toBe(1);
  });

  it('stores hashes only, before it answers', async () => {
    const { store, pair } = await setup();
    const { session, token, refreshToken = '' } = await pair();
    const text = JSON.stringify(await store.getItem(session.family));
    expect(text).toContain(sha256(token));
    expect(text).toContain(sha256(refreshToken));
    expect(text).not.toContain(token);
    expect(text).not.toContain(refreshToken);
  });

  it('logs no token', async () => {
    const { log, sessions, pair } = await setup();
    const { session, token, refreshToken = '' } = await pair();
    const again = await sessions.refresh(refreshToken, PHONE);
    if (again) await sessions.revoke(again.session);
    expect(log.lines.join('\n')).toContain(session.prefix);
    for (const secret of [token, refreshToken, again?.token, again?.refreshToken]) {
      expect(log.lines.join('\n')).not.toContain(secret);
    }
  });

  it('accepts no other token', async () => {
    const { sessions, pair } = await setup();
    const { token } = await pair();
    for (const other of ['', token.slice(0, 8), token.toUpperCase(), `${token} `, crypto.randomUUID()]) {
      expect(sessions.authenticate(other)).toBeUndefined();
    }
  });
});

describe('last seen', () => {
  it('moves with every use and reaches the store at most once a minute', async () => {
    const { sessions, store, clock, pair, now } = await setup();
    const { session, token } = await pair();
    const created = now();
    const stored = async () => (await store.getItem(session.family))?.last_seen;
    clock.advance(59_000);
    sessions.authenticate(token);
    sessions.sweep();
    expect(session.lastSeen).toBe(created + 59);
    expect(await stored()).toBe(created);
    clock.advance(1_000);
    sessions.authenticate(token);
    sessions.sweep();
    expect(await stored()).toBe(created + 60);
    clock.advance(5_000);
    sessions.authenticate(token);
    await sessions.flush();
    expect(await stored()).toBe(created + 65);
  });

  it('of returning devices is not written before the sweep, and then once each', async () => {
    const { store, writes } = counting();
    const { sessions, clock, pair, now } = await setup(store);
    const paired = [];
    for (const id of ['a', 'b', 'c']) paired.push(await pair({ id }));
    clock.advance(120_000);
    writes.length = 0;
    for (let use = 0; use < 5; use++) {
      for (const { token, session, refreshToken } of paired) {
        expect(sessions.authenticate(token)).toBe(session);
        expect(sessions.resume(session, session.device, refreshToken)).toEqual({});
        sessions.touch(session);
      }
      clock.advance(100);
      await settled();
    }
    expect(writes).toEqual([]);
    sessions.sweep();
    await settled();
    expect(writes.sort()).toEqual(paired.map(({ session }) => session.family).sort());
    expect((await store.getItem(paired[0]?.session.family ?? ''))?.last_seen).toBe(now() - 0.1);
    sessions.sweep();
    await sessions.flush();
    expect(writes).toHaveLength(3);
  });

  it('is not written for a session that was replaced meanwhile', async () => {
    const { store, writes } = counting();
    const { sessions, clock, pair } = await setup(store);
    const { session, token, refreshToken = '' } = await pair();
    clock.advance(120_000);
    sessions.authenticate(token);
    await sessions.refresh(refreshToken, PHONE);
    writes.length = 0;
    sessions.touch(session);
    sessions.sweep();
    await sessions.flush();
    expect(writes).toEqual([]);
  });

  it('is saved in the turn that changed it, but at most once a minute, where nothing sweeps (edge)', async () => {
    const { sessions, store, clock, pair, now } = await setup(undefined, undefined, { savesSeenAtOnce: true });
    const { session, token } = await pair();
    const created = now();
    const stored = async () => (await store.getItem(session.family))?.last_seen;
    clock.advance(30_000);
    sessions.authenticate(token);
    expect(await stored()).toBe(created);
    clock.advance(30_000);
    sessions.authenticate(token);
    sessions.authenticate(token);
    expect(await stored()).toBe(created + 60);
    clock.advance(2_000);
    sessions.authenticate(token);
    await sessions.flush();
    expect(clock.pending).toBe(0);
    expect(await stored()).toBe(created + 62);
  });

  it('orders the list', async () => {
    const { sessions, clock, pair } = await setup();
    const first = await pair({ id: 'a' });
    clock.advance(1000);
    const second = await pair({ id: 'b' });
    expect(sessions.list().map(({ prefix }) => prefix)).toEqual([second.session.prefix, first.session.prefix]);
    clock.advance(1000);
    sessions.authenticate(first.token);
    expect(sessions.list().map(({ prefix }) => prefix)).toEqual([first.session.prefix, second.session.prefix]);
  });
});

describe('the number of sessions', () => {
  it('12 §6: RELAY_MAX_SESSIONS refuses new pairings, and drops none', async () => {
    const { sessions, pair } = await setup(undefined, undefined, { maxSessions: 2 });
    const first = await pair({ id: 'one' });
    await pair({ id: 'two' });
    await expect(pair({ id: 'three' })).rejects.toMatchObject({ message: expect.stringContaining('2 paired devices') });
    await pair({ id: 'two' });
    expect([sessions.count(), sessions.isAlive(first.session)]).toEqual([2, true]);
  });

  it('is limited to 4096: a pairing beyond that is refused, and no session ends for it (issue 23 §2.10)', async () => {
    const { sessions, clock, ended, pair, log } = await setup();
    const first = await pair({ id: 'first' }, { ttlSeconds: 3600 });
    for (let at = 1; at < 4096; at++) await pair({ id: `device-${at}` });
    clock.advance(1_000);
    // A device that pairs anew replaces its own session.
    await pair({ id: 'device-7' });
    expect([sessions.count(), ended.length]).toEqual([4096, 1]);
    const refusal = { kind: 'unavailable', message: expect.stringContaining('4096 paired devices: remove one') };
    await expect(pair({ id: 'one more' })).rejects.toMatchObject(refusal);
    expect(log.lines.at(-1)).toContain('(one more) cannot pair: there are 4096 sessions');
    expect([sessions.count(), ended.length, sessions.isAlive(first.session)]).toEqual([4096, 1, true]);
    clock.advance(3_600_000);
    await pair({ id: 'one more' });
    expect([sessions.count(), sessions.isAlive(first.session)]).toEqual([4096, false]);
  });
});

describe('expiry (01 §6.7)', () => {
  it('ends a session on access, at its exact time', async () => {
    const { sessions, store, clock, ended, pair } = await setup();
    const { session, token } = await pair({}, { ttlSeconds: 60 });
    clock.advance(59_999);
    expect(sessions.authenticate(token)).toBe(session);
    clock.advance(1);
    expect(sessions.count()).toBe(0);
    expect(sessions.authenticate(token)).toBeUndefined();
    expect(session.ended).toBe('expired');
    expect(ended).toEqual([[session.prefix, 'expired']]);
    await Promise.resolve();
    expect(await store.getKeys()).toEqual([]);
  });

  it('ends expired sessions in a sweep, and no others', async () => {
    const { sessions, clock, ended, pair } = await setup();
    const short = await pair({ id: 'a' }, { ttlSeconds: 60 });
    const endless = await pair({ id: 'b' }, { ttlSeconds: 0 });
    clock.advance(400 * 86_400_000);
    sessions.sweep();
    expect(ended).toEqual([[short.session.prefix, 'expired']]);
    expect(sessions.list()).toEqual([endless.session]);
    expect(sessions.isAlive(endless.session)).toBe(true);
  });
});

describe('expiry among many sessions (01 §6.7)', () => {
  it('counts exactly the live sessions at any moment, also after a reduction', async () => {
    const { sessions, clock, pair } = await setup();
    for (const [id, ttlSeconds] of Object.entries({ a: 10, b: 20, c: 30, d: 0 })) await pair({ id }, { ttlSeconds });
    const long = await pair({ id: 'e' }, { ttlSeconds: 1000 });
    const counts = () => {
      clock.advance(5_000);
      return sessions.count();
    };
    expect([counts(), counts(), counts()]).toEqual([5, 4, 4]);
    await sessions.reduce(long.session, { ttlSeconds: 7 });
    expect([counts(), counts(), counts()]).toEqual([3, 2, 1]);
  });
});

describe('re-pairing (01 §6.6)', () => {
  it('ends the earlier sessions of the device, their refresh credentials too', async () => {
    const { sessions, ended, pair } = await setup();
    const old = await pair();
    const other = await pair({ id: 'device-2' });
    const fresh = await pair({ id: 'DEVICE-1' });
    expect(ended).toEqual([[old.session.prefix, 'replaced']]);
    expect(sessions.authenticate(old.token)).toBeUndefined();
    expect(await sessions.refresh(old.refreshToken ?? '', PHONE)).toBeUndefined();
    expect(sessions.authenticate(other.token)).toBe(other.session);
    expect(sessions.authenticate(fresh.token)).toBe(fresh.session);
  });

  it('finds the earlier sessions of a device by the id it adopted', async () => {
    const { sessions, ended, pair } = await setup();
    const { session } = await pair({ id: 'unknown' });
    await sessions.resume(session, { ...PHONE, id: 'device-9' }).saved;
    await pair({ id: 'device-1' });
    expect(ended).toEqual([]);
    await pair({ id: 'device-9' });
    expect(ended).toEqual([[session.prefix, 'replaced']]);
  });

  it.each(['', 'unknown', 'None', 'NULL'])('treats %j as no device', async (id) => {
    const { sessions, pair } = await setup();
    await pair({ id });
    await pair({ id });
    expect(sessions.count()).toBe(2);
  });
});

describe('revocation (01 §6.4)', () => {
  it('ends the session and its refresh credential, once', async () => {
    const { sessions, store, ended, pair } = await setup();
    const { session, token, refreshToken } = await pair();
    await Promise.all([sessions.revoke(session), sessions.revoke(session)]);
    expect(ended).toEqual([[session.prefix, 'revoked']]);
    expect(sessions.authenticate(token)).toBeUndefined();
    expect(await sessions.refresh(refreshToken ?? '', PHONE)).toBeUndefined();
    expect(await store.getKeys()).toEqual([]);
  });

  it('is not undone by a use in progress', async () => {
    const { sessions, store, clock, pair } = await setup();
    const { session } = await pair();
    await sessions.revoke(session);
    clock.advance(120_000);
    sessions.touch(session);
    await sessions.flush();
    expect(await store.getKeys()).toEqual([]);
  });

  it('is not undone by a later description or reduction', async () => {
    const { sessions, store, pair } = await setup();
    const { session } = await pair();
    await sessions.revoke(session);
    await sessions.resume(session, { ...PHONE, name: 'Other' }).saved;
    await sessions.reduce(session, { ttlSeconds: 1 }).catch(() => {});
    expect(await store.getKeys()).toEqual([]);
  });
});

describe('finding by prefix (01 §6.4)', () => {
  it('compares up to 8 characters with stored prefixes', async () => {
    const { sessions, pair } = await setup();
    const { session, token } = await pair();
    expect(sessions.find(token.slice(0, 4))).toEqual([session]);
    expect(sessions.find(token.slice(0, 8))).toEqual([session]);
    const other = token.startsWith('0') ? '1' : '0';
    expect(sessions.find(other + token.slice(1, 8))).toEqual([]);
  });

  it('compares more with tokens seen since boot, or with a whole token by its hash', async () => {
    const { sessions, restart, pair } = await setup();
    const { session, token } = await pair();
    expect(sessions.find(token.slice(0, 12))).toEqual([session]);
    const next = (await restart()).sessions;
    expect(next.find(token.slice(0, 12))).toEqual([]);
    expect(next.find(token)).toHaveLength(1);
    next.authenticate(token);
    expect(next.find(token.slice(0, 12))).toHaveLength(1);
    expect(next.find(`${token}x`)).toEqual([]);
  });

  it('returns every session that matches a short prefix', async () => {
    const { sessions, pair } = await setup();
    for (let index = 0; index < 40; index++) await pair({ id: `device-${index}` });
    // Some of forty first characters are equal.
    const heads = sessions.list().map(({ prefix }) => prefix.slice(0, 1));
    const shared = heads.find((head, index) => heads.indexOf(head) !== index) ?? '';
    expect(sessions.find(shared).length).toBe(heads.filter((head) => head === shared).length);
  });
});

describe('coming back with the token (01 §3.4)', () => {
  it('adopts the description that the device gives', async () => {
    const { sessions, store, log, pair } = await setup();
    const { session } = await pair();
    const said = {
      ...PHONE,
      name: 'Pixel Pro',
      model: '',
      platform: 'unknown',
      surface: 'unknown' as const,
    };
    await sessions.resume(session, said).saved;
    expect(session.device).toEqual({ ...PHONE, name: 'Pixel Pro' });
    expect((await store.getItem(session.family))?.device_name).toBe('Pixel Pro');
    expect(log.lines.filter((line) => line.includes('[WARNING]'))).toEqual([]);
  });

  it('never changes the id of a device, and says so', async () => {
    const { sessions, store, log, pair } = await setup();
    const { session, refreshToken = '' } = await pair();
    await sessions.resume(session, { ...PHONE, id: 'device-9', name: 'Thief' }).saved;
    expect(session.device).toEqual({ ...PHONE, name: 'Thief' });
    expect((await store.getItem(session.family))?.device_id).toBe('device-1');
    expect(log.lines.filter((line) => line.includes('[WARNING]'))).toEqual([
      expect.stringMatching(/another device id \(device-9\)/),
    ]);
    expect(await sessions.refresh(refreshToken, { ...PHONE, id: 'device-9' })).toBeUndefined();
    expect(await sessions.refresh(refreshToken, PHONE)).toBeDefined();
  });

  it('does not give a session without an id that of another device, by token or by refresh token', async () => {
    const { sessions, log, ended, pair } = await setup();
    await pair({ id: 'Device-1' });
    const { session, refreshToken = '' } = await pair({ id: 'unknown' });
    await sessions.resume(session, PHONE).saved;
    expect(session.device.id).toBe('unknown');
    const next = await sessions.refresh(refreshToken, PHONE);
    expect(next?.session.device.id).toBe('unknown');
    expect(log.lines.filter((line) => line.includes('another device id'))).toHaveLength(2);
    expect(ended).toEqual([[session.prefix, 'replaced']]);
  });

  it.each(['', 'unknown', 'none', 'null'])('keeps the id when %j is presented', async (id) => {
    const { sessions, pair } = await setup();
    const { session } = await pair();
    await sessions.resume(session, { ...PHONE, id }).saved;
    expect(session.device.id).toBe('device-1');
  });

  it('fills in an id that was unknown', async () => {
    const { sessions, pair } = await setup();
    const { session } = await pair({ id: 'unknown' });
    await sessions.resume(session, PHONE).saved;
    expect(session.device.id).toBe('device-1');
  });

  it('issues a refresh token only if the device lacks a good one', async () => {
    const { sessions, pair } = await setup();
    const { session, refreshToken = '' } = await pair();
    expect(sessions.resume(session, PHONE)).toEqual({});
    expect(sessions.resume(session, PHONE, refreshToken)).toEqual({});
    const issued = await sessions.resume(session, PHONE, 'not-a-token').saved;
    expect(issued).toBeDefined();
    expect((await sessions.refresh(issued ?? '', PHONE))?.session.family).toBe(session.family);
  });
});
