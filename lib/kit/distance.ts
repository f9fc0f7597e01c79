/** Longer words are never compared: the work grows with the product of both lengths. */
export const MAX_WORD = 64;

/** Number of edits between two words: letters added, removed, replaced, or swapped with their neighbour. */
export function distance(one: string, other: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let row = 1; row <= one.length; row++) {
    const current = [row];
    for (let at = 1; at <= other.length; at++) {
      const isSame = one[row - 1] === other[at - 1];
      let least = Math.min(
        (last[at] as number) + 1,
        (current[at - 1] as number) + 1,
        (last[at - 1] as number) + (isSame ? 0 : 1),
      );
      const isSwapped = row > 1 && at > 1 && one[row - 1] === other[at - 2] && one[row - 2] === other[at - 1];
      if (isSwapped) least = Math.min(least, (beforeLast[at - 2] as number) + 1);
      current.push(least);
    }
    beforeLast = last;
    last = current;
  }
  return last[other.length] as number;
}
