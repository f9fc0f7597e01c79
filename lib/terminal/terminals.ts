import type { Config } from '../config.ts';
import { describeError, RelayError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import type { Clock } from '../kit/clock.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import type { Gate } from '../operations/gate.ts';
import type { Session as PairedSession } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Connection } from '../socket/channel.ts';
import { createLauncher, type LaunchRequest, type LaunchResult } from './launcher.ts';
import { listRows, type Row } from './list.ts';
import { type Size, tmuxName } from './names.ts';
import { familyHash, ownerOf } from './owner.ts';
import { createParkedShells } from './parked-shells.ts';
import { createRunShells } from './run-shells.ts';
import type { Replay } from './screen.ts';
import type { Session } from './session.ts';
import { createShellEnds, NO_SHELLS, type ShellsGone } from './shell-ends.ts';
import type { Tmux } from './tmux.ts';
import type { Viewer } from './viewer.ts';
import { MAX_WATCHERS, type Watch } from './watchers.ts';
import { createWindowSizes } from './window-sizes.ts';

const MAX_PER_SOCKET = 4;
const MAX_SESSIONS = 64;
/** Milliseconds for a socket to show a sign of life when its device requests a shell of that socket. */
const ANSWER_TIMEOUT = 2_000;
const SHUTDOWN_TIMEOUT = 3_000;

export interface TerminalsDeps {
  /** Absent at the edge, where no programs can be started. */
  host?: Host;
  config: Pick<Config, 'terminalShell' | 'terminalTmux' | 'terminalGraceSeconds'>;
  sessions: Pick<Sessions, 'byFamily' | 'list' | 'onEnd' | 'onReduce' | 'shellsEnded' | 'takeExpiredWhileDown'>;
  gate: Pick<Gate, 'requireThawed' | 'onChange'>;
  clock: Clock;
  log: Log;
}

/** Why nothing can be started on this relay. */
export type Unavailable = { kind: 'no-host' } | { kind: 'no-pty' };

export type AttachResult =
  | { kind: 'attached' }
  /** The socket, the grant or the relay ended during the start. */
  | { kind: 'gone' }
  | { kind: 'full'; limit: number; of: 'socket' | 'relay' }
  /** The shell to watch does not exist. */
  | { kind: 'no-session' }
  /** This socket already uses the name: as its own shell if it wants to watch, or the other way round. */
  | { kind: 'taken' }
  | { kind: 'no-shell' }
  /** The relay is frozen, and an agent run made the request (contract 09 §3). */
  | { kind: 'frozen'; message: string }
  | { kind: 'failed' }
  | Unavailable;

export type KillResult =
  | { kind: 'killed'; name: string }
  | { kind: 'unknown'; name?: string; tmux: boolean }
  | { kind: 'no-host' };

export interface AttachRequest extends LaunchRequest {
  /** Characters that the client accepts without having rendered them; absent for a client that does not acknowledge. */
  window?: number;
}

/** A connection's session by name: its own, or one that it only watches. */
interface Held {
  session: Session;
  /** Set for a watcher. Under tmux, the session is a client for the watcher alone. */
  watch?: Watch;
  /** True if an agent run watches. */
  ofRun?: boolean;
}

/** Sessions of one connection, in the order in which they were attached. */
interface Attachments {
  sessions: Map<string, Held>;
  /** A running attach; the channel's queue allows only one. */
  attempt?: { cancelled: boolean };
}

type Started = { kind: 'started'; session: Session; reattach: boolean } & Partial<Replay>;

export type Terminals = ReturnType<typeof createTerminals>;

/**
 * The terminal sessions of the relay (contract 02 §3): at most 4 per socket, 64 in total. Messages of one connection must
 * come one after another; the end of a socket, the loss of a grant and the shutdown may come at any time.
 *
 * Without tmux, a shell whose client disconnects is parked: the same device (session family) gets it back under the same
 * name. Parked shells count towards the limit, and make room for new ones. Live sockets of one device have separate shells
 * under equal names (contract 02 §3.2); a dead socket that still seems open loses its shell to the device.
 */
export function createTerminals({ host, config, sessions, gate, clock, log }: TerminalsDeps) {
  const byConnection = new Map<Connection, Attachments>();
  /** Session family of every session that is not closed. */
  const families = new Map<Session, string>();
  /** Paired session behind every session whose program has not been reaped. */
  const running = new Map<Session, PairedSession>();
  const parkedShells = createParkedShells({ sessions, graceSeconds: config.terminalGraceSeconds, clock });
  const runShells = createRunShells();
  const launcher = host && createLauncher({ host, config, clock, log });
  const shellEnds =
    host && createShellEnds({ host, running, sessions, clock, log, tmux: () => launcher?.detectTmux() });
  const windowSizes = createWindowSizes({ live: () => families.keys(), tmux: () => launcher?.tmux(), clock });
  let launching = 0;
  let isStopping = false;

  if (host && !host.terminals) log.warn('no pseudo-terminals on this host: terminal sessions are off');

  function attachmentsOf(connection: Connection): Attachments {
    const existing = byConnection.get(connection);
    if (existing) return existing;
    const attachments: Attachments = { sessions: new Map() };
    if (connection.isOpen) byConnection.set(connection, attachments);
    return attachments;
  }

  /** Finds a connection's session by name, or without a name, the session that it attached last. */
  const find = (connection: Connection, name: string | undefined): Held | undefined => {
    const attached = byConnection.get(connection)?.sessions;
    return name === undefined ? [...(attached?.values() ?? [])].at(-1) : attached?.get(name);
  };

  /** The connection's own session of a name. */
  const findOwn = (connection: Connection, name: string | undefined): Session | undefined => {
    const held = find(connection, name);
    return held?.watch ? undefined : held?.session;
  };

  /** Removes a session from its connection, and a closed one from its watchers too. */
  function detach(session: Session): void {
    parkedShells.remove(session);
    for (const { sessions } of byConnection.values()) {
      const held = sessions.get(session.name);
      if (held?.session === session && (session.state === 'closed' || !held.watch)) sessions.delete(session.name);
    }
  }

  /** Ends a connection's use of a name. Its own session follows its states; a watcher just leaves. */
  function leave(
    connection: Connection,
    name: string,
    event: 'detach' | 'lost' | 'grant-lost' | 'frozen',
    id?: string,
  ) {
    const attached = byConnection.get(connection)?.sessions;
    const held = attached?.get(name);
    if (held?.watch === undefined) return void held?.session.dispatch(event, { id });
    attached?.delete(name);
    held.watch.end(event, { id });
  }

  /**
   * Parks the shell that another socket of this device holds under a name, if that socket shows no sign of life. A socket
   * that was merely slow gets `client detach`, and keeps its other sessions.
   */
  async function reclaim(connection: Connection, name: string): Promise<void> {
    const { family } = connection.session;
    if (config.terminalGraceSeconds === 0 || parkedShells.find(family, name)) return;
    const others = [...byConnection].flatMap(([other, { sessions }]) => {
      const held = sessions.get(name);
      const isBareShell =
        other !== connection && other.session.family === family && held?.session.tmuxName === undefined;
      return held && !held.watch && isBareShell ? [{ other, held }] : [];
    });
    const answers = await Promise.all(others.map(({ other }) => other.answers(ANSWER_TIMEOUT)));
    const dead = others.findLast(({ other, held }, at) => !answers[at] && find(other, name) === held);
    dead?.held.session.dispatch('detach');
  }

  /** Unparks a device's shell. Returns undefined if no shell is parked, or if it has just ended. */
  async function unpark(
    connection: Connection,
    { name, size }: LaunchRequest,
    isGone: () => boolean,
  ): Promise<Started | { kind: 'gone' } | undefined> {
    const session = parkedShells.find(connection.session.family, name);
    if (!session) return undefined;
    parkedShells.remove(session);
    const replay = await session.unpark(size);
    if (session.state !== 'attaching') return undefined;
    if (isGone()) {
      session.repark();
      return { kind: 'gone' };
    }
    return { kind: 'started', session, reattach: true, ...replay };
  }

  async function launch(connection: Connection, request: LaunchRequest, isGone: () => boolean): Promise<LaunchResult> {
    const { session: paired } = connection;
    const { family } = paired;
    launching++;
    try {
      return (
        (await launcher?.launch(request, {
          isGone,
          owner: ownerOf(paired),
          onStart(session) {
            families.set(session, family);
            running.set(session, paired);
            void session.exited.then(() => running.delete(session));
          },
          onChange(session, state) {
            if (state === 'closed' || state === 'parked') detach(session);
            if (state === 'closed') {
              families.delete(session);
              windowSizes.mayChange(session.tmuxName);
            }
            if (state === 'parked') parkedShells.park(session, family);
          },
        })) ?? { kind: 'failed' }
      );
    } finally {
      launching--;
    }
  }

  /** Returns a parked shell, or starts another one, for which the shell parked longest may have to end. */
  async function open(
    connection: Connection,
    request: LaunchRequest,
    isGone: () => boolean,
  ): Promise<Started | Exclude<AttachResult, { kind: 'attached' }>> {
    if (!request.isWatch) {
      await reclaim(connection, request.name);
      const parked = await unpark(connection, request, isGone);
      if (parked) return parked;
    }
    const hasRoom = families.size + launching < MAX_SESSIONS || parkedShells.evictOldest();
    if (!hasRoom) return { kind: 'full', limit: MAX_SESSIONS, of: 'relay' };
    return launch(connection, request, isGone);
  }

  /** The bare shell that a device sees under a name: one of this connection, else the one started last. */
  function bareShell(connection: Connection, name: string): Session | undefined {
    const found = [...families].filter(([session]) => session.tmuxName === undefined && session.name === name);
    const own = found.filter(([, family]) => family === connection.session.family);
    return (own.at(-1) ?? found.at(-1))?.[0];
  }

  /** The bare shell that a connection wants to watch, with its screen. */
  async function watchBare(
    connection: Connection,
    { name }: AttachRequest,
    isGone: () => boolean,
  ): Promise<{ kind: 'watching'; session: Session; shown?: string } | { kind: 'gone' | 'no-session' }> {
    const session = bareShell(connection, name);
    const shown = await session?.glance(true);
    if (isGone()) return { kind: 'gone' };
    return session && session.state !== 'closed' ? { kind: 'watching', session, shown } : { kind: 'no-session' };
  }

  /** Kills a tmux session, even one that a client is about to create. Returns false if there was none. */
  async function killTmux(tmux: Tmux, target: string): Promise<boolean> {
    const clients = [...running.keys()].filter((session) => session.tmuxName === target);
    await Promise.all(clients.map((session) => session.hasDrawn()));
    const killed = await tmux.kill(target);
    await Promise.all(clients.filter((session) => session.state === 'closed').map((session) => session.exited));
    // A client that was starting may have created it meanwhile.
    return (clients.length > 0 && (await tmux.kill(target))) || killed;
  }

  /** Ends the shells that agent runs opened, and the runs' attachments to others. */
  async function endRunShells(): Promise<void> {
    for (const session of running.keys()) if (runShells.isOfRun(session)) session.dispatch('frozen');
    for (const [connection, { sessions }] of byConnection)
      for (const [name, { ofRun }] of [...sessions]) if (ofRun) leave(connection, name, 'frozen');
    const names = runShells.take();
    const tmux = await launcher?.tmux();
    if (!tmux) return;
    await Promise.all(names.map((name) => killTmux(tmux, tmuxName(name))));
    // Shells of an earlier process, and others that are not remembered.
    await Promise.all((await tmux.ofRuns()).map((id) => tmux.end(id)));
  }

  function stopRuns(): void {
    endRunShells().catch((error) => log.error(`shells of an agent's run may go on: ${describeError(error)}`));
  }

  gate.onChange((freeze) => {
    if (freeze) stopRuns();
  });
  // The last process may have stopped before it had ended them.
  if (frozen()) stopRuns();

  /** Returns why an agent run may not open a shell. */
  function frozen(): Extract<AttachResult, { kind: 'frozen' }> | undefined {
    try {
      gate.requireThawed();
      return undefined;
    } catch (error) {
      if (error instanceof RelayError) return { kind: 'frozen', message: error.message };
      throw error;
    }
  }

  return {
    /** True if tmux hosts the shells of this relay. */
    hasTmux: async (): Promise<boolean> => (await launcher?.tmux()) !== undefined,

    /** Attaches to a session, or creates it. On `attached`, the viewer was notified and gets output from now on. */
    async attach(connection: Connection, request: AttachRequest, viewer: Viewer): Promise<AttachResult> {
      if (!host) return { kind: 'no-host' };
      if (!host.terminals) return { kind: 'no-pty' };
      const attachments = attachmentsOf(connection);
      const { name, window, runId, isWatch = false } = request;
      const isFrozen = runId === undefined ? undefined : frozen();
      if (isFrozen) return isFrozen;
      const held = attachments.sessions.get(name);
      if (held && isWatch !== (held.watch !== undefined)) return { kind: 'taken' };
      if (held?.watch) leave(connection, name, 'lost');
      else if (held) {
        const { session } = held;
        session.resize(request.size);
        windowSizes.mayChange(session.tmuxName);
        attachments.sessions.delete(name);
        attachments.sessions.set(name, held);
        viewer.attached({ pid: session.pid, shell: session.shell, size: request.size, reattach: true });
        session.reopen(window);
        return { kind: 'attached' };
      }
      if (attachments.sessions.size >= MAX_PER_SOCKET) return { kind: 'full', limit: MAX_PER_SOCKET, of: 'socket' };
      const attempt = { cancelled: false };
      attachments.attempt = attempt;
      let wasFrozen = false;
      const unfollow = gate.onChange((freeze) => {
        wasFrozen ||= freeze !== undefined;
      });
      const isGone = () => attempt.cancelled || isStopping || !connection.isOpen;
      try {
        const isBare = isWatch && !(await launcher?.tmux());
        const opened = await (isBare ? watchBare : open)(connection, request, isGone);
        if (opened.kind === 'watching') {
          const watch = opened.session.watch(viewer, opened.shown, window);
          if (!watch) return { kind: 'full', limit: MAX_WATCHERS, of: 'relay' };
          attachments.sessions.set(name, { session: opened.session, watch, ofRun: runId !== undefined });
        } else if (opened.kind === 'started') {
          const { kind: _, session, ...shown } = opened;
          attachments.sessions.set(name, { session, ...(isWatch && { watch: watchOf(session) }) });
          runShells.opened(session, { name, runId, reattach: shown.reattach });
          session.open(viewer, { window, ...shown });
          windowSizes.mayChange(session.tmuxName);
        } else return opened;
        // A freeze during the start has missed the shell, even if the freeze is over.
        if (runId !== undefined && wasFrozen) await endRunShells();
        return { kind: 'attached' };
      } finally {
        unfollow();
        attachments.attempt = undefined;
      }
    },

    /** Number of shells that a connection is attached to. */
    shellsOf: (connection: Connection): number => byConnection.get(connection)?.sessions.size ?? 0,

    /**
     * Types text into a session. Returns false if too much input waits for its program; input for unknown sessions is
     * ignored.
     */
    input: (connection: Connection, name: string | undefined, text: string): boolean =>
      findOwn(connection, name)?.write(text) ?? true,

    /** The client has rendered this many characters of a session since it attached (contract 09 §1). */
    acknowledge(connection: Connection, name: string | undefined, chars: unknown): void {
      const held = find(connection, name);
      (held?.watch ?? held?.session)?.acknowledge(chars);
    },

    resize(connection: Connection, name: string | undefined, size: Size): void {
      const session = findOwn(connection, name);
      session?.resize(size);
      windowSizes.mayChange(session?.tmuxName);
    },

    /** Detaches from a session and notifies its viewer, with the id of the message. The shell stays in tmux or parked. */
    detach(connection: Connection, name: string | undefined, id: string): void {
      const held = find(connection, name);
      if (held) leave(connection, held.session.name, 'detach', id);
    },

    /**
     * Kills a session and its shell: one of this connection, any tmux session of the relay, or a parked shell of this
     * device. The viewer is not notified, since the caller answers with the result.
     */
    async kill(connection: Connection, name: string | undefined): Promise<KillResult> {
      if (!host) return { kind: 'no-host' };
      const own = findOwn(connection, name);
      const wanted = own?.name ?? name;
      const tmux = await launcher?.tmux();
      if (wanted === undefined) return { kind: 'unknown', tmux: tmux !== undefined };
      const session = own ?? parkedShells.find(connection.session.family, wanted);
      session?.dispatch('kill', { silent: true });
      if (!tmux) {
        await session?.exited;
        return session ? { kind: 'killed', name: wanted } : { kind: 'unknown', name: wanted, tmux: false };
      }
      // tmux's server ends with its last session, which would also end a client that is about to create another one.
      const others = [...running.keys()].filter((other) => other.tmuxName !== undefined);
      await Promise.all(others.map((other) => other.hasDrawn()));
      const killed = await killTmux(tmux, tmuxName(wanted));
      return killed || own ? { kind: 'killed', name: wanted } : { kind: 'unknown', name: wanted, tmux: true };
    },

    /** The sessions that a connection may attach to. */
    async list(connection: Connection): Promise<{ kind: 'listed'; rows: Row[]; tmux: boolean } | { kind: 'no-host' }> {
      if (!launcher) return { kind: 'no-host' };
      const tmux = await launcher.tmux();
      const shell = await launcher.defaultShell();
      const listed = tmux ? await tmux.list() : undefined;
      const held = [...(byConnection.get(connection)?.sessions.values() ?? [])];
      const own = new Set(held.flatMap(({ session, watch }) => (watch ? [] : [session])));
      const parked = parkedShells.ofFamily(connection.session.family);
      const nameOf = (family = '') => sessions.byFamily(family)?.device.name;
      let hashes: Map<string, string> | undefined;
      const deviceOfFamily = (hash: string) => {
        hashes ??= new Map(sessions.list().map(({ family }) => [familyHash(family), family]));
        return nameOf(hashes.get(hash));
      };
      const deviceOf = (session: Session) => nameOf(families.get(session));
      const live = [...families.keys()];
      const rows = listRows({ listed, live, own, parked, shell: shell ?? '', deviceOf, deviceOfFamily });
      return { kind: 'listed', rows, tmux: tmux !== undefined };
    },

    /** Releases every session of a connection that has ended or lost its grant. Idempotent. */
    release(connection: Connection, why: 'lost' | 'grant-lost'): void {
      const attachments = byConnection.get(connection);
      if (!attachments) return;
      shellEnds?.check(connection.session);
      if (attachments.attempt) attachments.attempt.cancelled = true;
      for (const name of [...attachments.sessions.keys()]) leave(connection, name, why);
      if (why === 'lost') byConnection.delete(connection);
      else parkedShells.recheck(connection.session.family);
    },

    /** Ends the shells of a device that is revoked: see `ShellEnds.end`. */
    endShells: async (revoked: PairedSession): Promise<ShellsGone> => (await shellEnds?.end(revoked)) ?? NO_SHELLS,

    /** Counts the shells that end with a reduction (contract 01 §6.4): see `ShellEnds.afterReduction`. */
    afterReduction: async (reduced: PairedSession): Promise<ShellsGone> =>
      (await shellEnds?.afterReduction(reduced)) ?? NO_SHELLS,

    /** Tells every viewer `server shutdown` and ends every program except shells in tmux. */
    async stop(): Promise<void> {
      isStopping = true;
      windowSizes.stop();
      for (const session of [...families.keys()]) session.dispatch('shutdown');
      const exits = Promise.all([...[...running.keys()].map((session) => session.exited), shellEnds?.stop()]);
      await withTimeout({ clock, timeout: SHUTDOWN_TIMEOUT }, exits, () => {});
    },
  };
}

/** The watcher with its own tmux client. */
const watchOf = (session: Session): Watch => ({
  acknowledge: session.acknowledge,
  end: (event, end) => void session.dispatch(event, end),
});
