import { closestWord } from '../lib/kit/closest-word.ts';

/** `; did you mean 'devices'?`, or nothing. */
export function didYouMean(word: string, choices: readonly string[]): string {
  const suggestion = closestWord(word, choices);
  return suggestion === undefined ? '' : `; did you mean '${suggestion}'?`;
}
