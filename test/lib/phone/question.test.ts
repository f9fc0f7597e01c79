import { expect, it } from 'vitest';
import { isQuestion } from '../../../lib/phone/question.ts';

it.each([
  ['Deploy now?', {}, true],
  ['Shall I?  \n', {}, true],
  ['"Shall I?"', {}, true],
  ['(Shall I?)', {}, true],
  ['続けますか？', {}, true],
  ['Which? I took the first.', {}, false],
  ['Done.', {}, false],
  ['?'.repeat(16_384), {}, true],
  ['Done.', { question: true }, true],
  ['Guess what?', { question: false }, false],
  ['Done.', { question: 'yes' }, false],
])('contract 09 §6: %s with %o is a question: %s', (text, metadata, expected) => {
  expect(isQuestion({ text, metadata })).toBe(expected);
});
