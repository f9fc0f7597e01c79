import { describe, expect, test } from 'vitest';
import { createLastLine } from '../../../lib/terminal/last-line.ts';

describe('the last line of a shell (contract 09 §1)', () => {
  const lineOf = (...texts: string[]): string => {
    const line = createLastLine();
    for (const text of texts) line.push(text);
    return line.text;
  };

  test.each([
    ['nothing', [''], ''],
    ['a line and the next that is empty', ['make: done\r\n\r\n  \r\n'], 'make: done'],
    ['a prompt', ['ls\r\nfile\r\n', '\x1b[32muser\x1b[0m$ '], 'user$'],
    ['a line in pieces', ['one\r\ntw', 'o', ' three'], 'two three'],
    ['a progress that overwrites itself', ['10 %\r', '20 %\r', '\x1b[K30 %\r'], '30 %'],
    ['a title and a sequence in pieces', ['ready\r\n\x1b]0;a ti', 'tle\x07\x1b[3', '1m'], 'ready'],
    ['control characters', ['a\x07b\x00c\x9bd'], 'abcd'],
    ['a long line', [`${'x'.repeat(119)}🎈${'y'.repeat(50)}`], 'x'.repeat(119)],
    ['wide characters', ['漢字 é 🎈\n'], '漢字 é 🎈'],
  ])('of %s', (_, texts, expected) => {
    expect(lineOf(...texts)).toBe(expected);
  });

  test('an output of any length costs about the same', () => {
    const line = createLastLine();
    const cost = (text: string): number => {
      const began = performance.now();
      for (let time = 0; time < 50; time++) line.push(text);
      return performance.now() - began;
    };
    const flood = 'x'.repeat(8_000_000);
    cost(flood);
    // Eight megabytes would take a hundred times as long as this, every time.
    expect(Math.min(...Array.from({ length: 5 }, () => cost(flood)))).toBeLessThan(50);
    expect(line.text).toBe('x'.repeat(120));
  });
});
