import { distance, MAX_WORD } from './distance.ts';

/**
 * The known word that was most likely meant: it begins with the typed text, or at most a third of its letters differ.
 * Undefined if none is close. Ignores case.
 */
export function closestWord(typed: string, known: readonly string[]): string | undefined {
  const word = typed.toLowerCase();
  if (word === '' || word.length > MAX_WORD) return undefined;
  let best: { name: string; edits: number } | undefined;
  for (const name of known) {
    const lower = name.toLowerCase();
    const edits = word.length >= 3 && lower.startsWith(word) ? 0.5 : distance(word, lower);
    if (edits <= Math.max(1, Math.floor(lower.length / 3)) && (!best || edits < best.edits)) best = { name, edits };
  }
  return best?.name;
}
