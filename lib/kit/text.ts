const lenient = new TextDecoder();
const strict = new TextDecoder('utf-8', { fatal: true });
const strictWithBom = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** UTF-8 bytes as text: invalid ones become U+FFFD, and a byte-order mark at the start is dropped. */
export const decodeUtf8 = (bytes: Uint8Array): string => lenient.decode(bytes);

export interface Utf8Options {
  /** Keep a byte-order mark at the start. */
  keepBom?: boolean;
  /** True if the bytes may end within a character, which is then dropped. */
  isCut?: boolean;
}

/** UTF-8 bytes as text, or null when they are not valid UTF-8. */
export function decodeUtf8Strict(
  bytes: Uint8Array,
  { keepBom = false, isCut = false }: Utf8Options = {},
): string | null {
  try {
    // A decoder that streams keeps the unfinished character, so it cannot be shared.
    if (isCut) return new TextDecoder('utf-8', { fatal: true, ignoreBOM: keepBom }).decode(bytes, { stream: true });
    return (keepBom ? strictWithBom : strict).decode(bytes);
  } catch {
    return null;
  }
}

/** Orders by code point. The `<` of strings compares UTF-16 units, which puts U+1F600 before U+FF5E. */
export function byCodePoint(a: string, b: string): number {
  let at = 0;
  while (at < a.length && at < b.length) {
    const left = a.codePointAt(at) as number;
    const right = b.codePointAt(at) as number;
    if (left !== right) return left - right;
    at += left > 0xffff ? 2 : 1;
  }
  return a.length - b.length;
}

/** True if a text is one line of printable ASCII. */
export const isPrintable = (text: string): boolean => /^[\x20-\x7e]*$/.test(text);

/** Bytes of a text as UTF-8, without encoding it. */
export function utf8Length(text: string): number {
  let length = text.length;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit < 0x80) continue;
    // Each half of a surrogate pair accounts for two of its four bytes.
    length += unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff) ? 1 : 2;
  }
  return length;
}

/**
 * Characters that are invisible but change what is displayed: controls, line ends, bidirectional marks, overrides and
 * isolates, joiners, fillers, tags and other format characters.
 */
const INVISIBLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\ufff9-\ufffb]/gu;
const BREAKS = /[\t-\r\x85\p{Zl}\p{Zp}]+/gu;
const MAX_NAME = 128;

/** A text without its invisible characters (contract 01 §3.3). */
export const visible = (text: string): string => (isPrintable(text) ? text : text.replace(INVISIBLE, ''));

/** `visible` in one line: line ends and tabs become a space. */
export const visibleLine = (text: string): string => (isPrintable(text) ? text : visible(text.replace(BREAKS, ' ')));

/** JSON text of the same value in which invisible characters are escaped. Its own line ends stay. */
export const visibleJson = (json: string): string =>
  isPrintable(json) ? json : json.replace(INVISIBLE, (character) => (character === '\n' ? '\n' : escaped(character)));

const escaped = (character: string): string =>
  Array.from({ length: character.length }, (_, at) => {
    const code = character.charCodeAt(at).toString(16);
    return `\\u${code.padStart(4, '0')}`;
  }).join('');

/**
 * A name from an untrusted source, fit to be stored: visible, trimmed, at most 128 characters. Empty if it is not a
 * text.
 */
export const visibleName = (value: unknown): string =>
  typeof value === 'string' ? visible(value).trim().slice(0, MAX_NAME).toWellFormed() : '';
