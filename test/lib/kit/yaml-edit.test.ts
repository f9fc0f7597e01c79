import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import * as library from 'yaml';
import { createYaml, type YamlChange } from '../../../lib/kit/yaml.ts';
import { runs } from '../../support/runs.ts';

const { edit, parseMapping } = createYaml(library);

function edited(text: string, ...changes: YamlChange[]): string {
  const result = edit(text, changes);
  if (!result.ok) throw new Error(`${result.problem}: ${JSON.stringify(text)}`);
  return result.text;
}

function mapping(text: string): Record<string, unknown> {
  const parsed = parseMapping(text);
  if (!parsed.ok) throw new Error(`${parsed.problem}: ${JSON.stringify(text)}`);
  return parsed.mapping;
}

const SECTIONS = ['voice_output', 'realtime_voice'];
const KEYS = ['provider', 'model', 'voice', 'sample_rate', 'enabled'];

const word = fc.constantFrom(
  'eve',
  'gpt-4o-mini-tts',
  "it's",
  'a: b',
  '# c',
  'yes',
  '24000',
  'ünï ☂',
  '[x]',
  '*a',
  '- d',
  'e"f',
);
const value = fc.oneof(
  word,
  fc.integer({ min: 0, max: 96_000 }),
  fc.boolean(),
  fc.string({ minLength: 1, maxLength: 12 }),
);
const scalar = fc.constantFrom('eve', '"eve # no"', "'e ''ve'", '7', 'yes', '', '~', 'plain text, with: colon');
const comment = fc.constantFrom('', ' # why', '   #  odd', '  # *x &y');
const space = fc.constantFrom(' ', '   ');
const noise = fc.constantFrom('', '# note', '    # deep note', '  ');

const pairLine = (key: fc.Arbitrary<string>) =>
  fc.tuple(key, space, scalar, comment).map(([name, gap, text, note]) => `${name}:${gap}${text}${note}`);

/** Lines of a block mapping without its indentation. */
function block(key: fc.Arbitrary<string>, step: string): fc.Arbitrary<string[]> {
  const nested = fc
    .tuple(
      fc.constantFrom('openai', 'xai'),
      fc.array(pairLine(fc.constantFrom('model', 'speed')), { minLength: 1, maxLength: 2 }),
    )
    .map(([name, lines]) => [`${name}:`, ...lines.map((line) => step + line)]);
  const list = fc.constantFrom(['tags:', '- a', '- b # c'], ['tags: [a, b]'], ['more: {a: 1,  b: "x"}']);
  const text = fc.constant(['note: |', `${step}free # text`, `${step}more`]);
  const item = fc.oneof(
    { weight: 4, arbitrary: pairLine(key).map((line) => [line]) },
    { weight: 1, arbitrary: noise.map((line) => [line]) },
    { weight: 1, arbitrary: nested },
    { weight: 1, arbitrary: list },
    { weight: 1, arbitrary: text },
  );
  return fc.array(item, { maxLength: 5 }).map((items) => items.flat());
}

const section = fc
  .constantFrom('  ', '    ')
  .chain((step) =>
    fc
      .tuple(fc.constantFrom(...SECTIONS, 'tts', 'other'), comment, block(fc.constantFrom(...KEYS, 'run_dir'), step))
      .map(([name, note, lines]) => [`${name}:${note}`, ...lines.map((line) => (line === '' ? '' : step + line))]),
  );
const flow = fc.constantFrom(
  'voice_output: {voice: eve,  model: "m"} # flow',
  'voice_output: {}',
  'realtime_voice: { a: 1 }',
);

const documents = fc
  .tuple(
    fc.array(
      fc.oneof(
        { weight: 3, arbitrary: section },
        { weight: 1, arbitrary: flow.map((line) => [line]) },
        { weight: 1, arbitrary: pairLine(fc.constantFrom('model', 'a', 'b')).map((line) => [line]) },
        { weight: 1, arbitrary: noise.map((line) => [line]) },
      ),
      { maxLength: 6 },
    ),
    fc.constantFrom('\n', '\r\n'),
    fc.boolean(),
  )
  .map(([parts, newline, isEnded]) => {
    const text = parts.flat().join(newline);
    // A line end below a block of text would belong to it.
    return text + (isEnded || text.endsWith('more') ? newline : '');
  })
  .filter((text) => {
    const parsed = parseMapping(text);
    // What no edit accepts is a case of its own.
    return (
      parsed.ok &&
      SECTIONS.every(
        (name) => [null, undefined].includes(parsed.mapping[name] as null) || typeof parsed.mapping[name] === 'object',
      )
    );
  });

const changes = fc.record({
  path: fc.tuple(fc.constantFrom(...SECTIONS), fc.constantFrom(...KEYS)),
  value,
});

/** How many lines of `before` are missing from `after`, where the others come in their order. */
function changedLines(before: string, after: string): { removed: number; added: number } {
  const [old = [], now = []] = [before, after].map((text) => text.replace(/\r?\n$/, '').split(/\r?\n/));
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head++;
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++;
  return { removed: old.length - head - tail, added: now.length - head - tail };
}

describe('editing YAML in place (contract 05 §10)', () => {
  it('every document: one place changes, all other lines stay, the value reads back, the second edit changes nothing', () => {
    fc.assert(
      fc.property(documents, changes, (text, change) => {
        const [name, key] = change.path;
        const after = edited(text, change);
        const before = mapping(text);
        const present = (before[name] ?? {}) as Record<string, unknown>;
        expect(mapping(after)).toEqual({ ...before, [name]: { ...present, [key]: change.value } });
        const { removed, added } = changedLines(text, after);
        expect(removed).toBeLessThanOrEqual(1);
        expect(added).toBeLessThanOrEqual(3);
        expect(edited(after, change)).toBe(after);
        if (text.includes('\r\n')) expect(after.replaceAll('\r\n', '')).not.toContain('\n');
      }),
      { numRuns: runs(1500) },
    );
  });

  it('several changes at once equal one after the other', () => {
    fc.assert(
      fc.property(documents, fc.array(changes, { maxLength: 5 }), (text, list) => {
        expect(edited(text, ...list)).toBe(list.reduce((before, change) => edited(before, change), text));
      }),
      { numRuns: runs(300) },
    );
  });

  it.each([
    ['keeps the quotes and the comment', 'a:\n  b:   "x"   # why\n', 'a:\n  b:   "eve"   # why\n'],
    [
      'adds a key below the last one',
      'a:\n    c: 1 # c\n    # end\n\nz: 1\n',
      'a:\n    c: 1 # c\n    b: eve\n    # end\n\nz: 1\n',
    ],
    ['adds a key below a nested mapping', 'a:\n  c:\n    d: 1\nz: 1\n', 'a:\n  c:\n    d: 1\n  b: eve\nz: 1\n'],
    [
      'adds a key below a block of text',
      'a:\n  c: |\n    d\n    e\nz: 1\n',
      'a:\n  c: |\n    d\n    e\n  b: eve\nz: 1\n',
    ],
    ['fills a blank section', 'a: # empty\nz: 1\n', 'a: # empty\n  b: eve\nz: 1\n'],
    ['fills a blank value', 'a:\n  b: # none\n', 'a:\n  b: eve # none\n'],
    ['adds a section at the end', 'z: 1\n# end', 'z: 1\n# end\na:\n  b: eve\n'],
    ['replaces a block of text', 'a:\n  b: >\n    long\n    text\n  c: 1\n', 'a:\n  b: eve\n  c: 1\n'],
    ['replaces an alias', 'x: &v ara\na:\n  b: *v\n', 'x: &v ara\na:\n  b: eve\n'],
    ['overrides a merged key', 'x: &v {b: 1}\na:\n  <<: *v\n', 'x: &v {b: 1}\na:\n  <<: *v\n  b: eve\n'],
    ['changes the last of equal keys', 'a:\n  b: 1\n  b: 2\n', 'a:\n  b: 1\n  b: eve\n'],
    ['keeps a byte-order mark', '\ufeffa:\n  b: 1\n', '\ufeffa:\n  b: eve\n'],
    ['keeps the markers of a document', '---\na:\n  b: 1\n...\n', '---\na:\n  b: eve\n...\n'],
  ])('%s', (_, before, after) => {
    expect(edited(before, { path: ['a', 'b'], value: 'eve' })).toBe(after);
  });
});

describe('lists and removals leave every other line as it is', () => {
  it.each<[string, string, YamlChange[], string]>([
    [
      'a list below a new key, in one line',
      '# mine\ntts:\n    provider: openai   # why\n',
      [{ path: ['tts', 'local', 'command'], value: ['espeak-ng', '-v', '{voice}', 7] }],
      '# mine\ntts:\n    provider: openai   # why\n    local:\n        command: ["espeak-ng", "-v", "{voice}", 7]\n',
    ],
    [
      'a list that replaces one',
      'a:\n  command: [x, "y"]  # odd\n  b:   1\n',
      [{ path: ['a', 'command'], value: ['z'] }],
      'a:\n  command: ["z"]  # odd\n  b:   1\n',
    ],
    [
      'a key with what is below it',
      'a:\n  x:   1\n  gone:\n    - 1\n    - deep: 2\n\n  # stays\n  y: 2\n',
      [{ path: ['a', 'gone'], value: undefined }],
      'a:\n  x:   1\n\n  # stays\n  y: 2\n',
    ],
    ['a key without a value', 'a:\n  gone:\n  y:   2\n', [{ path: ['a', 'gone'], value: undefined }], 'a:\n  y:   2\n'],
    ['a key that is not there', 'a:   1\n', [{ path: ['b', 'gone'], value: undefined }], 'a:   1\n'],
    ['of an empty file', '', [{ path: ['b', 'gone'], value: undefined }], ''],
    [
      'keys below a mapping in one line',
      'tts: {provider: openai}  # short\nb:   1\n',
      [{ path: ['tts', 'local', 'base_url'], value: 'http://127.0.0.1:1/v1' }],
      'tts: {provider: openai, local: {base_url: http://127.0.0.1:1/v1}}  # short\nb:   1\n',
    ],
  ])('%s', (_, before, changes, after) => {
    expect(edited(before, ...changes)).toBe(after);
  });
});

describe('a change that is asked for is made or refused', () => {
  const INFINITE = Number.POSITIVE_INFINITY;
  it.each<[string, string, unknown, string]>([
    ['infinity by nothing', 'a: .inf # why\n', null, 'a: null # why\n'],
    ['nothing by infinity', 'a: ~\n', INFINITE, 'a: .inf\n'],
    ['no number by nothing', 'a: .nan\n', null, 'a: null\n'],
    ['a number by its text', 'a: 1\n', '1', 'a: "1"\n'],
    ['zero by its negative', 'a: 0\n', -0, 'a: -0\n'],
    ['a set by an empty mapping', 'a: !!set {x}\n', {}, 'a: {}\n'],
    ['a list within a list', 'a: [[.inf]]\n', [[null]], 'a:\n  - - null\n'],
    ['the order of keys', 'a: {x: 1, w: 2}\n', { w: 2, x: 1 }, 'a:\n  w: 2\n  x: 1\n'],
  ])('%s', (_, before, value, after) => {
    expect(edited(before, { path: ['a'], value })).toBe(after);
    expect(edited(after, { path: ['a'], value })).toBe(after);
  });

  it('leaves a value that is there as it is written', () => {
    const text = 'a: 0x10\nb: yes\nc: &c {x: 1,  w: ~}\nd: *c\n';
    const changes = [
      { path: ['a'], value: 16 },
      { path: ['b'], value: true },
      { path: ['c'], value: { x: 1, w: null } },
      { path: ['d', 'x'], value: 1 },
      { path: ['c', 'gone', 'too'], value: undefined },
    ];
    expect(edited(text, ...changes)).toBe(text);
  });

  it('writes the present value of a merged key, which then no longer follows the other mapping', () => {
    const text = 'base: &b {x: 1}\na:\n  <<: *b\n';
    const pinned = edited(text, { path: ['a', 'x'], value: 1 });
    expect(pinned).toBe(`${text}  x: 1\n`);
    expect(edited(pinned, { path: ['a', 'x'], value: 1 })).toBe(pinned);
    const both = edited(text, { path: ['base', 'x'], value: 2 }, { path: ['a', 'x'], value: 1 });
    expect(mapping(both)).toEqual({ base: { x: 2 }, a: { x: 1 } });
    expect(edit(text, [{ path: ['a', 'x'], value: undefined }])).toMatchObject({ ok: false });
    expect(edit(text, [{ path: ['base', 'x'], value: 2 }])).toMatchObject({ ok: false });
  });

  it('keeps the order of the keys that are there', () => {
    const text = 'z: 1\na:\n  w: 1\n  b: 2\n"2": x\n';
    const after = edited(text, { path: ['a', 'list'], item: 'i', isListed: true }, { path: ['a', 'w'], value: 3 });
    expect(after).toBe('z: 1\na:\n  list:\n    - i\n  w: 3\n  b: 2\n"2": x\n');
  });

  it('takes keys that are names of methods', () => {
    const text = 'a:\n  toString: x\n  valueOf: y\n  toJSON: z\n  __proto__: {b: 1}\n';
    expect(edited(text, { path: ['a', 'toString'], value: 'w' })).toBe(text.replace('x', 'w'));
    expect(edited(text, { path: ['c'], item: 'i', isListed: true })).toBe(`${text}c:\n  - i\n`);
  });
});
