import { describeError } from '../errors.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host, ProcessOrigin } from '../host/index.ts';
import type { HostUsers } from '../host/users.ts';
import { bytesToHex, randomBytes } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import { sha256 } from '../kit/sha256.ts';
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
/** Screens read for one list, the newest first. */
const MAX_SCREENS = 32;

/** Option of a tmux session for each device that has attached it, which lives exactly as long as the shell. */
const OWNER_OPTION = '@svc-device-';
/** Option of a tmux session: family of the device that attached it last. */
const LAST_OPTION = '@svc-last';
/** Option of a tmux session that an agent run has opened. */
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
  /** tmux's own id, such as `$3`, which no rename changes. */
  id: string;
  name: string;
  /** Devices that have attached it; empty if it was not made by a relay, or by an earlier version. */
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
  /** Hash of the family of the device that attached last; empty if unknown. */
  last: string;
  /** The last non-blank line; empty if unknown. */
  lastLine: string;
}

export type Tmux = ReturnType<typeof createTmux>;

export interface TmuxDeps {
  host: Pick<Host, 'env' | 'files' | 'children'> & { users?: Pick<HostUsers, 'home'> };
  agentHome: string;
  clock: Pick<Clock, 'monotonic'>;
  log: Log;
}

/** Runs tmux on a separate server, with exact targets, without a shell (contract 02 §3.5). `file` is its path. */
export function createTmux(file: string, { host, agentHome, clock, log }: TmuxDeps) {
  let ready: Promise<string[]> | undefined;
  let pastes = 0;
  let settingEscapeTime: Promise<unknown> = Promise.resolve();
  /** Keyed by name: the results of the last list. */
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
    // A relay killed during a paste leaves its escape-time on the server. Without a server, this has no effect.
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

  /**
   * Logs the names of the shells on the server that this home shared with others, which tmux cannot move to another server.
   */
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
      for (let attempt = 1; ; attempt++) {
        const outcome = await execute([...(await common()), ...args]);
        // The server ended with its last session during the command; only the next answer says whether there is another.
        const isEnded = !outcome.ok && ENDED.test(firstLine(outcome.stderr));
        if (!isEnded || attempt === MAX_ATTEMPTS) return outcome;
      }
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
   * Output of a command; undefined if tmux says that there is no such session, or no server.
   * @throws Error on every other failure, since it is unknown what runs then.
   */
  async function ask(args: string[]): Promise<string | undefined> {
    const { ok, stdout, stderr } = await run(args);
    if (ok) return stdout;
    const problem = firstLine(stderr);
    if (ABSENT.test(problem)) return undefined;
    throw new Error(`tmux ${args[0]} failed: ${problem || 'it did not run'}`);
  }

  /** Sets the server's escape-time after any running change, if it is still wanted then. */
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
     * With an escape-time of 0, tmux splits a character whose bytes do not arrive together, and the kernel may cut a paste
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
     * Arguments of a client that attaches to a session, or creates it with a login shell. Records the device in the session,
     * and whether it is `ofRun`.
     */
    async attachArguments(
      tmuxName: string,
      { name, shell, owner, ofRun }: { name: string; shell: string; owner: Owner; ofRun: boolean },
    ): Promise<string[]> {
      // tmux expands formats in `-s`. None of this is a shell string: env and the shell get their arguments unchanged.
      const session = argument(tmuxName.replaceAll('#', '##'));
      const words = ['env', argument(`${SESSION_VARIABLE}=${name}`), argument(shell), '-l'];
      const note = ['set-option', OWNER_OPTION + owner.family, owner.device || '-'];
      const last = ['set-option', LAST_OPTION, owner.family];
      const mark = ofRun ? [';', 'set-option', RUN_OPTION, '1'] : [];
      return [...(await common()), 'new-session', '-A', '-s', session, ...words, ';', ...note, ';', ...last, ...mark];
    },

    /** Arguments of a client that shows a session, accepts no input, and has no influence on its size. Records no device. */
    watchArguments: async (tmuxName: string): Promise<string[]> => [
      ...(await common()),
      'attach-session',
      '-r',
      '-t',
      target(tmuxName),
    ],

    /** The size of a session's window; undefined if the session does not exist. */
    async size(tmuxName: string): Promise<Size | undefined> {
      const format = '#{window_width} #{window_height}';
      const { ok, stdout } = await run(['display-message', '-p', '-t', `${target(tmuxName)}:`, format]);
      const [, cols, rows] = (ok && /^(\d+) (\d+)$/.exec(stdout.trim())) || [];
      return cols === undefined ? undefined : sizeOf(Number(cols), Number(rows));
    },

    exists: async (tmuxName: string): Promise<boolean> => (await run(['has-session', '-t', target(tmuxName)])).ok,

    /** Like `exists`. @throws Error if that cannot be determined. */
    surelyExists: async (tmuxName: string): Promise<boolean> =>
      (await ask(['has-session', '-t', target(tmuxName)])) !== undefined,

    /** Ends a session. Returns false if it does not exist. */
    kill: async (tmuxName: string): Promise<boolean> => (await run(['kill-session', '-t', target(tmuxName)])).ok,

    /** Every session of the server, with the devices that have attached it. @throws Error if that cannot be determined. */
    async shells(): Promise<TmuxShell[]> {
      const stdout = (await ask(['list-sessions', '-F', '#{session_id} #{session_name}'])) ?? '';
      const found = stdout.split('\n').flatMap((line) => {
        const [, id, name] = /^(\$\d+) (.+)$/.exec(line) ?? [];
        return id === undefined || name === undefined ? [] : [{ id, name: unescaped(name) }];
      });
      return Promise.all(found.map(async (shell) => ({ ...shell, owners: await ownersOf(shell.id) })));
    },

    /** Ids of the sessions that agent runs have opened. @throws Error if that cannot be determined. */
    async ofRuns(): Promise<string[]> {
      const stdout = (await ask(['list-sessions', '-F', `#{session_id} #{${RUN_OPTION}}`])) ?? '';
      return stdout.split('\n').flatMap((line) => /^(\$\d+) 1$/.exec(line)?.[1] ?? []);
    },

    /** The origin of the programs in a session; undefined if it is gone. @throws Error if that cannot be determined. */
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

    /** Ends a session by its id, if it exists. @throws Error if it may still run. */
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

    /** Every session of the relay's server. Empty, with a warning, if tmux fails (contract 02 §3.5). */
    async list(): Promise<TmuxSession[]> {
      const counts = '#{session_attached} #{session_windows} #{session_created} #{window_activity}';
      const asked = ask(['list-sessions', '-F', `${counts} #{${LAST_OPTION}} #{session_name}`]);
      const stdout = await asked.catch((error) => log.warn(`shells in tmux cannot be listed: ${describeError(error)}`));
      const found = (stdout ?? '').split('\n').flatMap((line) => {
        const [, attached, windows, createdAt, activeAt, last = '', name] = LISTED.exec(line) ?? [];
        if (name === undefined) return [];
        const times = { createdAt: Number(createdAt), activeAt: Number(activeAt) };
        return [{ name: unescaped(name), attached: Number(attached), windows: Number(windows), ...times, last }];
      });
      const lines = await lastLinesOf(found);
      return found.map((session) => ({ ...session, lastLine: lines.get(session.name)?.line ?? '' }));
    },
  };

  /** The last lines of sessions. Screens without a change since the last list are not read again. */
  async function lastLinesOf(sessions: Omit<TmuxSession, 'lastLine'>[]): Promise<typeof lastLines> {
    const now = clock.monotonic();
    const lines: typeof lastLines = new Map();
    const changed: typeof sessions = [];
    for (const session of sessions) {
      const known = lastLines.get(session.name);
      if (known?.createdAt === session.createdAt) lines.set(session.name, known);
      // Activity has a resolution of whole seconds, so a read within the same second may have missed something.
      const isSame = known?.createdAt === session.createdAt && known.activeAt === session.activeAt;
      if (!isSame || known.seen - known.since < 1_000) changed.push(session);
    }
    const captured = changed.sort((a, b) => b.activeAt - a.activeAt).slice(0, MAX_SCREENS);
    const screens = captured.length === 0 ? [] : await screensOf(captured.map(({ name }) => name));
    for (const [at, screen] of screens.entries()) {
      const { name, createdAt, activeAt } = captured[at] as (typeof captured)[number];
      const known = lines.get(name);
      const since = known?.activeAt === activeAt ? known.since : now;
      lines.set(name, { line: lastLineOf(screen), createdAt, activeAt, since, seen: now });
    }
    lastLines = lines;
    return lines;
  }

  /** The screens of sessions, with one command. It stops at a session that has gone meanwhile, so there may be fewer. */
  async function screensOf(names: string[]): Promise<string[]> {
    const mark = bytesToHex(randomBytes(16));
    const commands = names.flatMap((name, at) => {
      const end = ['display-message', '-p', mark];
      return [...(at === 0 ? [] : [';']), 'capture-pane', '-p', '-t', `${target(name)}:`, ';', ...end];
    });
    return (await run(commands)).stdout.split(`${mark}\n`).slice(0, -1);
  }
}

/** The last line of a session, from a list. */
interface SeenLine {
  line: string;
  /** As in `TmuxSession`. */
  createdAt: number;
  activeAt: number;
  /** Milliseconds (monotonic) of the first and the last read since that activity. */
  since: number;
  seen: number;
}

interface Outcome {
  ok: boolean;
  stdout: string;
  stderr: string;
}

/**
 * Messages of tmux about a session that is gone, a server without sessions that is about to end, one that has ended, and a
 * missing socket (seen with 3.3a).
 */
const ABSENT =
  /^(no such session: |can't find session: |no current target$|no server running on |error connecting to .+ \(No such file or directory\)$)/;

/** Messages of tmux about a server that ended before it answered. */
const ENDED = /^(server exited unexpectedly|lost server|server exited)$/;
const MAX_ATTEMPTS = 3;

const LISTED = /^(\d+) (\d+) (\d+) (\d+) ([0-9a-f]*) (.+)$/;

const OWNER_LINE = new RegExp(`^${OWNER_OPTION}([0-9a-f]{16}) ([0-9a-f]{16}|-)$`);

const firstLine = (text: string): string => text.split('\n', 1)[0] as string;

/**
 * Name of the tmux server's socket: two relays of one user share no shells (contract 02 §3.5).
 * @throws Error if the real path of the home cannot be determined: another name would mean another server, without the
 * shells.
 */
export async function socketOf({ env, files, users }: TmuxDeps['host'], agentHome: string): Promise<string> {
  const real = async (path: string): Promise<string> => (await unlessUnreadable(files.realPath(path))) ?? path;
  const home = await real(agentHome);
  // Not `HOME`, since two relays of one account that differ only in it would share a server.
  const own = users ? users.home : env.HOME;
  const isDefault = own != null && home === (await real(`${own}/.svc`));
  return isDefault ? SOCKET : `${SOCKET}-${sha256(home).slice(0, 8)}`;
}

const escapeTimeOf = (ms: number): string[] => ['set-option', '-s', 'escape-time', String(ms)];

/** Exactly this session: without `=` tmux also accepts prefixes and patterns. */
const target = (tmuxName: string): string => argument(`=${escaped(tmuxName)}`);

/** tmux takes a trailing `;` for the end of a command. */
const argument = (text: string): string => text.replace(/;$/, '\\;');

/** tmux stores names with `\` doubled and `$x` escaped, and targets must be written in that form (seen with 3.3a). */
const escaped = (name: string): string => name.replaceAll('\\', '\\\\').replace(/\$(?=[A-Za-z_{])/g, '\\$');
const unescaped = (stored: string): string => stored.replace(/\\([\\$])/g, '$1');
