import type * as library from 'yaml';

export type Mapping = Record<string, unknown>;

/** `problem` names the position and quotes nothing of the file (contract 07 §1.5). */
export type ParsedMapping = { ok: true; mapping: Mapping } | { ok: false; problem: string };

/** `problem` as for `ParsedMapping`. */
export type EditedText = { ok: true; text: string } | { ok: false; problem: string };

/** Sets the value at a path of keys, creating the mappings above it; `undefined` removes the key. */
export interface YamlChange {
  path: string[];
  value?: unknown;
}

/** YAML documents, within bounds. Never throws. */
export interface Yaml {
  parseMapping(text: string): ParsedMapping;
  /** Changes values in place: comments, key order and everything else stay. */
  edit(text: string, changes: YamlChange[]): EditedText;
}

/**
 * Parses and edits configuration files as the agent reads them: YAML 1.1 booleans, the last of equal keys wins, one
 * document, no custom tags, few aliases. An empty file is an empty mapping (contract 07 §1.2).
 *
 * It stops its thread for a second or more when a text is large, so the relay uses `host.yaml`, which runs it in another
 * one. It is passed there as text, and must not refer to anything outside of itself.
 */
export function createYaml(yaml: typeof library): Yaml {
  /** Characters of a text. */
  const MAX_TEXT = 1024 * 1024;
  const MAX_LEVELS = 100;
  /** In all: the library searches a list of every anchor for each alias. */
  const MAX_ALIASES = 100;
  /** Values of a result, each counted wherever an alias repeats it. */
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

  /** A problem of the text, in one phrase. */
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
    // Fed with lexemes, the parser announces every line but the first.
    lines.addNewLine(0);
    for (const lexeme of new yaml.Lexer().lex(text)) {
      // A scalar, whose text may begin with `*` too, is announced by a lexeme of its own.
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

  /** The document of a text and its value. @throws Refusal. */
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

  /** Formatting of a text, as far as the library has options for it. */
  const styleOf = (text: string) => ({
    lineWidth: 0,
    indent: /^( +)[^\s#-]/m.exec(text)?.[1]?.length ?? 2,
    indentSeq: !/^( *)[^\s#-].*:[ \t]*\r?\n\1- /m.test(text),
    flowCollectionPadding: !/[[{]\S/.test(text),
  });

  const startOf = (node: unknown): number => (node as library.Node | null)?.range?.[0] ?? -1;
  const endOf = (node: unknown): number => (node as library.Node | null)?.range?.[1] ?? -1;

  /** Position after the line break; that of a block scalar is its own end. */
  function lineEnd(text: string, at: number): number {
    const end = text[at - 1] === '\n' ? at - 1 : text.indexOf('\n', at);
    return end < 0 ? text.length : end + 1;
  }

  /** A scalar in one line, in the quotes of the one that it replaces. */
  function scalarText(value: unknown, former?: library.Scalar): string {
    if (typeof value !== 'string') return String(value);
    if (former?.type === 'QUOTE_SINGLE' && !/[\n\r]/.test(value)) return `'${value.replaceAll("'", "''")}'`;
    const plain = new yaml.Document(value, OPTIONS).toString({ lineWidth: 0 }).trimEnd();
    return former?.type === 'QUOTE_DOUBLE' || /[\n,[\]{}]/.test(plain) ? JSON.stringify(value) : plain;
  }

  const isScalarValue = (value: unknown): boolean => value === null || typeof value !== 'object';

  /** A scalar, or a list of them in one line. */
  function valueText(value: unknown, former?: library.Scalar): string {
    if (!Array.isArray(value)) return scalarText(value, former);
    return `[${value.map((item) => (typeof item === 'string' ? JSON.stringify(item) : scalarText(item))).join(', ')}]`;
  }

  /** The part of a text to replace. */
  type Splice = { start: number; end: number; by: string };

  /**
   * Where a text has to change to set a scalar or a list of them, or to remove a key, so that every other line stays as it
   * is; null for an unknown layout.
   */
  function spliceOf(text: string, document: library.Document | undefined, { path, value }: YamlChange): Splice | null {
    const newline = text.includes('\r\n') ? '\r\n' : '\n';
    const step = ' '.repeat(styleOf(text).indent);
    const lines = (indent: string, [key = '', ...rest]: string[]): string =>
      `${indent}${scalarText(key)}:${rest.length > 0 ? newline + lines(indent + step, rest) : ` ${valueText(value)}${newline}`}`;
    const insert = (at: number, by: string): Splice => {
      const gap = at === 0 || text[at - 1] === '\n' ? '' : newline;
      return { start: at, end: at, by: gap + by };
    };
    const indentAt = (at: number): string | null => {
      const before = text.slice(text.lastIndexOf('\n', at - 1) + 1, at).replace(/^\ufeff/, '');
      return /^ *$/.test(before) ? before : null;
    };

    /** A key that a mapping does not have yet: below its last line, or at the end of the file. */
    function added(map: library.YAMLMap, missing: string[], depth: number): Splice | null {
      let last: unknown = map;
      while (yaml.isCollection(last) && !last.flow && last.items.length > 0) {
        const item: unknown = last.items.at(-1);
        last = yaml.isPair(item) ? (item.value ?? item.key) : item;
      }
      if (map.flow) {
        const item = map.items.at(-1);
        const at = item ? endOf(item.value ?? item.key) : startOf(map) + 1;
        const pair = missing.reduceRight((inner, key, index) => {
          const isLast = index === missing.length - 1;
          return `${scalarText(key)}: ${isLast ? inner : `{${inner}}`}`;
        }, valueText(value));
        return { start: at, end: at, by: item ? `, ${pair}` : pair };
      }
      const indent = indentAt(startOf(map.items[0]?.key));
      return indent === null
        ? null
        : insert(depth === 0 ? text.length : lineEnd(text, endOf(last)), lines(indent, missing));
    }

    function replaced(pair: library.Pair, rest: string[]): Splice | null {
      const { key, value: node } = pair;
      const isBlank = node === null || (yaml.isScalar(node) && startOf(node) === endOf(node));
      if (rest.length > 0) {
        const indent = isBlank ? indentAt(startOf(key)) : null;
        return indent === null ? null : insert(lineEnd(text, endOf(key)), lines(indent + step, rest));
      }
      if (isBlank) {
        const colon = text.indexOf(':', endOf(key)) + 1;
        return colon === 0 ? null : { start: colon, end: colon, by: ` ${valueText(value)}` };
      }
      if (!yaml.isScalar(node) && !yaml.isAlias(node) && !(yaml.isCollection(node) && node.flow)) return null;
      const [start, end] = [startOf(node), endOf(node)];
      const by = valueText(value, yaml.isScalar(node) ? node : undefined);
      return { start, end, by: text[end - 1] === '\n' ? by + newline : by };
    }

    /** A key on lines of its own, with what is below it. The last one of a mapping stays: nothing would be left of it. */
    function removed(map: library.YAMLMap, { key, value: node }: library.Pair): Splice | null {
      const indent = map.flow || map.items.length === 1 ? null : indentAt(startOf(key));
      if (indent === null) return null;
      const isBlank = node === null || startOf(node) === endOf(node);
      return { start: startOf(key) - indent.length, end: lineEnd(text, endOf(isBlank ? key : node)), by: '' };
    }

    if (!isScalarValue(value) && !(Array.isArray(value) && value.every(isScalarValue))) return null;
    let node: unknown = document?.contents ?? null;
    if (node === null && value === undefined) return { start: 0, end: 0, by: '' };
    if (node === null) return insert(text.length, (text.trim() === '' ? '' : newline) + lines('', path));
    for (const [depth, key] of path.entries()) {
      if (!yaml.isMap(node)) return null;
      const pair: library.Pair | undefined = node.items.findLast(
        ({ key: name }) => yaml.isScalar(name) && name.value === key,
      );
      if (value === undefined && (!pair || depth === path.length - 1)) {
        return pair ? removed(node, pair) : { start: 0, end: 0, by: '' };
      }
      if (!pair) return added(node, path.slice(depth), depth);
      if (depth === path.length - 1 || !yaml.isCollection(pair.value)) return replaced(pair, path.slice(depth + 1));
      node = pair.value;
    }
    return null;
  }

  /** Changes only the lines concerned. Null for a layout that this does not know. */
  function splice(text: string, changes: YamlChange[]): string | null {
    let edited = text;
    for (const each of changes) {
      const part = spliceOf(edited, read(edited).document, each);
      if (part === null) return null;
      edited = edited.slice(0, part.start) + part.by + edited.slice(part.end);
    }
    return edited;
  }

  /** Writes the whole text anew: comments and order stay, but not all white space. */
  function rewrite(text: string, changes: YamlChange[]): string {
    const document = read(text).document ?? new yaml.Document({}, OPTIONS);
    if (!yaml.isMap(document.contents)) document.contents = new yaml.YAMLMap();
    for (const each of changes) write(document, each);
    const edited = document.toString(styleOf(text));
    return text.includes('\r\n') ? edited.replaceAll('\n', '\r\n') : edited;
  }

  function write(document: library.Document, { path, value }: YamlChange): void {
    if (value === undefined) {
      if (document.hasIn(path)) document.deleteIn(path);
      return;
    }
    for (let depth = 1; depth < path.length; depth++) {
      const above = path.slice(0, depth);
      const node = document.getIn(above, true);
      if (!yaml.isMap(node) && !yaml.isAlias(node)) document.setIn(above, new yaml.YAMLMap());
    }
    // A scalar replaces the value of the node that is there, whose comment stays.
    const isScalar = typeof value !== 'object' || value === null;
    document.setIn(path, isScalar ? value : document.createNode(value));
  }

  /** The same change of a parsed value, with which an edited text must agree. */
  function change(mapping: Mapping, { path: [key = '', ...rest], value }: YamlChange): Mapping {
    const member = Object.hasOwn(mapping, key) ? mapping[key] : undefined;
    const { [key]: _, ...others } = mapping;
    if (rest.length === 0) return value === undefined ? others : { ...mapping, [key]: value };
    if (value === undefined && !isMapping(member)) return mapping;
    return { ...mapping, [key]: change(isMapping(member) ? member : {}, { path: rest, value }) };
  }

  return {
    parseMapping: (text) => attempt(() => ({ ok: true, mapping: read(text).mapping })),

    edit(text, changes) {
      const before = attempt(() => ({ ok: true as const, ...read(text) }));
      if (!before.ok) return before;
      const expected = JSON.stringify(changes.reduce(change, before.mapping));
      for (const method of [splice, rewrite]) {
        try {
          const edited = method(text, changes);
          if (edited !== null && JSON.stringify(read(edited).mapping) === expected) return { ok: true, text: edited };
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
