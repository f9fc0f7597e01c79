import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { splitText } from '../../../../lib/voice/basic/split.ts';

describe('splitText (contract 05 §7)', () => {
  it.each([
    ['a text that fits stays whole', 'One. Two.', 9, ['One. Two.']],
    ['after the last sentence that fits', 'One. Two. Three', 12, ['One. Two. ', 'Three']],
    ['after quotes that close a sentence', 'He said "no." Then he left', 20, ['He said "no." ', 'Then he left']],
    ['after a line', 'a heading\nand more of it', 14, ['a heading\n', 'and more of it']],
    ['else after a word', 'one two three four', 9, ['one two ', 'three ', 'four']],
    ['else anywhere', 'abcdefgh', 3, ['abc', 'def', 'gh']],
    ['never inside a code point', '😀😀😀', 2, ['😀😀', '😀']],
    ['after a full-width sentence', '你好。「再见。」又见面', 9, ['你好。「再见。」', '又见面']],
    ['not inside a number', 'It is 3.14159 or so', 15, ['It is 3.14159 ', 'or so']],
    ['an empty text has no parts', '', 5, []],
  ])('%s', (_name, text, cap, expected) => expect(splitText(text, cap)).toEqual(expected));

  it('drops nothing, changes nothing, and keeps every part within the cap', () => {
    const words = fc.constantFrom('a', 'word', '. ', '.', '!', ' ', '\n', '”', '😀', '。', '」', '...', '\t\n', '3.1');
    fc.assert(
      fc.property(fc.array(words, { maxLength: 200 }), fc.integer({ min: 1, max: 40 }), (pieces, cap) => {
        const text = pieces.join('');
        const parts = splitText(text, cap);
        expect(parts.join('')).toBe(text);
        for (const part of parts) {
          expect([...part].length).toBeGreaterThan(0);
          expect([...part].length).toBeLessThanOrEqual(cap);
          expect(part.isWellFormed()).toBe(true);
        }
      }),
    );
  });

  it('cuts between words where there are any', () => {
    fc.assert(
      fc.property(fc.array(fc.stringMatching(/^[a-z]{1,8}$/), { minLength: 1, maxLength: 60 }), (words) => {
        const text = words.join(' ');
        const parts = splitText(text, 12);
        expect(parts.flatMap((part) => part.trim().split(/\s+/)).filter((word) => word !== '')).toEqual(words);
      }),
    );
  });
});
