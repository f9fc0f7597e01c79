import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { optionsIn } from '../../../lib/phone/options.ts';
import { answersOf, isAnswerAt, isQuestion, readAnswers, withAnswers } from '../../../lib/phone/question.ts';
import type { Metadata } from '../../../storage/schema.ts';

const YES_NO = { question: true, answers: ['Yes', 'No'] };
const FREE = { question: true };
const options = (...answers: string[]) => ({ question: true, answers });

describe('09 §10: what the relay fills in', () => {
  it.each<[string, Metadata, Metadata]>([
    ['Deploy now?', {}, YES_NO],
    ['Shall I?  \n', {}, YES_NO],
    ['"Shall I?"', {}, YES_NO],
    ['(Shall I?)', {}, YES_NO],
    ['続けますか？', {}, YES_NO],
    ['?'.repeat(16_384), {}, YES_NO],
    ['Which? I took the first.', {}, {}],
    ['Done.', {}, {}],
    ['Done.', { question: true }, FREE],
    ['Guess what?', { question: false }, { question: false }],
    ['Done.', { question: 'yes' }, { question: 'yes' }],
    ['Done.', { source: 'x', answers: ['a', 'b'] }, { source: 'x', ...options('a', 'b') }],
    ['Done.', { answers: ['a', 'a'] }, {}],
    ['Which?', { answers: 'none', question: false }, { question: false }],
  ])('%s with %o: %o', (text, metadata, expected) => {
    expect(withAnswers(text, metadata)).toEqual(expected);
  });

  it.each<[string, Metadata]>([
    ['1. red 2. blue', options('red', 'blue')],
    ['Which colour? 1. red 2. blue', options('red', 'blue')],
    ['Which colour?\n1) red\n2) blue\n3) **green**', options('red', 'blue', 'green')],
    ['Pick one: (1) red, (2) blue or (3) green?', options('red', 'blue', 'green')],
    ['Which? a) tea b) coffee', options('tea', 'coffee')],
    ['Which?\n- tea\n- coffee', options('tea', 'coffee')],
    ['1. red\n2. blue\nWhich one?', options('red', 'blue')],
    ['I did two things:\n1. one\n2. two\n\nNext?\n1. deploy\n2. wait', options('deploy', 'wait')],
    ['Which?\n1. Deploy.\n   It takes a minute.\n2. Wait.', options('Deploy', 'Wait')],
    ['Take version 2. Which? 1. now 2. later', options('now', 'later')],
    // Lists that cannot be offered, or are no options: free text, and no Yes and No either.
    ['Which? 1. a 2. b 3. c 4. d 5. e', FREE],
    [`Which? 1. a 2. ${'b'.repeat(41)}`, FREE],
    ['Which? 1. a 2. a', FREE],
    ['Changes:\n- a\n- b\nDeploy now?', FREE],
    ['I did this.\n1. a\n2. b\nDeploy now?', FREE],
    // Reports.
    ['All done. 1. fixed 2. tested', {}],
    ['I did:\n1. Fixed the login.\n2. Ran the tests.', {}],
    ['Shopping:\n- milk\n- eggs', {}],
    ['1. only one', {}],
    ['Version 1.2 beats 2.1', {}],
  ])('%s', (text, expected) => {
    expect(withAnswers(text, {})).toEqual(expected);
  });

  it('given answers count alone, and leave room for 22 other keys', () => {
    expect(withAnswers('Done.', { answers: ['x'], question: false }, ['a'])).toEqual(options('a'));
    const many = Object.fromEntries(Array.from({ length: 24 }, (_, at) => [`k${at}`, at]));
    const filled = withAnswers('Go?', many);
    expect(Object.keys(filled)).toHaveLength(24);
    expect(filled).toMatchObject(YES_NO);
  });
});

describe('09 §10: answers of a request', () => {
  it.each([
    [undefined, undefined],
    [null, undefined],
    [['yes'], ['yes']],
    [
      [' yes ', 'no'],
      ['yes', 'no'],
    ],
    [
      ['a', 'b', 'c', 'x'.repeat(40)],
      ['a', 'b', 'c', 'x'.repeat(40)],
    ],
    [
      ['Да', '👍🏽'],
      ['Да', '👍🏽'],
    ],
  ])('%o are %o', (given, expected) => {
    expect(readAnswers(given)).toEqual(expected);
  });

  it.each([
    [[]],
    [['a', 'b', 'c', 'd', 'e']],
    ['yes'],
    [{ 0: 'yes' }],
    [['']],
    [[' ']],
    [['x'.repeat(41)]],
    [['a\nb']],
    [['a\u0000']],
    [['a\u202eb']],
    [['\ud800']],
    [[1]],
    [[null]],
    [['a', 'a']],
    [['a', ' a']],
    [['Yes', 'Ye\u200bs']],
    [['Yes', 'Yes\u2060']],
    [['caf\u00e9', 'cafe\u0301']],
    [['go on', 'go\u00a0 on']],
    [['\u200b']],
    [['\u3164', 'No']],
  ])('%o are refused', (given) => {
    expect(() => readAnswers(given)).toThrow(/answers/);
  });
});

describe('09 §10: answers that the metadata names', () => {
  it('are trimmed, so that a tap names the one that was shown', () => {
    const { answers } = withAnswers('Go?', { answers: [' Yes', 'No '] }) as { answers: string[] };
    expect(answers).toEqual(['Yes', 'No']);
    expect(isAnswerAt(answers, 1, 'No')).toBe(true);
  });

  it.each([[['Yes', ' Yes']], [['Yes', 'Ye\u200ds']]])('%o do not count', (answers) => {
    expect(withAnswers('Report.', { answers })).toEqual({});
  });
});

const piece = fc.constantFrom(
  '1.',
  '2.',
  '3)',
  '(4)',
  'a)',
  'b)',
  '- ',
  '* ',
  ' ',
  '\n',
  '?',
  '.',
  'red',
  'x'.repeat(30),
  '\u0000',
  '**',
  ',',
  ' or',
);
const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc.array(piece, { maxLength: 60 }).map((pieces) => pieces.join('')),
  fc.array(piece, { maxLength: 60 }).map((pieces) => pieces.join(' ')),
);

it('09 §10: whatever the text, there are at most four answers within the limits, and the result stands', () => {
  fc.assert(
    fc.property(anyText, (text) => {
      const filled = withAnswers(text, {});
      const answers = answersOf(filled);
      expect(answers.length).toBeLessThanOrEqual(4);
      if (filled.answers !== undefined) {
        expect(filled.answers).toEqual(answers);
        expect(readAnswers(answers)).toEqual(answers);
        expect(isQuestion(filled)).toBe(true);
      }
      expect(withAnswers(text, filled)).toEqual(filled);
    }),
    { numRuns: 500 },
  );
});

it('09 §10: a long text takes time in proportion to its length', () => {
  const SIZE = 64 * 1024;
  const filled = (unit: string, size: number) => unit.repeat(Math.ceil(size / unit.length)).slice(0, size);
  const cost = (text: string) => {
    const begin = performance.now();
    optionsIn(text);
    withAnswers(text, {});
    return performance.now() - begin;
  };
  for (const unit of [
    ' ',
    '\n',
    '1. ',
    '1. a 2. b ',
    '- ',
    '\n- a',
    '?',
    '.',
    '. ',
    '(',
    '1.\t',
    'a) b) ',
    ',?',
    'a',
    '1. ? 2. ',
  ]) {
    for (const text of [filled(unit, SIZE), `1. x 2. ${filled(unit, SIZE)}y`]) {
      // Quadratic work on 64 KiB takes seconds; the least of three runs leaves out what else the machine does.
      expect(Math.min(cost(text), cost(text), cost(text)), JSON.stringify(unit)).toBeLessThan(1000);
    }
  }
});
