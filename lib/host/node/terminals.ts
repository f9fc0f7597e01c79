import { readFileSync, readSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { ReadStream } from 'node:tty';
import { describeError } from '../../errors.ts';
import type { Log } from '../../log.ts';
import type { Exit, HostTerminals, Signal, Terminal } from '../index.ts';

/** What is used of node-pty: the call below its own terminal class. */
interface Native {
  fork(
    file: string,
    args: string[],
    env: string[],
    cwd: string,
    cols: number,
    rows: number,
    uid: number,
    gid: number,
    utf8: boolean,
    helper: string,
    onExit: (code: number, signal: number) => void,
  ): { fd: number; pid: number };
  resize(fd: number, cols: number, rows: number): void;
}

/** Linux hands out at most 4095 bytes of a pseudo-terminal per read: a smaller buffer saves a poll for each. */
const READ_SIZE = 4095;
/** How long a terminal must stay silent after its program ended, where something else still holds it open. */
const SILENCE = 100;
/** How often a terminal is looked at that had hung up and has not. */
const POLL = 20;
/** Waits between attempts to write to a full terminal, in milliseconds; the last one repeats. */
const RETRIES = [0, 0, 0, 1, 1, 2, 4, 8, 16];
/** `tpgid` is field 8 of proc(5) `stat`; what follows the command begins with field 3. */
const FOREGROUND = 8 - 3;

/**
 * Pseudo-terminals of this machine; undefined where node-pty's native part cannot be loaded.
 *
 * node-pty's own terminal class is not used (seen with 1.1.0): it closes the terminal 200 ms after the program's end,
 * read or not, and its writes spin in libuv while the kernel's buffer is full, because libuv takes the master side of
 * a pseudo-terminal for a blocking descriptor.
 */
export function createTerminals(log?: Log): HostTerminals | undefined {
  let native: Native;
  let helper: string;
  try {
    const require = createRequire(import.meta.url);
    native = require('@lydell/node-pty/requireBinary.js').requireBinary('pty.node');
    const helperName = `@lydell/node-pty-${process.platform}-${process.arch}/spawn-helper`;
    helper = process.platform === 'darwin' ? require.resolve(helperName) : '';
  } catch (error) {
    log?.warn(`no pseudo-terminals: ${describeError(error).split('\n', 1)[0]}`);
    return undefined;
  }
  return {
    open({ file, args, env, cwd }, { cols, rows }) {
      let exited: (code: number, signal: number) => void = () => {};
      const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
      const onExit = (code: number, signal: number) => exited(code, signal);
      const { fd, pid } = native.fork(file, args, variables, cwd, cols, rows, -1, -1, true, helper, onExit);
      const { terminal, programEnded } = createTerminal(fd, pid, (size) => native.resize(fd, size.cols, size.rows));
      exited = programEnded;
      return terminal;
    },
  };
}

function createTerminal(fd: number, pid: number, setSize: (size: { cols: number; rows: number }) => void) {
  let onOutput: ((bytes: Uint8Array) => void) | undefined;
  let onExit: ((exit: Exit) => void) | undefined;
  let onWriteFailed: (() => void) | undefined;
  let exit: Exit | undefined;
  let state: 'open' | 'ended' | 'closed' = 'open';
  let isPaused = false;
  let reads = 0;
  let reported = false;

  // A buffer of its own and a callback: nothing is allocated or queued for a read.
  const buffer = Buffer.allocUnsafeSlow(READ_SIZE);
  const onread = {
    buffer,
    callback(count: number) {
      reads++;
      onOutput?.(buffer.subarray(0, count));
      writer.flush();
      return !isPaused;
    },
  };
  const stream = new ReadStream(fd, { onread, allowHalfOpen: true } as never);
  // The end comes as an error, EIO, once nobody holds the other side any more. Or as an end of file: libuv makes one of
  // a hang-up together with a read that did not fill the buffer, although more may wait (seen with Node 20.20).
  stream.on('error', () => {});
  stream.on('end', readRest);
  stream.on('close', () => {
    if (state === 'open') state = 'ended';
    writer.stop();
    report();
  });

  const writer = createWriter(fd, {
    isOpen: () => state === 'open',
    failed: () => onWriteFailed?.(),
  });

  function report(): void {
    if (reported || !exit || state === 'open' || !onExit) return;
    reported = true;
    onExit(exit);
  }

  /** Reads without libuv what is left, until there is nothing more to come. */
  function readRest(): void {
    while (state === 'open') {
      const count = isPaused ? 0 : readSome(fd, buffer);
      if (count === 'ended') {
        stream.destroy();
        return;
      }
      if (count === 0) {
        setTimeout(readRest, POLL);
        return;
      }
      reads++;
      onOutput?.(buffer.subarray(0, count));
    }
  }

  /**
   * The program has ended, but a background job may hold the terminal, so that its end is never seen. What the
   * program wrote has been read when nothing came for a while: looked at after the poll that follows the timer,
   * because a busy process may be late for both.
   */
  function drain(): void {
    const before = reads;
    setTimeout(() => {
      setImmediate(() => {
        if (state !== 'open') return;
        if (isPaused || reads !== before) drain();
        else stream.destroy();
      });
    }, SILENCE);
  }

  const terminal: Terminal = {
    pid,
    onOutput(listener) {
      onOutput = listener;
      if (!isPaused) stream.resume();
    },
    onExit(listener) {
      onExit = listener;
      report();
    },
    pause() {
      isPaused = true;
      stream.pause();
    },
    resume() {
      isPaused = false;
      if (onOutput && state === 'open') stream.resume();
    },
    write(bytes) {
      if (state === 'open') writer.push(bytes);
    },
    unwritten: () => writer.size(),
    onWriteFailed(listener) {
      onWriteFailed = listener;
    },
    resize(size) {
      if (state === 'open') setSize(size);
    },
    kill(signal) {
      if (exit) return;
      const foreground = state === 'open' ? foregroundGroup(pid) : undefined;
      if (foreground !== undefined && foreground !== pid) signalGroup(foreground, signal);
      signalGroup(pid, signal);
    },
    close() {
      if (state === 'open') state = 'closed';
      onOutput = undefined;
      stream.destroy();
    },
  };

  return {
    terminal,
    programEnded(code: number, signal: number) {
      exit = signal > 0 ? { code: null, signal: signalName(signal) } : { code, signal: null };
      if (state === 'open') drain();
      else report();
    },
  };
}

/** Writes what is pushed, in order and whole: what does not fit into the kernel's buffer is tried again. */
function createWriter(fd: number, { isOpen, failed }: { isOpen(): boolean; failed(): void }) {
  let queue: Uint8Array[] = [];
  let size = 0;
  let attempt = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;

  function flush(): void {
    while (queue.length > 0 && isOpen()) {
      const first = queue[0] as Uint8Array;
      const written = writeSome(fd, first);
      if (written === 'broken') {
        queue = [];
        size = 0;
        failed();
        return;
      }
      if (written === 0) {
        timer ??= setTimeout(again, RETRIES[Math.min(attempt++, RETRIES.length - 1)]);
        return;
      }
      attempt = 0;
      size -= written;
      if (written === first.length) queue.shift();
      else queue[0] = first.subarray(written);
    }
  }

  function again(): void {
    timer = undefined;
    flush();
  }

  return {
    push(bytes: Uint8Array) {
      if (bytes.length === 0) return;
      queue.push(bytes);
      size += bytes.length;
      // What waits before it has its own attempt coming.
      if (queue.length === 1) flush();
    },
    /** Output was read: the program may have read, too. */
    flush() {
      if (queue.length > 0) flush();
    },
    size: () => size,
    stop() {
      clearTimeout(timer);
      queue = [];
      size = 0;
    },
  };
}

/** How many bytes the kernel took: 0 when its buffer is full. */
function writeSome(fd: number, bytes: Uint8Array): number | 'broken' {
  try {
    return writeSync(fd, bytes);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EAGAIN' || code === 'EINTR') return 0;
    // EIO: nobody holds the other side any more. What is written goes nowhere, and the program's end follows.
    return code === 'EIO' ? bytes.length : 'broken';
  }
}

/** How many bytes were there: 0 when none are there now. */
function readSome(fd: number, buffer: Buffer): number | 'ended' {
  try {
    return readSync(fd, buffer) || 'ended';
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === 'EAGAIN' || code === 'EINTR' ? 0 : 'ended';
  }
}

function foregroundGroup(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const group = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[FOREGROUND]);
    return group > 1 ? group : undefined;
  } catch {
    return undefined;
  }
}

function signalGroup(group: number, signal: Signal): void {
  try {
    process.kill(-group, signal);
  } catch {
    // Gone, or about to be.
  }
}

const signalName = (number: number): string =>
  Object.entries(constants.signals).find(([, value]) => value === number)?.[0] ?? `SIG${number}`;
