import { visibleLine } from '../kit/text.ts';

/** The first `limit` UTF-16 units of a text, never splitting a surrogate pair. */
export function truncate(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const last = text.charCodeAt(limit - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? limit - 1 : limit);
}

/** `truncate` for text shown to a person: a single line without invisible characters. */
export const singleLine = (text: string, limit: number): string => truncate(visibleLine(text), limit);

/** True if a text is an Android package name, such as `org.example.app`. */
export const isPackageName = (text: string): boolean =>
  text.length <= 255 && /^[A-Za-z]\w*(?:\.[A-Za-z]\w*)+$/.test(text);

export const isBlank = (text: string | null | undefined): boolean => !text || text.trim() === '';

const escapeRegExp = (word: string) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

/** The `words` that occur in `text` as whole words, ignoring case, with Unicode boundaries (contract 03 §8.3). */
export function wordsIn(text: string, words: string[]): string[] {
  const wanted = new Set(words.map((word) => word.trim().toLowerCase()).filter((word) => word !== ''));
  return [...wanted].filter((word) =>
    new RegExp(`(?<![\\p{L}\\p{N}\\p{M}_])${escapeRegExp(word)}(?![\\p{L}\\p{N}\\p{M}_])`, 'iu').test(text),
  );
}
