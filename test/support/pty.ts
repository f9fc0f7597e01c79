import { spawn } from '@lydell/node-pty';
import { expect, onTestFinished, vi } from 'vitest';
import { TIMEOUT } from './limits.ts';
import { createScreen } from './terminal.ts';

export type Pty = ReturnType<typeof openPty>;

/** Runs a program in a terminal of its own, which a headless one displays. Ends with the test. */
export function openPty(
  command: string,
  args: string[],
  { cols = 80, rows = 24, cwd, env = {} }: { cols?: number; rows?: number; cwd?: string; env?: Record<string, string> },
) {
  const screen = createScreen(cols, rows);
  const all = { PATH: process.env.PATH ?? '', TERM: 'xterm-256color', ...env };
  const pty = spawn(command, args, { cols, rows, cwd, env: all });
  let isOver = false;
  const ended = new Promise<number>((resolve) => {
    pty.onExit(({ exitCode }) => {
      isOver = true;
      resolve(exitCode);
    });
  });
  let output = '';
  pty.onData((data) => {
    output += data;
    screen.write(data);
  });
  onTestFinished(async () => {
    if (!isOver) pty.kill('SIGKILL');
    await ended;
  });
  return {
    pid: pty.pid,
    screen,
    ended,
    /** Everything that it has written, with its escape sequences. */
    get output() {
      return output;
    },
    type: (keys: string) => pty.write(keys),
    resize(columns: number) {
      screen.resize(columns, rows);
      pty.resize(columns, rows);
    },
    /** Waits until the screen shows a text, and returns all of it. */
    async shows(pattern: RegExp): Promise<string> {
      await vi.waitFor(async () => expect(await screen.text()).toMatch(pattern), { timeout: TIMEOUT, interval: 20 });
      return screen.text();
    },
  };
}
