import { describeError } from '../errors.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host, ProcessOrigin } from '../host/index.ts';
import type { HostUsers } from '../host/users.ts';
import { bytesToHex, randomBytes, sha256 } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { childEnvironment, SESSION_VARIABLE } from './environment.ts';
import { lastLineOf } from './last-line.ts';
import { clientName, type Size, sizeOf } from './names.ts';
import type { Owner } from './owner.ts';

/** Name of the server's socket for the default agent home; other homes have a server each. */
const SOCKET = 'svc-relay';
const HELPER_TIMEOUT = 5_000;
/** tmux's escape-time during a paste, in milliseconds: how long it waits for the rest of a character. */
const PASTE_ESCAPE_TIME = 500;
const MAX_REPLAY_LINES = 200;
const MAX_REPLAY = 65_536;
/** Screens that one list looks at, the newest first. */
const MAX_SCREENS = 32;

/** Option of a tmux session for each device that has attached it: it is kept exactly as long as the shell. */
const OWNER_OPTION = '@svc-device-';
/** Option of a tmux session: family of the device that attached it last. */
const LAST_OPTION = '@svc-last';
/** Option of a tmux session that a run of an agent has opened. */
const RUN_OPTION = '@svc-run';

const configuration = (
  socket: string,
): string => `# Written by svc-relay for its own tmux server (tmux -L ${socket}); your own tmux does not read it.
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

/** Processes in a session of the relay's tmux server, whatever its name. */
export interface TmuxShell {
  /** tmux's own name of it, such as `$3`, which no rename changes. */
  id: string;
  name: string;
  /** Devices that have attached it; none for a session that no relay or an earlier version has made. */
  owners: Owner[];
}

/** One session of the relay's tmux server. */
export interface TmuxSession {
  name: string;
  /** Attached clients. */
  attached: number;
  windows: number;
  /** Epoch seconds. */
  createdAt: number;
  /** Epoch seconds of its last output. */
  activeAt: number;
  /** Hash of the family of the device that attached last; empty when none is known. */
  last: string;
  /** The last line with text; empty when it is not known. */
  lastLine: string;
}

export type Tmux = ReturnType<typeof createTmux>;

export interface TmuxParts {
  host: Pick<Host, 'env' | 'files' | 'children'> & { users?: Pick<HostUsers, 'home'> };
  agentHome: string;
  clock: Pick<Clock, 'monotonic'>;
  log: Log;
}

/** Runs tmux: on a server of its own, with exact targets, without a shell (contract 02 §3.5). `file` is its path. */
export function createTmux(file: string, { host, agentHome, clock, log }: TmuxParts) {
  let ready: Promise<string[]> | undefined;
  let pastes = 0;
  let settingEscapeTime: Promise<unknown> = Promise.resolve();
  /** Keyed by name: what the last list has seen. */
  let lastLines = new Map<string, SeenLine>();

  /** Arguments before every tmux command. The first use writes the configuration and resets the server. */
  function common(): Promise<string[]> {
    ready ??= prepare().catch((error) => {
      ready = undefined;
      throw error;
    });
    return ready;
  }

  async function prepare(): Promise<string[]> {
    const socket = await socketOf(host, agentHome);
    const args = ['-L', socket, ...(await writeConfig(socket)), '-u'];
    // A relay killed during a paste leaves its escape-time to the server. Without a server, this has no effect.
    await execute([...args, ...escapeTimeOf(0)]);
    return args;
  }

  async function writeConfig(socket: string): Promise<string[]> {
    const path = `${agentHome}/svc-relay-tmux.conf`;
    const text = configuration(socket);
    try {
      const before = await host.files.readText(path);
      if (before !== text) await host.files.writeAtomic(path, new TextEncoder().encode(text), 0o600);
      // Earlier versions had one server for all homes of a user.
      if (socket !== SOCKET && before?.startsWith(firstLine(configuration(SOCKET)))) await reportOldShells();
      return ['-f', path];
    } catch {
      return [];
    }
  }

  /** Names the shells on the server that this home shared with others: tmux cannot move them to another one. */
  async function reportOldShells(): Promise<void> {
    const { stdout } = await execute(['-L', SOCKET, '-u', 'list-sessions', '-F', '#{session_name}']);
    const names = stdout.split('\n').filter((name) => clientName(name) !== undefined);
    if (names.length === 0) return;
    const shown = names.slice(0, 16).join(', ') + (names.length > 16 ? ` and ${names.length - 16} more` : '');
    log.warn(`shells of an earlier version stay on a tmux server of their own (tmux -L ${SOCKET} attach): ${shown}`);
  }

  /** Runs a command whose failure may count as "no such session" (contract 02 §3.5). */
  async function run(args: string[]): Promise<Outcome> {
    try {
      return await execute([...(await common()), ...args]);
    } catch (error) {
      return { ok: false, stdout: '', stderr: describeError(error) };
    }
  }

  async function execute(args: string[]): Promise<Outcome> {
    const command = { file, args, env: childEnvironment(host.env), cwd: '/' };
    const { code, stdout, stderr } = await host.children.run(command, HELPER_TIMEOUT);
    return { ok: code === 0, stdout, stderr };
  }

  /**
   * Output of a command; undefined when tmux says that there is no such session, or no server.
   * @throws Error on every other failure: nobody knows what runs then.
   */
  async function ask(args: string[]): Promise<string | undefined> {
    for (let attempt = 1; ; attempt++) {
      const { ok, stdout, stderr } = await run(args);
      if (ok) return stdout;
      const problem = firstLine(stderr);
      if (ABSENT.test(problem)) return undefined;
      // The server ended with its last session while it was asked: whether there is another, only the next answer says.
      if (ENDED.test(problem) && attempt < MAX_ATTEMPTS) continue;
      throw new Error(`tmux ${args[0]} failed: ${problem || 'it did not run'}`);
    }
  }

  /** Sets the server's escape-time after any running change, if it is still wanted by then. */
  function setEscapeTime(ms: number, isWanted: () => boolean): void {
    settingEscapeTime = settingEscapeTime.then(() => (isWanted() ? run(escapeTimeOf(ms)) : undefined));
  }

  async function ownersOf(id: string): Promise<Owner[]> {
    const stdout = (await ask(['show-options', '-t', id])) ?? '';
    return stdout.split('\n').flatMap((line) => {
      const [, family, device = ''] = OWNER_LINE.exec(line) ?? [];
      return family === undefined ? [] : [{ family, device: device === '-' ? '' : device }];
    });
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

    /**
     * Arguments of a client that attaches to a session, or creates it with a login shell; the session notes its device, and
     * whether it is `ofRun`.
     */
    async attachArguments(
      tmuxName: string,
      { name, shell, owner, ofRun }: { name: string; shell: string; owner: Owner; ofRun: boolean },
    ): Promise<string[]> {
      // tmux expands formats in `-s`. Nothing of it is a shell string: env and the shell get their arguments as they are.
      const session = argument(tmuxName.replaceAll('#', '##'));
      const words = ['env', argument(`${SESSION_VARIABLE}=${name}`), argument(shell), '-l'];
      const note = ['set-option', OWNER_OPTION + owner.family, owner.device || '-'];
      const last = ['set-option', LAST_OPTION, owner.family];
      const mark = ofRun ? [';', 'set-option', RUN_OPTION, '1'] : [];
      return [...(await common()), 'new-session', '-A', '-s', session, ...words, ';', ...note, ';', ...last, ...mark];
    },

    /** Arguments of a client that shows a session, takes no input, and has no say in its size. Notes no device. */
    watchArguments: async (tmuxName: string): Promise<string[]> => [
      ...(await common()),
      'attach-session',
      '-r',
      '-t',
      target(tmuxName),
    ],

    /** The size of a session's window; undefined when there is no such session. */
    async size(tmuxName: string): Promise<Size | undefined> {
      const format = '#{window_width} #{window_height}';
      const { ok, stdout } = await run(['display-message', '-p', '-t', `${target(tmuxName)}:`, format]);
      const [, cols, rows] = (ok && /^(\d+) (\d+)$/.exec(stdout.trim())) || [];
      return cols === undefined ? undefined : sizeOf(Number(cols), Number(rows));
    },

    exists: async (tmuxName: string): Promise<boolean> => (await run(['has-session', '-t', target(tmuxName)])).ok,

    /** Ends a session. False when there is none of this name. */
    kill: async (tmuxName: string): Promise<boolean> => (await run(['kill-session', '-t', target(tmuxName)])).ok,

    /** Every session of the server with the devices that have attached it. @throws Error when that cannot be told. */
    async shells(): Promise<TmuxShell[]> {
      const stdout = (await ask(['list-sessions', '-F', '#{session_id} #{session_name}'])) ?? '';
      const found = stdout.split('\n').flatMap((line) => {
        const [, id, name] = /^(\$\d+) (.+)$/.exec(line) ?? [];
        return id === undefined || name === undefined ? [] : [{ id, name: unescaped(name) }];
      });
      return Promise.all(found.map(async (shell) => ({ ...shell, owners: await ownersOf(shell.id) })));
    },

    /** Ids of the sessions that runs of agents have opened. @throws Error when that cannot be told. */
    async ofRuns(): Promise<string[]> {
      const stdout = (await ask(['list-sessions', '-F', `#{session_id} #{${RUN_OPTION}}`])) ?? '';
      return stdout.split('\n').flatMap((line) => /^(\$\d+) 1$/.exec(line)?.[1] ?? []);
    },

    /** Where the programs of a session come from; undefined when it is gone. @throws Error when that cannot be told. */
    async origin(id: string): Promise<ProcessOrigin | undefined> {
      const format = '#{pane_pid} #{pid} #{socket_path}';
      const stdout = (await ask(['list-panes', '-s', '-t', id, '-F', format])) ?? '';
      const rows = stdout.split('\n').flatMap((line) => {
        const [, pane, server, path] = /^(\d+) (\d+) (.+)$/.exec(line) ?? [];
        return pane === undefined ? [] : [{ pane: Number(pane), mark: `TMUX=${path},${server},${id.slice(1)}` }];
      });
      if (rows.length === 0) return undefined;
      return { leaders: rows.map(({ pane }) => pane), marks: [...new Set(rows.map(({ mark }) => mark))] };
    },

    /** Ends a session by its id, if it is there. @throws Error when it may go on. */
    end: async (id: string): Promise<void> => void (await ask(['kill-session', '-t', id])),

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
      const counts = '#{session_attached} #{session_windows} #{session_created} #{window_activity}';
      const { ok, stdout } = await run(['list-sessions', '-F', `${counts} #{${LAST_OPTION}} #{session_name}`]);
      if (!ok) return [];
      const found = stdout.split('\n').flatMap((line) => {
        const [, attached, windows, createdAt, activeAt, last = '', name] = LISTED.exec(line) ?? [];
        if (name === undefined) return [];
        const times = { createdAt: Number(createdAt), activeAt: Number(activeAt) };
        return [{ name: unescaped(name), attached: Number(attached), windows: Number(windows), ...times, last }];
      });
      const lines = await lastLinesOf(found);
      return found.map((session) => ({ ...session, lastLine: lines.get(session.name)?.line ?? '' }));
    },
  };

  /** The last lines of sessions. Screens that have not changed since the last list are not looked at again. */
  async function lastLinesOf(sessions: Omit<TmuxSession, 'lastLine'>[]): Promise<typeof lastLines> {
    const now = clock.monotonic();
    const lines: typeof lastLines = new Map();
    const changed: typeof sessions = [];
    for (const session of sessions) {
      const known = lastLines.get(session.name);
      if (known?.createdAt === session.createdAt) lines.set(session.name, known);
      // Its time of activity counts whole seconds: a look within the same one may have missed something.
      const isSame = known?.createdAt === session.createdAt && known.activeAt === session.activeAt;
      if (!isSame || known.seen - known.since < 1_000) changed.push(session);
    }
    const looked = changed.sort((a, b) => b.activeAt - a.activeAt).slice(0, MAX_SCREENS);
    const screens = looked.length === 0 ? [] : await screensOf(looked.map(({ name }) => name));
    for (const [at, screen] of screens.entries()) {
      const { name, createdAt, activeAt } = looked[at] as (typeof looked)[number];
      const known = lines.get(name);
      const since = known?.activeAt === activeAt ? known.since : now;
      lines.set(name, { line: lastLineOf(screen), createdAt, activeAt, since, seen: now });
    }
    lastLines = lines;
    return lines;
  }

  /** The screens of sessions, by one command. It ends at a session that has gone meanwhile: then there are fewer. */
  async function screensOf(names: string[]): Promise<string[]> {
    const mark = bytesToHex(randomBytes(16));
    const commands = names.flatMap((name, at) => {
      const end = ['display-message', '-p', mark];
      return [...(at === 0 ? [] : [';']), 'capture-pane', '-p', '-t', `${target(name)}:`, ';', ...end];
    });
    return (await run(commands)).stdout.split(`${mark}\n`).slice(0, -1);
  }
}

/** The last line of a session, as a list has found it. */
interface SeenLine {
  line: string;
  /** As of `TmuxSession`. */
  createdAt: number;
  activeAt: number;
  /** Milliseconds (monotonic) of the first and the last look since that activity. */
  since: number;
  seen: number;
}

interface Outcome {
  ok: boolean;
  stdout: string;
  stderr: string;
}

/**
 * tmux on a session that is gone, a server that has none left and is about to end, one that has ended, and a socket that
 * was never there (seen with 3.3a).
 */
const ABSENT =
  /^(no such session: |can't find session: |no current target$|no server running on |error connecting to .+ \(No such file or directory\)$)/;

/** tmux on a server that ends before it has answered. */
const ENDED = /^(server exited unexpectedly|lost server|server exited)$/;
const MAX_ATTEMPTS = 3;

const LISTED = /^(\d+) (\d+) (\d+) (\d+) ([0-9a-f]*) (.+)$/;

const OWNER_LINE = new RegExp(`^${OWNER_OPTION}([0-9a-f]{16}) ([0-9a-f]{16}|-)$`);

const firstLine = (text: string): string => text.split('\n', 1)[0] as string;

/**
 * Name of the tmux server's socket: two relays of one user share no shells (contract 02 §3.5).
 * @throws Error when the real path of the home cannot be told: another name would mean another server, without shells.
 */
export async function socketOf({ env, files, users }: TmuxParts['host'], agentHome: string): Promise<string> {
  const real = async (path: string): Promise<string> => (await unlessUnreadable(files.realPath(path))) ?? path;
  const home = await real(agentHome);
  // Not `HOME`: two relays of one account that differ in it alone would share a server.
  const own = users ? users.home : env.HOME;
  const isDefault = own != null && home === (await real(`${own}/.svc`));
  return isDefault ? SOCKET : `${SOCKET}-${sha256(home).slice(0, 8)}`;
}

const escapeTimeOf = (ms: number): string[] => ['set-option', '-s', 'escape-time', String(ms)];

/** Exactly this session: without `=` tmux also accepts prefixes and patterns. */
const target = (tmuxName: string): string => argument(`=${escaped(tmuxName)}`);

/** tmux takes a trailing `;` for the end of a command. */
const argument = (text: string): string => text.replace(/;$/, '\\;');

/** tmux stores names with `\` doubled and `$x` escaped, and targets must be written that way (seen with 3.3a). */
const escaped = (name: string): string => name.replaceAll('\\', '\\\\').replace(/\$(?=[A-Za-z_{])/g, '\\$');
const unescaped = (stored: string): string => stored.replace(/\\([\\$])/g, '$1');
