const SPACE = /\s/;
const TERMINAL = /[.!?…]/;
/** Ends a sentence without a space after it. */
const FULL_WIDTH_TERMINAL = /[。！？]/;
/** Characters allowed between the end of a sentence and the space after it. */
const CLOSER = /["'”’»)\]」』）]/;

/**
 * Splits a text for a provider with at most `cap` code points per request (contract 05 §7): after a sentence, else after a
 * word, else between two code points. The parts joined are the text.
 */
export function splitText(text: string, cap: number): string[] {
  const parts: string[] = [];
  for (let start = 0; start < text.length; ) {
    const end = afterCodePoints(text, start, cap);
    const cut = end === text.length ? end : lastBoundary(text, start, end);
    parts.push(text.slice(start, cut));
    start = cut;
  }
  return parts;
}

function afterCodePoints(text: string, start: number, count: number): number {
  let at = start;
  for (let left = count; left > 0 && at < text.length; left--) at += widthAt(text, at);
  return at;
}

/** Code units of the code point at an index. */
const widthAt = (text: string, at: number): number => ((text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1);

/** The best position to cut between `start` (exclusive) and `end`. */
function lastBoundary(text: string, start: number, end: number): number {
  let sentence = start;
  let word = start;
  let isSentenceOver = false;
  for (let at = start; at < end; ) {
    const sign = String.fromCodePoint(text.codePointAt(at) ?? 0);
    at += widthAt(text, at);
    if (SPACE.test(sign)) {
      isSentenceOver ||= sign === '\n';
      word = at;
      if (isSentenceOver) sentence = at;
    } else if (FULL_WIDTH_TERMINAL.test(sign)) {
      isSentenceOver = true;
      sentence = at;
    } else if (TERMINAL.test(sign)) {
      isSentenceOver = true;
    } else if (CLOSER.test(sign)) {
      // `。」` without a space
      if (isSentenceOver && sentence === at - sign.length) sentence = at;
    } else {
      isSentenceOver = false;
    }
  }
  if (sentence > start) return sentence;
  return word > start ? word : end;
}
