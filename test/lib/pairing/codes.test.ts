import { expect, test } from 'vitest';
import { createPairingCodes, isPairingCode, maskCode } from '../../../lib/pairing/codes.ts';
import { fakeClock, fakeLog, START } from './fixtures.ts';

const numbered = (index: number) => String(index).padStart(6, '0');
const rateLimited = expect.objectContaining({ kind: 'rate-limited', retryAfter: expect.any(Number) });

test('§5.1 a code is 6 of A-Z 0-9 and masked to its first two', () => {
  const codes = createPairingCodes(fakeClock().clock, fakeLog().log);
  for (let count = 0; count < 200; count++) expect(codes.mint({}).code).toMatch(/^[A-Z0-9]{6}$/);
  expect(isPairingCode('ABC12')).toBe(false);
  expect(isPairingCode('abc123')).toBe(false);
  expect(isPairingCode('ABC123\n')).toBe(false);
  expect(maskCode('ABC123')).toBe('AB****');
});

test('§5.1 one shot: of two callers one gets it, with its policy', () => {
  const codes = createPairingCodes(fakeClock().clock, fakeLog().log);
  codes.register('ABC123', { ttlSeconds: 60 });
  expect(codes.consume('ABC123')).toEqual({ ttlSeconds: 60 });
  expect(codes.consume('ABC123')).toBeUndefined();
  expect(codes.consume('XXXXXX')).toBeUndefined();
});

test('§5.1 good for 600 s', () => {
  const { clock, advance } = fakeClock();
  const codes = createPairingCodes(clock, fakeLog().log);
  expect(codes.register('AAAAAA', {})).toEqual({ code: 'AAAAAA', expiresAt: START + 600 });
  codes.register('BBBBBB', {});
  advance(599);
  expect(codes.consume('AAAAAA')).toEqual({});
  advance(1);
  expect(codes.consume('BBBBBB')).toBeUndefined();
});

test('§5.1 registering again replaces the policy and restarts the clock', () => {
  const { clock, advance } = fakeClock();
  const codes = createPairingCodes(clock, fakeLog().log);
  codes.register('ABC123', { ttlSeconds: 60 });
  advance(500);
  expect(codes.register('ABC123', { transportHint: 'ws' }).expiresAt).toBe(START + 1100);
  advance(500);
  expect(codes.consume('ABC123')).toEqual({ transportHint: 'ws' });
});

test('§5.1 at most 256 wait; a pending one may still be registered again; expired ones make room', () => {
  const { clock, advance } = fakeClock();
  const codes = createPairingCodes(clock, fakeLog().log);
  for (let index = 0; index < 256; index++) codes.register(numbered(index), {});
  expect(() => codes.register('ZZZZZZ', {})).toThrow(rateLimited);
  expect(() => codes.mint({})).toThrow(rateLimited);
  expect(() => codes.mintAnonymous()).toThrow(rateLimited);
  expect(codes.register(numbered(7), { ttlSeconds: 1 }).code).toBe(numbered(7));
  codes.consume(numbered(0));
  expect(codes.mint({}).code).toMatch(/^[A-Z0-9]{6}$/);
  advance(600);
  expect(codes.mint({}).expiresAt).toBe(START + 1200);
});

test('§5.5 at most 32 anonymous ones wait, and they do not stop the host', () => {
  const { clock, advance } = fakeClock();
  const codes = createPairingCodes(clock, fakeLog().log);
  const minted = Array.from({ length: 32 }, () => codes.mintAnonymous().code);
  expect(new Set(minted).size).toBe(32);
  expect(() => codes.mintAnonymous()).toThrow(rateLimited);
  expect(codes.mint({}).code).not.toBe('');
  expect(codes.consume(minted[0] as string)).toEqual({});
  expect(codes.mintAnonymous().code).not.toBe('');
  expect(() => codes.mintAnonymous()).toThrow(rateLimited);
  advance(600);
  expect(codes.mintAnonymous().code).not.toBe('');
});
