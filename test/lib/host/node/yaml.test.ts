import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { createYamlThread } from '../../../../lib/host/node/yaml.ts';
import { isMapping } from '../../../../lib/kit/yaml.ts';
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

describe('YAML in a thread (contract 02 §1.1: nothing that one peer sends stalls the others)', () => {
  it.each(attacks)('%s: no stop over 50 ms', { ...TIMED, timeout: 60_000 }, async (_name, text, expected) => {
    await yaml.parseMapping('a: 1');
    const { result, longest } = await longestTurn(() => yaml.parseMapping(text));
    expect(result.ok ? 'ok' : result.problem).toContain(expected);
    expect(longest).toBeLessThan(50);
  });

  it('returns plain mappings, whatever their keys', async () => {
    const parsed = await yaml.parseMapping('a: yes\nb: {c: [1.5, .inf, ~]}\n"__proto__": {polluted: 1}\n');
    if (!parsed.ok) throw new Error(parsed.problem);
    expect(isMapping(parsed.mapping)).toBe(true);
    expect(isMapping(parsed.mapping.b)).toBe(true);
    expect(parsed.mapping).toMatchObject({ a: true, b: { c: [1.5, Number.POSITIVE_INFINITY, null] } });
    expect(parsed.mapping.polluted).toBeUndefined();
    expect(await yaml.parseMapping('a: *nothing')).toMatchObject({ ok: false });
  });

  it('answers each of many callers with their own text', async () => {
    const numbers = Array.from({ length: 500 }, (_, index) => index);
    const parsed = await Promise.all(numbers.map((number) => yaml.parseMapping(`a: ${number}`)));
    expect(parsed).toEqual(numbers.map((a) => ({ ok: true, mapping: { a } })));
  });

  it('gives up on a text that takes too long, and reads the next', async () => {
    const hasty = createYamlThread({ timeout: 1 });
    onTestFinished(() => hasty.close());
    const slow = lines(20_000, (at) => `key${at}: value\n`);
    expect(await hasty.parseMapping(slow)).toEqual({ ok: false, problem: 'not valid YAML (it takes too long)' });
    const patient = createYamlThread({ idle: 1 });
    onTestFinished(() => patient.close());
    for (let round = 0; round < 3; round++) {
      expect(await patient.parseMapping('a: 1')).toEqual({ ok: true, mapping: { a: 1 } });
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  });

  it('ends what waits when it is closed, and works again', async () => {
    const thread = createYamlThread();
    onTestFinished(() => thread.close());
    const waiting = [thread.parseMapping('a: 1'), thread.edit('a: 1', [])];
    thread.close();
    expect(await Promise.all(waiting)).toEqual(Array(2).fill({ ok: false, problem: 'not read: the relay stops' }));
    expect(await thread.parseMapping('a: 1')).toEqual({ ok: true, mapping: { a: 1 } });
  });
});

describe('editing YAML (contract 05 §10)', () => {
  const edited = async (...args: Parameters<typeof yaml.edit>) => {
    const result = await yaml.edit(...args);
    return result.ok ? result.text : result.problem;
  };

  it('changes single values, and keeps comments and order', async () => {
    const text = '# head\nz: 1 # one\nvoice_output:\n  # who speaks\n  provider: old # was\n  model: m\nflag: yes\n';
    expect(await edited(text, [{ path: ['voice_output', 'provider'], value: 'new' }])).toBe(text.replace('old', 'new'));
    const several = [
      { path: ['voice_output', 'enabled'], value: false },
      { path: ['voice_output', 'model'] },
      { path: ['gone', 'too'] },
      { path: ['realtime_voice', 'xai', 'voice'], value: 'yes' },
    ];
    expect(await edited(text, several)).toBe(
      '# head\nz: 1 # one\nvoice_output:\n  # who speaks\n  provider: old # was\n  enabled: false\nflag: yes\n' +
        'realtime_voice:\n  xai:\n    voice: "yes"\n',
    );
  });

  it.each([
    ['', 'a:\n  b: 1\n'],
    ['# only a comment\n', '# only a comment\n\na:\n  b: 1\n'],
    ['a: text\n', 'a:\n  b: 1\n'],
    ['a:\n', 'a:\n  b: 1\n'],
    ['a: {c: 2}\n', 'a: {c: 2, b: 1}\n'],
    ['x: 1\r\n', 'x: 1\r\na:\r\n  b: 1\r\n'],
  ])('%j', async (before, after) => {
    expect(await edited(before, [{ path: ['a', 'b'], value: 1 }])).toBe(after);
  });

  it('refuses what does not parse, and what would change something else', async () => {
    expect(await edited('a: [', [{ path: ['b'], value: 1 }])).toMatch(/^not valid YAML/);
    const shared = 'a: &a {x: 1}\nb: *a\n';
    const problem = 'cannot be edited without changing something else';
    for (const path of [
      ['a', 'x'],
      ['b', 'x'],
    ]) {
      expect(await edited(shared, [{ path, value: 2 }])).toBe(problem);
    }
    expect(await edited('a: &a\n  b: *a\n', [{ path: ['c'], value: 1 }])).toContain('contains itself');
  });
});
