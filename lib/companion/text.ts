// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not reach the owner's terminal
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** The first `limit` characters, without leaving half of a surrogate pair behind. */
export function cut(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const last = text.charCodeAt(limit - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? limit - 1 : limit);
}

/** As `cut`, for one line that is shown to a person: no control or direction characters. */
export const line = (text: string, limit: number): string => cut(text.replace(CONTROL, ' '), limit);

export const isBlank = (text: string | null | undefined): boolean => !text || text.trim() === '';

const quoted = (word: string) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

/** Those of `words` that stand in `text` as whole words, any case, with Unicode boundaries (contract 03 §8.3). */
export function wordsIn(text: string, words: string[]): string[] {
  const wanted = new Set(words.map((word) => word.trim().toLowerCase()).filter((word) => word !== ''));
  return [...wanted].filter((word) =>
    new RegExp(`(?<![\\p{L}\\p{N}\\p{M}_])${quoted(word)}(?![\\p{L}\\p{N}\\p{M}_])`, 'iu').test(text),
  );
}
