import { expect, test, vi } from 'vitest';
import { RelayError } from '../../../lib/errors.ts';
import { isPairingCode, maskCode } from '../../../lib/pairing/code.ts';
import { openPairingCodes } from '../../../lib/pairing/codes.ts';
import { codesOf, memoryStores } from '../../support/states.ts';
import { fakeClock, fakeLog, START } from './fixtures.ts';

const numbered = (index: number) => String(index).padStart(6, '0');
const rateLimited = expect.objectContaining({ kind: 'rate-limited', retryAfter: expect.any(Number) });

test('§5.1 a code is 6 of A-Z 0-9 and masked to its first two', async () => {
  const codes = await codesOf(fakeClock().clock, fakeLog().log);
  for (let count = 0; count < 200; count++) expect((await codes.mint({})).code).toMatch(/^[A-Z0-9]{6}$/);
  expect(isPairingCode('ABC12')).toBe(false);
  expect(isPairingCode('abc123')).toBe(false);
  expect(isPairingCode('ABC123\n')).toBe(false);
  expect(maskCode('ABC123')).toBe('AB****');
});

test('§5.1 one shot: of two callers one gets it, with its policy', async () => {
  const codes = await codesOf(fakeClock().clock, fakeLog().log);
  await codes.register('ABC123', { ttlSeconds: 60 });
  expect(await codes.consume('ABC123')).toEqual({ ttlSeconds: 60 });
  expect(await codes.consume('ABC123')).toBeUndefined();
  expect(await codes.consume('XXXXXX')).toBeUndefined();
});

test('§5.1 good for 600 s', async () => {
  const { clock, advance } = fakeClock();
  const codes = await codesOf(clock, fakeLog().log);
  expect(await codes.register('AAAAAA', {})).toEqual({ code: 'AAAAAA', expiresAt: START + 600 });
  await codes.register('BBBBBB', {});
  advance(599);
  expect(await codes.consume('AAAAAA')).toEqual({});
  advance(1);
  expect(await codes.consume('BBBBBB')).toBeUndefined();
});

test('§5.1 registering again replaces the policy and restarts the clock', async () => {
  const { clock, advance } = fakeClock();
  const codes = await codesOf(clock, fakeLog().log);
  await codes.register('ABC123', { ttlSeconds: 60 });
  advance(500);
  expect((await codes.register('ABC123', { transportHint: 'ws' })).expiresAt).toBe(START + 1100);
  advance(500);
  expect(await codes.consume('ABC123')).toEqual({ transportHint: 'ws' });
});

test('§5.1 at most 256 wait; a pending one may still be registered again; expired ones make room', async () => {
  const { clock, advance } = fakeClock();
  const codes = await codesOf(clock, fakeLog().log);
  for (let index = 0; index < 256; index++) await codes.register(numbered(index), {});
  await expect(codes.register('ZZZZZZ', {})).rejects.toThrow(rateLimited);
  await expect(codes.mint({})).rejects.toThrow(rateLimited);
  await expect(codes.mintAnonymous()).rejects.toThrow(rateLimited);
  expect((await codes.register(numbered(7), { ttlSeconds: 1 })).code).toBe(numbered(7));
  await codes.consume(numbered(0));
  expect((await codes.mint({})).code).toMatch(/^[A-Z0-9]{6}$/);
  advance(600);
  expect((await codes.mint({})).expiresAt).toBe(START + 1200);
});

test('§5.5 at most 32 anonymous ones wait, and they do not stop the host', async () => {
  const { clock, advance } = fakeClock();
  const codes = await codesOf(clock, fakeLog().log);
  const minted = (await Promise.all(Array.from({ length: 32 }, () => codes.mintAnonymous()))).map(({ code }) => code);
  expect(new Set(minted).size).toBe(32);
  await expect(codes.mintAnonymous()).rejects.toThrow(rateLimited);
  expect((await codes.mint({})).code).not.toBe('');
  expect(await codes.consume(minted[0] as string)).toEqual({});
  expect((await codes.mintAnonymous()).code).not.toBe('');
  await expect(codes.mintAnonymous()).rejects.toThrow(rateLimited);
  advance(600);
  expect((await codes.mintAnonymous()).code).not.toBe('');
});

test('contract 00: codes outlast a sleep with their policy and their end, used ones stay used', async () => {
  const { clock, advance } = fakeClock();
  const { log } = fakeLog();
  const stores = memoryStores();
  const codes = await codesOf(clock, log, stores);
  const policy = { ttlSeconds: 0, grants: { terminal: 60 }, transportHint: 'wss' as const };
  await codes.register('ABC123', policy);
  await codes.register('USED12', {});
  await codes.consume('USED12');
  const anonymous = await Promise.all(Array.from({ length: 32 }, () => codes.mintAnonymous()));
  advance(100);

  const woken = await codesOf(clock, log, stores);
  expect(await woken.consume('ABC123')).toEqual(policy);
  expect(await woken.consume('USED12')).toBeUndefined();
  await expect(woken.mintAnonymous()).rejects.toThrow(rateLimited);
  advance(500);
  const later = await codesOf(clock, log, stores);
  expect(await later.consume(anonymous[0]?.code as string)).toBeUndefined();
  expect(await stores.open('pairing-codes').getKeys()).toEqual([]);
});

test('a code is not in the store, only its hash is', async () => {
  const stores = memoryStores();
  const codes = await codesOf(fakeClock().clock, fakeLog().log, stores);
  await codes.register('ABC123', {});
  const store = stores.open('pairing-codes');
  const [key] = await store.getKeys();
  expect(key).toMatch(/^[0-9a-f]{64}$/);
  expect(JSON.stringify(await store.getItem(key as string))).not.toContain('ABC');
});

test('of two callers at once one gets a code, and not before its removal is stored', async () => {
  const stores = memoryStores();
  const store = stores.open('pairing-codes');
  const codes = await openPairingCodes({ store, clock: fakeClock().clock, log: fakeLog().log });
  await codes.register('ABC123', {});
  let stored = () => {};
  vi.spyOn(store, 'removeItem').mockReturnValue(
    new Promise((resolve) => {
      stored = resolve;
    }),
  );
  const settled = vi.fn();
  const first = codes.consume('ABC123').finally(settled);
  expect(await codes.consume('ABC123')).toBeUndefined();
  expect(settled).not.toHaveBeenCalled();
  stored();
  expect(await first).toEqual({});
});

test('a code whose key was replaced is used up and no good, also after a restart; while keys cannot be read it stays', async () => {
  const store = memoryStores().open('pairing-codes');
  let current: string | null = 'first';
  const isCurrentKey = async (keyId: string) => {
    if (current === null) throw new RelayError('unavailable', 'try again later');
    return keyId === current;
  };
  const open = () => openPairingCodes({ store, isCurrentKey, clock: fakeClock().clock, log: fakeLog().log });
  const codes = await open();
  const [old, older] = [await codes.mint({}, 'first'), await codes.mint({}, 'first')];
  await codes.register('ABC123', {});
  current = null;
  await expect(codes.consume(old.code)).rejects.toThrow(expect.objectContaining({ kind: 'unavailable' }));
  current = 'second';
  const use = vi.fn();
  expect(await codes.consume(old.code, { secret: old.secret, use })).toBeUndefined();
  const again = await open();
  expect(await again.consume(older.code, { secret: older.secret, use })).toBeUndefined();
  expect(use).not.toHaveBeenCalled();
  const fresh = await again.mint({}, 'second');
  expect([await again.consume(fresh.code), await again.consume('ABC123')]).toEqual([{}, {}]);
});

test('a displayed code that is registered again keeps its routes, and goes with its key all the same', async () => {
  const store = memoryStores().open('pairing-codes');
  let current = 'first';
  const isCurrentKey = async (keyId: string) => keyId === current;
  const codes = await openPairingCodes({ store, isCurrentKey, clock: fakeClock().clock, log: fakeLog().log });
  const minted = [await codes.mint({}, 'first'), await codes.mint({}, 'first'), await codes.mint({}, 'first')] as const;
  const routes = { own: ['http://192.0.2.1:8767'], others: false };
  for (const { code } of minted) {
    await codes.setRoutes(code, routes);
    await codes.register(code, { ttlSeconds: 60 });
  }
  const [good, leaked, withdrawn] = minted;
  const use = vi.fn();
  expect(await codes.consume(good.code, { secret: good.secret, use })).toEqual({ ttlSeconds: 60 });
  expect(use.mock.calls).toEqual([[{ ttlSeconds: 60 }, routes, undefined]]);
  current = 'second';
  expect(await codes.consume(leaked.code, { secret: leaked.secret, use })).toBeUndefined();
  await codes.withdrawReplaced();
  expect(codes.waiting().codes).toEqual([]);
  expect(await codes.consume(withdrawn.code, { use })).toBeUndefined();
  expect(use).toHaveBeenCalledOnce();
});

test('a store that fails gives no code out and lets nobody in', async () => {
  const stores = memoryStores();
  const store = stores.open('pairing-codes');
  const codes = await openPairingCodes({ store, clock: fakeClock().clock, log: fakeLog().log });
  await codes.register('ABC123', {});
  const remove = vi.spyOn(store, 'removeItem').mockRejectedValue(new Error('full'));
  const set = vi.spyOn(store, 'setItem').mockRejectedValue(new Error('full'));
  const unavailable = expect.objectContaining({ kind: 'unavailable', message: 'could not be stored: try again later' });
  const use = vi.fn();
  await expect(codes.consume('ABC123', { use })).rejects.toThrow(unavailable);
  await expect(codes.consume('ABC123', { use }), 'the code stays good (01 §6.7)').rejects.toThrow(unavailable);
  expect(use).not.toHaveBeenCalled();
  await expect(codes.mint({})).rejects.toThrow(expect.objectContaining({ kind: 'unavailable' }));
  remove.mockRestore();
  set.mockRestore();
  const failing = { use: () => Promise.reject(new Error('not made')) };
  await expect(codes.consume('ABC123', failing)).rejects.toThrow('not made');
  expect(await codes.consume('ABC123')).toEqual({});
  expect(await codes.consume('ABC123')).toBeUndefined();
});

test('a code stays as it is when a new registration of it cannot be stored', async () => {
  const store = memoryStores().open('pairing-codes');
  const codes = await openPairingCodes({ store, clock: fakeClock().clock, log: fakeLog().log });
  await codes.register('ABC123', { ttlSeconds: 60 });
  const set = vi.spyOn(store, 'setItem').mockRejectedValue(new Error('full'));
  await expect(codes.register('ABC123', {})).rejects.toThrow(expect.objectContaining({ kind: 'unavailable' }));
  set.mockRestore();
  expect(await codes.consume('ABC123')).toEqual({ ttlSeconds: 60 });
});

test('issue 23, 1.9: the secret beside a code outlasts a sleep as a hash alone, and goes with the code', async () => {
  const { clock } = fakeClock();
  const { log } = fakeLog();
  const stores = memoryStores();
  const codes = await codesOf(clock, log, stores);
  const { code, secret } = await codes.mint({ ttlSeconds: 60 });
  const store = stores.open('pairing-codes');
  const records = await Promise.all((await store.getKeys()).map((key) => store.getItem(key)));
  expect(JSON.stringify(records)).not.toContain(secret);

  const woken = await codesOf(clock, log, stores);
  expect(await woken.consume(code, { secret: 'another' })).toBeUndefined();
  expect(await woken.consume(code, { allowed: 'none' })).toBeUndefined();
  expect(await woken.consume(code, { allowed: 'none', secret })).toEqual({ ttlSeconds: 60 });
  expect(await woken.consume(code, { secret })).toBeUndefined();
  await woken.register('ABC123', {});
  expect(await woken.consume('ABC123', { secret: '' }), 'a code without a secret').toBeUndefined();
});
