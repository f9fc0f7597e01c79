import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createSummaryCheck } from '../../../../../lib/voice/agent/text/validation.ts';

const ANSWER = 'The train to Hamburg leaves at 14:05 from platform 7 and arrives at 16:20.';
const fault = (summary: string, answer = ANSWER) => createSummaryCheck(answer).fault(summary);
const mayCommit = (beginning: string, answer = ANSWER) => createSummaryCheck(answer).mayCommit(beginning);

describe('a summary at its end (contract 06 §7.2)', () => {
  it.each([
    ANSWER,
    'Your train leaves at 14:05.',
    'Platform 7, to Hamburg.',
    'HAMBURG it is',
    'Sure, your train to Hamburg is on time; you might check the platform, which is number 7 at the moment, before.',
  ])('%s is accepted', (summary) => expect(fault(summary)).toBeNull());

  it.each(['', ' \n '])('%j is empty', (summary) => {
    expect(fault(summary)).toBe('empty_summary');
    expect(createSummaryCheck(ANSWER).fault(summary, { isExactSpeech: true })).toBeNull();
  });

  it.each([
    'The run ID is r1, your train to Hamburg leaves soon.',
    'Do you know the run_id of Hamburg?',
    'I called svc_get_status for Hamburg.',
    'Use SVC_RUN_TASK for Hamburg',
  ])('%s speaks of ids or functions', (summary) => expect(fault(summary)).toBe('asked_for_run_id'));

  it.each([
    'One moment, Hamburg is coming up.',
    'Let me check the train to Hamburg.',
    "I'll look into Hamburg.",
    'I’ll report back about Hamburg.',
    'I will let you know when the train to Hamburg leaves.',
    'As soon as I have the train to Hamburg, you hear it.',
    'Your question about Hamburg is queued.',
    'Do you have a ticket to Hamburg?',
    'Just a\n second: Hamburg',
  ])('%s puts the answer off', (summary) => expect(fault(summary)).toBe('acknowledgement_not_summary'));

  it('may put off what the answer puts off', () => {
    const answer = 'The printer said: one moment please, 14 documents are waiting.';
    expect(fault('One moment, says the printer: 14 documents.', answer)).toBeNull();
    expect(fault('One moment, let me check the printer.', answer)).toBe('acknowledgement_not_summary');
  });

  it.each(['Sure, checking Hamburg now.', 'OK, I check the train.', 'Got it, a check of platform 7'])(
    '%s is a short acknowledgement',
    (summary) => expect(fault(summary)).toBe('short_acknowledgement'),
  );

  it.each(['It is done.', 'The trains are late.', 'It will come with that from there.', '14055 or 70'])(
    '%s shares nothing with the answer',
    (summary) => expect(fault(summary)).toBe('no_answer_overlap'),
  );

  it('is accepted for an answer without evidence', () => {
    expect(fault('All is well.', 'Yes, it is so.')).toBeNull();
    expect(fault('Whatever', '')).toBeNull();
  });

  it('needs no spaces between words', () => {
    const answer = '明日の会議は東京駅の近くです。';
    expect(fault('会議は東京駅です', answer)).toBeNull();
    expect(fault('ありがとう', answer)).toBe('no_answer_overlap');
  });
});

describe('a summary before its end (contract 06 §7.2)', () => {
  it.each([
    ['too short', 'To Hamburg at 14:05, platform 7.', false],
    ['one word of evidence', 'There is one that leaves, if you hurry up a little bit.', false],
    ['two words of evidence', 'There is one that leaves from the platform in a while.', true],
    ['the same word twice', 'Hamburg, Hamburg, Hamburg, Hamburg, Hamburg, Hamburg.', false],
    ['a bad phrase', 'Let me check: the train to Hamburg leaves at 14:05, platform 7.', false],
    ['too long to be judged early', `${'so '.repeat(1500)} the train to Hamburg leaves at 14:05`, false],
  ])('%s', (_name, beginning, expected) => expect(mayCommit(beginning)).toBe(expected));
});

describe('any summary', () => {
  const words = ['train', 'Hamburg', 'one moment', 'let me check', 'sure', 'run id', '14', 'the', 'é', '東京', "'"];
  const text = fc.array(fc.constantFrom(...words)).map((parts) => parts.join(' '));

  it('is judged alike in capitals, with other white space and apostrophes', () => {
    fc.assert(
      fc.property(text, text, (summary, answer) => {
        const check = createSummaryCheck(answer);
        const same = ` ${summary.toUpperCase().replaceAll(' ', '\n\t').replaceAll("'", '’')} `;
        expect(check.fault(same)).toBe(check.fault(summary));
        expect(createSummaryCheck(answer.toUpperCase()).fault(summary)).toBe(check.fault(summary));
      }),
    );
  });

  it('is accepted at its end if it was accepted early and has ended', () => {
    fc.assert(
      fc.property(text, text, (summary, answer) => {
        const check = createSummaryCheck(answer);
        if (check.mayCommit(summary)) expect(check.fault(summary)).toBeNull();
      }),
    );
  });

  it('stands for itself, unless it is empty, or speaks of ids or a check', () => {
    fc.assert(
      fc.property(text, (answer) => {
        expect([null, 'empty_summary', 'asked_for_run_id', 'short_acknowledgement']).toContain(fault(answer, answer));
      }),
    );
  });

  it.each(['a ', 'a', ' ', "'", '1', 'one ', 'let me ', "i'll ", 'let me check ', 'run ', '東京', '\u0301', 'é1'])(
    'takes linear time when it repeats %j to 1 MiB',
    (part) => {
      const large = part.repeat(Math.ceil((1024 * 1024) / part.length));
      const start = process.cpuUsage();
      fault(large, large);
      fault(large, 'x y z');
      const { user, system } = process.cpuUsage(start);
      // Quadratic time would be minutes.
      expect((user + system) / 1000).toBeLessThan(5000);
    },
  );
});
