import { type ChildProcess, spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { CommandError, printable } from '../output.ts';
import { pause } from '../pause.ts';
import { callRelay } from '../relay-client.ts';

/** Milliseconds for a relay to become ready, on a busy machine. */
const READY_TIMEOUT = 60_000;
const POLL = 50;
/** Characters of output to keep for a failure. */
const MAX_OUTPUT = 4000;

/** A relay that the drill kills and starts again on the same state. */
export interface DrillRelay {
  readonly port: number;
  /** Headers by which it knows its operator. */
  operator(): Promise<Record<string, string>>;
  /** True if it has shells. */
  readonly hasShell: boolean;
  /** True if uploads outlive it. */
  readonly isMediaDurable: boolean;
  /** @throws CommandError when it ends, or is not ready in time. */
  start(): Promise<void>;
  /** Kills it with SIGKILL; resolves when it has exited. */
  kill(): Promise<void>;
}

export interface Launch {
  args: string[];
  env: Record<string, string>;
  port: number;
}

/**
 * A Node process with a group of its own, which is killed as a whole. It also ends when this process does, however that
 * happens: its standard input then ends, which `args` has to watch for (`END_WITH_PARENT`).
 */
export function createProcess({ args, env, port }: Launch) {
  let child: ChildProcess | undefined;
  let output = '';

  async function isReady(): Promise<boolean> {
    const address = { host: '127.0.0.1', port, tls: false };
    const answer = await callRelay(address, { method: 'GET', path: '/health', timeout: READY_TIMEOUT }).catch(
      () => null,
    );
    return answer?.status === 200;
  }

  return {
    async start(): Promise<void> {
      const begun = spawn(process.execPath, args, { env, detached: true, stdio: ['pipe', 'pipe', 'pipe'] });
      child = begun;
      // Ignores write errors of a killed process; nothing is ever written.
      begun.stdin?.on('error', () => {});
      for (const stream of [begun.stdout, begun.stderr]) {
        stream?.setEncoding('utf8').on('data', (text: string) => {
          output = (output + text).slice(-MAX_OUTPUT);
        });
      }
      let why: string | undefined;
      begun.on('error', ({ message }) => {
        why = message;
      });
      begun.on('exit', (code, signal) => {
        why = `it ended with ${signal ?? `exit code ${code}`}`;
      });
      const deadline = performance.now() + READY_TIMEOUT;
      while (!(await isReady())) {
        if (performance.now() > deadline) why ??= `it was not ready within ${READY_TIMEOUT / 1000} s`;
        if (why !== undefined) {
          const last = output.trim().split('\n').at(-1) ?? '';
          throw new CommandError(
            `the relay of the drill did not start: ${why}${last === '' ? '' : `; ${printable(last)}`}`,
            "See whether this installation works with 'svc doctor'.",
          );
        }
        await pause(POLL);
      }
    },
    kill(): Promise<void> {
      const running = child;
      child = undefined;
      if (running?.pid === undefined || running.exitCode !== null || running.signalCode !== null)
        return Promise.resolve();
      const { pid } = running;
      return new Promise((resolve) => {
        running.once('exit', () => resolve());
        try {
          process.kill(-pid, 'SIGKILL');
        } catch {
          running.kill('SIGKILL');
        }
      });
    },
  };
}

/** Options of Node by which a program ends with the process that started it. */
export const END_WITH_PARENT = [
  '--import',
  `data:text/javascript,${encodeURIComponent("process.stdin.on('end', () => process.exit()).resume().unref?.()")}`,
];

/** A free port of loopback below the range of outgoing connections, so that it stays free while the relay is down. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    const isFree = await new Promise<boolean>((resolve) => {
      const server = createServer();
      server.once('error', () => resolve(false));
      server.listen({ port, host: '127.0.0.1', exclusive: true }, () => server.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}
