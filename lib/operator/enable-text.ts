import * as library from 'yaml';
import {
  type Document,
  isCollection,
  isMap,
  isScalar,
  isSeq,
  type Node,
  type Pair,
  parseDocument,
  YAMLMap,
  YAMLSeq,
} from 'yaml';
import { createYaml, isMapping, type Mapping } from '../kit/yaml.ts';
import { PLUGIN } from './enablement.ts';

export type EnabledText =
  | { ok: true; text: string }
  /** `problem` names the position and quotes nothing of the file. */
  | { ok: false; problem: string };

/**
 * Adds this plugin to `plugins.enabled` and removes it from `plugins.disabled`; an enabled one leaves the text as it is.
 * Comments, key order and everything else stay. Missing and non-list nodes are created (contract 07 §5.5). A list that
 * cannot be changed alone, such as one shared by an anchor, is a problem and not edited.
 */
export function enableInText(text: string): EnabledText {
  const { parseMapping } = createYaml(library);
  const before = parseMapping(text);
  if (!before.ok) return before;
  if (isEnabled(before.mapping)) return { ok: true, text };
  const read = () =>
    parseDocument(text, { version: '1.1', schema: 'yaml-1.1', merge: true, uniqueKeys: false, logLevel: 'error' });
  for (const write of [splice, rewrite]) {
    const edited = attempt(() => write(text, read()));
    const after = edited === null ? null : parseMapping(edited);
    if (edited !== null && after?.ok && isEnabled(after.mapping) && sameElsewhere(before.mapping, after.mapping)) {
      return { ok: true, text: edited };
    }
  }
  return { ok: false, problem: 'cannot be edited without changing something else' };
}

/** The library cannot write every document that it can read. */
function attempt(write: () => string | null): string | null {
  try {
    return write();
  } catch {
    return null;
  }
}

/** Rewrites the whole text: keeps comments and order, but not all white space. */
function rewrite(text: string, document: Document): string {
  edit(document);
  const edited = document.toString(styleOf(text));
  return text.includes('\r\n') ? edited.replaceAll('\n', '\r\n') : edited;
}

/** Formatting of a file, as far as the library has options for it. */
const styleOf = (text: string) => ({
  lineWidth: 0,
  indent: /^( +)[^\s#-]/m.exec(text)?.[1]?.length ?? 2,
  indentSeq: !/^( *)[^\s#-].*:[ \t]*\r?\n\1- /m.test(text),
  flowCollectionPadding: !/[[{]\S/.test(text),
});

const isEnabled = ({ plugins }: Mapping): boolean =>
  isMapping(plugins) && listed(plugins.enabled) && !listed(plugins.disabled);

const listed = (list: unknown): boolean => Array.isArray(list) && list.includes(PLUGIN);

function edit(document: Document): void {
  if (!isMap(document.contents)) document.contents = new YAMLMap() as never;
  let plugins = document.get('plugins', true) as unknown;
  if (!isMap(plugins)) {
    plugins = new YAMLMap();
    document.set('plugins', plugins);
  }
  const lists = plugins as YAMLMap;
  const disabled = lists.get('disabled', true) as unknown;
  if (isSeq(disabled)) disabled.items = disabled.items.filter((item) => !isThis(item));
  const enabled = lists.get('enabled', true) as unknown;
  if (isSeq(enabled)) {
    if (!enabled.items.some(isThis)) enabled.add(document.createNode(PLUGIN));
    return;
  }
  const list = new YAMLSeq();
  list.add(document.createNode(PLUGIN));
  lists.set('enabled', list);
}

/** True if two configurations are equal except for this plugin's entries in the lists. */
function sameElsewhere(before: Mapping, after: Mapping): boolean {
  return JSON.stringify(withoutThis(before)) === JSON.stringify(withoutThis(after));
}

function withoutThis(config: Mapping): unknown {
  const { plugins, ...rest } = config;
  const own = isMapping(plugins) ? plugins : {};
  const { enabled, disabled, ...others } = own;
  const list = (value: unknown) => (Array.isArray(value) ? value.filter((item) => item !== PLUGIN) : []);
  return [rest, others, list(enabled), Array.isArray(disabled) ? list(disabled) : disabled];
}

/** Replaces the text from `start` to `end`. */
type Edit = [start: number, end: number, text: string];

/**
 * Enables this plugin by editing only the lines concerned; null for a layout that this does not know. The result is a
 * proposal: the caller parses it and compares.
 */
function splice(text: string, document: Document): string | null {
  const newline = text.includes('\r\n') ? '\r\n' : '\n';
  const edits = editsOf(text, document, newline);
  if (!edits) return null;
  let result = text;
  for (const [start, end, replacement] of edits.sort(([a], [b]) => b - a)) {
    result = result.slice(0, start) + replacement + result.slice(end);
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

const isThis = (item: unknown): boolean => isScalar(item) && item.value === PLUGIN;

const startOf = (node: unknown): number => (node as Node).range?.[0] ?? -1;
const endOf = (node: unknown): number => (node as Node).range?.[1] ?? -1;

const lineStart = (text: string, at: number): number => text.lastIndexOf('\n', at - 1) + 1;

/** Position after the line break, or the end of the text. */
function lineEnd(text: string, at: number): number {
  const end = text.indexOf('\n', at);
  return end < 0 ? text.length : end + 1;
}
