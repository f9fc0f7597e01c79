import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import * as library from 'yaml';
import { parse, stringify } from 'yaml';
import { createYaml } from '../../../lib/kit/yaml.ts';
import { ENABLING } from '../../../lib/operator/enable-profiles.ts';
import { runs } from '../../support/runs.ts';

const { edit } = createYaml(library);

const enableInText = (text: string) => edit(text, ENABLING);

const enabled = (text: string): string => {
  const result = enableInText(text);
  if (!result.ok) throw new Error(result.problem);
  return result.text;
};

describe('enabling the plugin in a configuration (07 §5.5)', () => {
  it.each([
    ['', 'plugins:\n  enabled:\n    - svc-relay\n'],
    ['# only a comment\n', '# only a comment\nplugins:\n  enabled:\n    - svc-relay\n'],
    ['a: 1\nplugins:\n', 'a: 1\nplugins:\n  enabled:\n    - svc-relay\n'],
    ['plugins: text\n', 'plugins:\n  enabled:\n    - svc-relay\n'],
    ['plugins:\n  enabled: other\n', 'plugins:\n  enabled:\n    - svc-relay\n'],
    ['plugins:\n  enabled: [a]\n', 'plugins:\n  enabled: [a, svc-relay]\n'],
    ['plugins:\n  enabled: [ a ]\n', 'plugins:\n  enabled: [ a, svc-relay ]\n'],
    ['plugins:\n    enabled:\n        - a\n', 'plugins:\n    enabled:\n        - a\n        - svc-relay\n'],
    ['plugins:\n  enabled:\n  - a\n', 'plugins:\n  enabled:\n  - a\n  - svc-relay\n'],
    ['plugins:\n  disabled: [svc-relay, b]\n', 'plugins:\n  enabled:\n    - svc-relay\n  disabled: [b]\n'],
    ['plugins:\n  disabled: # c\n  - svc-relay\n', 'plugins:\n  enabled:\n    - svc-relay\n  disabled: [] # c\n'],
    ['plugins: {enabled: [a]}\n', 'plugins: {enabled: [a, svc-relay]}\n'],
    ['plugins:\n  enabled: []\n', 'plugins:\n  enabled: [svc-relay]\n'],
    ['plugins:\n  enabled:\n    - a', 'plugins:\n  enabled:\n    - a\n    - svc-relay\n'],
    [
      'a:   {b:   1}\nplugins:\n  x: |\n    text\n',
      'a:   {b:   1}\nplugins:\n  enabled:\n    - svc-relay\n  x: |\n    text\n',
    ],
    ['a: 1\r\nplugins:\r\n  enabled: [a]\r\n', 'a: 1\r\nplugins:\r\n  enabled: [a, svc-relay]\r\n'],
    ['key: &k [1]\nother: *k\n', 'key: &k [1]\nother: *k\nplugins:\n  enabled:\n    - svc-relay\n'],
    ['flag: yes\nnothing: ~\nold: 017\n', 'flag: yes\nnothing: ~\nold: 017\nplugins:\n  enabled:\n    - svc-relay\n'],
  ])('%j', (before, after) => {
    expect(enabled(before)).toBe(after);
    expect(enabled(after)).toBe(after);
  });

  it('keeps comments, key order, long lines and text blocks', () => {
    const before = `# head   
a:     [ 1,2 ]
model: # which
  default: m # this one
prompt: |
  line one
    line two

long: ${'word '.repeat(60)}end
plugins:
  # ours
  enabled:
    - a # first
  disabled:
    - svc-relay
    - b # second
z: 'quoted'
# tail
`;
    expect(enabled(before)).toBe(
      before
        .replace('    - a # first\n', '    - a # first\n    - svc-relay\n')
        .replace('    - svc-relay\n    - b', '    - b'),
    );
  });

  it('leaves an enabled configuration unchanged, byte for byte', () => {
    const text = 'plugins:   {enabled:   [ svc-relay ]}   # x';
    expect(enabled(text)).toBe(text);
  });

  it.each([
    ['a: [', 'not valid YAML (line'],
    ['- a\n', 'not a YAML mapping'],
    ['a: 1\n---\nb: 2\n', 'more than one document'],
    ['a: &x [one]\nplugins:\n  enabled: &l [a]\n  other: *l\n', 'cannot be edited'],
    ['plugins:\n  enabled: []\nplugins:\n  enabled: [b]\n', 'cannot be edited'],
    ['base: &b\n  enabled: [a]\nplugins:\n  <<: *b\n', 'cannot be edited'],
  ])('%j is a problem, not an edit', (text, problem) => {
    expect(enableInText(text)).toEqual({ ok: false, problem: expect.stringContaining(problem) });
  });

  it('changes nothing else of any configuration', () => {
    const name = fc.constantFrom('a', 'b', 'svc-relay', 'yes', '1');
    const list = fc.oneof(fc.array(name, { maxLength: 4 }), fc.constant('text'), fc.constant(null));
    const config = fc.record(
      {
        model: fc.string(),
        plugins: fc.record(
          { enabled: list, disabled: list, more: fc.jsonValue({ maxDepth: 1 }) },
          { requiredKeys: [] },
        ),
        rest: fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 1 }), { noNullPrototype: true }),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(config, (before) => {
        const text = stringify(before, { version: '1.1' });
        const result = enableInText(text);
        if (!result.ok) return expect(result.problem).toMatch(/cannot be edited|not valid YAML/);
        const after = parse(result.text, { version: '1.1' });
        expect(after.plugins.enabled).toContain('svc-relay');
        if (Array.isArray(after.plugins.disabled)) expect(after.plugins.disabled).not.toContain('svc-relay');
        expect([after.model, after.rest]).toEqual([before.model, before.rest].map((part) => readBack(part)));
      }),
      { numRuns: runs(60) },
    );
  });
});

const readBack = (part: unknown) =>
  part === undefined ? undefined : parse(stringify(part, { version: '1.1' }), { version: '1.1' });
