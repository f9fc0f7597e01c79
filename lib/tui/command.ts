import type { Command, Host } from '../host/index.ts';
import { parseJson } from '../kit/json.ts';
import { SECRET_VARIABLES } from '../kit/secret-names.ts';

/** Payload of `tui.attach`, unchecked (contract 02 §4.1). */
export type AttachPayload = Readonly<Record<string, unknown>>;

/** The gateway to start, or why there is none. */
export type Plan =
  | { kind: 'command'; command: Command }
  /** This host has no gateway. */
  | { kind: 'not-installed' }
  /** The payload is invalid. */
  | { kind: 'invalid'; message: string }
  /** The program cannot be started. */
  | { kind: 'failed'; reason: string };

export interface PlanDeps {
  host: Host;
  config: { tuiCommand?: string; home: string };
}

/** Columns or lines of the largest window. */
const MAX_CELLS = 1000;
const MODULE = 'tui_gateway.entry';
const INTERPRETERS = ['.venv/bin/python', '.venv/bin/python3', 'venv/bin/python', 'venv/bin/python3'];

// biome-ignore lint/suspicious/noControlCharactersInRegex: names must not contain control characters
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

/** Resolves program, working directory and environment of a gateway (contract 02 §4.2). Starts nothing. */
export async function planCommand({ host, config }: PlanDeps, payload: AttachPayload): Promise<Plan> {
  const profile = readName(payload.profile, 128, /\//);
  if (profile === null) {
    return { kind: 'invalid', message: 'profile must be 1 to 128 characters without "/" and control characters' };
  }
  const resume = readName(payload.resume_session_id, 256);
  if (resume === null) {
    return { kind: 'invalid', message: 'resume_session_id must be 1 to 256 characters without control characters' };
  }

  const { env } = host;
  const root = env.SVC_PYTHON_SRC_ROOT || `${host.agentHome}/svc-agent`;
  const hasRoot = await isDirectory(host, root);
  const interpreter = await findInterpreter(host, root);

  let words: string[] | null;
  if (config.tuiCommand) {
    words = parseCommand(config.tuiCommand);
    if (!words) return { kind: 'failed', reason: 'RELAY_TUI_COMMAND is malformed' };
  } else if (hasRoot) words = [interpreter, '-m', MODULE];
  else return { kind: 'not-installed' };

  const [program = '', ...args] = words;
  const file = await host.children.find(program);
  if (file === null) return { kind: 'failed', reason: 'the program was not found or is not executable' };

  const home = env.HOME || config.home;
  const cwd = env.SVC_CWD && (await isDirectory(host, env.SVC_CWD)) ? env.SVC_CWD : hasRoot ? root : home;
  const variables: Record<string, string | undefined> = {
    ...env,
    SVC_PYTHON_SRC_ROOT: root,
    SVC_PYTHON: interpreter,
    SVC_CWD: env.SVC_CWD || cwd,
    PYTHONPATH: config.tuiCommand ? env.PYTHONPATH : [root, env.PYTHONPATH].filter(Boolean).join(':'),
    SVC_PROFILE: profile ?? env.SVC_PROFILE,
    SVC_TUI_RESUME: resume ?? env.SVC_TUI_RESUME,
    COLUMNS: clampEdge(payload.cols)?.toString() ?? env.COLUMNS,
    LINES: clampEdge(payload.rows)?.toString() ?? env.LINES,
  };
  for (const name of SECRET_VARIABLES) delete variables[name];
  return { kind: 'command', command: { file, args, cwd, env: defined(variables) } };
}

/** Undefined if absent, null if invalid. */
function readName(value: unknown, maxLength: number, forbidden?: RegExp): string | undefined | null {
  if (value === undefined || value === null || value === '') return undefined;
  if (typeof value !== 'string' || value.length > maxLength || CONTROL.test(value) || forbidden?.test(value))
    return null;
  return value;
}

async function findInterpreter({ env, files }: Host, root: string): Promise<string> {
  const named = env.SVC_PYTHON || env.PYTHON;
  if (named) return named;
  for (const name of INTERPRETERS) if (await files.stat(`${root}/${name}`).catch(() => null)) return `${root}/${name}`;
  return 'python3';
}

/** False for an unreadable path. */
const isDirectory = async ({ files }: Host, path: string): Promise<boolean> =>
  (await files.stat(path).catch(() => null))?.kind === 'directory';

const defined = (variables: Record<string, string | undefined>): Record<string, string> =>
  Object.fromEntries(Object.entries(variables).filter((entry): entry is [string, string] => entry[1] !== undefined));

/** Columns or lines of a window, truncated and clamped to 1..1000; undefined when missing, 0 or not a number. */
export const clampEdge = (value: unknown): number | undefined =>
  typeof value === 'number' && value !== 0 ? Math.min(Math.max(Math.trunc(value), 1), MAX_CELLS) : undefined;

const WORD = /^(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+/s;
const PIECE = /\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)"/gs;

/**
 * Parses `RELAY_TUI_COMMAND` into program and arguments: a JSON array of strings when it starts with `[`, otherwise words
 * with single quotes, double quotes (in which a backslash escapes `"` and `\`) and backslashes. Expands nothing. Null
 * when malformed (contract 02 §4.2.1).
 */
export function parseCommand(text: string): string[] | null {
  const words = text.trimStart().startsWith('[') ? parseArray(text) : parseWords(text);
  const [program] = words ?? [];
  return program && !words?.some((word) => word.includes('\0')) ? words : null;
}

function parseArray(text: string): string[] | null {
  const value = parseJson(text);
  return Array.isArray(value) && value.every((word) => typeof word === 'string') ? value : null;
}

function parseWords(text: string): string[] | null {
  const words: string[] = [];
  for (let rest = text.trimStart(); rest !== ''; ) {
    const [word] = WORD.exec(rest) ?? [];
    if (word === undefined) return null;
    rest = rest.slice(word.length);
    // An unclosed quote or a lone backslash ends the match inside a word.
    if (rest !== '' && !/^\s/.test(rest)) return null;
    rest = rest.trimStart();
    words.push(unquote(word));
  }
  return words;
}

const unquote = (word: string): string =>
  word.replace(
    PIECE,
    (_piece, escaped?: string, single?: string, double?: string) =>
      escaped ?? single ?? (double as string).replace(/\\(["\\])/g, '$1'),
  );
