import Database from 'libsql';
import { describe, expect, it } from 'vitest';
import { containsAll, globOf, matchOf, wordsOf } from '../../../lib/chat/search-words.ts';

const database = new Database(':memory:');
const isMatch = (text: string, word: string): boolean =>
  Object.values(database.prepare('SELECT ? GLOB ?').get(text, globOf(word)) as object)[0] === 1;

describe('words of a search (contract 10 §2)', () => {
  it('are split at white space, each once and in lower case', () => {
    expect(wordsOf(' Deploy\tthe  PLAN\u2003deploy\n"now" ')).toEqual(['deploy', 'the', 'plan', '"now"']);
    expect(containsAll('The Plan: deploy', ['deploy', 'plan:'])).toBe(true);
    expect(containsAll('The Plan: deploy', ['deploy', 'now'])).toBe(false);
  });

  it.each([
    ['A wonderful WORLD', 'world', true],
    ['Großer ÄRGER', 'ärger', true],
    ['ПРИВЕТ', 'привет', true],
    ['straße', 'straße', true],
    ['100% sure', '100%', true],
    ['1000 reasons', '100%', false],
    ['a_b', 'a_b', true],
    ['axb', 'a_b', false],
    ['wor* [x]?', 'wor*', true],
    ['wor* [x]?', '[x]?', true],
    ['world', 'wor*', false],
    ['world', 'w?rld', false],
    ['b', '[abc]', false],
    ['x^y-z]', '^y-z]', true],
    ['back\\slash', 'k\\s', true],
  ])('%s contains %s: %s', (text, word, is) => {
    expect(isMatch(text, word)).toBe(is);
    expect(containsAll(text, [word])).toBe(is);
  });

  it('become phrases of a full-text query, without those that it cannot find', () => {
    expect(matchOf(['say', '"hello"', '***', 'or', 'content:x', '会議'])).toBe('"say" """hello""" "or" "content:x"');
    expect(matchOf(['***', '会議'])).toBeUndefined();
  });
});
