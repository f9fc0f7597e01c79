import { DELETE } from './keys.ts';

/**
 * Content of the field when nothing was typed. A phone's keyboard reports a deletion only if there is something to delete.
 */
export const PADDING = ' '.repeat(8);
/** The field is emptied beyond this; keyboards only read the last words. */
const MAX_LENGTH = 400;

/** Scripts whose keyboards show other text first and convert it; the text is sent once it is final. */
const CONVERTED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}]/u;
/** Characters that a line editor deletes together with the preceding one. */
const MARK = /[\p{M}\u200d]/u;

/** Effect of a change of the field on the terminal. */
export interface Change {
  /** Text to type: a DEL for each removed character, then the new ones. */
  text: string;
  /** Text to paste instead, because it has several lines. */
  paste?: string;
  /** True if the field must be reset to `PADDING`, with the caret after it. */
  reset: boolean;
}

export interface ComposerOptions {
  /** True if compositions in Latin letters are converted too (Chinese, Japanese, Korean). */
  converts?: boolean;
}

/**
 * Turns the changes of a text field into typed text. Keyboards of phones compose, correct, suggest and dictate: they send no
 * key codes, and their events differ between browsers. But the text of the field after each event is reliable, so it is
 * compared with the text sent so far: everything arrives once, and a correction as deletions and new text.
 */
export function createComposer({ converts = false }: ComposerOptions = {}) {
  /** Text of the field that the terminal has received. */
  let typed = PADDING;
  let mode: 'plain' | 'live' | 'held' = 'plain';
  let preview = '';

  function compare(value: string): Change {
    const { removed, inserted, isPaddingGone } = difference(typed, value);
    typed = value;
    preview = '';
    const deletions = countCharacters(removed) || (isPaddingGone && inserted === '' ? 1 : 0);
    const isOver = inserted.includes('\n') || value.length > MAX_LENGTH || !value.startsWith(PADDING);
    const reset = mode === 'plain' && isOver;
    if (reset) typed = PADDING;
    const back = DELETE.repeat(deletions);
    if (/\n./s.test(inserted)) return { text: back, paste: inserted, reset };
    return { text: back + inserted.replace('\n', '\r'), reset };
  }

  const nothing = (): Change => ({ text: '', reset: false });

  return {
    /** Composed text that is shown but not sent yet. */
    get preview() {
      return preview;
    },

    /** `beforeinput`: the text of the field, which may have been changed by others. */
    before(value: string): void {
      if (mode === 'plain') typed = value;
    },

    /** `compositionstart`, with the key that started it (`KeyboardEvent.key`), if any. */
    start(key?: string): void {
      // With a hardware keyboard, composition is conversion, or a dead key.
      mode = converts || key === 'Process' || key === 'Dead' ? 'held' : 'live';
    },

    /** `input`, with the text of the field. */
    input(value: string, inputType: string): Change {
      // Safari removes the composed text before it inserts the final one.
      if (inputType === 'deleteCompositionText') return nothing();
      const { inserted } = difference(typed, value);
      if (mode === 'live' && CONVERTED.test(inserted)) mode = 'held';
      if (mode !== 'held') return compare(value);
      preview = inserted;
      return nothing();
    },

    /** `compositionend`, with the text of the field. */
    end(value: string): Change {
      mode = 'plain';
      return compare(value);
    },

    /** Starts again, because a key has moved the cursor. Returns composed text that was not sent yet. */
    reset(): string {
      const rest = preview;
      mode = 'plain';
      preview = '';
      typed = PADDING;
      return rest;
    },
  };
}

/** The text removed after the common beginning of two texts, without the padding, and the text inserted there. */
function difference(from: string, to: string): { removed: string; inserted: string; isPaddingGone: boolean } {
  let at = 0;
  while (at < from.length && at < to.length && from[at] === to[at]) at++;
  // Never between the halves of a surrogate pair, nor between a character and its marks.
  while (at > 0 && (isSplit(from, at) || isSplit(to, at))) at--;
  const padding = from.startsWith(PADDING) ? PADDING.length : 0;
  return { removed: from.slice(Math.max(at, padding)), inserted: to.slice(at), isPaddingGone: at < padding };
}

function isSplit(text: string, at: number): boolean {
  const rest = text.slice(at, at + 2);
  return /^[\udc00-\udfff]/.test(rest) || MARK.test(String.fromCodePoint(rest.codePointAt(0) ?? 0));
}

/** Characters as line editors delete them. */
function countCharacters(text: string): number {
  let count = 0;
  for (const character of text) if (!MARK.test(character)) count++;
  return count;
}
