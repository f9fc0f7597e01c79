import type { PhoneMessage, Reply } from '../../storage/schema.ts';
import { digestOf } from '../kit/sha256.ts';
import { visibleLine, visibleName } from '../kit/text.ts';
import type { Payload } from '../socket/envelope.ts';
import { answersOf } from './question.ts';

/** A message as a device shows it. */
export interface Shown {
  title: string | null;
  text: string;
  answers: readonly string[];
}

/** Characters of a message's text in a notification (contract 09 §6). */
const MAX_LINE = 120;

/**
 * The text of a message as shown. A reply carries its SHA-256 (base64url), since an id alone does not identify the words:
 * the edge could show other words under the id of a question that home sealed.
 */
export const shownText = ({ title, text, answers }: Shown): string =>
  JSON.stringify(['svc-relay shown v1', title, text, answers]);

export const hashOfShown = (shown: Shown): string => digestOf(shownText(shown));

export const shownOf = ({ title, text, metadata }: Pick<PhoneMessage, 'title' | 'text' | 'metadata'>): Shown => ({
  title,
  text,
  answers: answersOf(metadata),
});

/** The beginning of a text, as shown in a notification. */
export const lineOf = (text: string): string => visibleLine(text.slice(0, MAX_LINE)).toWellFormed();

/** A message as shown in a notification. */
export const noticeOf = ({ title, text, answers }: Shown): Shown => ({
  title: title === null ? null : visibleName(title),
  text: lineOf(text),
  answers,
});

/** Hash of the words that the device of a `proactive.reply` has shown; undefined if it sends none. */
export const readShown = ({ shown }: Payload): string | undefined => (typeof shown === 'string' ? shown : undefined);

/** True if a device has shown this message, completely or as a notification. */
export const isHashOf = (hash: string, message: Shown): boolean =>
  hash === hashOfShown(message) || hash === hashOfShown(noticeOf(message));

/**
 * A reply of a device that showed other words under the id of the message, which may come from the edge. Readers get it as
 * an answer to no message.
 */
export const strayed = ({ message_id, ts, text, reply_to, metadata }: Reply): Reply => ({
  message_id,
  ts,
  chat_id: null,
  reply_to: null,
  text: `This answers no message of yours: under the id ${reply_to} the device showed other words. It said: ${text}`,
  metadata: { ...metadata, other_words: true },
});
