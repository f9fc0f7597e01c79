import type { Command, Host } from '../host/index.ts';
import { clampEdge } from './size.ts';
import { parseCommand } from './words.ts';

/** What a client may ask of a gateway (contract 02 §4.1): the payload of `tui.attach`, as it came. */
export type Wish = Readonly<Record<string, unknown>>;

/** Which gateway is to be started, or why none is. */
export type Plan =
  | { kind: 'command'; command: Command }
  /** This host has no gateway. */
  | { kind: 'not-installed' }
  /** The wish is not allowed. */
  | { kind: 'invalid'; message: string }
  /** The program that should be started cannot be. */
  | { kind: 'failed'; reason: string };

export interface PlanParts {
  host: Host;
  config: { tuiCommand?: string; home: string };
}

const MODULE = 'tui_gateway.entry';
const INTERPRETERS = ['.venv/bin/python', '.venv/bin/python3', 'venv/bin/python', 'venv/bin/python3'];
const NOT_FOR_CHILDREN = ['RELAY_PAIRING_CODE', 'RELAY_SECURE_LINK_BROKER_HOST_TOKEN'];

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what names must not have
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

/** Resolves program, working directory and environment of a gateway (contract 02 §4.2). Starts nothing. */
export async function planCommand({ host, config }: PlanParts, wish: Wish): Promise<Plan> {
  const profile = readName(wish.profile, 128, /\//);
  if (profile === null) {
    return { kind: 'invalid', message: 'profile must be 1 to 128 characters without "/" and control characters' };
  }
  const resume = readName(wish.resume_session_id, 256);
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
    COLUMNS: clampEdge(wish.cols)?.toString() ?? env.COLUMNS,
    LINES: clampEdge(wish.rows)?.toString() ?? env.LINES,
  };
  for (const name of NOT_FOR_CHILDREN) delete variables[name];
  return { kind: 'command', command: { file, args, cwd, env: withoutGaps(variables) } };
}

/** Undefined when it is absent, null when it is not allowed. */
function readName(value: unknown, most: number, forbidden?: RegExp): string | undefined | null {
  if (value === undefined || value === null || value === '') return undefined;
  if (typeof value !== 'string' || value.length > most || CONTROL.test(value) || forbidden?.test(value)) return null;
  return value;
}

async function findInterpreter({ env, files }: Host, root: string): Promise<string> {
  const named = env.SVC_PYTHON || env.PYTHON;
  if (named) return named;
  for (const name of INTERPRETERS) if (await files.stat(`${root}/${name}`).catch(() => null)) return `${root}/${name}`;
  return 'python3';
}

/** A path that cannot be looked at is none. */
const isDirectory = async ({ files }: Host, path: string): Promise<boolean> =>
  (await files.stat(path).catch(() => null))?.kind === 'directory';

const withoutGaps = (variables: Record<string, string | undefined>): Record<string, string> =>
  Object.fromEntries(Object.entries(variables).filter((entry): entry is [string, string] => entry[1] !== undefined));
