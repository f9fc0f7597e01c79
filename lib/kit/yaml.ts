import { Composer, type CST, Lexer, LineCounter, Parser } from 'yaml';

export type Mapping = Record<string, unknown>;

/** `problem` names the position and quotes nothing of the file (contract 07 §1.5). */
export type ParsedMapping = { ok: true; mapping: Mapping } | { ok: false; problem: string };

const MAX_LEVELS = 100;
const MAX_ALIASES = 100;

/**
 * Parses a configuration file as the agent does: YAML 1.1 booleans, the last of equal keys wins, one document, no custom
 * tags, few aliases. An empty file is an empty mapping (contract 07 §1.2). Never throws.
 */
export function parseMapping(text: string): ParsedMapping {
  const lines = new LineCounter();
  const composer = new Composer({
    version: '1.1',
    // Explicit, so that a `%YAML 1.2` line does not turn `yes` into text.
    schema: 'yaml-1.1',
    merge: true,
    uniqueKeys: false,
    logLevel: 'error',
    // Dates stay text.
    customTags: (tags) =>
      tags.filter((tag) => typeof tag === 'string' || tag.tag !== 'tag:yaml.org,2002:timestamp' || !tag.default),
  });
  try {
    const [document, second] = composer.compose(tokens(text, lines), true, text.length);
    const fault = document?.errors[0] ?? document?.warnings.find((warning) => warning.code === 'TAG_RESOLVE_FAILED');
    if (fault) {
      const { line, col } = lines.linePos(fault.pos[0]);
      return { ok: false, problem: `not valid YAML (line ${line}, column ${col})` };
    }
    if (second) return { ok: false, problem: 'not valid YAML (more than one document)' };
    const value: unknown = document?.toJS({ maxAliasCount: MAX_ALIASES }) ?? {};
    return isMapping(value) ? { ok: true, mapping: value } : { ok: false, problem: 'not a YAML mapping' };
  } catch {
    return { ok: false, problem: 'not valid YAML (too many aliases or levels)' };
  }
}

/**
 * Tokens of a text; throws when it nests too deep. Composing recurses per level, and a stack overflow inside a regular
 * expression ends the whole process (seen with Node 20 and 50,000 levels).
 */
function* tokens(text: string, lines: LineCounter): Generator<CST.Token> {
  const parser = new Parser(lines.addNewLine);
  // Fed with lexemes, the parser announces every line but the first.
  lines.addNewLine(0);
  for (const lexeme of new Lexer().lex(text)) {
    yield* parser.next(lexeme);
    if (parser.stack.length > MAX_LEVELS) throw new Error('too many levels');
  }
  yield* parser.end();
}

/** Whether a parsed value is a mapping, rather than a list, a set or a scalar. */
export const isMapping = (value: unknown): value is Mapping =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
