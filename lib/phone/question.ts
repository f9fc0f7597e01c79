import type { Metadata } from '../../storage/schema.ts';
import { RelayError } from '../errors.ts';
import { visible } from '../kit/text.ts';
import { endsAsking, MAX_OPTIONS, optionsIn } from './options.ts';

export const MAX_ANSWERS = MAX_OPTIONS;
const MAX_ANSWER = 40;
/** Answers to a question that lists no options (contract 09 §10). */
const YES_NO: readonly string[] = ['Yes', 'No'];
/** Other metadata keys that fit besides `question` and `answers` (contract 04 §5.5). */
const MAX_OTHERS = 22;
/** Control characters, line ends, and marks that change the reading order of a text. */
const CONTROLS = /[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u;

/** True if a message waits for an answer, according to its metadata, which the relay fills in. */
export const isQuestion = ({ question }: Metadata): boolean => question === true;

/** The answers in the metadata of a message, trimmed. Empty if they exceed the limits. */
export const answersOf = ({ answers }: { readonly answers?: unknown }): readonly string[] =>
  areFit(answers) ? answers.map((answer) => answer.trim()) : [];

/**
 * Reads `answers` of `POST /phone/message` (contract 09 §10): trimmed, undefined if there are none.
 * @throws RelayError `invalid`
 */
export function readAnswers(value: unknown): string[] | undefined {
  if (value === undefined || value === null) return undefined;
  if (!Array.isArray(value) || value.length < 1 || value.length > MAX_ANSWERS) {
    throw new RelayError('invalid', `answers must be an array of 1 to ${MAX_ANSWERS} strings`);
  }
  if (!value.every(isFit)) {
    throw new RelayError(
      'invalid',
      `each of answers must be a string of 1 to ${MAX_ANSWER} characters, not blank, without control characters`,
    );
  }
  const answers = value.map((answer) => answer.trim());
  if (!areDistinct(answers)) throw new RelayError('invalid', 'no two answers may be the same');
  return answers;
}

/**
 * Adds `question` and `answers` to the metadata of a question (contract 09 §10): the given answers, those already in the
 * metadata, the options that the text lists, or Yes and No. `question: false` in the metadata says that the text only looks
 * like a question. Idempotent.
 */
export function withAnswers(text: string, metadata: Metadata, given?: readonly string[]): Metadata {
  const { question, answers, ...others } = metadata;
  const asked = given ? { answers: given } : readQuestion(text, metadata);
  if (!asked) return answers === undefined ? metadata : { ...others, ...(question !== undefined && { question }) };
  const remaining = Object.fromEntries(Object.entries(others).slice(0, MAX_OTHERS));
  return { ...remaining, question: true, ...(asked.answers.length > 0 && { answers: [...asked.answers] }) };
}

/** The answers to a question, empty if only free text makes sense; undefined if the message is not a question. */
function readQuestion(text: string, metadata: Metadata): { answers: readonly string[] } | undefined {
  if (metadata.question === false) return undefined;
  const stated = answersOf(metadata);
  if (stated.length > 0) return { answers: stated };
  const options = optionsIn(text);
  if (options.kind === 'options') return { answers: areFit(options.options) ? options.options : [] };
  if (endsAsking(text)) return { answers: options.kind === 'none' ? YES_NO : [] };
  return isQuestion(metadata) ? { answers: [] } : undefined;
}

const isFit = (value: unknown): value is string =>
  typeof value === 'string' &&
  value.length <= MAX_ANSWER &&
  appearanceOf(value) !== '' &&
  value.isWellFormed() &&
  !CONTROLS.test(value);

/** Visible form of an answer, since two that differ only in an invisible character look the same. */
const appearanceOf = (answer: string): string => visible(answer).normalize('NFC').replaceAll(/\s+/g, ' ').trim();

const areDistinct = (answers: readonly string[]): boolean => new Set(answers.map(appearanceOf)).size === answers.length;

const areFit = (value: unknown): value is string[] =>
  Array.isArray(value) && value.length >= 1 && value.length <= MAX_ANSWERS && value.every(isFit) && areDistinct(value);

/** True if the `answer_index` of a reply names the answer in its text. */
export const isAnswerAt = (answers: readonly string[], index: number | undefined, text: string): index is number =>
  index !== undefined && answers[index] === text.trim();
