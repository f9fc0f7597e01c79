import { parseJson } from '../kit/json.ts';

const WORD = /^(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+/s;
const PIECE = /\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)"/gs;

/**
 * Program and arguments out of `RELAY_TUI_COMMAND`: a JSON array of strings when it starts with `[`, else words with
 * single quotes, double quotes (where a backslash escapes `"` and `\`) and backslash. Nothing is expanded. Null when
 * it is malformed (contract 02 §4.2.1).
 */
export function parseCommand(text: string): string[] | null {
  const words = text.trimStart().startsWith('[') ? parseArray(text) : parseWords(text);
  const [program] = words ?? [];
  return program && !words?.some((word) => word.includes('\0')) ? words : null;
}

function parseArray(text: string): string[] | null {
  const value = parseJson(text);
  return Array.isArray(value) && value.every((word) => typeof word === 'string') ? value : null;
}

function parseWords(text: string): string[] | null {
  const words: string[] = [];
  for (let rest = text.trimStart(); rest !== ''; ) {
    const [word] = WORD.exec(rest) ?? [];
    if (word === undefined) return null;
    rest = rest.slice(word.length);
    // A quote or backslash without its other half ends the match in the middle of a word.
    if (rest !== '' && !/^\s/.test(rest)) return null;
    rest = rest.trimStart();
    words.push(unquote(word));
  }
  return words;
}

const unquote = (word: string): string =>
  word.replace(
    PIECE,
    (_piece, escaped?: string, single?: string, double?: string) =>
      escaped ?? single ?? (double as string).replace(/\\(["\\])/g, '$1'),
  );
