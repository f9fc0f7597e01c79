import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseCommand } from '../../../lib/tui/words.ts';

describe('contract 02 §4.2.1: RELAY_TUI_COMMAND', () => {
  it.each([
    ['python3 -m gateway', ['python3', '-m', 'gateway']],
    ['a \\ ', ['a', ' ']],
    ['  a\t b \n c ', ['a', 'b', 'c']],
    [`'a b' "c d" e\\ f`, ['a b', 'c d', 'e f']],
    [`a'b'"c"d`, ['abcd']],
    [`a '' ""`, ['a', '', '']],
    [`a "q\\"q" "b\\\\s" "k\\n" '\\n'`, ['a', 'q"q', 'b\\s', 'k\\n', '\\n']],
    ['a $HOME `id` *.ts ~ a;b|c && d > e # f', 'a $HOME `id` *.ts ~ a;b|c && d > e # f'.split(' ')],
    ['["/a b", "", "\\n"]', ['/a b', '', '\n']],
    [' ["a"]', ['a']],
    ['a b\\  ', ['a', 'b ']],
    ['a \\\t', ['a', '\t']],
  ])('%j', (text, words) => expect(parseCommand(text)).toEqual(words));

  it.each([
    '',
    '   ',
    `a 'b`,
    'a "b',
    'a\\',
    `"a'`,
    `"" b`,
    '[]',
    '["a"',
    '[""]',
    '["a", 1]',
    '["a\\u0000"]',
    '[["a"]]',
  ])('is malformed: %j', (text) => expect(parseCommand(text)).toBeNull());

  it('gives back what was quoted', () => {
    const word = fc.string({ unit: 'binary' }).map((text) => text.replaceAll('\0', ''));
    const quotes = [
      (text: string) => `'${text.replaceAll("'", `'\\''`)}'`,
      (text: string) => `"${text.replace(/["\\]/g, '\\$&')}"`,
      (text: string) => (text === '' ? "''" : text.replace(/./gs, '\\$&')),
      (text: string) => text,
    ];
    const quoted = fc.tuple(word, fc.nat(2)).map(([text, quote]) => ({ text, quoted: quotes[quote]?.(text) ?? '' }));
    fc.assert(
      fc.property(fc.array(quoted), (words) => {
        const line = ['program', ...words.map((word) => word.quoted)].join(' ');
        expect(parseCommand(line)).toEqual(['program', ...words.map((word) => word.text)]);
        expect(parseCommand(JSON.stringify(['program', ...words.map((word) => word.text)]))).toEqual(
          parseCommand(line),
        );
      }),
    );
  });

  it('never throws', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('a', ' ', '"', "'", '\\', '[', ']', ',') }), (text) => {
        const words = parseCommand(text);
        expect(words === null || words.length > 0).toBe(true);
      }),
    );
  });
});
