import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, readlinkSync, realpathSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SerializeAddon } from '@xterm/addon-serialize';
import xterm from '@xterm/headless';
import { expect, vi } from 'vitest';
import { attempt } from '../../lib/kit/attempt.ts';
import { type BuiltOptions, type BuiltTarget, startBuiltTarget } from './built-relay.ts';
import type { Client, Frame } from './client.ts';
import { connect } from './client.ts';
import { TIMEOUT } from './limits.ts';
import { type Paired, pair } from './relay.ts';

const PROMPT = 'PS1="ready> "\nunset PROMPT_COMMAND\nHISTFILE=\nbind "set enable-bracketed-paste on"\n';

export const hasProgram = (name: string): boolean => spawnSync('which', [name]).status === 0;

export interface TerminalTarget extends BuiltTarget {
  tmux: boolean;
  /** Runs tmux on the relay's own server, as a user on the host would. */
  tmuxRun(...args: string[]): string;
}

/** Name of the tmux server's socket for an agent home other than the default one (contract 02 §3.5). */
export const tmuxSocket = (agentHome: string): string =>
  `svc-relay-${createHash('sha256').update(realpathSync(agentHome)).digest('hex').slice(0, 8)}`;

/** A relay whose shells have their own home and a prompt that tests can wait for. */
export async function startTerminalRelay({
  tmux = false,
  env = {},
  tmuxFolder,
  programs,
  withStores,
}: {
  tmux?: boolean;
  env?: Record<string, string>;
  /** Where tmux has its sockets; by default in the agent home. */
  tmuxFolder?: string;
  /** Searched for programs before the path of this process. */
  programs?: string;
} & Pick<BuiltOptions, 'withStores'> = {}) {
  const hostEnv = (home: string) => ({
    PATH: `${programs ? `${programs}:` : ''}${process.env.PATH ?? '/usr/bin:/bin'}`,
    HOME: home,
    SHELL: '/bin/bash',
    LANG: 'C.UTF-8',
    TMUX_TMPDIR: tmuxFolder ?? home,
    LESSHISTFILE: '-',
  });
  const target = await startBuiltTarget({
    env: { RELAY_TERMINAL_TMUX: tmux ? '1' : '0', ...env },
    hostEnv,
    withStores,
  });
  await writeFile(join(target.agentHome, '.bash_profile'), PROMPT);
  await writeFile(join(target.agentHome, '.vimrc'), 'set nocompatible noswapfile viminfo=\n');
  const stop = target.stop;
  const tmuxRun = (...args: string[]) =>
    execFileSync('tmux', ['-L', tmuxSocket(target.agentHome), '-u', ...args], {
      env: hostEnv(target.agentHome),
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  return Object.assign(target, {
    tmux,
    tmuxRun,
    stop: async () => {
      await target.relay.stop();
      try {
        tmuxRun('kill-server');
      } catch {
        // No tmux server was started.
      }
      await stop();
    },
  }) satisfies TerminalTarget;
}

/** A paired client; of a device of its own unless an id is given. */
export const pairTerminal = (
  target: BuiltTarget,
  policy?: Record<string, unknown>,
  deviceId: string = crypto.randomUUID(),
): Promise<Paired> => pair(target, { policy: { grants: { terminal: 0 }, ...policy }, device: { device_id: deviceId } });

/** Connects the same device on another socket. */
export async function reconnect(target: BuiltTarget, token: string): Promise<Client> {
  const client = await connect(target.wsUrl);
  client.send('system', 'auth', { session_token: token });
  await client.next({ type: 'auth.ok' });
  return client;
}

export type Attachment = Awaited<ReturnType<typeof attach>>;

/** Attaches and feeds the output to a headless terminal. The frames of the session stay with the client. */
export async function attach(
  client: Client,
  name: string,
  options: { cols?: number; rows?: number; shell?: string; window?: number; runId?: string; mode?: 'watch' } = {},
) {
  const { cols = 80, rows = 24, window, runId, mode } = options;
  const id = crypto.randomUUID();
  const screen = createScreen(cols, rows);
  let text = '';
  const outputs: string[] = [];
  let detached: Frame | undefined;
  const listen = (data: unknown) => {
    const frame: Frame = JSON.parse(String(data));
    if (frame.channel !== 'terminal' || frame.payload.session_name !== name) return;
    if (frame.type === 'terminal.attached' && frame.id === id && frame.payload.replay) {
      screen.write(String(frame.payload.replay).replace(options.shell === 'tmux' ? /\n/g : /$^/, '\r\n'));
    }
    if (frame.type === 'terminal.output') {
      const { data } = frame.payload;
      outputs.push(String(data));
      text += data;
      screen.write(String(data));
      const at = client.frames.findIndex(({ id }) => id === frame.id);
      if (at >= 0) client.frames.splice(at, 1);
    }
    if (frame.type === 'terminal.detached') detached = frame;
  };
  client.socket.on('message', listen);
  client.send('terminal', 'terminal.attach', { session_name: name, cols, rows, window, run_id: runId, mode }, id);
  const { payload } = await client.next({ type: 'terminal.attached', id });
  return {
    name,
    screen,
    facts: payload as { pid: number; shell: string; reattach: boolean; replay?: string; tmux_available: boolean },
    get text() {
      return text;
    },
    outputs,
    get detached() {
      return detached;
    },
    type: (data: string) => client.send('terminal', 'terminal.input', { session_name: name, data }),
    resize: (cols: number, rows: number) => {
      screen.resize(cols, rows);
      client.send('terminal', 'terminal.resize', { session_name: name, cols, rows });
    },
    /** Waits until the raw output contains a text. */
    has: (what: string | RegExp, timeout = TIMEOUT) =>
      vi.waitFor(() => expect(holds(text, what) ? true : text.slice(-600)).toBe(true), { timeout, interval: 5 }),
    /** Waits until the screen shows a text. */
    shows: (what: string | RegExp, timeout = TIMEOUT) =>
      vi.waitFor(
        async () => {
          const lines = await screen.text();
          expect(holds(lines, what) ? true : lines).toBe(true);
        },
        { timeout, interval: 10 },
      ),
    forget() {
      text = '';
      outputs.length = 0;
    },
  };
}

const holds = (text: string, what: string | RegExp): boolean =>
  typeof what === 'string' ? text.includes(what) : what.test(text);

/** Waits until a text stops changing and returns it. */
export async function settled(look: () => Promise<string>): Promise<string> {
  let last = await look();
  await vi.waitFor(
    async () => {
      const now = await look();
      const isSame = now === last;
      last = now;
      expect(isSame).toBe(true);
    },
    { interval: 200 },
  );
  return last;
}

/** A headless terminal. */
export function createScreen(cols: number, rows: number, scrollback = 200) {
  const terminal = new xterm.Terminal({ cols, rows, scrollback, allowProposedApi: true, logLevel: 'off' });
  const serializer = new SerializeAddon();
  terminal.loadAddon(serializer as never);
  const settled = () => new Promise<void>((resolve) => terminal.write('', resolve));
  return {
    terminal,
    write: (data: string) => terminal.write(data),
    resize: (cols: number, rows: number) => terminal.resize(cols, rows),
    /** The visible lines, with trailing spaces trimmed. */
    async text(): Promise<string> {
      await settled();
      const { viewportY } = terminal.buffer.active;
      const lines = Array.from({ length: terminal.rows }, (_, row) =>
        terminal.buffer.active
          .getLine(viewportY + row)
          ?.translateToString(true)
          .trimEnd(),
      );
      return lines.join('\n').trimEnd();
    },
    async cursor(): Promise<[number, number]> {
      await settled();
      return [terminal.buffer.active.cursorX, terminal.buffer.active.cursorY];
    },
    /** Everything: scrollback, attributes, cursor, modes. */
    async all(scrollback?: number): Promise<string> {
      await settled();
      return serializer.serialize({ scrollback });
    },
  };
}

/** Open file descriptors of this process, without those of the listing itself. */
export const descriptors = (): string[] =>
  readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/self/fd/${fd}`)];
    } catch {
      return [];
    }
  });

export const terminalDescriptors = (): number => descriptors().filter((path) => path.startsWith('/dev/pt')).length;

/** Processes of a session's shells. (A tmux server also has the environment of the process that started it.) */
export const shellsOf = (name: string): number[] =>
  processesWith('SVC_RELAY_TERMINAL', name).filter((pid) => {
    // It may have ended meanwhile.
    const command = attempt(() => readFileSync(`/proc/${pid}/comm`, 'utf8'));
    return command !== undefined && !command.startsWith('tmux');
  });

/** Processes whose environment has a variable with this value. */
export function processesWith(variable: string, value: string): number[] {
  return readdirSync('/proc').flatMap((pid) => {
    if (!/^\d+$/.test(pid)) return [];
    try {
      const env = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
      return env.includes(`${variable}=${value}`) ? [Number(pid)] : [];
    } catch {
      return [];
    }
  });
}

export const exists = (pid: number): boolean => existsSync(`/proc/${pid}`);
