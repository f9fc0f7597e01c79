import { type ChildProcessWithoutNullStreams, execFile, spawn as spawnProcess } from 'node:child_process';
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { delimiter, isAbsolute, join } from 'node:path';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { isUnreadable } from '../errors.ts';
import type { Child, Command, Exit, HostChildren, Signal } from '../index.ts';
import { sendSignal } from './signal.ts';

const MAX_OUTPUT = 1024 * 1024;
/** Milliseconds that the rest of a child's group gets after SIGTERM, and for which idle pipes stay open. */
const LINGER_MS = 2000;
const POLL_MS = 20;
/** Bytes of memory that a waiting write takes besides its own. */
const WRITE_OVERHEAD = 256;

/** Programs of this machine, found on the `PATH` of `env`, and never started through a shell. */
export function createChildren(env: Readonly<Record<string, string | undefined>> = process.env): HostChildren {
  return { find: (file) => find(file, env.PATH ?? ''), run, spawn };
}

/** Searches absolute entries of the path only: an empty or relative one would name the relay's working directory. */
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
  } catch (error) {
    // Otherwise, another program of this name would start, such as a shell without the restrictions of this one.
    if (isUnreadable(error)) return false;
    throw error;
  }
}

function run({ file, args, env, cwd }: Command, timeout: number): ReturnType<HostChildren['run']> {
  return new Promise((resolve) => {
    const options = { env, cwd, timeout, killSignal: 'SIGKILL', maxBuffer: MAX_OUTPUT } as const;
    try {
      const child = execFile(file, args, options, (error, stdout, stderr) => {
        const code = error ? error.code : 0;
        resolve({ code: typeof code === 'number' ? code : null, stdout, stderr });
      });
      // The program reads an empty input. It is not an error if it has exited already.
      child.stdin?.on('error', () => {});
      child.stdin?.end();
    } catch {
      resolve({ code: null, stdout: '', stderr: '' });
    }
  });
}

async function spawn({ file, args, env, cwd }: Command): Promise<Child> {
  const child = spawnProcess(file, args, { env, cwd, detached: true, stdio: 'pipe' });
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    // Stays registered: an unhandled `error` event would end the relay.
    child.on('error', reject);
  });
  return wrap(child, child.pid as number);
}

function wrap(child: ChildProcessWithoutNullStreams, pid: number): Child {
  const { stdin } = child;
  const stdout = reader(child.stdout);
  const stderr = reader(child.stderr);
  const exited = followExit();
  // EPIPE: the program no longer reads. Its exit follows.
  stdin.on('error', () => {});

  let groupGone = false;
  let killed = false;

  function signalAll(signal: Signal | 0): void {
    if (!groupGone) groupGone = !sendSignal(-pid, signal);
  }

  async function followExit(): Promise<Exit> {
    const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
    const exit = await new Promise<Exit>((resolve) => child.once('exit', (code, signal) => resolve({ code, signal })));
    await endGroup();
    await endPipes(closed);
    return exit;
  }

  /**
   * Ends the rest of the group after its leader. At once, since the id of an empty group may be reused. (A zombie that
   * nobody reaps counts as alive, so the wait is limited.)
   */
  async function endGroup(): Promise<void> {
    signalAll('SIGTERM');
    for (let waited = 0; !groupGone && !killed && waited < LINGER_MS; waited += POLL_MS) {
      await sleep(POLL_MS);
      signalAll(0);
    }
    signalAll('SIGKILL');
    groupGone = true;
  }

  /** A descendant outside the group may hold the pipes open, so they are closed once idle. */
  async function endPipes(closed: Promise<void>): Promise<void> {
    let open = true;
    void closed.then(() => {
      open = false;
    });
    while (open) {
      const before = stdout.chunks + stderr.chunks;
      const ended = await Promise.race([closed.then(() => true), sleep(LINGER_MS, false)]);
      if (ended) return;
      const moving = stdout.isPaused || stdout.chunks + stderr.chunks > before;
      if (killed || !moving) {
        child.stdout.destroy();
        child.stderr.destroy();
        await closed;
      }
    }
  }

  /** Number of writes that wait for stdin. */
  let writes = 0;

  return {
    pid,
    onStdout: stdout.listen,
    onStderr: stderr.listen,
    onExit: (listener) => void exited.then(listener),
    pause: stdout.pause,
    resume: stdout.resume,
    write(bytes, lost) {
      writes++;
      stdin.write(bytes, (error) => {
        writes--;
        if (error) lost();
      });
    },
    unwritten: () => (stdin.writable ? stdin.writableLength + writes * WRITE_OVERHEAD : 0),
    closeStdin: () => void stdin.end(),
    kill(signal) {
      killed ||= signal === 'SIGKILL';
      signalAll(signal);
    },
  };
}

/**
 * Reads with `read()` instead of `data` events: when a child exits, Node resumes its streams even if they were paused.
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
