import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { applyPolicy, endsLater, inherit, isGranted } from '../../../lib/sessions/grants.ts';
import { DAY } from './setup.ts';

const NOW = 1_790_000_000;
const FULL = [
  'chat',
  'voice:config',
  'voice:stt',
  'voice:tts',
  'voice:realtime',
  'files',
  'profiles',
  'phone',
  'devices',
];
const MONTH = ['terminal', 'tui', 'desktop'];

describe('lifetime and grants at creation (01 §6.2)', () => {
  it.each([
    ['the default', undefined, 30 * DAY, 30 * DAY, 7 * DAY],
    ['an hour', 3600, 3600, 3600, 3600],
    ['ten days', 10 * DAY, 10 * DAY, 10 * DAY, 7 * DAY],
    ['a year', 365 * DAY, 365 * DAY, 30 * DAY, 7 * DAY],
  ])('for %s', (_, ttlSeconds, full, month, bridge) => {
    const { expiresAt, grants } = applyPolicy({ ttlSeconds }, NOW);
    expect(expiresAt).toBe(NOW + full);
    const expected = Object.fromEntries([
      ...FULL.map((channel) => [channel, NOW + full]),
      ...MONTH.map((channel) => [channel, NOW + month]),
      ['bridge', NOW + bridge],
    ]);
    expect(grants).toEqual(expected);
  });

  it('gives a session without end grants without end', () => {
    const { expiresAt, grants } = applyPolicy({ ttlSeconds: 0 }, NOW);
    expect(expiresAt).toBeNull();
    expect(Object.keys(grants).sort()).toEqual([...FULL, ...MONTH, 'bridge'].sort());
    expect(new Set(Object.values(grants))).toEqual(new Set([null]));
  });

  it('overrides named channels, clamped to the session', () => {
    const { grants } = applyPolicy(
      { ttlSeconds: DAY, grants: { bridge: 60, chat: 0, terminal: 9 * DAY, extra: 5 } },
      NOW,
    );
    expect(grants).toMatchObject({
      bridge: NOW + 60,
      chat: NOW + DAY,
      terminal: NOW + DAY,
      extra: NOW + 5,
      tui: NOW + DAY,
    });
  });

  it('keeps a finite grant on a session without end', () => {
    const { grants } = applyPolicy({ ttlSeconds: 0, grants: { bridge: 60, chat: 0 } }, NOW);
    expect(grants).toMatchObject({ bridge: NOW + 60, chat: null, tui: null });
  });

  it('leaves out withheld grants, whatever else the policy says (09 §1)', () => {
    const without = [...FULL, ...MONTH].filter((name) => name !== 'chat');
    const { grants } = applyPolicy({ ttlSeconds: DAY, grants: { terminal: 60, extra: 5 }, without }, NOW);
    expect(grants).toEqual({ chat: NOW + DAY, bridge: NOW + DAY, extra: NOW + 5 });
  });

  it('clamps every grant to its session, whatever the policy', () => {
    const seconds = fc.integer({ min: 0, max: 400 * DAY });
    const channel = fc.constantFrom('chat', 'bridge', 'terminal', 'desktop', 'other');
    fc.assert(
      fc.property(fc.option(seconds, { nil: undefined }), fc.dictionary(channel, seconds), (ttlSeconds, named) => {
        const { expiresAt, grants } = applyPolicy({ ttlSeconds, grants: named }, NOW);
        return Object.values(grants).every((grant) => !endsLater(grant, expiresAt));
      }),
    );
  });
});

describe('grants of older records (01 §6.2)', () => {
  it('lets voice inherit from chat and desktop from tui', () => {
    const filled = inherit({ chat: NOW + 5, tui: NOW + 6, 'voice:tts': NOW + 1 }, NOW + 100);
    expect(filled).toEqual({
      chat: NOW + 5,
      tui: NOW + 6,
      desktop: NOW + 6,
      'voice:tts': NOW + 1,
      'voice:config': NOW + 5,
      'voice:stt': NOW + 5,
      'voice:realtime': NOW + 5,
      files: NOW + 100,
      profiles: NOW + 100,
      phone: NOW + 100,
      devices: NOW + 100,
    });
  });

  it('falls back to the end of the session, and clamps', () => {
    expect(inherit({ bridge: null }, NOW)).toMatchObject({ bridge: NOW, desktop: NOW, 'voice:stt': NOW });
    expect(inherit({}, null)).toMatchObject({ desktop: null });
  });
});

describe('isGranted', () => {
  const grants = { past: NOW, soon: NOW + 1, always: null };
  it.each([
    ['past', false],
    ['soon', true],
    ['always', true],
    ['unnamed', false],
    ['constructor', false],
  ])('%s: %s', (channel, granted) => {
    expect(isGranted(grants, channel, NOW)).toBe(granted);
  });
});
