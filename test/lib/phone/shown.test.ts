import { expect, it } from 'vitest';
import {
  hashOfShown,
  isHashOf,
  lineOf,
  noticeOf,
  readShown,
  type Shown,
  shownText,
  strayed,
} from '../../../lib/phone/shown.ts';

const message: Shown = { title: 'A "title"', text: 'May I?\nSay so.', answers: ['Yes', 'No'] };

it('a hash names title, text and answers, each for itself', () => {
  expect(shownText(message)).toBe('["svc-relay shown v1","A \\"title\\"","May I?\\nSay so.",["Yes","No"]]');
  expect(hashOfShown(message)).toMatch(/^[\w-]{43}$/);
  const others: Shown[] = [
    { ...message, title: null },
    { ...message, title: '' },
    { ...message, text: 'May I?' },
    { ...message, text: `${message.text} ` },
    { ...message, answers: [] },
    { ...message, answers: ['No', 'Yes'] },
    { ...message, answers: ['Yes","No'] },
    { ...message, text: '', answers: [message.text, 'Yes', 'No'] },
  ];
  for (const other of others) expect(isHashOf(hashOfShown(other), message)).toBe(false);
  expect(isHashOf(hashOfShown({ ...message, answers: [...message.answers] }), message)).toBe(true);
  for (const hash of ['', hashOfShown(message).slice(0, 42), `${hashOfShown(message)}=`])
    expect(isHashOf(hash, message)).toBe(false);
});

it('a message counts as shown by its notification, too, and by no other beginning of it', () => {
  const long = { title: 'T\u202etle', text: `${'x'.repeat(200)}?`, answers: ['Yes'] };
  expect(noticeOf(long)).toEqual({ title: 'Ttle', text: 'x'.repeat(120), answers: ['Yes'] });
  expect(isHashOf(hashOfShown(noticeOf(long)), long)).toBe(true);
  expect(isHashOf(hashOfShown({ ...noticeOf(long), text: 'x'.repeat(119) }), long)).toBe(false);
  expect(isHashOf(hashOfShown({ ...noticeOf(long), text: '' }), long)).toBe(false);
  // Cut within a character.
  expect(lineOf(`${'x'.repeat(119)}\u{1f600}`)).toBe(`${'x'.repeat(119)}\ufffd`);
});

it('lone surrogates make no two texts the same', () => {
  const hashes = ['\ud800', '\udfff', '\ufffd'].map((text) => hashOfShown({ ...message, text }));
  expect(new Set(hashes).size).toBe(3);
});

it('reads a hash of a reply, and takes anything else for none', () => {
  expect(readShown({ shown: 'abc' })).toBe('abc');
  for (const shown of [undefined, null, 7, {}, ['abc']]) expect(readShown({ shown })).toBeUndefined();
});

it('a reply to other words answers nothing, and keeps what was said', () => {
  const reply = {
    message_id: 'r1',
    ts: 7,
    chat_id: 'c1',
    reply_to: 'm1',
    text: 'Yes',
    answer_index: 0,
    metadata: { via: 'voice' },
  };
  expect(strayed(reply)).toEqual({
    message_id: 'r1',
    ts: 7,
    chat_id: null,
    reply_to: null,
    text: 'This answers no message of yours: under the id m1 the device showed other words. It said: Yes',
    metadata: { via: 'voice', other_words: true },
  });
});
