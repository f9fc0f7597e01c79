import { RelayError } from '../errors.ts';
import type { Child, Exit, Host } from '../host/index.ts';
import { mentionsSecret, SECRET_VARIABLES } from '../kit/secret-names.ts';

/** Buffered bytes of output above which the program is not read. */
const HIGH_WATER = 256 * 1024;
/** Maximum characters of the program's stderr to examine. */
const MAX_COMPLAINT = 2000;

/** The parts of the host that an owner's program needs (contract 05 §18). */
export type CommandHost = Pick<Host, 'children' | 'env' | 'files' | 'media' | 'processes'>;

/** Prefix of directories for clips and for results of programs. */
export const DIRECTORY_PREFIX = 'svc-relay-voice-';

/** Error message for a relay without a host. */
export const NO_PROGRAMS = 'this relay runs without a host, and cannot start programs';

/** Values of placeholders such as `{text}`. */
export type PlaceholderValues = Readonly<Record<string, string>>;

const PLACEHOLDER = /\{([a-z_]+)\}/g;
/** A placeholder at the beginning of an argument. */
const LEADING = /^\{([a-z_]+)\}/;

/**
 * Arguments with their placeholders filled in; unknown ones stay. A value stays within its argument and cannot become an
 * option: if it begins with `-`, a space is put before it, which no program takes for an option.
 */
export function filled(args: readonly string[], values: PlaceholderValues): string[] {
  const given = (name: string): string | undefined => (Object.hasOwn(values, name) ? values[name] : undefined);
  return args.map((arg) => {
    const name = LEADING.exec(arg)?.[1];
    const text = arg.replace(PLACEHOLDER, (whole, each: string) => given(each) ?? whole);
    return name !== undefined && given(name) !== undefined && text.startsWith('-') ? ` ${text}` : text;
  });
}

/** True if an argument list contains a placeholder. */
export const mentions = (args: readonly string[], name: string): boolean =>
  args.some((arg) => arg.includes(`{${name}}`));

/** The environment of a program: that of the relay without variables whose names suggest secrets. */
function scrubbed(env: Host['env']): Record<string, string> {
  const allowed: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && !mentionsSecret(name) && !/KEY/i.test(name) && !SECRET_VARIABLES.includes(name)) {
      allowed[name] = value;
    }
  }
  return allowed;
}

export interface CommandRun {
  /** The program and its arguments, with all placeholders filled in. */
  command: readonly string[];
  /** Working directory. */
  directory: string;
  /** Written to stdin, which is then closed. */
  stdin?: AsyncIterable<Uint8Array> | Uint8Array;
  /** For errors, as in `tts.local.command`. */
  name: string;
  /** Kills the whole process group. */
  signal: AbortSignal;
}

/**
 * Runs a program without a shell and yields its output, read no faster than it is consumed. Leaving the loop early, or the
 * signal, kills its process group; in every case this returns after the process has exited.
 * @throws RelayError `bad-gateway` if the program is missing, cannot be started, or fails; the reason of the signal.
 */
export async function* runCommand(
  { children, env }: Pick<CommandHost, 'children' | 'env'>,
  { command, directory, stdin, name, signal }: CommandRun,
): AsyncGenerator<Uint8Array, void> {
  const [program = '', ...args] = command;
  const file = await children.find(program);
  if (file === null) throw failure(`the program of ${name} was not found`);
  signal.throwIfAborted();
  const child = await children.spawn({ file, args, env: scrubbed(env), cwd: directory }).catch(() => {
    throw failure(`the program of ${name} cannot be started`);
  });
  const kill = () => {
    child.kill('SIGKILL');
    child.resume();
  };
  const output = outputOf(child);
  signal.addEventListener('abort', kill);
  if (signal.aborted) kill();
  const fed = feed(child, stdin).catch(kill);
  try {
    for (let bytes = await output.next(); bytes; bytes = await output.next()) {
      if (signal.aborted) break;
      yield bytes;
    }
  } finally {
    kill();
    await output.exited;
    signal.removeEventListener('abort', kill);
    await fed;
  }
  signal.throwIfAborted();
  const { code, signal: ended } = await output.exited;
  if (code === 0) return;
  const complaint = output.complaint();
  throw failure(`${name} ended with ${ended ?? `exit code ${code}`}${complaint && `: ${complaint}`}`);
}

const failure = (message: string) => new RelayError('bad-gateway', message);

/** The output of a child on demand, for one caller at a time. */
function outputOf(child: Child) {
  const waiting: Uint8Array[] = [];
  let size = 0;
  let isOver = false;
  let complaint = '';
  let wake = () => {};
  child.onStdout((bytes) => {
    waiting.push(Uint8Array.from(bytes));
    size += bytes.length;
    if (size > HIGH_WATER) child.pause();
    wake();
  });
  child.onStderr((bytes) => {
    if (complaint.length < MAX_COMPLAINT) complaint += new TextDecoder().decode(bytes).slice(0, MAX_COMPLAINT);
  });
  const exited = new Promise<Exit>((resolve) =>
    child.onExit((exit) => {
      isOver = true;
      resolve(exit);
      wake();
    }),
  );
  return {
    exited,
    complaint: () => complaint.trim().split('\n').at(-1)?.trim() ?? '',
    /** The next bytes; undefined once the program has exited and everything was taken. */
    async next(): Promise<Uint8Array | undefined> {
      while (waiting.length === 0 && !isOver) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      const bytes = waiting.shift();
      size -= bytes?.length ?? 0;
      if (size <= HIGH_WATER) child.resume();
      return bytes;
    },
  };
}

/** Bytes buffered for a program that does not read them. */
const MAX_UNWRITTEN = 256 * 1024;
const POLL = 20;

/** Writes to a child no faster than it reads. A child that stops reading is not an error; its exit tells why. */
async function feed(child: Child, content: AsyncIterable<Uint8Array> | Uint8Array | undefined): Promise<void> {
  let isLost = false;
  const lost = () => {
    isLost = true;
  };
  child.onExit(lost);
  const chunks = content === undefined ? [] : content instanceof Uint8Array ? [content] : content;
  for await (const bytes of chunks) {
    while (!isLost && child.unwritten() > MAX_UNWRITTEN) await new Promise((resolve) => setTimeout(resolve, POLL));
    if (isLost) break;
    child.write(bytes, lost);
  }
  child.closeStdin();
}

/**
 * Creates a directory for one run, mode 0700. Its name has the form of those for clips, so that their sweep removes
 * leftovers of killed relays.
 */
export const createRunDirectory = ({ files, media, processes }: CommandHost): Promise<string> =>
  files.createDirectory(`${media.temporaryDirectory()}/${DIRECTORY_PREFIX}${processes.own}-command-`);
