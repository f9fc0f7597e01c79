import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { bytesToHex, randomBytes } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { childEnvironment, resolveShell, SHELL_VARIABLE, workingDirectory } from './environment.ts';
import { type Size, tmuxName } from './names.ts';
import type { Owner } from './owner.ts';
import { createSession, type Session } from './session.ts';
import type { State } from './states.ts';
import { createTmux, type Tmux } from './tmux.ts';

export interface LauncherDeps {
  host: Host;
  config: Pick<Config, 'terminalShell' | 'terminalTmux' | 'terminalGraceSeconds'>;
  clock: Clock;
  log: Log;
}

export interface LaunchRequest {
  name: string;
  /** Shell that the client prefers. */
  shell?: string;
  size: Size;
  /** The agent run that opens the shell; absent if the owner opens it (contract 09 §3). */
  runId?: string;
  /** True to only watch an existing shell (contract 09 §1). */
  isWatch?: boolean;
}

export interface LaunchOptions {
  /** True if the client, its grant or the relay has gone meanwhile. */
  isGone(): boolean;
  /** The device that attaches. */
  owner: Owner;
  /** Called with the session before any other event of it. */
  onStart(session: Session): void;
  onChange(session: Session, state: State): void;
}

export type LaunchResult =
  | { kind: 'started'; session: Session; reattach: boolean; replay?: string }
  | { kind: 'gone' }
  /** There is no session to watch. */
  | { kind: 'no-session' }
  | { kind: 'no-shell' }
  | { kind: 'failed' };

/** Starts the programs of terminal sessions: a tmux client where tmux is available, otherwise a bare login shell. */
export function createLauncher({ host, config, clock, log }: LauncherDeps) {
  let detecting: Promise<Tmux | undefined> | undefined;

  /** @throws Error if that cannot be determined; the next call tries again. */
  function detectTmux(): Promise<Tmux | undefined> {
    detecting ??= find().catch((error) => {
      detecting = undefined;
      log.warn(`tmux cannot be used: ${describeError(error)}`);
      throw error;
    });
    return detecting;
  }

  async function find(): Promise<Tmux | undefined> {
    if (!config.terminalTmux) return undefined;
    const file = await host.children.find('tmux');
    return file === null ? undefined : createTmux(file, { host, agentHome: host.agentHome, clock, log });
  }

  const usableTmux = (): Promise<Tmux | undefined> => detectTmux().catch(() => undefined);
  void usableTmux();

  return {
    /** tmux, or undefined if it is not available. */
    tmux: usableTmux,

    detectTmux,

    /** The shell of sessions whose client requests none. */
    defaultShell: (): Promise<string | undefined> =>
      resolveShell(host.children, [config.terminalShell, host.env.SHELL]),

    /** Attaches to a tmux session, or starts a shell. */
    async launch(
      { name, shell: wanted, size: asked, runId, isWatch = false }: LaunchRequest,
      { isGone, owner, onStart, onChange }: LaunchOptions,
    ): Promise<LaunchResult> {
      const tmux = await usableTmux();
      const shell = await resolveShell(host.children, [wanted, config.terminalShell, host.env.SHELL]);
      if (shell === undefined) return { kind: 'no-shell' };
      const target = tmux && tmuxName(name);
      const failed = (error: unknown) => log.error(`cannot start terminal ${name}: ${describeError(error)}`);
      // An agent run must not take a shell of its owner for its own, which a freeze would end.
      const known = runId === undefined ? tmux?.exists : tmux?.surelyExists;
      const reattach = target === undefined ? false : await known?.(target).catch(failed);
      if (reattach === undefined) return { kind: 'failed' };
      const replay = target !== undefined && reattach ? await tmux?.capture(target) : undefined;
      const file = target === undefined ? shell : tmux?.file;
      const ofRun = runId !== undefined && !reattach;
      // A client of another size would see a part of the window, or, as the only client, shrink it.
      const size = isWatch ? target && (await tmux?.size(target)) : asked;
      if (!size || (isWatch && !reattach)) return { kind: 'no-session' };
      const args =
        target === undefined
          ? ['-l']
          : isWatch
            ? await tmux?.watchArguments(target)
            : await tmux?.attachArguments(target, { name, shell, owner, ofRun });
      const env = childEnvironment(host.env, name);
      const mark = bytesToHex(randomBytes(16));
      // Not for a tmux client, since the server that it may start would pass the mark on to shells of other devices.
      if (target === undefined) env[SHELL_VARIABLE] = mark;
      const cwd = await workingDirectory(host);
      if (isGone() || file === undefined || args === undefined) return { kind: 'gone' };
      try {
        const session: Session = createSession({
          name,
          shell,
          tmuxName: target,
          mark: `${SHELL_VARIABLE}=${mark}`,
          paste: tmux?.paste,
          size,
          isWatch,
          clock,
          log,
          terminal: (host.terminals as NonNullable<Host['terminals']>).open({ file, args, env, cwd }, size),
          parks: target === undefined && config.terminalGraceSeconds > 0,
          onChange: (state) => onChange(session, state),
        });
        onStart(session);
        return { kind: 'started', session, reattach, replay: replay || undefined };
      } catch (error) {
        failed(error);
        return { kind: 'failed' };
      }
    },
  };
}
