import type * as library from 'yaml';

export type Mapping = Record<string, unknown>;

/** `problem` names the position and quotes nothing of the file (contract 07 §1.5). */
export type ParsedMapping = { ok: true; mapping: Mapping } | { ok: false; problem: string };

/** `problem` as for `ParsedMapping`. */
export type EditedText = { ok: true; text: string } | { ok: false; problem: string };

/** Sets the value at a path of keys, creating missing mappings; `undefined` removes the key. */
interface ValueChange {
  path: string[];
  value?: unknown;
}

/**
 * Adds a text to the list at a path of keys, or removes it from there. Adding creates missing mappings, and replaces a
 * value that is not a list.
 */
interface ItemChange {
  path: string[];
  item: string;
  isListed: boolean;
}

export type YamlChange = ValueChange | ItemChange;

/** YAML documents, within bounds. Never throws. */
export interface Yaml {
  parseMapping(text: string): ParsedMapping;
  /** Changes values in place; comments, key order and everything else stay. */
  edit(text: string, changes: YamlChange[]): EditedText;
}

/**
 * Reads texts within bounds. Like the other two functions here that take the library, it is passed to another thread as
 * text (`lib/host/node/yaml.ts`), so it must not refer to anything outside of itself.
 */
export function createYamlReader(yaml: typeof library) {
  /** Maximum characters of a text. */
  const MAX_TEXT = 1024 * 1024;
  const MAX_LEVELS = 100;
  /** Limited in total, since the library searches a list of all anchors for each alias. */
  const MAX_ALIASES = 100;
  /** Maximum values of a result, counting repetitions by aliases. */
  const MAX_VALUES = 50_000;

  const OPTIONS = {
    version: '1.1',
    // Explicit, so that a `%YAML 1.2` line does not turn `yes` into text.
    schema: 'yaml-1.1',
    merge: true,
    uniqueKeys: false,
    logLevel: 'error',
    // Dates stay text.
    customTags: (tags: library.Tags) =>
      tags.filter((tag) => typeof tag === 'string' || tag.tag !== 'tag:yaml.org,2002:timestamp' || !tag.default),
  } as const;

  /** A problem of the text, in a short phrase. */
  class Refusal extends Error {}

  const isMapping = (value: unknown): value is Mapping =>
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;

  /**
   * Tokens of a text. Composing recurses per level, and a stack overflow inside a regular expression ends the whole
   * process (seen with Node 20 and 50,000 levels).
   */
  function* tokens(text: string, lines: library.LineCounter): Generator<library.CST.Token> {
    const parser = new yaml.Parser(lines.addNewLine);
    let aliases = 0;
    let previous = '';
    // When fed with lexemes, the parser announces every line but the first.
    lines.addNewLine(0);
    for (const lexeme of new yaml.Lexer().lex(text)) {
      // A scalar, whose text may also begin with `*`, is announced by a separate lexeme.
      if (lexeme.startsWith('*') && previous !== yaml.CST.SCALAR) aliases++;
      previous = lexeme;
      yield* parser.next(lexeme);
      if (parser.stack.length > MAX_LEVELS || aliases > MAX_ALIASES) {
        throw new Refusal('not valid YAML (too many aliases or levels)');
      }
    }
    yield* parser.end();
  }

  /** Counts the values of a result. */
  function check(value: unknown): void {
    const open = new Set<unknown>();
    let count = 0;
    const visit = (each: unknown): void => {
      if (++count > MAX_VALUES) throw new Refusal(`too large (over ${MAX_VALUES} values)`);
      if (typeof each !== 'object' || each === null || ArrayBuffer.isView(each)) return;
      if (open.has(each)) throw new Refusal('not valid YAML (an anchor contains itself)');
      open.add(each);
      if (each instanceof Map) for (const pair of each) pair.forEach(visit);
      else if (Array.isArray(each) || each instanceof Set) each.forEach(visit);
      else for (const key of Object.keys(each)) visit((each as Mapping)[key]);
      open.delete(each);
    };
    visit(value);
  }

  /** The document of a text, and its value. @throws Refusal. */
  function read(text: string): { document: library.Document | undefined; mapping: Mapping } {
    if (text.length > MAX_TEXT) throw new Refusal(`too large (over ${MAX_TEXT} characters)`);
    const lines = new yaml.LineCounter();
    const [document, second] = new yaml.Composer(OPTIONS).compose(tokens(text, lines), true, text.length);
    const fault = document?.errors[0] ?? document?.warnings.find((warning) => warning.code === 'TAG_RESOLVE_FAILED');
    if (fault) {
      const { line, col } = lines.linePos(fault.pos[0]);
      throw new Refusal(`not valid YAML (line ${line}, column ${col})`);
    }
    if (second) throw new Refusal('not valid YAML (more than one document)');
    const mapping: unknown = document?.toJS({ maxAliasCount: MAX_ALIASES }) ?? {};
    if (!isMapping(mapping)) throw new Refusal('not a YAML mapping');
    check(mapping);
    return { document: document as library.Document | undefined, mapping };
  }

  function attempt<T>(work: () => T): T | { ok: false; problem: string } {
    try {
      return work();
    } catch (error) {
      const problem = error instanceof Refusal ? error.message : 'not valid YAML (too many aliases or levels)';
      return { ok: false, problem };
    }
  }

  return { OPTIONS, attempt, isMapping, read };
}

type Reader = ReturnType<typeof createYamlReader>;

/** Finds the places where a text has to change, so that every other line stays the same. */
export function createYamlSplicer(yaml: typeof library, { OPTIONS }: Reader) {
  /** Formatting of a text, as far as the library has options for it. */
  const styleOf = (text: string) => ({
    lineWidth: 0,
    indent: /^( +)[^\s#-]/m.exec(text)?.[1]?.length ?? 2,
    indentSeq: !/^( *)[^\s#-].*:[ \t]*\r?\n\1- /m.test(text),
    flowCollectionPadding: !/[[{]\S/.test(text),
  });

  const startOffset = (node: unknown): number => (node as library.Node | null)?.range?.[0] ?? -1;
  const endOf = (node: unknown): number => (node as library.Node | null)?.range?.[1] ?? -1;

  /** Position after the line break; a block scalar ends at its own end. */
  function lineEnd(text: string, at: number): number {
    const end = text[at - 1] === '\n' ? at - 1 : text.indexOf('\n', at);
    return end < 0 ? text.length : end + 1;
  }

  /** A scalar on one line, in the quotes of the scalar that it replaces. */
  function scalarText(value: unknown, former?: library.Scalar): string {
    if (typeof value !== 'string') return String(value);
    if (former?.type === 'QUOTE_SINGLE' && !/[\n\r]/.test(value)) return `'${value.replaceAll("'", "''")}'`;
    const plain = new yaml.Document(value, OPTIONS).toString({ lineWidth: 0 }).trimEnd();
    return former?.type === 'QUOTE_DOUBLE' || /[\n,[\]{}]/.test(plain) ? JSON.stringify(value) : plain;
  }

  const isScalarValue = (value: unknown): boolean => value === null || typeof value !== 'object';

  /** A scalar, or a list of scalars on one line. */
  function valueText(value: unknown, former?: library.Scalar): string {
    if (!Array.isArray(value)) return scalarText(value, former);
    return `[${value.map((item) => (typeof item === 'string' ? JSON.stringify(item) : scalarText(item))).join(', ')}]`;
  }

  /** The part of a text to replace. */
  type Splice = { start: number; end: number; by: string };

  /**
   * The changes of a text that set a scalar or a list of scalars, change a list by an item, or remove a key; null for
   * an unsupported layout.
   */
  function splicesOf(text: string, document: library.Document | undefined, change: YamlChange): Splice[] | null {
    const { path } = change;
    const item = 'item' in change ? change.item : undefined;
    const isListed = 'item' in change && change.isListed;
    const value = 'item' in change ? (isListed ? [item] : undefined) : change.value;
    const newline = text.includes('\r\n') ? '\r\n' : '\n';
    const step = ' '.repeat(styleOf(text).indent);
    const lines = (indent: string, [key = '', ...rest]: string[]): string => {
      if (rest.length > 0) return `${indent}${scalarText(key)}:${newline}${lines(indent + step, rest)}`;
      const block = isListed ? `${newline}${indent}${step}- ${scalarText(item)}` : ` ${valueText(value)}`;
      return `${indent}${scalarText(key)}:${block}${newline}`;
    };
    const insert = (at: number, by: string): Splice[] => {
      const gap = at === 0 || text[at - 1] === '\n' ? '' : newline;
      return [{ start: at, end: at, by: gap + by }];
    };
    const lineStart = (at: number): number => text.lastIndexOf('\n', at - 1) + 1;
    const indentAt = (at: number): string | null => {
      const before = text.slice(lineStart(at), at).replace(/^\ufeff/, '');
      return /^ *$/.test(before) ? before : null;
    };

    /** The first key of an empty text. */
    function begun(): Splice[] {
      if (value === undefined) return [];
      return insert(text.length, (text.trim() === '' || isListed ? '' : newline) + lines('', path));
    }

    /**
     * Adds a key that a mapping does not have yet: below its last line, or at the end of the file; a list
     * (`isListed`) above its first line.
     */
    function added(map: library.YAMLMap, missing: string[], depth: number): Splice[] | null {
      let last: unknown = map;
      while (yaml.isCollection(last) && !last.flow && last.items.length > 0) {
        const item: unknown = last.items.at(-1);
        last = yaml.isPair(item) ? (item.value ?? item.key) : item;
      }
      if (map.flow) {
        const final = map.items.at(-1);
        const at = final ? endOf(final.value ?? final.key) : startOffset(map) + 1;
        const pair = missing.reduceRight((inner, key, index) => {
          const isLast = index === missing.length - 1;
          return `${scalarText(key)}: ${isLast ? inner : `{${inner}}`}`;
        }, valueText(value));
        return [{ start: at, end: at, by: final ? `, ${pair}` : pair }];
      }
      const first = startOffset(map.items[0]?.key);
      const indent = indentAt(first);
      if (indent === null) return null;
      const below = isListed ? first - indent.length : lineEnd(text, endOf(last));
      return insert(depth === 0 ? text.length : below, lines(indent, missing));
    }

    function replaced(pair: library.Pair, rest: string[]): Splice[] | null {
      const { key, value: node } = pair;
      const isBlank = node === null || (yaml.isScalar(node) && startOffset(node) === endOf(node));
      if (rest.length > 0) {
        const indent = isBlank ? indentAt(startOffset(key)) : null;
        return indent === null ? null : insert(lineEnd(text, endOf(key)), lines(indent + step, rest));
      }
      if (isBlank) {
        const colon = text.indexOf(':', endOf(key)) + 1;
        return colon === 0 ? null : [{ start: colon, end: colon, by: ` ${valueText(value)}` }];
      }
      if (!yaml.isScalar(node) && !yaml.isAlias(node) && !(yaml.isCollection(node) && node.flow)) return null;
      const [start, end] = [startOffset(node), endOf(node)];
      const by = valueText(value, yaml.isScalar(node) ? node : undefined);
      return [{ start, end, by: text[end - 1] === '\n' ? by + newline : by }];
    }

    /**
     * Removes a key on its own lines, with everything below it. Keeps the last key of a mapping, which would be empty
     * without it.
     */
    function removed(map: library.YAMLMap, { key, value: node }: library.Pair): Splice[] | null {
      const indent = map.flow || map.items.length === 1 ? null : indentAt(startOffset(key));
      if (indent === null) return null;
      const isBlank = node === null || startOffset(node) === endOf(node);
      return [{ start: startOffset(key) - indent.length, end: lineEnd(text, endOf(isBlank ? key : node)), by: '' }];
    }

    /** A list with the item after its last one, or without it. */
    function relisted(key: unknown, list: library.YAMLSeq): Splice[] {
      const last = list.items.at(-1);
      if (isListed) {
        if (last === undefined)
          return [{ start: startOffset(list) + 1, end: startOffset(list) + 1, by: scalarText(item) }];
        if (list.flow) return [{ start: endOf(last), end: endOf(last), by: `, ${scalarText(item)}` }];
        const indent = /^ */.exec(text.slice(lineStart(startOffset(last))))?.[0] ?? '';
        const at = yaml.isCollection(last) ? endOf(last) : lineEnd(text, endOf(last));
        return insert(at, `${indent}- ${scalarText(item)}${newline}`);
      }
      const remaining = list.items.filter((each) => !isItem(each, item));
      if (list.flow) {
        if (remaining.length === 0) return [{ start: startOffset(list), end: endOf(list), by: '[]' }];
        const words = remaining.map((each) => text.slice(startOffset(each), endOf(each)));
        return [{ start: startOffset(list.items[0]), end: endOf(last), by: words.join(', ') }];
      }
      const gone = list.items.filter((each) => isItem(each, item));
      const cuts = gone.map(startOffset).map((at) => ({ start: lineStart(at), end: lineEnd(text, at), by: '' }));
      if (remaining.length > 0) return cuts;
      const colon = text.indexOf(':', endOf(key)) + 1;
      return [{ start: colon, end: colon, by: ' []' }, ...cuts];
    }

    if (![value].flat().every(isScalarValue)) return null;
    let node: unknown = document?.contents ?? null;
    if (node === null) return begun();
    for (const [depth, key] of path.entries()) {
      if (!yaml.isMap(node)) return null;
      const pairs: library.Pair[] = node.items.filter(({ key: name }) => yaml.isScalar(name) && name.value === key);
      const pair = pairs.at(-1);
      if (item !== undefined && pairs.length > 1) return null;
      const isLast = depth === path.length - 1;
      if (pair && isLast && item !== undefined) return yaml.isSeq(pair.value) ? relisted(pair.key, pair.value) : null;
      if (value === undefined && (!pair || isLast)) return pair ? removed(node, pair) : [];
      if (!pair) return added(node, path.slice(depth), depth);
      if (isLast || !yaml.isCollection(pair.value)) return replaced(pair, path.slice(depth + 1));
      node = pair.value;
    }
    return null;
  }

  const isItem = (node: unknown, item: unknown): boolean => yaml.isScalar(node) && node.value === item;

  return { isItem, splicesOf, styleOf };
}

/**
 * Parses and edits configuration files as the agent reads them: YAML 1.1 booleans, the last of equal keys wins, one
 * document, no custom tags, few aliases. An empty file is an empty mapping (contract 07 §1.2).
 *
 * A large text blocks its thread for a second or more, so the relay uses `host.yaml`, which runs it in another thread.
 */
export function createYaml(
  yaml: typeof library,
  reader = createYamlReader(yaml),
  splicer = createYamlSplicer(yaml, reader),
): Yaml {
  const { OPTIONS, attempt, isMapping, read } = reader;
  const { isItem, splicesOf, styleOf } = splicer;

  /** Changes only the lines concerned. Null for an unsupported layout. */
  function splice(text: string, changes: YamlChange[]): string | null {
    let edited = text;
    for (const each of changes) {
      const parts = splicesOf(edited, read(edited).document, each);
      if (parts === null) return null;
      for (const { start, end, by } of parts.toReversed()) edited = edited.slice(0, start) + by + edited.slice(end);
    }
    return edited;
  }

  /** Writes the whole text again: comments and order stay, but not all white space. */
  function rewrite(text: string, changes: YamlChange[]): string {
    const document = read(text).document ?? new yaml.Document({}, OPTIONS);
    if (!yaml.isMap(document.contents)) document.contents = new yaml.YAMLMap();
    for (const each of changes) write(document, each);
    const edited = document.toString(styleOf(text));
    return text.includes('\r\n') ? edited.replaceAll('\n', '\r\n') : edited;
  }

  function write(document: library.Document, change: YamlChange): void {
    const { path } = change;
    const list = 'item' in change && document.getIn(path, true);
    if ('item' in change && yaml.isSeq(list)) {
      if (change.isListed) list.add(document.createNode(change.item));
      else list.items = list.items.filter((each) => !isItem(each, change.item));
      return;
    }
    const value = 'item' in change ? [change.item] : change.value;
    if (value === undefined) {
      if (document.hasIn(path)) document.deleteIn(path);
      return;
    }
    for (let depth = 1; depth < path.length; depth++) {
      const above = path.slice(0, depth);
      const node = document.getIn(above, true);
      if (!yaml.isMap(node) && !yaml.isAlias(node)) document.setIn(above, new yaml.YAMLMap());
    }
    // A scalar replaces the value of the existing node, whose comment stays.
    const isScalar = typeof value !== 'object' || value === null;
    document.setIn(path, isScalar ? value : document.createNode(value));
  }

  /** The same change of a parsed value, to verify the edited text. */
  function changed(mapping: Mapping, change: YamlChange): Mapping {
    const [key = '', ...rest] = change.path;
    const member = Object.hasOwn(mapping, key) ? mapping[key] : undefined;
    const value = 'item' in change ? relisted(member, change) : change.value;
    const { [key]: _, ...others } = mapping;
    if (rest.length === 0) return value === undefined ? others : { ...mapping, [key]: value };
    if (!isMapping(member) && ('item' in change ? !change.isListed : value === undefined)) return mapping;
    return { ...mapping, [key]: changed(isMapping(member) ? member : {}, { ...change, path: rest }) };
  }

  function relisted(list: unknown, { item, isListed }: ItemChange): unknown {
    if (!Array.isArray(list)) return isListed ? [item] : list;
    if (!isListed) return list.filter((each) => each !== item);
    return list.includes(item) ? list : [...list, item];
  }

  /** True for equal values with keys in the same order, apart from keys that `former` does not have. */
  function isSame(a: unknown, b: unknown, former: unknown = b): boolean {
    if (!isMapping(a) || !isMapping(b)) {
      const [left, right] = [partsOf(a), partsOf(b)];
      if (left === null || right === null) return Object.is(a, b);
      return left.length === right.length && left.every((each, index) => isSame(each, right[index]));
    }
    const old = isMapping(former) ? former : b;
    const oldKeys = (mapping: Mapping) => Object.keys(mapping).filter((key) => Object.hasOwn(old, key));
    if (Object.keys(a).length !== Object.keys(b).length || !isSame(oldKeys(a), oldKeys(b))) return false;
    return Object.entries(a).every(
      ([key, each]) => Object.hasOwn(b, key) && isSame(each, b[key], Object.hasOwn(old, key) ? old[key] : undefined),
    );
  }

  /** Members of a list, a set, an ordered map or a binary value; null for any other value. */
  const partsOf = (value: unknown): unknown[] | null =>
    Array.isArray(value) || value instanceof Set || value instanceof Map || value instanceof Uint8Array
      ? [...value]
      : null;

  /** True if a key is in the text itself, and not only in a merged mapping. */
  function isWritten(document: library.Document | undefined, path: string[]): boolean {
    let node: unknown = document?.contents;
    for (const key of path) {
      const map = document && yaml.isAlias(node) ? node.resolve(document) : node;
      const pair = yaml.isMap(map) && map.items.findLast(({ key: name }) => yaml.isScalar(name) && name.value === key);
      if (!pair) return false;
      node = pair.value;
    }
    return true;
  }

  return {
    parseMapping: (text) => attempt(() => ({ ok: true, mapping: read(text).mapping })),

    edit(text, changes) {
      const before = attempt(() => ({ ok: true as const, ...read(text) }));
      if (!before.ok) return before;
      const { document, mapping } = before;
      let expected = mapping;
      const needed = changes.filter((each) => {
        const former = expected;
        expected = changed(former, each);
        if (!isSame(expected, former)) return true;
        // The key of a merged mapping may be set to its present value, after which it no longer follows that mapping.
        return !('item' in each) && each.value !== undefined && !isWritten(document, each.path);
      });
      for (const method of [splice, rewrite]) {
        try {
          const edited = method(text, needed);
          if (edited !== null && isSame(read(edited).mapping, expected, mapping)) return { ok: true, text: edited };
        } catch {
          // The edited text cannot be parsed, or the library cannot write a document that it can read.
        }
      }
      return { ok: false, problem: 'cannot be edited without changing something else' };
    },
  };
}

/** True if a parsed value is a mapping, rather than a list, a set or a scalar. */
export const isMapping = (value: unknown): value is Mapping =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
