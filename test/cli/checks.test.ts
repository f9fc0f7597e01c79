import { expect, it } from 'vitest';
import { printChecks } from '../../cli/checks.ts';
import type { CommandContext } from '../../cli/output.ts';
import { notKnown, ok, warn } from '../../lib/operator/doctor/check.ts';

const conclusionOf = (...checks: Parameters<typeof printChecks>[0]) => {
  const printed: string[] = [];
  const stdout = { write: (text: string) => printed.push(text) };
  printChecks(checks, { stdout, env: {} } as unknown as CommandContext);
  return printed.join('').trimEnd().split('\n').at(-1);
};

it('counts one check as one', () => {
  const [fine, unknown, bad] = [ok('a', 'is there'), notKnown('b', 'no answer'), warn('c', 'is old', 'Renew it.')];
  expect(conclusionOf(fine)).toBe('1 check is fine.');
  expect(conclusionOf(fine, fine)).toBe('All 2 checks are fine.');
  expect(conclusionOf(fine, unknown)).toBe('1 check is fine, 1 not known.');
  expect(conclusionOf(fine, fine, unknown)).toBe('2 checks are fine, 1 not known.');
  expect(conclusionOf(bad, unknown)).toBe('1 warning, 1 not known.');
});
