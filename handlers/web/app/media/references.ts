import type { MediaPlace } from './media.ts';

/** A file that a text refers to (contract 04 §3.1, §8). */
export interface Reference {
  /** At the relay, or a `data:` address of a picture in the text itself. */
  place: MediaPlace | { data: string };
  /** Its name in the text; empty without one. */
  name: string;
  /** True if the agent has marked it as sensitive in the text. */
  isSensitive: boolean;
}

const FENCED = /(^```[^\n]*\n[\s\S]*?(?:^```[^\n]*$|$(?![\s\S])))/m;
/** Bounded, since an agent may write anything, which must not block the page. */
const MARKER = String.raw`MEDIA:(?:"([^"\n]{1,1024})"|([^\s|"\x60<>]{1,1024}))|svc-relay:\/\/([A-Za-z0-9_-]{16,128})`;
const TARGET = String.raw`data:image\/[a-z]{3,4};base64,[A-Za-z0-9+/]+={0,2}|[^)\n>]{1,1024}?`;
const PICTURE = String.raw`!\[([^[\]\n]{0,300})\]\( {0,2}<?(${TARGET})>? {0,2}\)`;
/** `||…||` hides its content, like spoilers. Text after a backtick or a letter is not a marker. */
const REFERENCE = new RegExp(String.raw`(\|\| {0,2})?(?<![\w\x60/:])(?:${PICTURE}|${MARKER})( {0,2}\|\|)?`, 'g');
const SENSITIVE = /\b(?:nsfw|sensitive|spoiler)\b/i;
const TOKEN = /^[A-Za-z0-9_-]{16,128}$/;
const PICTURE_DATA = /^data:image\/(?:png|jpeg|gif|webp);base64,/;

/** A reference with its position in the text. */
export interface Found {
  index: number;
  length: number;
  reference: Reference;
}

/**
 * Finds the files that a text refers to: `MEDIA:svc-relay://<token>`, `MEDIA:/path`, `![name](either)`, and pictures as
 * `data:` addresses. Not in code, and not addresses of other origins, from which pages load nothing. A marker at the very
 * end counts only if the text `isWhole`, since its rest may not have arrived.
 */
export function findReferences(text: string, isWhole: boolean): Found[] {
  const all: Found[] = [];
  let start = 0;
  for (const [index, block] of text.split(FENCED).entries()) {
    for (const match of index % 2 === 1 ? [] : block.matchAll(REFERENCE)) {
      const found = referenceOf(match, isWhole ? Number.POSITIVE_INFINITY : block.length);
      if (found) all.push({ ...found, index: start + match.index });
    }
    start += block.length;
  }
  return all;
}

/** Splits a text at the files that it refers to. */
export function splitAtReferences(text: string, isWhole: boolean): (string | Reference)[] {
  const pieces: (string | Reference)[] = [];
  let end = 0;
  for (const { index, length, reference } of findReferences(text, isWhole)) {
    pieces.push(text.slice(end, index), reference);
    end = index + length;
  }
  pieces.push(text.slice(end));
  return pieces.filter((piece) => typeof piece !== 'string' || piece.trim() !== '');
}

/** The target of a match of `REFERENCE`, and its length in characters. `limit` is where text may continue. */
function referenceOf(match: RegExpExecArray, limit: number): { reference: Reference; length: number } | undefined {
  const [whole, before, alt, target, quoted, bare, token, after] = match;
  const isHidden = before !== undefined && after !== undefined;
  // A dot or comma at the end belongs to the sentence.
  const plain = bare?.replace(/[.,;:!?)\]'*]+$/, '');
  const named = target ?? quoted ?? plain ?? token ?? '';
  const place = placeOf(named.replace(/^MEDIA:/, ''), token !== undefined);
  const isOpen = bare !== undefined || token !== undefined;
  if (!place || (isOpen && after === undefined && match.index + whole.length >= limit)) return undefined;
  const name = alt || ('path' in place ? (place.path.split('/').at(-1) ?? '') : '');
  const cut = plain !== undefined && after === undefined ? (bare as string).length - plain.length : 0;
  return {
    reference: { place, name, isSensitive: isHidden || SENSITIVE.test(alt ?? '') },
    length: whole.length - cut,
  };
}

function placeOf(target: string, isToken: boolean): Reference['place'] | undefined {
  const token = isToken ? target : /^svc-relay:\/\/(.*)$/.exec(target)?.[1];
  if (token !== undefined) return TOKEN.test(token) ? { token } : undefined;
  if (target.startsWith('/') && !target.startsWith('//')) return { path: target };
  return PICTURE_DATA.test(target) ? { data: target } : undefined;
}
