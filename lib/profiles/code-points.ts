/** Order of code points. Plain `<` compares UTF-16 units, which puts U+1F600 before U+FF5E. */
export function byCodePoint(a: string, b: string): number {
  const left = Array.from(a, (symbol) => symbol.codePointAt(0) ?? 0);
  const right = Array.from(b, (symbol) => symbol.codePointAt(0) ?? 0);
  for (const [index, point] of left.entries()) {
    const other = right[index];
    if (other === undefined) return 1;
    if (point !== other) return point - other;
  }
  return left.length - right.length;
}
