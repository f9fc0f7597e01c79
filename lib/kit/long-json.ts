import { nextTurn } from './clock.ts';
import { parseJson } from './json.ts';

/** JSON up to this many bytes is not counted, since parsing it takes milliseconds whatever it contains. */
export const MAX_UNCOUNTED = 256 * 1024;

/** `{`, `[` and `,` outside strings. */
const MAX_PARTS = 200_000;
export const MAX_DEPTH = 256;
/** Bytes of member names, with 80 more for each: distinct ones take V8 several times as long as other text. */
const MAX_NAMES = 8 * 1024 * 1024;
/**
 * Limits short names to some 100,000, where the contract would allow 200,000: twice as many take V8 three times as long,
 * 70 to 110 ms (2026-11). No client sends that many.
 */
const NAME_COST = 80;
/**
 * Bytes of numbers, `true`, `false` and `null`. 200,000 doubles with all digits take half of it. V8 needs 0.1 s more
 * for 39 MiB of digits than for other text.
 */
const MAX_BARE = 8 * 1024 * 1024;
/** Bytes or characters that are counted or decoded in one turn of the event loop: some milliseconds. */
const SLICE = 2 * 1024 * 1024;
/**
 * The share of non-ASCII bytes above which a text is decoded in slices. That takes twice the memory of the text, which
 * is more than that of the bytes if most are ASCII.
 */
const MAX_WIDE = 1 / 2;

const SPACE = 32;
const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const BACKSLASH = 92;
const OPEN_ARRAY = 91;
const CLOSE_ARRAY = 93;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;

const encoder = new TextEncoder();

/**
 * Counts JSON of more than 256 KiB before it may be parsed (contract 02 §1.1), in slices, because 40 MiB would block
 * the event loop for 0.1 s. Returns the text, or null if it has more than 200,000 parts, 256 levels, 8 MiB of numbers,
 * or 8 MiB of member names with 80 bytes added to each: parsing that can take a minute and gigabytes. Text that is not
 * JSON may get either answer. The caller continues in a new turn of the event loop, since parsing can take 0.1 s.
 * @throws TypeError for invalid UTF-8, with `fatal`
 */
export async function readLongJson(source: string | Uint8Array, options?: TextDecoderOptions): Promise<string | null> {
  const counter = new StructureCounter();
  for (let at = 0; at < source.length; at += SLICE) {
    const end = at + SLICE;
    const slice = typeof source === 'string' ? encoder.encode(source.slice(at, end)) : source.subarray(at, end);
    if (!counter.take(slice)) return null;
    await nextTurn();
  }
  if (typeof source === 'string') return source;
  // Not awaited, because this function would hold the bytes while the text is joined and parsed.
  if (counter.wide > source.length * MAX_WIDE) return decodeSlices(source, options).then(join);
  const text = new TextDecoder('utf-8', options).decode(source);
  return nextTurn().then(() => text);
}

/**
 * Decodes non-ASCII text. V8 takes 0.15 s for 39 MiB at once, and in slices half of that, spread over many turns of the
 * event loop. The text is not joined yet.
 */
async function decodeSlices(bytes: Uint8Array, options?: TextDecoderOptions): Promise<string> {
  const decoder = new TextDecoder('utf-8', options);
  let text = '';
  for (let at = 0; at < bytes.length; at += SLICE) {
    text += decoder.decode(bytes.subarray(at, at + SLICE), { stream: true });
    await nextTurn();
  }
  return text + decoder.decode();
}

/**
 * Has V8 join a text of slices, which happens when it is first read and takes up to 30 ms, in a separate turn of the
 * event loop.
 */
function join(text: string): Promise<string> {
  text.charCodeAt(0);
  return nextTurn().then(() => text);
}

/** Decodes JSON of any length: short texts at once, long ones like `readLongJson`. */
export async function decodeJsonText(bytes: Uint8Array, options?: TextDecoderOptions): Promise<string | null> {
  if (bytes.length > MAX_UNCOUNTED) return readLongJson(bytes, options);
  return new TextDecoder('utf-8', options).decode(bytes);
}

/**
 * Characters that are parsed without counting, and the slice in which longer texts are counted. Parsing them takes 4
 * ms.
 */
const SMALL = 64 * 1024;
const MAX_SIMPLE_PARTS = 10_000;

/**
 * Parses JSON at once that is small or consists mostly of long strings, such as audio in base64; undefined if it is
 * invalid, or has more than 10,000 parts or 256 levels. 2 MiB of brackets would block the event loop for 0.2 s.
 */
export function parseSimpleJson(text: string): unknown {
  if (text.length <= SMALL) return parseJson(text);
  const counter = new StructureCounter(MAX_SIMPLE_PARTS);
  for (let at = 0; at < text.length; at += SMALL) {
    if (!counter.take(encoder.encode(text.slice(at, at + SMALL)))) return undefined;
  }
  return parseJson(text);
}

/** Counts the structure of a JSON text that arrives in slices. */
class StructureCounter {
  readonly #maxParts: number;
  /** Bytes beyond ASCII. */
  wide = 0;
  #parts = 0;
  #depth = 0;
  #names = 0;
  /** Bytes outside strings that are neither structure nor white space. */
  #bare = 0;
  /** Bytes of the current or last string. */
  #length = 0;
  #inString = false;
  #escaped = false;

  constructor(maxParts = MAX_PARTS) {
    this.#maxParts = maxParts;
  }

  /** Counts the next slice. Returns false once a limit is exceeded. */
  take(slice: Uint8Array): boolean {
    // Locals, for speed.
    let [wide, parts, depth, names, bare, length, inString, escaped] = [
      this.wide,
      this.#parts,
      this.#depth,
      this.#names,
      this.#bare,
      this.#length,
      this.#inString,
      this.#escaped,
    ];
    for (let at = 0; at < slice.length; at++) {
      const code = slice[at] as number;
      wide += code >> 7;
      if (inString) {
        length++;
        if (escaped) escaped = false;
        else if (code === BACKSLASH) escaped = true;
        else if (code === QUOTE) inString = false;
      } else if (code === QUOTE) {
        inString = true;
        length = 0;
      } else if (code === COMMA) parts++;
      else if (code === COLON) names += length + NAME_COST;
      else if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
        parts++;
        depth++;
        if (depth > MAX_DEPTH) return false;
      } else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) depth--;
      else if (code > SPACE) bare++;
    }
    this.wide = wide;
    this.#parts = parts;
    this.#depth = depth;
    this.#names = names;
    this.#bare = bare;
    this.#length = length;
    this.#inString = inString;
    this.#escaped = escaped;
    return parts <= this.#maxParts && names <= MAX_NAMES && bare <= MAX_BARE;
  }
}
