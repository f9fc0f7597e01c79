import { sha256 } from '@noble/hashes/sha2.js';
import type { PhoneMessage, Reply } from '../../storage/schema.ts';
import { base64url, utf8ToBytes } from '../kit/bytes.ts';
import { visibleLine, visibleName } from '../kit/text.ts';
import type { Payload } from '../socket/envelope.ts';
import { answersOf } from './question.ts';

/** What a device shows of a message. */
export interface Shown {
  title: string | null;
  text: string;
  answers: readonly string[];
}

/** Characters of a message's text in a notification (contract 09 §6). */
const MAX_LINE = 120;

/**
 * A device says what it has shown, since ids alone name no words: the edge could ask with its own ones under the id of a
 * question that home has sealed. A reply carries the SHA-256 of this text, base64url.
 */
export const shownText = ({ title, text, answers }: Shown): string =>
  JSON.stringify(['svc-relay shown v1', title, text, answers]);

export const hashOfShown = (shown: Shown): string => base64url(sha256(utf8ToBytes(shownText(shown))));

export const shownOf = ({ title, text, metadata }: Pick<PhoneMessage, 'title' | 'text' | 'metadata'>): Shown => ({
  title,
  text,
  answers: answersOf(metadata),
});

/** A text as a notification shows its beginning. */
export const lineOf = (text: string): string => visibleLine(text.slice(0, MAX_LINE)).toWellFormed();

/** A message as a notification shows it. */
export const noticeOf = ({ title, text, answers }: Shown): Shown => ({
  title: title === null ? null : visibleName(title),
  text: lineOf(text),
  answers,
});

/** What a `proactive.reply` says of the words that its device has shown; undefined where it says nothing of them. */
export const readShown = ({ shown }: Payload): string | undefined => (typeof shown === 'string' ? shown : undefined);

/** True if a device has shown this message, as a whole or as a notification. */
export const isHashOf = (hash: string, message: Shown): boolean =>
  hash === hashOfShown(message) || hash === hashOfShown(noticeOf(message));

/**
 * A reply of a device that has shown other words under the id of the message: the edge may have put them there. Readers get it,
 * as an answer to nothing.
 */
export const strayed = ({ message_id, ts, text, reply_to, metadata }: Reply): Reply => ({
  message_id,
  ts,
  chat_id: null,
  reply_to: null,
  text: `This answers no message of yours: under the id ${reply_to} the device showed other words. It said: ${text}`,
  metadata: { ...metadata, other_words: true },
});
