import type { Host } from '../host/index.ts';
import { childEnvironment, MARK } from './environment.ts';

const SOCKET = 'svc-relay';
const HELPER_TIMEOUT = 5_000;
/** Milliseconds that tmux waits, during a paste, for the rest of a character. */
const PASTE_PATIENCE = 500;
const REPLAY_LINES = 200;
const REPLAY_CHARS = 65_536;

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
  /** Clients that are attached to it. */
  attached: number;
  windows: number;
  /** Epoch seconds. */
  createdAt: number;
}

export type Tmux = ReturnType<typeof createTmux>;

/** tmux as the relay uses it: a server of its own, exact targets, no shell (contract 02 §3.5). `file` is its path. */
export function createTmux(file: string, { host, agentHome }: { host: Host; agentHome: string }) {
  let ready: Promise<string[]> | undefined;
  let pastes = 0;
  let patience: Promise<unknown> = Promise.resolve();

  /** The arguments that come before every tmux command. Configuration and server are made ready on first use. */
  function common(): Promise<string[]> {
    ready ??= prepare();
    return ready;
  }

  async function prepare(): Promise<string[]> {
    const args = ['-L', SOCKET, ...(await writeConfig()), '-u'];
    // A relay that was killed in a paste left a running server its patience. Where none runs this does nothing.
    await execute([...args, ...patienceOf(0)]);
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

  /** Changes the server's patience after whatever change is under way, if that is still wanted. */
  function setPatience(ms: number, isWanted: () => boolean): void {
    patience = patience.then(() => (isWanted() ? run(patienceOf(ms)) : undefined));
  }

  return {
    file,

    /**
     * tmux takes a character of which it has read but the first bytes for several when the others do not follow at
     * once (its escape-time is 0), and what is pasted reaches it in pieces of the kernel's choice. So for the time of
     * a paste it gets some patience (seen with 3.3a: up to ten characters of 1 MB were lost on a busy machine).
     */
    paste: {
      async begin(): Promise<void> {
        if (pastes++ === 0) setPatience(PASTE_PATIENCE, () => pastes > 0);
        await patience;
      },
      end(): void {
        if (--pastes === 0) setPatience(0, () => pastes === 0);
      },
    },

    /** The arguments of a client that attaches to a session, or makes it with a login shell. */
    async attachArguments(tmuxName: string, name: string, shell: string): Promise<string[]> {
      // The name given to -s is a format: a # of its own is doubled.
      const session = argument(tmuxName.replaceAll('#', '##'));
      const words = ['env', argument(`${MARK}=${name}`), argument(shell), '-l'];
      return [...(await common()), 'new-session', '-A', '-s', session, ...words];
    },

    exists: async (tmuxName: string): Promise<boolean> => (await run(['has-session', '-t', target(tmuxName)])).ok,

    /** Ends a session. False when there is none of this name. */
    kill: async (tmuxName: string): Promise<boolean> => (await run(['kill-session', '-t', target(tmuxName)])).ok,

    /** The recent text of a session: screen and up to 200 lines above, no escape codes. Empty when there is none. */
    async capture(tmuxName: string): Promise<string> {
      const { ok, stdout } = await run(['capture-pane', '-p', '-S', `-${REPLAY_LINES}`, '-t', `${target(tmuxName)}:`]);
      return ok ? stdout.replace(/\s+$/, '').slice(-REPLAY_CHARS) : '';
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
          { name: asGiven(name), attached: Number(attached), windows: Number(windows), createdAt: Number(createdAt) },
        ];
      });
    },
  };
}

const patienceOf = (ms: number): string[] => ['set-option', '-s', 'escape-time', String(ms)];

/** Exactly this session: without `=` tmux also takes prefixes and patterns. */
const target = (tmuxName: string): string => argument(`=${asKept(tmuxName)}`);

/** tmux takes a `;` at the end of an argument for the end of a command. */
const argument = (text: string): string => text.replace(/;$/, '\\;');

/** tmux keeps names with `\` doubled and `$x` escaped, and wants to be asked for them like that (seen with 3.3a). */
const asKept = (name: string): string => name.replaceAll('\\', '\\\\').replace(/\$(?=[A-Za-z_{])/g, '\\$');
const asGiven = (kept: string): string => kept.replace(/\\([\\$])/g, '$1');
