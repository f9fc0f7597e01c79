import { EventEmitter } from 'node:events';
import { PassThrough } from 'node:stream';
import { onTestFinished } from 'vitest';
import { main } from '../../cli/main.ts';
import type { CommandContext } from '../../cli/output.ts';
import type { Host } from '../../lib/host/index.ts';
import { agentHome } from './cli.ts';
import { createTestHost } from './host.ts';
import { TIMEOUT } from './limits.ts';
import { randomCode } from './relay.ts';

export interface Setting {
  home?: string;
  env?: Record<string, string>;
  /** The whole of stdin. Without it, stdin stays open for `type`. */
  input?: string;
  tty?: boolean;
  /** The phone of `companion run`. */
  createPhone?: CommandContext['createPhone'];
  /** Parts of the host that differ from those of the test host. */
  host?: Partial<Host>;
  /** Size of the terminal. */
  columns?: number;
  rows?: number;
}

export type Running = ReturnType<typeof begin>;

/** Starts a command line through `main` in this process, to be typed to, watched and stopped. */
export function begin(
  argv: string[],
  { home = agentHome(), env = {}, input, tty = false, columns = 100, rows = 60, createPhone, host }: Setting = {},
) {
  const printed = { stdout: '', stderr: '' };
  const waiters = new Set<() => void>();
  const wake = () => {
    for (const waiter of [...waiters]) waiter();
  };
  const broken = new EventEmitter();
  const writer = (name: 'stdout' | 'stderr') => ({
    on: (_event: 'error', listener: () => void) => name === 'stdout' && broken.on('broken', listener),
    off: (_event: 'error', listener: () => void) => broken.off('broken', listener),
    isTTY: tty,
    columns,
    rows,
    write(text: string) {
      printed[name] += text;
      wake();
    },
  });
  const raw: boolean[] = [];
  const stdin = Object.assign(new PassThrough(), { isTTY: tty, setRawMode: (on: boolean) => raw.push(on) });
  if (input !== undefined) stdin.end(input);
  const stop = new AbortController();
  let code: number | undefined;
  const ended = main(argv, 'svc', {
    stdin,
    stdout: writer('stdout'),
    stderr: writer('stderr'),
    env: { SVC_HOME: home, RELAY_PORT: '1', NO_COLOR: '1', ...env },
    stop: stop.signal,
    createHost: (agentHome) => ({ ...createTestHost({ agentHome }), ...host }),
    createPhone,
  }).then((result) => {
    code = result;
    wake();
    return { code: result, ...printed };
  });
  onTestFinished(async () => {
    stop.abort();
    await ended;
  });

  return {
    home,
    ended,
    raw,
    stop: () => stop.abort(),
    /** Simulates that the reader of stdout goes away. */
    breakPipe: () => broken.emit('broken'),
    type: (text: string) => void stdin.write(text),
    /** Ctrl-D on an empty line. */
    endInput: () => void stdin.end(),
    get stdout() {
      return printed.stdout;
    },
    get stderr() {
      return printed.stderr;
    },
    /** Resolves with the first match on either stream; rejects when the command ends or time runs out without one. */
    prints: (pattern: RegExp) =>
      new Promise<RegExpExecArray>((resolve, reject) => {
        const settle = (act: () => void) => {
          clearTimeout(timer);
          waiters.delete(attempt);
          act();
        };
        const noMatch = () => new Error(`no match for ${pattern}\n${printed.stdout}\n${printed.stderr}`);
        const timer = setTimeout(() => settle(() => reject(noMatch())), TIMEOUT);
        const attempt = () => {
          const found = pattern.exec(printed.stdout) ?? pattern.exec(printed.stderr);
          if (found) settle(() => resolve(found));
          else if (code !== undefined) settle(() => reject(noMatch()));
        };
        waiters.add(attempt);
        attempt();
      }),
    /** The events of `--json` so far. */
    events: (name?: string): Record<string, unknown>[] =>
      printed.stdout
        .split('\n')
        .filter((text) => text !== '')
        .map((text) => JSON.parse(text))
        .filter(({ event }) => name === undefined || event === name),
  };
}

/** `companion run` that allows everything, with nobody at its terminal. */
export const RUN_UNATTENDED = 'run --json --master on --grant all --messages on --approve always'.split(' ');

/** Runs a command line to its end. */
export const run = (argv: string[], setting: Setting = {}) => begin(argv, { input: '', ...setting }).ended;

/** A pairing payload with a fresh code for the relay on this port, as `svc pair` would print it. */
export async function payloadFor(port: number, policy: Record<string, unknown> = {}, scheme = 'ws') {
  const code = randomCode();
  const response = await fetch(`http://127.0.0.1:${port}/pairing/register`, {
    method: 'POST',
    body: JSON.stringify({ code, ...policy }),
  });
  if (response.status !== 200) throw new Error(`register: ${response.status}`);
  return { code, payload: JSON.stringify({ svc: 1, relay: { url: `${scheme}://127.0.0.1:${port}`, code } }) };
}

/** Pairs a companion with the relay on this port and returns its agent home. */
export async function paired(port: number, policy: Record<string, unknown> = {}): Promise<string> {
  const home = agentHome();
  const { payload } = await payloadFor(port, policy);
  const { code, stderr } = await run(['companion', 'pair', '-'], { home, input: payload });
  if (code !== 0) throw new Error(stderr);
  return home;
}
