import { readSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { ReadStream } from 'node:tty';
import { describeError } from '../../errors.ts';
import { appendJoined } from '../../kit/bytes.ts';
import type { Log } from '../../log.ts';
import type { HostTerminals, Terminal } from '../index.ts';
import { readStat } from './proc-stat.ts';
import { sendSignal } from './signal.ts';

/** The native part of node-pty, below its terminal class. */
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

/** Linux returns at most 4095 bytes per read of a pseudo-terminal; with this size, libuv polls once less per read. */
const READ_SIZE = 4095;
/** Milliseconds of silence after which a terminal has drained, if its program has exited and another one holds it open. */
const SILENCE = 100;
/** Milliseconds between reads of a terminal after a false end of file. */
const POLL = 20;
/** Waits between attempts to write to a full terminal, in milliseconds; the last one repeats. */
const RETRIES = [0, 0, 0, 1, 1, 2, 4, 8, 16];

/**
 * Pseudo-terminals of this machine; undefined when node-pty's native part does not load.
 *
 * node-pty's own terminal class is not used (seen with 1.1.0): it closes the terminal 200 ms after the program's exit,
 * whether or not its output was read, and its writes spin in libuv while the kernel's buffer is full, because libuv treats
 * the master side of a pseudo-terminal as a blocking descriptor.
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
  let onExit: ((exitCode: number) => void) | undefined;
  let onWriteFailed: (() => void) | undefined;
  let exitCode: number | undefined;
  let state: 'open' | 'ended' | 'closed' = 'open';
  let isPaused = false;
  let reads = 0;
  let reported = false;

  // One buffer and a callback: a read allocates and queues nothing.
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
  /** False as soon as the descriptor is closed, before the `close` event: another file may have its number by then. */
  const isOpen = () => state === 'open' && !stream.destroyed;
  // The end arrives as EIO once nobody holds the other side, or as an end of file, which libuv reports for a hang-up
  // together with a read that did not fill the buffer, although more may be available (seen with Node 20.20).
  stream.on('error', () => {});
  stream.on('end', readRest);
  stream.on('close', () => {
    if (state === 'open') state = 'ended';
    writer.stop();
    report();
  });

  const writer = createWriter(fd, {
    isOpen,
    failed: () => onWriteFailed?.(),
  });

  function report(): void {
    if (reported || exitCode === undefined || state === 'open' || !onExit) return;
    reported = true;
    onExit(exitCode);
  }

  /** Reads the rest without libuv, until the real end. */
  function readRest(): void {
    while (isOpen()) {
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
   * The program has exited, but a background job may hold the terminal open, so that its end never comes. The output
   * counts as read when nothing arrives for a while. That is checked after the poll that follows the timer, because a
   * busy process may be late for both.
   */
  function drain(): void {
    const before = reads;
    setTimeout(() => {
      setImmediate(() => {
        if (!isOpen()) return;
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
      if (onOutput && isOpen()) stream.resume();
    },
    write(bytes) {
      if (isOpen()) writer.push(bytes);
    },
    unwritten: () => writer.size(),
    onWriteFailed(listener) {
      onWriteFailed = listener;
    },
    resize(size) {
      if (isOpen()) setSize(size);
    },
    kill(signal) {
      if (exitCode !== undefined) return;
      const foreground = state === 'open' ? foregroundGroup(pid) : undefined;
      if (foreground !== undefined && foreground !== pid) sendSignal(-foreground, signal);
      // A child that was just forked is not yet the leader of a group.
      if (!sendSignal(-pid, signal)) sendSignal(pid, signal);
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
      exitCode = signal > 0 ? 128 + signal : code;
      if (state === 'open') drain();
      else report();
    },
  };
}

/** Writes bytes in order and completely, and retries while the kernel's buffer is full. */
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
      // Earlier bytes have a retry scheduled already.
      const isFirst = queue.length === 0;
      appendJoined(queue, bytes);
      size += bytes.length;
      if (isFirst) flush();
    },
    /** Retries after output was read, since the program may have read its input too. */
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

/** Bytes that the kernel accepted; 0 when its buffer is full. */
function writeSome(fd: number, bytes: Uint8Array): number | 'broken' {
  try {
    return writeSync(fd, bytes);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EAGAIN' || code === 'EINTR') return 0;
    // EIO: nobody holds the other side any more. The bytes are lost, and the exit of the program follows.
    return code === 'EIO' ? bytes.length : 'broken';
  }
}

/** Bytes read; 0 when none are available. */
function readSome(fd: number, buffer: Buffer): number | 'ended' {
  try {
    return readSync(fd, buffer) || 'ended';
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === 'EAGAIN' || code === 'EINTR' ? 0 : 'ended';
  }
}

/** The group that reads a child's terminal. One that was just forked still has the terminal of this process, if any. */
function foregroundGroup(pid: number): number | undefined {
  const stat = readStat(pid);
  return stat?.session === pid && stat.foreground > 1 ? stat.foreground : undefined;
}
