import type { UiNode, UiWindow } from '../../lib/companion/device.ts';
import { isEmpty, labelOf } from '../../lib/companion/tree.ts';
import { printable } from '../output.ts';

const MAX_WIDTH = 46;
const MAX_ROWS = 40;

/** Cells that stand beside each other, by the place of their upper edge. */
type Cell = { top: number; left: number; text: string };

/** The front window of the simulated phone as text in a frame of at most `columns` characters. */
export function drawScreen(windows: readonly UiWindow[], title: string, columns = 80): string[] {
  const inner = Math.max(12, Math.min(MAX_WIDTH, columns - 2) - 4);
  const root = windows[0]?.root;
  const rows = new Map<number, Cell[]>();
  for (const cell of root ? cellsOf(root) : []) rows.set(cell.top, [...(rows.get(cell.top) ?? []), cell]);
  const lines = [...rows]
    .sort(([a], [b]) => a - b)
    .map(([, cells]) => cells.sort((a, b) => a.left - b.left).map(({ text }) => text))
    .map((cells) => fitted(cells.join('   '), inner));
  const shown = lines.length > MAX_ROWS ? [...lines.slice(0, MAX_ROWS - 1), '…'.padEnd(inner)] : lines;
  const head = fitted(printable(title), inner).trimEnd();
  return [
    `┌ ${head} ${'─'.repeat(inner - head.length)}┐`,
    ...shown.map((text) => `│ ${text} │`),
    `└${'─'.repeat(inner + 2)}┘`,
  ];
}

const fitted = (text: string, width: number): string =>
  (text.length > width ? `${text.slice(0, width - 1)}…` : text).padEnd(width);

/** The visible screen: a row that is clicked as a whole is one cell, with the labels inside it. */
function cellsOf(node: UiNode): Cell[] {
  if (isEmpty(node.bounds)) return [];
  const { top, left } = node.bounds;
  const label = printable(labelOf(node));
  const isWhole = node.clickable || node.children.length === 0;
  if (!isWhole) return node.children.flatMap(cellsOf);
  const text = cellText(node, label);
  return text === '' ? [] : [{ top, left, text }];
}

function cellText(node: UiNode, label: string): string {
  if (node.editable) return `[${label || printable(node.hintText ?? '')}____]`;
  if (node.checkable) return `${node.checked ? '(x)' : '( )'} ${label}`;
  if (!node.clickable) return label;
  if (!node.enabled) return `[ ${label} ] (off)`;
  return node.children.length > 0 ? `> ${label}` : `[ ${label} ]`;
}
