import { describe, expect, test } from 'vitest';
import { findText, wordAt } from '../../../handlers/web/app/terminal/search.ts';

/** A line of a buffer. Characters from U+2E80 on are two cells wide. */
function line(text: string) {
  const cells = [...text].flatMap((character) => {
    const isWide = character >= '\u2e80';
    const cell = { getChars: () => character, getWidth: () => (isWide ? 2 : 1) };
    return isWide ? [cell, { getChars: () => '', getWidth: () => 0 }] : [cell];
  });
  return { length: cells.length, getCell: (column: number) => cells[column] };
}

const buffer = (...lines: string[]) => ({ length: lines.length, getLine: (row: number) => line(lines[row] as string) });

describe('the search in a terminal', () => {
  const lines = buffer('one Two', 'three', 'two 漢字 two');

  test('goes up from the end, and around', () => {
    let match = findText(lines, 'TWO', undefined, 'up');
    const seen = [];
    for (let turn = 0; turn < 4; turn++) {
      seen.push([match?.row, match?.column]);
      match = findText(lines, 'two', match, 'up');
    }
    expect(seen).toEqual([
      [2, 9],
      [2, 0],
      [0, 4],
      [2, 9],
    ]);
  });

  test('goes down, and around', () => {
    const first = findText(lines, 'two', undefined, 'down');
    expect(first).toEqual({ row: 0, column: 4, length: 3 });
    expect(findText(lines, 'two', first, 'down')).toMatchObject({ row: 2, column: 0 });
    expect(findText(lines, 'three', findText(lines, 'three', undefined, 'up'), 'down')).toMatchObject({ row: 1 });
  });

  test('counts wide characters as two cells', () => {
    expect(findText(lines, '字', undefined, 'up')).toEqual({ row: 2, column: 6, length: 2 });
  });

  test('finds nothing of what is not there', () => {
    expect(findText(lines, 'four', undefined, 'up')).toBeUndefined();
    expect(findText(lines, '', undefined, 'up')).toBeUndefined();
  });

  test.each([
    ['cat file.txt | wc', 6, 4, 8],
    ['cat file.txt', 0, 0, 3],
    ['cat file.txt', 11, 4, 8],
    ['(漢字)', 2, 1, 4],
    ['a b', 1, 1, 1],
    ['ab', 7, 7, 1],
  ])('the word of %j at %i', (text, at, column, length) => {
    expect(wordAt(line(text), at)).toEqual({ column, length });
  });
});
