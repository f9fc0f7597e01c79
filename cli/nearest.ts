import { distance, MAX_WORD } from '../lib/kit/distance.ts';

/** The choice that is most like a word, when it may be the same one misspelt; undefined otherwise. */
export function nearest(word: string, choices: readonly string[]): string | undefined {
  if (word.length > MAX_WORD) return undefined;
  const limit = word.length < 4 ? 1 : 2;
  const [best] = choices
    .map((choice) => ({ choice, distance: distance(word.toLowerCase(), choice.toLowerCase()) }))
    .filter((entry) => entry.distance <= limit && entry.distance < entry.choice.length / 2)
    .sort((a, b) => a.distance - b.distance);
  return best?.choice;
}

/** `; did you mean 'devices'?`, or nothing. */
export function didYouMean(word: string, choices: readonly string[]): string {
  const likely = nearest(word, choices);
  return likely === undefined ? '' : `; did you mean '${likely}'?`;
}
