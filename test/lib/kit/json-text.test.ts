import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compactedPieces, memberNamed, membersOf, withoutMembers } from '../../../lib/kit/json-text.ts';

/** The same value with blanks wherever JSON allows them. */
const spread = (value: unknown): string =>
  JSON.stringify(value, null, ' \t\n').replace(/^(\s*"(?:[^"\\]|\\.)*"): /gm, '$1 \r\n:');

describe('JSON that is handed on as text', () => {
  it('finds every member of any object, however it is written', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.boolean(), (value, isSpread) => {
        const text = isSpread ? `  ${spread(value)} ` : JSON.stringify(value);
        const found = membersOf(text).map(({ key, valueStart, end }) => [key, JSON.parse(text.slice(valueStart, end))]);
        expect(found).toEqual(Object.entries(JSON.parse(text)));
      }),
    );
  });

  it('takes members out and leaves the rest as it was written', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom('a', 'b', 'c', 'd'), fc.jsonValue()), (value) => {
        const { a: _a, b: _b, ...rest } = JSON.parse(JSON.stringify(value));
        const text = withoutMembers(JSON.stringify(value), (key) => key === 'a' || key === 'b');
        expect(text).toBe(JSON.stringify(rest));
      }),
    );
  });

  it('makes one line of any value and leaves the rest as it was written, in pieces of whole characters', () => {
    const compacted = (text: string, length?: number) => [...compactedPieces(text, length)].join('');
    fc.assert(
      fc.property(fc.jsonValue(), fc.integer({ min: 1, max: 20 }), (value, length) => {
        const text = JSON.stringify(value, null, ' \t\n');
        expect(compacted(text)).toBe(JSON.stringify(value));
        expect(compacted(text, length)).toBe(JSON.stringify(value));
      }),
    );
    expect([...compactedPieces('"a\u{1f600}\u{1f600}b"', 3)]).toEqual(['"a\u{1f600}', '\u{1f600}b', '"']);
    const compact = '{"a":1e400,"a":-0.0,"b":"\\u00e9 \\" : ,\\\\"}';
    expect(compacted(compact)).toBe(compact);
    expect(compacted(`\r\n${compact.replace(',', ' , ')}\t`)).toBe(compact);
  });

  it('of a key that is there twice the last counts; escapes are read', () => {
    const text = '{"k":1,"\\u006b":{"x\\"}":"\\\\"} , "z" : -1.0e+2 }';
    const found = memberNamed(membersOf(text), 'k');
    expect(found && text.slice(found.valueStart, found.end)).toBe('{"x\\"}":"\\\\"}');
    expect(withoutMembers(text, (key) => key === 'k')).toBe('{"z" : -1.0e+2}');
    expect(withoutMembers('{}', () => true)).toBe('{}');
  });
});
