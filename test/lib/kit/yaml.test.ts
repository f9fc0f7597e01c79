import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import * as library from 'yaml';
import { createYaml } from '../../../lib/kit/yaml.ts';

const { stringify } = library;
const { parseMapping } = createYaml(library);

const mapping = (text: string) => {
  const parsed = parseMapping(text);
  return parsed.ok ? parsed.mapping : parsed.problem;
};

describe('parseMapping (contract 07 §1.2)', () => {
  it('reads YAML 1.1 booleans, whatever version the file names', () => {
    const text = 'a: yes\nb: Off\nc: on\nd: NO\ne: "yes"\n';
    const expected = { a: true, b: false, c: true, d: false, e: 'yes' };
    expect(mapping(text)).toEqual(expected);
    expect(mapping(`%YAML 1.2\n---\n${text}`)).toEqual(expected);
  });

  it('reads an empty file, or one of comments only, as an empty mapping', () => {
    for (const text of ['', '\n', '# nothing\n', '---\n', 'null']) expect(mapping(text)).toEqual({});
  });

  it('refuses anything but a mapping', () => {
    for (const text of ['- a', 'text', '5', '!!set {a}', '[]']) expect(mapping(text)).toBe('not a YAML mapping');
  });

  it('names the position of an error and quotes no content', () => {
    expect(mapping('ok: 1\nsecret: [hunter2\n')).toMatch(/^not valid YAML \(line \d+, column \d+\)$/);
    expect(mapping('a: *nowhere')).toMatch(/^not valid YAML/);
    expect(mapping('a: 1\nb: 2\nc: !tag x')).toBe('not valid YAML (line 3, column 4)');
    expect(mapping('a: 1\n---\nb: 2\n')).toBe('not valid YAML (more than one document)');
  });

  it('refuses custom tags', () => {
    for (const tag of ['!custom', '!!python/object/apply:os.system', '!<tag:example.org,2020:x>']) {
      expect(mapping(`a: ${tag} b`)).toBe('not valid YAML (line 1, column 4)');
    }
  });

  it('reads aliases and merge keys, but no alias bomb', () => {
    expect(mapping('base: &b {x: 1}\nuse:\n  <<: *b\n  z: 2')).toEqual({ base: { x: 1 }, use: { x: 1, z: 2 } });
    const row = (name: string, of: string) => `${name}: &${name} [${Array(10).fill(of).join(', ')}]\n`;
    const bomb = row('a', 'x') + row('b', '*a') + row('c', '*b') + row('d', '*c') + row('e', '*d');
    expect(mapping(bomb)).toBe('not valid YAML (too many aliases or levels)');
    const starred = `a: |\n${'  *text\n'.repeat(200)}b:\n${Array.from({ length: 200 }, () => '  - |\n    *x\n').join('')}`;
    expect(mapping(starred)).toHaveProperty('b');
  });

  it('refuses nesting that would exhaust the stack, and accepts what people write', () => {
    const levels = 50_000;
    for (const [open, close] of [
      ['[', ']'],
      ['{a: ', '}'],
      ['- ', ''],
      ['? ', ''],
      ['[{a: ', '}]'],
    ] as const) {
      const text = `${open.repeat(levels)}x${close.repeat(levels)}`;
      expect(mapping(text)).toBe('not valid YAML (too many aliases or levels)');
    }
    const indented = Array.from({ length: 200 }, (_, level) => `${' '.repeat(level)}a:\n`).join('');
    expect(mapping(indented)).toBe('not valid YAML (too many aliases or levels)');
    expect(mapping(`a: ${'['.repeat(50)}${']'.repeat(50)}`)).toHaveProperty('a');
  });

  it('takes the last of equal keys, as the agent does, and keeps dates as text', () => {
    expect(mapping('a: 1\na: 2')).toEqual({ a: 2 });
    expect(mapping('a: 2026-01-02')).toEqual({ a: '2026-01-02' });
  });

  it('does not let a file reach the prototype', () => {
    mapping('__proto__: {polluted: 1}\nconstructor: {prototype: {polluted: 1}}');
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  it('reads back what was written, and survives any text', () => {
    const value = fc.dictionary(fc.stringMatching(/^[a-x_]{2,8}$/), fc.oneof(fc.string(), fc.integer(), fc.boolean()));
    fc.assert(
      fc.property(value, (written) => {
        expect(mapping(stringify(written, { version: '1.1' }))).toEqual({ ...written });
      }),
    );
    fc.assert(fc.property(fc.string(), (text) => void parseMapping(text)));
  });
});
