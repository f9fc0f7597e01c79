import type { Host } from '../host/index.ts';
import { childEnvironment, SESSION_VARIABLE } from './environment.ts';

const SOCKET = 'svc-relay';
const HELPER_TIMEOUT = 5_000;
/** tmux's escape-time during a paste, in milliseconds: how long it waits for the rest of a character. */
const PASTE_ESCAPE_TIME = 500;
const MAX_REPLAY_LINES = 200;
const MAX_REPLAY = 65_536;

const CONFIG = `# Written by svc-relay for its own tmux server (tmux -L ${SOCKET}); your own tmux does not read it.
set -s escape-time 0
set -g default-terminal tmux-256color
set -ga terminal-features ",*:RGB"
set -ga terminal-overrides ",*:Tc"
set -g mouse on
set -g focus-events on
set -g set-clipboard on
setw -g aggressive-resize on
set -g history-limit 10000
set -g status off
`;

/** One session of the relay's tmux server. */
export interface TmuxSession {
  name: string;
  /** Attached clients. */
  attached: number;
  windows: number;
  /** Epoch seconds. */
  createdAt: number;
}

export type Tmux = ReturnType<typeof createTmux>;

/** Runs tmux: on a server of its own, with exact targets, without a shell (contract 02 §3.5). `file` is its path. */
export function createTmux(file: string, { host, agentHome }: { host: Host; agentHome: string }) {
  let ready: Promise<string[]> | undefined;
  let pastes = 0;
  let settingEscapeTime: Promise<unknown> = Promise.resolve();

  /** Arguments before every tmux command. The first use writes the configuration and resets the server. */
  function common(): Promise<string[]> {
    ready ??= prepare();
    return ready;
  }

  async function prepare(): Promise<string[]> {
    const args = ['-L', SOCKET, ...(await writeConfig()), '-u'];
    // A relay killed during a paste leaves its escape-time to the server. Without a server, this has no effect.
    await execute([...args, ...escapeTimeOf(0)]);
    return args;
  }

  async function writeConfig(): Promise<string[]> {
    const path = `${agentHome}/svc-relay-tmux.conf`;
    try {
      if ((await host.files.readText(path)) !== CONFIG) {
        await host.files.writeAtomic(path, new TextEncoder().encode(CONFIG), 0o600);
      }
      return ['-f', path];
    } catch {
      return [];
    }
  }

  async function run(args: string[]): Promise<{ ok: boolean; stdout: string }> {
    return execute([...(await common()), ...args]);
  }

  async function execute(args: string[]): Promise<{ ok: boolean; stdout: string }> {
    const command = { file, args, env: childEnvironment(host.env), cwd: '/' };
    const { code, stdout } = await host.children.run(command, HELPER_TIMEOUT);
    return { ok: code === 0, stdout };
  }

  /** Sets the server's escape-time after any running change, if it is still wanted by then. */
  function setEscapeTime(ms: number, isWanted: () => boolean): void {
    settingEscapeTime = settingEscapeTime.then(() => (isWanted() ? run(escapeTimeOf(ms)) : undefined));
  }

  return {
    file,

    /**
     * With an escape-time of 0, tmux splits a character whose bytes do not arrive together, and the kernel cuts a paste
     * anywhere. So the escape-time is raised during a paste (3.3a: up to ten characters of 1 MB were lost on a busy
     * machine).
     */
    paste: {
      async begin(): Promise<void> {
        if (pastes++ === 0) setEscapeTime(PASTE_ESCAPE_TIME, () => pastes > 0);
        await settingEscapeTime;
      },
      end(): void {
        if (--pastes === 0) setEscapeTime(0, () => pastes === 0);
      },
    },

    /** Arguments of a client that attaches to a session, or creates it with a login shell. */
    async attachArguments(tmuxName: string, name: string, shell: string): Promise<string[]> {
      // The name after -s is a format, in which # is doubled.
      const session = argument(tmuxName.replaceAll('#', '##'));
      const words = ['env', argument(`${SESSION_VARIABLE}=${name}`), argument(shell), '-l'];
      return [...(await common()), 'new-session', '-A', '-s', session, ...words];
    },

    exists: async (tmuxName: string): Promise<boolean> => (await run(['has-session', '-t', target(tmuxName)])).ok,

    /** Ends a session. False when there is none of this name. */
    kill: async (tmuxName: string): Promise<boolean> => (await run(['kill-session', '-t', target(tmuxName)])).ok,

    /** Recent text of a session: the screen and up to 200 lines above, without escape codes. Empty without a session. */
    async capture(tmuxName: string): Promise<string> {
      const { ok, stdout } = await run([
        'capture-pane',
        '-p',
        '-S',
        `-${MAX_REPLAY_LINES}`,
        '-t',
        `${target(tmuxName)}:`,
      ]);
      return ok ? stdout.replace(/\s+$/, '').slice(-MAX_REPLAY) : '';
    },

    /** Every session of the relay's server. */
    async list(): Promise<TmuxSession[]> {
      const format = '#{session_attached} #{session_windows} #{session_created} #{session_name}';
      const { ok, stdout } = await run(['list-sessions', '-F', format]);
      if (!ok) return [];
      return stdout.split('\n').flatMap((line) => {
        const [, attached, windows, createdAt, name] = /^(\d+) (\d+) (\d+) (.+)$/.exec(line) ?? [];
        if (name === undefined) return [];
        return [
          { name: unescaped(name), attached: Number(attached), windows: Number(windows), createdAt: Number(createdAt) },
        ];
      });
    },
  };
}

const escapeTimeOf = (ms: number): string[] => ['set-option', '-s', 'escape-time', String(ms)];

/** Exactly this session: without `=` tmux also accepts prefixes and patterns. */
const target = (tmuxName: string): string => argument(`=${escaped(tmuxName)}`);

/** tmux takes a trailing `;` for the end of a command. */
const argument = (text: string): string => text.replace(/;$/, '\\;');

/** tmux stores names with `\` doubled and `$x` escaped, and targets must be written that way (seen with 3.3a). */
const escaped = (name: string): string => name.replaceAll('\\', '\\\\').replace(/\$(?=[A-Za-z_{])/g, '\\$');
const unescaped = (stored: string): string => stored.replace(/\\([\\$])/g, '$1');
