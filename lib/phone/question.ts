import type { Metadata } from '../../storage/schema.ts';

/** Longer than any run of closing marks; the rest of a text does not matter. */
const TAIL = 8;

/**
 * Whether a message waits for an answer: its metadata says so (`question`, true or false), or else its text ends with a
 * question mark. The contract does not mark questions (04 §5.2), and agents write them as plain text.
 */
export function isQuestion({ text, metadata = {} }: { text: string; metadata?: Metadata }): boolean {
  if (typeof metadata.question === 'boolean') return metadata.question;
  return /[?？؟]\p{P}*$/u.test(text.trimEnd().slice(-TAIL));
}
