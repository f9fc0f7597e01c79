import { expect, it } from 'vitest';
import { ageText, timeText } from '../../handlers/web/shared/ages.ts';

it('shows a time that no date can hold as a question mark', () => {
  expect([1e300, Number.NaN].map((time) => timeText(time, 'en'))).toEqual(['?', '?']);
  expect(timeText(1e12, 'en')).toContain('2001');
});

it.each([
  [-5, '0 s'],
  [59_499, '59 s'],
  [59_500, '1 min'],
  [3_569_000, '59 min'],
  [3_570_000, '1 h'],
  [84_599_000, '23 h'],
  [84_600_000, '1 d'],
  [2.5 * 86_400_000, '3 d'],
])('shows %i ms as %s, never as 60 of a unit', (milliseconds, expected) => {
  expect(ageText(milliseconds, (text, { n } = {}) => text.replace('{n}', String(n)))).toBe(expected);
});
