import { type ChildProcessWithoutNullStreams, execFile, spawn as spawnProcess } from 'node:child_process';
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { delimiter, isAbsolute, join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Child, Command, Exit, HostChildren, Signal } from '../index.ts';

const MOST_OUTPUT = 1024 * 1024;
/** How long what a child leaves behind may take after SIGTERM, and how long its pipes may stay open. */
const LINGER_MS = 2000;
const POLL_MS = 20;

/** Programs of this machine, found on the `PATH` of `env`. No shell is ever involved. */
export function createChildren(env: Readonly<Record<string, string | undefined>> = process.env): HostChildren {
  return { find: (file) => find(file, env.PATH ?? ''), run, spawn };
}

/** Only absolute entries of the path count: an empty or relative one would mean the relay's working directory. */
async function find(file: string, path: string): Promise<string | null> {
  if (isAbsolute(file)) return (await isExecutable(file)) ? file : null;
  if (file === '' || file.includes('/')) return null;
  for (const directory of path.split(delimiter)) {
    const candidate = join(directory, file);
    if (isAbsolute(directory) && (await isExecutable(candidate))) return candidate;
  }
  return null;
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}

function run({ file, args, env, cwd }: Command, timeout: number): Promise<{ code: number | null; stdout: string }> {
  return new Promise((resolve) => {
    const options = { env, cwd, timeout, killSignal: 'SIGKILL', maxBuffer: MOST_OUTPUT } as const;
    try {
      const child = execFile(file, args, options, (error, stdout) => {
        const code = error ? error.code : 0;
        resolve({ code: typeof code === 'number' ? code : null, stdout });
      });
      // A program that reads its input gets the end of it, and one that has gone is no error.
      child.stdin?.on('error', () => {});
      child.stdin?.end();
    } catch {
      resolve({ code: null, stdout: '' });
    }
  });
}

async function spawn({ file, args, env, cwd }: Command): Promise<Child> {
  const child = spawnProcess(file, args, { env, cwd, detached: true, stdio: 'pipe' });
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    // Stays on: an `error` that nobody hears would end the relay.
    child.on('error', reject);
  });
  return wrap(child, child.pid as number);
}

function wrap(child: ChildProcessWithoutNullStreams, pid: number): Child {
  const { stdin } = child;
  const stdout = reader(child.stdout);
  const stderr = reader(child.stderr);
  const exited = followExit();
  // EPIPE: the program does not read any more. Its end says the rest.
  stdin.on('error', () => {});

  let groupGone = false;
  let killed = false;

  function tell(signal: Signal | 0): void {
    if (!groupGone) groupGone = !signalGroup(pid, signal);
  }

  async function followExit(): Promise<Exit> {
    const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
    const exit = await new Promise<Exit>((resolve) => child.once('exit', (code, signal) => resolve({ code, signal })));
    await endGroup();
    await endPipes(closed);
    return exit;
  }

  /**
   * The leader has gone; what it started goes too. Asked about at once and not later: the number of an empty group
   * may belong to somebody else one day. (A zombie that nobody reaps counts as alive, so there is no waiting for ever.)
   */
  async function endGroup(): Promise<void> {
    tell('SIGTERM');
    for (let waited = 0; !groupGone && !killed && waited < LINGER_MS; waited += POLL_MS) {
      await pause(POLL_MS);
      tell(0);
    }
    tell('SIGKILL');
    groupGone = true;
  }

  /** A descendant that left the group may hold the pipes open: they are given up when nothing comes any more. */
  async function endPipes(closed: Promise<void>): Promise<void> {
    let open = true;
    void closed.then(() => {
      open = false;
    });
    while (open) {
      const before = stdout.chunks + stderr.chunks;
      const ended = await Promise.race([closed.then(() => true), pause(LINGER_MS).then(() => false)]);
      if (ended) return;
      const moving = stdout.isPaused || stdout.chunks + stderr.chunks > before;
      if (killed || !moving) {
        child.stdout.destroy();
        child.stderr.destroy();
        await closed;
      }
    }
  }

  return {
    pid,
    onStdout: stdout.listen,
    onStderr: stderr.listen,
    onExit: (listener) => void exited.then(listener),
    pause: stdout.pause,
    resume: stdout.resume,
    write(bytes, lost) {
      stdin.write(bytes, (error) => {
        if (error) lost();
      });
    },
    unwritten: () => (stdin.writable ? stdin.writableLength : 0),
    closeStdin: () => void stdin.end(),
    kill(signal) {
      killed ||= signal === 'SIGKILL';
      tell(signal);
    },
  };
}

/**
 * Reads with `read()` and not by `data` events: when a child exits, Node resumes its streams over the head of whoever
 * paused them.
 */
function reader(stream: Readable) {
  let listener: ((bytes: Uint8Array) => void) | undefined;
  let paused = false;
  let chunks = 0;
  const drain = () => {
    while (!paused) {
      const bytes: Buffer | null = stream.read();
      if (bytes === null) return;
      chunks += 1;
      listener?.(bytes);
    }
  };
  stream.on('error', () => {});
  return {
    listen(next: (bytes: Uint8Array) => void) {
      listener = next;
      stream.on('readable', drain);
    },
    pause() {
      paused = true;
    },
    resume() {
      if (!paused) return;
      paused = false;
      drain();
    },
    get isPaused() {
      return paused;
    },
    get chunks() {
      return chunks;
    },
  };
}

/** Whether the group is still there. Somebody else's process in it (EPERM) counts, as nothing more can be done. */
function signalGroup(pid: number, signal: Signal | 0): boolean {
  try {
    process.kill(-pid, signal);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
