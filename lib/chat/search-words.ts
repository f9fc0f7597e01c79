/** Scripts without spaces between words, whose text SQLite's tokenizers take for one long word. */
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}]/u;
const SPECIAL = new Set(['*', '?', '[']);

/** The words of a search, in lower case, each once. Everything but white space is part of a word. */
export const wordsOf = (query: string): string[] => [
  ...new Set(
    query
      .toLowerCase()
      .split(/\s+/u)
      .filter((word) => word !== ''),
  ),
];

/** True if a text contains all words. They are in lower case. */
export function containsAll(text: string, words: readonly string[]): boolean {
  const lower = text.toLowerCase();
  return words.every((word) => lower.includes(word));
}

/**
 * The `GLOB` pattern of texts that contain a word in any case; `LIKE` ignores the case of ASCII letters only. Wildcards
 * in the word are escaped.
 */
export function globOf(word: string): string {
  const characters = [...word].map((character) => {
    if (SPECIAL.has(character)) return `[${character}]`;
    const cases = [character.toLowerCase(), character.toUpperCase()].filter((form) => [...form].length === 1);
    const forms = [...new Set([character, ...cases])];
    return forms.length === 1 ? character : `[${forms.join('')}]`;
  });
  return `*${characters.join('')}*`;
}

/**
 * The full-text query for the words that a full-text table can find, each as a quoted phrase without operators.
 * Undefined if it can find none of them.
 */
export function matchOf(words: readonly string[]): string | undefined {
  const findable = words.filter((word) => /[\p{L}\p{N}]/u.test(word) && !UNSPACED.test(word));
  if (findable.length === 0) return undefined;
  return findable.map((word) => `"${word.replaceAll('"', '""')}"`).join(' ');
}
