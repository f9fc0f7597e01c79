/** Longer words are never compared: a mistyped argument may have any length. */
const MAX_LENGTH = 64;

/** The choice that is most like a word, when it may be the same one misspelt; undefined otherwise. */
export function nearest(word: string, choices: readonly string[]): string | undefined {
  if (word.length > MAX_LENGTH) return undefined;
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

/** Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other. */
function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, at) => at)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const above = (rows[i - 1] as number[])[j] as number;
      const diagonal = (rows[i - 1] as number[])[j - 1] as number;
      const before = row[j - 1] as number;
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swapped = isSwap ? ((rows[i - 2] as number[])[j - 2] as number) + 1 : Number.POSITIVE_INFINITY;
      row.push(Math.min(above + 1, before + 1, diagonal + (a[i - 1] === b[j - 1] ? 0 : 1), swapped));
    }
    rows.push(row);
  }
  return (rows[a.length] as number[])[b.length] as number;
}
