import { expect, it } from 'vitest';
import { bearerOf } from '../../../lib/access/bearer.ts';

it.each([
  ['Bearer abc', 'abc'],
  ['bearer abc', 'abc'],
  ['BEARER abc', 'abc'],
  ['Bearer    abc  ', 'abc'],
  ['  Bearer abc', 'abc'],
  ['Bearer a b', 'a b'],
  ['Bearer ', null],
  ['Bearer', null],
  ['Bearer    ', null],
  ['Bearerabc', null],
  ['Basic abc', null],
  ['Basic Bearer abc', null],
  ['abc', null],
  ['', null],
  [null, null],
])('contract 01 §1.2: %j carries %j', (header, expected) => {
  expect(bearerOf(header)).toBe(expected);
});
