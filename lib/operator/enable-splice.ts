import { type Document, isCollection, isMap, isScalar, isSeq, type Node, type Pair, type YAMLSeq } from 'yaml';
import { PLUGIN } from './enablement.ts';

/** From, to, and what is put there. */
type Edit = [start: number, end: number, text: string];

/**
 * The configuration with this plugin enabled, only the lines concerned being touched; null where the text has a form
 * this does not know. The result is a proposal: whoever asks reads it again and compares.
 */
export function spliceEnabled(text: string, document: Document): string | null {
  const newline = text.includes('\r\n') ? '\r\n' : '\n';
  const edits = editsOf(text, document, newline);
  if (!edits) return null;
  let result = text;
  for (const [start, end, put] of edits.sort(([a], [b]) => b - a)) {
    result = result.slice(0, start) + put + result.slice(end);
  }
  return result;
}

function editsOf(text: string, document: Document, newline: string): Edit[] | null {
  const root = document.contents as unknown;
  const pair = isMap(root) ? pairOf(root.items, 'plugins') : undefined;
  if (!pair) {
    const gap = text === '' || text.endsWith('\n') ? '' : newline;
    return [[text.length, text.length, `${gap}plugins:${newline}  enabled:${newline}    - ${PLUGIN}${newline}`]];
  }
  if (!isMap(pair.value) || pair.value.flow) return null;
  const { items } = pair.value;
  const removed = removal(text, pairOf(items, 'disabled'));
  const added = addition(text, pairOf(items, 'enabled'), items[0], newline);
  return removed && added && [...removed, ...added];
}

function removal(text: string, pair: Pair | undefined): Edit[] | null {
  if (!isSeq(pair?.value)) return [];
  const { items } = pair.value;
  const gone = items.filter(isThis);
  if (gone.length === 0) return [];
  const kept = items.filter((item) => !isThis(item));
  if (pair.value.flow) return flowRemoval(text, pair.value, kept as Node[]);
  const edits: Edit[] = gone.map((item) => [lineStart(text, startOf(item)), lineEnd(text, startOf(item)), '']);
  if (kept.length > 0) return edits;
  const colon = text.indexOf(':', endOf(pair.key));
  return [[colon + 1, colon + 1, ' []'], ...edits];
}

function flowRemoval(text: string, list: YAMLSeq, kept: Node[]): Edit[] {
  if (kept.length === 0) return [[startOf(list), endOf(list), '[]']];
  const first = list.items[0];
  const last = list.items.at(-1);
  const words = kept.map((item) => text.slice(startOf(item), endOf(item)));
  return [[startOf(first), endOf(last), words.join(', ')]];
}

function addition(text: string, pair: Pair | undefined, first: Pair | undefined, newline: string): Edit[] | null {
  if (!pair) {
    if (!first) return null;
    const at = lineStart(text, startOf(first.key));
    const indent = text.slice(at, startOf(first.key));
    const inner = ' '.repeat(Math.max(2, Math.min(indent.length, 8)));
    return [[at, at, `${indent}enabled:${newline}${indent}${inner}- ${PLUGIN}${newline}`]];
  }
  if (!isSeq(pair.value)) return null;
  const { value } = pair;
  if (value.items.some(isThis)) return [];
  const last = value.items.at(-1);
  if (value.flow) {
    const at = last === undefined ? startOf(value) + 1 : endOf(last);
    return [[at, at, last === undefined ? PLUGIN : `, ${PLUGIN}`]];
  }
  if (last === undefined) return null;
  const indent = /^[ ]*/.exec(text.slice(lineStart(text, startOf(last))))?.[0] ?? '';
  const at = isCollection(last) ? endOf(last) : lineEnd(text, endOf(last));
  const gap = text.slice(0, at).endsWith('\n') ? '' : newline;
  return [[at, at, `${gap}${indent}- ${PLUGIN}${newline}`]];
}

const pairOf = (items: Pair[], key: string): Pair | undefined =>
  items.find((pair) => isScalar(pair.key) && pair.key.value === key);

export const isThis = (item: unknown): boolean => isScalar(item) && item.value === PLUGIN;

const startOf = (node: unknown): number => (node as Node).range?.[0] ?? -1;
const endOf = (node: unknown): number => (node as Node).range?.[1] ?? -1;

const lineStart = (text: string, at: number): number => text.lastIndexOf('\n', at - 1) + 1;

/** After the line break of the line, or the end of the text. */
function lineEnd(text: string, at: number): number {
  const end = text.indexOf('\n', at);
  return end < 0 ? text.length : end + 1;
}
