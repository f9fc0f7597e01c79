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
      try {
        const document = before.document ?? new yaml.Document({}, OPTIONS);
        if (!yaml.isMap(document.contents)) document.contents = new yaml.YAMLMap();
        for (const each of changes) write(document, each);
        const edited = document.toString(styleOf(text));
        const after = read(edited).mapping;
        const expected = changes.reduce(change, before.mapping);
        if (JSON.stringify(after) === JSON.stringify(expected)) {
          return { ok: true, text: text.includes('\r\n') ? edited.replaceAll('\n', '\r\n') : edited };
        }
      } catch {
        // The library cannot write every document that it can read.
      }
      return { ok: false, problem: 'cannot be edited without changing something else' };
    },
  };
}

/** Whether a parsed value is a mapping, rather than a list, a set or a scalar. */
export const isMapping = (value: unknown): value is Mapping =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
