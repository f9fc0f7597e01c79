import { afterAll, expect, it } from 'vitest';
import { createYamlThread } from '../../../../lib/host/node/yaml.ts';
import { TIMED } from '../../../support/limits.ts';
import { longestTurn } from '../../../support/longest-turn.ts';

const yaml = createYamlThread();
afterAll(() => yaml.close());

/** A text of `count` lines. */
const lines = (count: number, line: (index: number) => string) =>
  Array.from({ length: count }, (_, index) => line(index)).join('');
const list = (count: number, item: (index: number) => string) =>
  Array.from({ length: count }, (_, index) => item(index)).join(', ');

const tooMany = 'not valid YAML (too many aliases or levels)';
/** Texts that stopped the relay for up to 7 s, and what is said of them; `ok` for a mapping. */
const attacks: [string, string, string][] = [
  ['20,000 keys', lines(20_000, (at) => `key${at}: value ${at}\n`), 'ok'],
  ['200,000 keys', lines(200_000, (at) => `k${at}: 1\n`), 'too large (over 1048576 characters)'],
  ['100,000 short values', `a: [${list(100_000, () => '1')}]`, 'too large (over 50000 values)'],
  [
    '20,000 keys with an anchor and an alias each',
    lines(20_000, (at) => `k${at}: &a${at} 1\nl${at}: *a${at}\n`),
    tooMany,
  ],
  [
    '90 merges of 20,000 keys',
    `a: &a {${list(20_000, (at) => `k${at}: 1`)}}\n${lines(90, (at) => `z${at}:\n  <<: *a\n`)}`,
    'too large (over 50000 values)',
  ],
  [
    '90 aliases of 1,000 values',
    `a: &a [${list(1_000, () => 'x')}]\n${lines(90, (at) => `z${at}: *a\n`)}`,
    'too large (over 50000 values)',
  ],
  ['an anchor that contains itself', 'a: &a\n  b: *a\n', 'not valid YAML (an anchor contains itself)'],
  ['a list that contains itself', 'a: &a [1, [*a]]\n', 'not valid YAML (an anchor contains itself)'],
  ['an ordered map that contains itself', 'a: &a !!omap [b: *a]\n', 'not valid YAML (an anchor contains itself)'],
  ['a mapping merged into itself', 'a: &a\n  <<: *a\n', tooMany],
  [
    'an alias bomb',
    `a: &a [${list(9, () => 'x')}]\n${lines(8, (at) => `b${at}: &b${at} [${list(9, () => (at ? `*b${at - 1}` : '*a'))}]\n`)}`,
    tooMany,
  ],
  ['50,000 levels', `a: ${'['.repeat(50_000)}${']'.repeat(50_000)}`, tooMany],
  ['a scalar of a million characters', `a: ${'x'.repeat(1_000_000)}`, 'ok'],
  ['an ordered map of 20,000 keys', `a: !!omap [${list(20_000, (at) => `k${at}: 1`)}]`, 'ok'],
  ['5,000 lists as keys', lines(5_000, (at) => `? &a${at} [k]\n: 1\n`), 'ok'],
  ['500,000 comment lines', '#\n'.repeat(500_000), 'ok'],
  ['20,000 errors', `a: [\n${'}\n'.repeat(20_000)}`, 'not valid YAML (line 2, column 1)'],
  ['a symbol among the values', 'a: !!set {<<}\n', 'not valid YAML'],
];

it.each(attacks)(
  'contract 02 §1.1: %s: no stop over 50 ms',
  { ...TIMED, timeout: 300_000 },
  async (_name, text, expected) => {
    await yaml.parseMapping('a: 1');
    const { result, longest } = await longestTurn(() => yaml.parseMapping(text));
    expect(result.ok ? 'ok' : result.problem).toContain(expected);
    expect(longest).toBeLessThan(50);
  },
);
