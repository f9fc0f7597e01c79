import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sanitize } from '../../../../lib/voice/basic/sanitize.ts';

describe('sanitize (contract 05 §7)', () => {
  it.each([
    ['1: a fenced block becomes a space', 'a\n```js\nlet x;\n```\nb', 'a\n \nb'],
    ['1: the shortest block', 'a```b```c```d```e', 'a c e'],
    ['1: a fence that is not closed stays', 'a ``` b', 'a ``` b'],
    ['2: a span that begins with a marker goes', 'Sure. `🔧 ls -la` Done', 'Sure.  Done'],
    ['2: with a variation selector', 'x `⚠️ careful\nnow` y', 'x  y'],
    ['2: any other emoji is spoken', 'x `🎉 party` y', 'x 🎉 party y'],
    ['3: a link becomes its label', 'see [the docs](https://a.b/c?d) now', 'see the docs now'],
    ['3: several links', '[a](b)[c](d) [e] (f)', 'ac [e] (f)'],
    ['3: an index is no link', 'list[0] [](x) [y]()', 'list[0] [](x) [y]()'],
    ['3: the first bracket wins', '[[a](b)', '[a'],
    ['4: an address goes', 'see https://a.b/c?d=e#f now http://x', 'see  now'],
    ['5: bold and italic', '**bold** and *italic* and **a *b* c**', 'bold and italic and a b c'],
    ['5: on one line', '*a\nb*', '*a\nb*'],
    ['6: code', 'run `npm test` now', 'run npm test now'],
    ['7: headings', '# One\n### Two\ntext #42 and a # b', 'One\nTwo\ntext #42 and a # b'],
    ['8: lists', '- a\n  * b\n\t- c\n-d', 'a\nb\nc\n-d'],
    ['9: rules', 'a\n---\nb ----- c', 'a\n\nb  c'],
    ['10: markers anywhere', 'done ✅ and ❌️ x 💻📱🎤🔊⚠ y', 'done  and  x  y'],
    ['11: empty lines', '\n\na\n\n\n\nb\n\n', 'a\n\nb'],
    [
      'anything else is left unchanged',
      '🇩🇪 costs 5 € or $3, ratio 3:1, a -- b',
      '🇩🇪 costs 5 € or $3, ratio 3:1, a -- b',
    ],
    ['nothing left', '```\ncode\n```', ''],
    ['an address in a link goes with the link', '[x](http://a.b "t") y', 'x y'],
  ])('%s', (_name, text, expected) => expect(sanitize(text)).toBe(expected));

  const MARKDOWN = [
    '*',
    '**',
    '`',
    '```',
    '[',
    ']',
    '(',
    ')',
    '](',
    '-',
    '---',
    '#',
    '\n',
    ' ',
    '`🔧',
    '⚠️',
    'http://',
    'x',
  ];

  it('never leaves a fence, an address or a marker, whatever the text', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...MARKDOWN), { maxLength: 60 }), (words) => {
        const text = words.join('');
        const spoken = sanitize(text);
        expect(spoken).not.toMatch(/🔧|⚠|\n{3}/u);
        // Markers go after rules of dashes do: what was around one may be such a rule then.
        if (!/🔧|⚠/u.test(text)) expect(spoken).not.toMatch(/-{3}/);
        expect(spoken).toBe(spoken.trim());
      }),
    );
  });

  it('has the result of the pattern for links', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('[', ']', '(', ')', '](', 'x', 'y'), { maxLength: 30 }), (words) => {
        const text = words.join('');
        expect(sanitize(text)).toBe(text.replace(/\[([^\]]+)\]\(([^)]+)\)/g, '$1'));
      }),
    );
  });

  it('takes time in proportion to the text: 5000 characters of anything within milliseconds', () => {
    const cpuOf = (text: string) => {
      const start = process.cpuUsage();
      sanitize(text);
      const { user, system } = process.cpuUsage(start);
      return (user + system) / 1000;
    };
    const texts = [...MARKDOWN, '[a](', '[a', '`a\n', '**a\n', '* a', '`🔧a', ' -', '# ', '\n\n', '*a', '[]('];
    for (const word of texts) {
      const unit = word.repeat(Math.ceil(5000 / word.length)).slice(0, 5000);
      // The best of several: the first one compiles the patterns, and the machine may be busy.
      expect(Math.min(...Array.from({ length: 5 }, () => cpuOf(unit)))).toBeLessThan(8);
      expect(Math.min(...Array.from({ length: 3 }, () => cpuOf(unit.repeat(20))))).toBeLessThan(80);
    }
  });
});
