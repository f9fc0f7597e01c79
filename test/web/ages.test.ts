import { expect, it } from 'vitest';
import { timeText } from '../../handlers/web/shared/ages.ts';

it('shows a time that no date can hold as a question mark', () => {
  expect([1e300, Number.NaN].map((time) => timeText(time, 'en'))).toEqual(['?', '?']);
  expect(timeText(1e12, 'en')).toContain('2001');
});
