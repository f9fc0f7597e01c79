// biome-ignore lint/suspicious/noControlCharactersInRegex: the colours of `createStyle`
const COLOURS = /\u001b\[\d+m/g;

const width = (text: string): number => text.replace(COLOURS, '').length;

/** Rows of cells, each column as wide as its widest cell; colours take no room. The last column is not padded. */
export function columns(rows: string[][], indent = '  '): string[] {
  const widths: number[] = [];
  for (const row of rows)
    row.forEach((cell, at) => {
      widths[at] = Math.max(widths[at] ?? 0, width(cell));
    });
  return rows.map((row) => {
    const cells = row.map((cell, at) =>
      at === row.length - 1 ? cell : cell + ' '.repeat((widths[at] ?? 0) - width(cell)),
    );
    return `${indent}${cells.join('  ')}`.trimEnd();
  });
}
