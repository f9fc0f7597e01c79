import { closestWord } from '../lib/kit/closest-word.ts';

/** `; did you mean 'devices'?`, or nothing. */
export function didYouMean(word: string, choices: readonly string[]): string {
  const likely = closestWord(word, choices);
  return likely === undefined ? '' : `; did you mean '${likely}'?`;
}
