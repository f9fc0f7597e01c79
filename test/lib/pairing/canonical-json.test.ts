import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { byCodePoint } from '../../../lib/kit/text.ts';
import { canonicalJson, type Json } from '../../../lib/pairing/canonical-json.ts';

describe('canonical form (contract 01 §5.4)', () => {
  const vectors: [string, Json, string][] = [
    ['empty object', {}, '{}'],
    ['empty array', [], '[]'],
    ['literals', [null, true, false], '[null,true,false]'],
    [
      'keys sorted at every depth',
      { b: { z: 1, a: 2 }, a: [{ d: 1, c: 2 }] },
      '{"a":[{"c":2,"d":1}],"b":{"a":2,"z":1}}',
    ],
    ['upper case before lower case, no folding', { a: 'A', B: 'b' }, '{"B":"b","a":"A"}'],
    ['a shorter key before its extension', { ab: 1, a: 2, '': 3 }, '{"":3,"a":2,"ab":1}'],
    ['keys of digits as text', { '10': 1, '9': 2 }, '{"10":1,"9":2}'],
    ['arrays keep their order', [3, 1, 2], '[3,1,2]'],
    ['beyond ASCII in lower case', 'Büro ÿ €', '"B\\u00fcro \\u00ff \\u20ac"'],
    ['astral as a surrogate pair', '😀', '"\\ud83d\\ude00"'],
    ['a lone surrogate', '\ud83d', '"\\ud83d"'],
    ['key order by code point, not UTF-16', { '😀': 1, '～': 2 }, '{"\\uff5e":2,"\\ud83d\\ude00":1}'],
    ['slash as it is', 'wss://a/b', '"wss://a/b"'],
    ['quote and backslash', '"\\', '"\\"\\\\"'],
    ['short control forms', '\b\t\n\f\r', '"\\b\\t\\n\\f\\r"'],
    ['other control characters', '\u0000\u000b\u001f', '"\\u0000\\u000b\\u001f"'],
    ['delete is ASCII', '\u007f', '"\u007f"'],
    ['C1 and line separators', '\u0080\u2028\u2029', '"\\u0080\\u2028\\u2029"'],
    ['integers', [0, -0, -1, 3600, 9007199254740991], '[0,0,-1,3600,9007199254740991]'],
    ['a large integer without exponent', [1e20, 1e21], '[100000000000000000000,1000000000000000000000]'],
    ['a whole number written with fraction', JSON.parse('3600.0'), '3600'],
    ['an own __proto__', JSON.parse('{"b":1,"__proto__":{"a":1}}'), '{"__proto__":{"a":1},"b":1}'],
    ['undefined members are not there', { a: undefined, b: 1 }, '{"b":1}'],
  ];
  test.each(vectors)('%s', (_, value, expected) => {
    expect(canonicalJson(value)).toBe(expected);
  });

  test('refuses numbers that JSON lacks', () => {
    expect(() => canonicalJson(Number.NaN)).toThrow(TypeError);
    expect(() => canonicalJson({ a: [Infinity] })).toThrow(TypeError);
  });

  test('property: ASCII, same value, stable', () => {
    const value = fc.jsonValue({ stringUnit: 'binary' });
    fc.assert(
      fc.property(value, (generated) => {
        // JSON.parse, because -0 has no text of its own.
        const input = JSON.parse(JSON.stringify(generated)) as Json;
        const text = canonicalJson(input);
        expect(text).toMatch(/^[\x20-\x7f]*$/);
        expect(JSON.parse(text)).toEqual(input);
        expect(canonicalJson(JSON.parse(text))).toBe(text);
      }),
    );
  });

  test('property: keys are sorted by code point, whatever their original order', () => {
    const keys = fc.uniqueArray(fc.string({ unit: 'binary' }), { maxLength: 8 });
    fc.assert(
      fc.property(keys, (names) => {
        const points = (text: string) => [...text].map((point) => (point.codePointAt(0) as number) + 1);
        const padded = (text: string) =>
          points(text)
            .map((point) => String(point).padStart(7, '0'))
            .join('');
        const expected = [...names].sort((a, b) => (padded(a) < padded(b) ? -1 : 1));
        expect([...names].sort(byCodePoint)).toEqual(expected);
        const object = (list: string[]) => Object.fromEntries(list.map((name) => [name, 0]));
        expect(canonicalJson(object(names))).toBe(canonicalJson(object([...names].reverse())));
      }),
    );
  });
});
