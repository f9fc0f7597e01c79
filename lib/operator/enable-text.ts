import { type Document, isMap, isSeq, parseDocument, YAMLMap, YAMLSeq } from 'yaml';
import { isMapping, type Mapping, parseMapping } from '../kit/yaml.ts';
import { isThis, spliceEnabled } from './enable-splice.ts';
import { PLUGIN } from './enablement.ts';

export type EnabledText =
  | { ok: true; text: string }
  /** `problem` says where, never what: no content of the file is in it. */
  | { ok: false; problem: string };

/**
 * A configuration in which `plugins.enabled` holds this plugin and `plugins.disabled` does not; the same text when it
 * is so already. Comments, key order and everything else stay. Nodes that are missing or no list are made (contract 07
 * §5.5). What cannot be changed alone (a list shared by an anchor) is a problem, not an edit.
 */
export function enableInText(text: string): EnabledText {
  const before = parseMapping(text);
  if (!before.ok) return before;
  if (isEnabled(before.mapping)) return { ok: true, text };
  const read = () =>
    parseDocument(text, { version: '1.1', schema: 'yaml-1.1', merge: true, uniqueKeys: false, logLevel: 'error' });
  for (const write of [spliceEnabled, rewritten]) {
    const edited = attempt(() => write(text, read()));
    const after = edited === null ? null : parseMapping(edited);
    if (edited !== null && after?.ok && isEnabled(after.mapping) && sameElsewhere(before.mapping, after.mapping)) {
      return { ok: true, text: edited };
    }
  }
  return { ok: false, problem: 'cannot be edited without changing something else' };
}

/** A document may be such that the library can read it and not write it. */
function attempt(write: () => string | null): string | null {
  try {
    return write();
  } catch {
    return null;
  }
}

/** The whole text written anew: comments and order stay, white space may not. */
function rewritten(text: string, document: Document): string {
  edit(document);
  const edited = document.toString(styleOf(text));
  return text.includes('\r\n') ? edited.replaceAll('\n', '\r\n') : edited;
}

/** How the file is written, as far as the writer of it can be told. */
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

/** Whether two configurations say the same, but for this plugin's own place in the lists. */
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
