import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseCutJson } from '../../../lib/kit/json.ts';

describe('the beginning of a JSON text', () => {
  it.each([
    ['{"a":1,"b":[true,"x"]}', { a: 1, b: [true, 'x'] }],
    ['{"a":1,"b":[tru', { a: 1, b: [] }],
    ['{"a":"x\\', { a: 'x' }],
    ['{"a":"x\\\\', { a: 'x\\' }],
    ['{"a":"x\\u00', { a: 'x' }],
    ['{"a', { a: null }],
    ['{"a"', { a: null }],
    ['{"a": ', { a: null }],
    ['{"a":1, ', { a: 1 }],
    ['[1,2', [1]],
    ['"te', 'te'],
    ['te', undefined],
    ['{te', {}],
    ['{te}', undefined],
    ['{"a":1}}', undefined],
    ['', undefined],
  ])('%s', (text, value) => {
    expect(parseCutJson(text)).toEqual(value);
  });

  it('is read after any character', () => {
    const anything = fc.oneof(fc.object({ maxDepth: 3 }), fc.array(fc.jsonValue(), { minLength: 1 }));
    fc.assert(
      fc.property(anything, fc.nat(), fc.constantFrom(0, 2), (value, place, space) => {
        const text = JSON.stringify(JSON.parse(JSON.stringify(value)), null, space);
        const cut = text.slice(0, 1 + (place % text.length));
        expect([cut, parseCutJson(cut)]).not.toEqual([cut, undefined]);
      }),
    );
  });
});
