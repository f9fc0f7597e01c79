import { describe, expect, test } from 'vitest';
import { describeDuration, parseDuration, parseGrants } from '../../../lib/pairing/duration.ts';

describe('durations of --ttl and --grants (01 §9.4)', () => {
  test.each([
    ['1d', 86_400],
    ['7d', 604_800],
    ['30d', 2_592_000],
    ['90d', 7_776_000],
    ['1y', 31_536_000],
    ['never', 0],
    ['NEVER', 0],
    ['0', 0],
    ['90', 90],
    ['45s', 45],
    ['5m', 300],
    ['12h', 43_200],
    ['2W', 1_209_600],
    [' 3d ', 259_200],
    ['100y', 3_153_600_000],
  ])('%s', (text, seconds) => expect(parseDuration(text)).toBe(seconds));

  test.each([
    [''],
    ['d'],
    ['1.5d'],
    ['-1'],
    ['1 d'],
    ['1d2h'],
    ['1mo'],
    ['1e3'],
    ['0d'],
    ['00'],
    ['101y'],
    ['Infinity'],
    ['٣d'],
  ])('not %j', (text) => expect(() => parseDuration(text)).toThrow(/must be/));

  test.each([
    [0, 'never expires'],
    [1, '1 second'],
    [90, '1 minute 30 seconds'],
    [43_200, '12 hours'],
    [86_400, '1 day'],
    [2_592_000, '30 days'],
    [31_536_000, '1 year'],
    [34_560_000, '1 year 35 days'],
  ])('%d in words', (seconds, words) => expect(describeDuration(seconds)).toBe(words));

  test('grants', () => {
    expect(parseGrants('terminal=7d, voice:stt=never,bridge=3600')).toEqual({
      terminal: 604_800,
      'voice:stt': 0,
      bridge: 3600,
    });
  });

  test.each([
    [''],
    ['terminal'],
    ['terminal='],
    ['=1d'],
    ['a=1d,a=2d'],
    ['a=1d,'],
    ['9a=1d'],
    ['a=soon'],
    ['__proto__=1d'],
  ])('no grants: %j', (text) => expect(() => parseGrants(text)).toThrow());

  test('at most 32 channels', () => {
    const list = (count: number) => Array.from({ length: count }, (_, index) => `c${index}=1d`).join(',');
    expect(Object.keys(parseGrants(list(32)))).toHaveLength(32);
    expect(() => parseGrants(list(33))).toThrow('at most 32');
  });
});
