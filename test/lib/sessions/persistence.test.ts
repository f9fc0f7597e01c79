import { copyFileSync, existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createStorage, type Driver, type Storage } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Session } from '../../../lib/sessions/session.ts';
import { createStores } from '../../../storage/index.ts';
import type { EndedSessionRecord, SessionRecord } from '../../../storage/schema.ts';
import { sqlBackend } from '../../../storage/sql-backend.ts';
import type { SqlExecutor } from '../../../storage/sql-driver.ts';
import { openStateFile } from '../../../storage/sqlite.ts';
import { memoryStores } from '../../support/states.ts';
import { PHONE, setup } from './setup.ts';

describe('restart (01 §6.7)', () => {
  it('restores sessions, grants and refresh credentials', async () => {
    const { sessions, pair, restart } = await setup();
    const { session, token, refreshToken = '' } = await pair({}, { ttlSeconds: 3600, grants: { bridge: 60 } });
    await sessions.reduce(session, { grants: { terminal: 30 } });
    const next = await restart();
    const back = next.sessions.authenticate(token);
    expect({ ...back, token: undefined }).toEqual({ ...session, token: undefined });
    expect((await next.sessions.refresh(refreshToken, PHONE))?.session.grants).toEqual(session.grants);
  });

  it('forgets sessions that were revoked, replaced or have expired', async () => {
    const { sessions, clock, store, pair, restart } = await setup();
    const revoked = await pair({ id: 'a' });
    await sessions.revoke(revoked.session);
    await pair({ id: 'b' }, { ttlSeconds: 10 });
    const replaced = await pair({ id: 'c' });
    const kept = await pair({ id: 'c' });
    clock.advance(10_000);
    const next = await restart();
    expect(next.sessions.list().map(({ prefix }) => prefix)).toEqual([kept.session.prefix]);
    expect(next.sessions.authenticate(replaced.token)).toBeUndefined();
    expect(await store.getKeys()).toEqual([kept.session.family]);
  });

  it('forgets the end of a session at a time that no date can hold', async () => {
    const ended = memoryStores().open('ended-sessions');
    const { sessions, pair, restart } = await setup(undefined, undefined, { ended });
    const { session, token } = await pair();
    await sessions.revoke(session);
    const [family = ''] = await ended.getKeys();
    expect((await restart()).sessions.endedSentence({ token })).toContain('pair again');
    const record = (await ended.getItem(family)) as EndedSessionRecord;
    await ended.setItem(family, { ...record, ended_at: 1e300 });
    expect((await restart()).sessions.endedSentence({ token })).toBeUndefined();
  });

  it('fills in the grants of an older record', async () => {
    const { store, pair, restart, now } = await setup();
    const { session, token } = await pair();
    const record = (await store.getItem(session.family)) as SessionRecord;
    const grants = { chat: now() + 5, tui: now() + 6, bridge: null };
    await store.setItem(session.family, { ...record, version: undefined, grants });
    expect((await restart()).sessions.authenticate(token)?.grants).toEqual({
      chat: now() + 5,
      tui: now() + 6,
      desktop: now() + 6,
      bridge: session.expiresAt,
      'voice:config': now() + 5,
      'voice:stt': now() + 5,
      'voice:tts': now() + 5,
      'voice:realtime': now() + 5,
      files: session.expiresAt,
      profiles: session.expiresAt,
      phone: session.expiresAt,
      devices: session.expiresAt,
    });
  });

  it('gives a session nothing that it was paired without (09 §1)', async () => {
    const { pair, restart } = await setup();
    const { session, token } = await pair({}, { without: ['desktop', 'voice:stt', 'files', 'devices'] });
    expect(Object.keys(session.grants)).not.toContain('files');
    const again = await (await restart()).restart();
    expect(again.sessions.authenticate(token)?.grants).toEqual(session.grants);
  });

  it('ignores unknown members and unknown words of a newer record', async () => {
    const { store, pair, restart } = await setup();
    const { session, token } = await pair();
    const record = (await store.getItem(session.family)) as SessionRecord;
    const newer = { ...record, client_surface: 'watch', transport_hint: 'quic', more: { x: 1 } };
    await store.setItem(session.family, newer as unknown as SessionRecord);
    expect((await restart()).sessions.authenticate(token)).toMatchObject({
      device: { surface: 'unknown' },
      transportHint: 'unknown',
    });
  });

  it.each<[string, (record: SessionRecord) => unknown]>([
    ['text', () => 'not a record'],
    ['a number', () => 7],
    ['an empty object', () => ({})],
    ['no hash', (record) => ({ ...record, token_sha256: 'abc' })],
    ['an end of another type', (record) => ({ ...record, expires_at: 'soon' })],
    ['no end', ({ expires_at: _, ...record }) => record],
    ['grants of another type', (record) => ({ ...record, grants: 'all' })],
    ['a grant of another type', (record) => ({ ...record, grants: { chat: '1' } })],
    ['another family', (record) => ({ ...record, family: 'f'.repeat(32) })],
  ])('skips a record that is %s, and keeps both it and the others', async (_, damage) => {
    const { store, pair, restart } = await setup();
    const bad = await pair({ id: 'a' });
    const good = await pair({ id: 'b' });
    const record = (await store.getItem(bad.session.family)) as SessionRecord;
    await store.setItem(bad.session.family, damage(record) as SessionRecord);
    const next = await restart();
    expect(next.sessions.list().map(({ prefix }) => prefix)).toEqual([good.session.prefix]);
    expect(next.log.lines.filter((line) => line.includes('[WARNING]'))).toHaveLength(1);
    expect(await store.getKeys()).toHaveLength(2);
  });

  it('drops a damaged refresh credential, not its session', async () => {
    const { store, pair, restart } = await setup();
    const { session, token, refreshToken = '' } = await pair();
    const record = (await store.getItem(session.family)) as SessionRecord;
    await store.setItem(session.family, { ...record, refresh: { sha256: 'x' } } as unknown as SessionRecord);
    const next = await restart();
    expect(await next.sessions.refresh(refreshToken, PHONE)).toBeUndefined();
    expect(next.sessions.authenticate(token)?.refresh).toBeNull();
  });
});

describe('more records than MAX_SESSIONS', () => {
  it('loads every one of them, and pairs no further device (issue 23 §2.10)', async () => {
    const { store, clock, pair } = await setup();
    const { session } = await pair();
    const record = (await store.getItem(session.family)) as SessionRecord;
    await store.clear();
    const family = (at: number) => at.toString(16).padStart(32, '0');
    for (let at = 0; at < 4099; at++) {
      const prefix = at.toString(16).padStart(8, '0');
      const token_sha256 = at.toString(16).padStart(64, '0');
      await store.setItem(family(at), { ...record, family: family(at), token_prefix: prefix, token_sha256 });
    }
    const { sessions, log, pair: pairMore } = await setup(store, clock);
    expect([sessions.count(), (await store.getKeys()).length]).toEqual([4099, 4099]);
    expect(log.lines.filter((line) => line.includes('[WARNING]'))).toEqual([
      expect.stringMatching(/4099 sessions are stored: no device pairs while there are 4096 or more/),
    ]);
    await expect(pairMore({ id: 'new' })).rejects.toMatchObject({ kind: 'unavailable' });
    for (let left = 4; left > 0; left--) await sessions.revoke(sessions.list()[0] as Session);
    await pairMore({ id: 'new' });
    expect([sessions.count(), (await store.getKeys()).length]).toEqual([4096, 4096]);
  });
});

describe('a re-pairing is one transaction (design 4)', () => {
  const cleanups: (() => unknown)[] = [];
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  });

  async function onDisk() {
    const directory = await mkdtemp(join(tmpdir(), 'svc-relay-pairing-'));
    cleanups.push(() => rm(directory, { recursive: true, force: true }));
    const path = join(directory, 'state.db');
    const open = (path: string, wrap = (executor: SqlExecutor) => executor) => {
      const stores = createStores('node', sqlBackend(wrap(openStateFile(path, () => {}))));
      cleanups.push(() => stores.close());
      return stores.open('sessions');
    };
    return { path, open };
  }

  it('a process killed at any statement leaves the device its old session or its new one, never both or none', async () => {
    const { path, open } = await onDisk();
    const copies: string[] = [];
    const copy = () => {
      const to = `${path}.${copies.length}`;
      for (const suffix of ['', '-wal']) if (existsSync(path + suffix)) copyFileSync(path + suffix, to + suffix);
      copies.push(to);
    };
    const store = open(path, (executor) => ({
      ...executor,
      run(sql, ...values) {
        copy();
        executor.run(sql, ...values);
      },
    }));
    const { pair } = await setup(store);
    const other = await pair({ id: 'other' });
    const old = await pair({ id: 'device' });
    copies.length = 0;
    const fresh = await pair({ id: 'DEVICE' });
    copy();
    expect(copies).toHaveLength(3);
    const left = await Promise.all(
      copies.map(async (copy) => (await setup(open(copy))).sessions.list().map(({ family }) => family)),
    );
    const before = [old.session.family, other.session.family].sort();
    const after = [fresh.session.family, other.session.family].sort();
    expect(left.map((families) => families.sort())).toEqual([before, before, after]);
  });

  it('when it fails: nothing has changed, on disk or in memory, and the next attempt succeeds', async () => {
    const { path, open } = await onDisk();
    let failing = 0;
    const store = open(path, (executor) => ({
      ...executor,
      run(sql, ...values) {
        // The last statement of the transaction: the removal.
        if (failing > 0 && sql.startsWith('DELETE')) throw new Error('disk I/O error');
        executor.run(sql, ...values);
      },
    }));
    const { sessions, log, pair } = await setup(store);
    const old = await pair({ id: 'device' });
    failing = 1;
    await expect(pair({ id: 'device' })).rejects.toThrow('could not be stored: try again later');
    expect(sessions.storeState()).toBe('degraded');
    expect(await store.getKeys()).toEqual([old.session.family]);
    expect(sessions.authenticate(old.token)).toBe(old.session);
    expect(sessions.count()).toBe(1);
    expect(log.lines.filter((line) => line.includes('could not be saved'))).toHaveLength(1);
    failing = 0;
    const fresh = await pair({ id: 'device' });
    expect(sessions.storeState()).toBe('ok');
    expect(sessions.authenticate(old.token)).toBeUndefined();
    expect(await store.getKeys()).toEqual([fresh.session.family]);
  });
});

describe('a failing store (01 §6.7)', () => {
  async function failing() {
    const disk = { broken: false };
    const memory = memoryDriver();
    const guard = <T extends unknown[], R>(run: ((...args: T) => R) | undefined) => {
      return (...args: T): R => {
        if (disk.broken) throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
        return run?.(...args) as R;
      };
    };
    const driver = {
      ...memory,
      setItem: guard(memory.setItem),
      removeItem: guard(memory.removeItem),
    } as Driver;
    return { disk, ...(await setup(createStorage({ driver }) as Storage<SessionRecord>)) };
  }

  const NOT_STORED = { kind: 'unavailable', message: 'could not be stored: try again later' };
  const APPLIED = { kind: 'unavailable', extra: { applied: true, stored: false } };

  it('is degraded, warns, and makes no session of a pairing', async () => {
    const { disk, sessions, log, pair, ended } = await failing();
    const old = await pair();
    disk.broken = true;
    await expect(pair()).rejects.toMatchObject(NOT_STORED);
    expect(sessions.storeState()).toBe('degraded');
    expect(sessions.list()).toEqual([old.session]);
    expect(ended).toEqual([]);
    const warnings = log.lines.filter((line) => line.includes('[WARNING]'));
    expect(warnings).toHaveLength(2);
    expect(warnings[0]).toContain('ENOSPC');
  });

  it('refuses a refresh: session and refresh token stay good, also after a crash', async () => {
    const { disk, sessions, pair, ended, restart } = await failing();
    const { session, token, refreshToken = '' } = await pair();
    disk.broken = true;
    await expect(sessions.refresh(refreshToken, PHONE)).rejects.toMatchObject(NOT_STORED);
    expect(sessions.authenticate(token)).toBe(session);
    expect(ended).toEqual([]);
    disk.broken = false;
    expect((await (await restart()).sessions.refresh(refreshToken, PHONE))?.session.family).toBe(session.family);
    expect((await sessions.refresh(refreshToken, PHONE))?.session.family).toBe(session.family);
    expect(sessions.storeState()).toBe('ok');
  });

  it('issues no refresh token to a device that comes back: after a crash it would look stolen', async () => {
    const { disk, sessions, pair, restart } = await failing();
    const { session, token, refreshToken = '' } = await pair();
    disk.broken = true;
    expect(await sessions.resume(session, PHONE, 'not-a-token').saved).toBeUndefined();
    disk.broken = false;
    const next = (await restart()).sessions;
    expect(await next.refresh(refreshToken, PHONE)).toBeDefined();
    expect(sessions.authenticate(token)).toBe(session);
  });

  it('does not unbind a session from its key while that cannot be stored', async () => {
    const { disk, sessions, pair, restart } = await failing();
    const { session, token } = await pair();
    await sessions.resume(session, session.device, undefined, 'key').saved;
    disk.broken = true;
    await expect(sessions.unbind(session)).rejects.toMatchObject(NOT_STORED);
    expect([sessions.authenticate(token), sessions.authenticate(token, 'key')]).toEqual([undefined, session]);
    disk.broken = false;
    expect((await restart()).sessions.authenticate(token)).toBeUndefined();
    await sessions.unbind(session);
    expect(sessions.authenticate(token)).toBe(session);
    expect((await restart()).sessions.authenticate(token)).toBeDefined();
  });

  it('tells whoever revokes or reduces that it is in effect, and writes it again by itself', async () => {
    const { disk, sessions, clock, pair, restart } = await failing();
    const [revoked, reduced] = [await pair({ id: 'a' }), await pair({ id: 'b' })];
    disk.broken = true;
    await expect(sessions.revoke(revoked.session)).rejects.toMatchObject(APPLIED);
    await expect(sessions.reduce(reduced.session, { ttlSeconds: 100 })).rejects.toMatchObject(APPLIED);
    expect(sessions.authenticate(revoked.token)).toBeUndefined();
    await clock.advanceAsync(60_000);
    expect(sessions.storeState()).toBe('degraded');
    disk.broken = false;
    await clock.advanceAsync(30_000);
    await vi.waitFor(() => expect(sessions.storeState()).toBe('ok'));
    const next = (await restart()).sessions;
    expect(next.authenticate(revoked.token)).toBeUndefined();
    expect(next.authenticate(reduced.token)?.expiresAt).toBe(reduced.session.expiresAt);
  });

  it('keeps what was reduced or revoked while a refresh was stored', async () => {
    let open = () => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const memory = memoryDriver();
    let isSlow = false;
    const driver = {
      ...memory,
      async setItem(key: string, value: string, options: never) {
        if (isSlow) await gate;
        return memory.setItem?.(key, value, options);
      },
    } as Driver;
    const { sessions, pair, restart } = await setup(createStorage({ driver }) as Storage<SessionRecord>);
    const [reduced, revoked] = [await pair({ id: 'a' }), await pair({ id: 'b' })];
    isSlow = true;
    const refreshed = sessions.refresh(reduced.refreshToken ?? '', { ...PHONE, id: 'a' });
    const gone = sessions.refresh(revoked.refreshToken ?? '', { ...PHONE, id: 'b' });
    const reduction = sessions.reduce(reduced.session, { ttlSeconds: 100 });
    const revocation = sessions.revoke(revoked.session);
    open();
    await Promise.all([reduction, revocation]);
    expect(await gone).toBeUndefined();
    expect((await refreshed)?.session.expiresAt).toBe(reduced.session.expiresAt);
    const next = (await restart()).sessions;
    expect(next.list().map(({ device, expiresAt }) => [device.id, expiresAt])).toEqual([
      ['a', reduced.session.expiresAt],
    ]);
  });

  it('is ok again after the next save that works', async () => {
    const { disk, sessions, pair } = await failing();
    const { session } = await pair();
    disk.broken = true;
    await expect(pair()).rejects.toMatchObject(NOT_STORED);
    disk.broken = false;
    await sessions.reduce(session, { ttlSeconds: 5 });
    expect(sessions.storeState()).toBe('ok');
  });

  it('stays degraded until every change is on disk; the next successful write saves the others', async () => {
    const { disk, sessions, pair, restart } = await failing();
    const [revoked, reduced] = [await pair({ id: 'a' }), await pair({ id: 'b' })];
    disk.broken = true;
    await expect(sessions.revoke(revoked.session)).rejects.toMatchObject(APPLIED);
    await expect(sessions.reduce(reduced.session, { ttlSeconds: 100 })).rejects.toMatchObject(APPLIED);
    expect(sessions.storeState()).toBe('degraded');
    disk.broken = false;
    await pair({ id: 'e' });
    expect(sessions.storeState()).toBe('ok');
    const next = (await restart()).sessions;
    expect(next.authenticate(revoked.token)).toBeUndefined();
    expect(next.authenticate(reduced.token)?.expiresAt).toBe(reduced.session.expiresAt);
    expect(next.count()).toBe(2);
  });

  it.each(['sweep', 'flush'] as const)('retries failed writes at the next %s', async (when) => {
    const { disk, sessions, pair, restart } = await failing();
    const { session, token } = await pair();
    disk.broken = true;
    await expect(sessions.revoke(session)).rejects.toMatchObject(APPLIED);
    await sessions[when]();
    await new Promise((resolve) => setImmediate(resolve));
    expect(sessions.storeState()).toBe('degraded');
    disk.broken = false;
    await sessions[when]();
    await vi.waitFor(() => expect(sessions.storeState()).toBe('ok'));
    expect((await restart()).sessions.authenticate(token)).toBeUndefined();
  });

  it('starts although an expired record cannot be removed', async () => {
    const { disk, clock, pair, restart } = await failing();
    const { token } = await pair({}, { ttlSeconds: 1 });
    clock.advance(2_000);
    disk.broken = true;
    const next = (await restart()).sessions;
    expect(next.authenticate(token)).toBeUndefined();
    expect(next.storeState()).toBe('degraded');
  });

  it('leaves no unhandled rejection behind an expiry', async () => {
    const { disk, sessions, clock, pair } = await failing();
    const { token } = await pair({}, { ttlSeconds: 1 });
    disk.broken = true;
    clock.advance(1_000);
    expect(sessions.authenticate(token)).toBeUndefined();
    await new Promise((resolve) => setImmediate(resolve));
    expect(sessions.storeState()).toBe('degraded');
  });
});
