import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { type Expiry, isGranted } from '../sessions/grants.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Connection } from '../socket/channel.ts';
import { childEnvironment, workingDirectory } from './environment.ts';
import { listRows, type Row } from './list.ts';
import { type Size, tmuxName } from './names.ts';
import { createSession, type Session, type Viewer } from './session.ts';
import { resolveShell } from './shell.ts';
import { createTmux, type Tmux } from './tmux.ts';

const MOST_PER_SOCKET = 4;
const MOST = 64;
/** How long a socket may take to show that it is alive, in milliseconds, when its device wants a shell of it anew. */
const ANSWER_PATIENCE = 2_000;
const SHUTDOWN_PATIENCE = 3_000;

export interface TerminalsParts {
  /** Absent at the edge, where no program can be started. */
  host?: Host;
  config: Pick<Config, 'terminalShell' | 'terminalTmux' | 'terminalGraceSeconds'>;
  sessions: Pick<Sessions, 'byFamily' | 'onEnd' | 'onReduce'>;
  clock: Clock;
  log: Log;
}

export interface AttachRequest {
  name: string;
  /** The shell the client would like. */
  shell?: string;
  size: Size;
}

/** Why nothing can be started on this relay. */
export type Unavailable = { kind: 'no-host' } | { kind: 'no-pty' };

export type AttachResult =
  | { kind: 'attached' }
  /** Ended while it was starting: the socket, the grant or the relay is gone. */
  | { kind: 'gone' }
  | { kind: 'full'; most: number; of: 'socket' | 'relay' }
  | { kind: 'no-shell' }
  | { kind: 'failed' }
  | Unavailable;

export type KillResult =
  | { kind: 'killed'; name: string }
  | { kind: 'unknown'; name?: string; tmux: boolean }
  | { kind: 'no-host' };

/** What a connection has attached, in the order of its attaches. */
interface Seat {
  sessions: Map<string, Session>;
  /** An attach under way; the lane of the channel sees to it that there is only one. */
  attempt?: { cancelled: boolean };
}

/** A bare shell that waits for its device. */
interface Parked {
  session: Session;
  family: string;
  since: number;
  cancel: Cancel;
}

export type Terminals = ReturnType<typeof createTerminals>;

/**
 * The terminal sessions of the relay (contract 02 §3): at most 4 per socket, 64 in all. Messages of one connection
 * must come one after another; its end, the loss of its grant and the shutdown may come at any time.
 *
 * Without tmux a shell whose client went away is parked: the same device (session family) gets it back under the
 * same name until the grace time or the terminal grant is over. Parked shells count, and make room for new ones.
 * Sockets that are alive have shells of their own under equal names (contract 02 §3.2); one that only looks open, the
 * network behind it being gone, gives its shell back to its device.
 */
export function createTerminals({ host, config, sessions, clock, log }: TerminalsParts) {
  const seats = new Map<Connection, Seat>();
  const parked = new Set<Parked>();
  /** Sessions that are not closed, with whose they are. */
  const live = new Map<Session, string>();
  /** Programs and tmux clients that have not been reaped. */
  const running = new Set<Session>();
  let opening = 0;
  let isStopping = false;

  // What takes a family away may give it to a new session right after (a refresh): look once that has happened.
  const recheck = ({ family }: { family: string }) => queueMicrotask(() => endForbidden(family));
  sessions.onEnd(recheck);
  sessions.onReduce(recheck);

  if (host && !host.terminals) log.warn('no pseudo-terminals on this host: terminal sessions are off');
  const tmuxReady = host ? detectTmux(host) : Promise.resolve(undefined);

  async function detectTmux(host: Host): Promise<Tmux | undefined> {
    if (!config.terminalTmux) return undefined;
    try {
      const file = await host.children.find('tmux');
      return file === null ? undefined : createTmux(file, { host, agentHome: host.agentHome });
    } catch (error) {
      log.warn(`tmux cannot be used: ${describeError(error)}`);
      return undefined;
    }
  }

  function seatOf(connection: Connection): Seat {
    const existing = seats.get(connection);
    if (existing) return existing;
    const seat: Seat = { sessions: new Map() };
    if (connection.isOpen) seats.set(connection, seat);
    return seat;
  }

  const find = (connection: Connection, name: string | undefined): Session | undefined => {
    const attached = seats.get(connection)?.sessions;
    return name === undefined ? [...(attached?.values() ?? [])].at(-1) : attached?.get(name);
  };

  /** Until when a family may use terminals; undefined when it may not. */
  function allowedUntil(family: string): Expiry | undefined {
    const session = sessions.byFamily(family);
    if (!session || !isGranted(session.grants, 'terminal', clock.now() / 1000)) return undefined;
    return session.grants.terminal as Expiry;
  }

  function park(session: Session, family: string): void {
    const entry: Parked = { session, family, since: clock.now(), cancel: () => {} };
    parked.add(entry);
    queueMicrotask(() => endForbidden(family));
    arm(entry);
  }

  /** Ends a parked shell when its time is over, or its device's grant, whichever is first. */
  function arm(entry: Parked): void {
    const until = allowedUntil(entry.family) ?? null;
    const grace = entry.since + config.terminalGraceSeconds * 1000;
    const end = until === null ? grace : Math.min(grace, until * 1000);
    entry.cancel();
    entry.cancel = clock.after(Math.max(0, Math.ceil(end - clock.now())), () => void entry.session.happen('expired'));
  }

  function endForbidden(family: string): void {
    const isAllowed = allowedUntil(family) !== undefined;
    for (const entry of [...parked]) {
      if (entry.family !== family) continue;
      if (isAllowed) arm(entry);
      else entry.session.happen('grant-lost');
    }
  }

  function unpark(session: Session): void {
    for (const entry of parked) {
      if (entry.session !== session) continue;
      entry.cancel();
      parked.delete(entry);
    }
  }

  /** The parked shell of a device and name, the one left last first. */
  const parkedAs = (family: string, name: string): Session | undefined =>
    [...parked].filter((entry) => entry.family === family && entry.session.name === name).at(-1)?.session;

  /** Whether one more may be opened; the shell that is parked for longest makes room. */
  function makeRoom(): boolean {
    if (live.size + opening < MOST) return true;
    const [oldest] = parked;
    oldest?.session.happen('expired');
    return oldest !== undefined;
  }

  async function start(host: Host, connection: Connection, request: AttachRequest, isGone: () => boolean) {
    const { name, size } = request;
    const tmux = await tmuxReady;
    const shell = await resolveShell(host.children, [request.shell, config.terminalShell, host.env.SHELL]);
    if (shell === undefined) return { kind: 'no-shell' } as const;
    const target = tmux && tmuxName(name);
    const reattach = target !== undefined && (await tmux?.exists(target)) === true;
    const replay = reattach ? await tmux?.capture(target) : undefined;
    const file = target === undefined ? shell : tmux?.file;
    const args = target === undefined ? ['-l'] : await tmux?.attachArguments(target, name, shell);
    const env = childEnvironment(host.env, name);
    const cwd = await workingDirectory(host);
    if (isGone() || file === undefined || args === undefined) return { kind: 'gone' } as const;
    const { family } = connection.session;
    try {
      const session: Session = createSession({
        name,
        shell,
        tmuxName: target,
        paste: tmux?.paste,
        size,
        clock,
        log,
        terminal: (host.terminals as NonNullable<Host['terminals']>).open({ file, args, env, cwd }, size),
        parks: target === undefined && config.terminalGraceSeconds > 0,
        changed(state) {
          if (state === 'closed' || state === 'parked') forget(session);
          if (state === 'closed') live.delete(session);
          if (state === 'parked') park(session, family);
        },
      });
      live.set(session, family);
      running.add(session);
      void session.exited.then(() => running.delete(session));
      return { kind: 'started', session, shown: { reattach, replay: replay || undefined } } as const;
    } catch (error) {
      log.error(`terminal ${name} could not be started: ${describeError(error)}`);
      return { kind: 'failed' } as const;
    }
  }

  function forget(session: Session): void {
    unpark(session);
    for (const { sessions } of seats.values()) {
      if (sessions.get(session.name) === session) sessions.delete(session.name);
    }
  }

  /**
   * Parks the shell that another socket of this device has under a name, when that socket gives no sign of life. Should
   * it be slow and not gone, it is told `client detach`, and keeps all else.
   */
  async function reclaim(connection: Connection, name: string): Promise<void> {
    const { family } = connection.session;
    if (config.terminalGraceSeconds === 0 || parkedAs(family, name)) return;
    const held = [...seats].flatMap(([other, { sessions }]) => {
      const session = sessions.get(name);
      const isSought = other !== connection && other.session.family === family && session?.tmuxName === undefined;
      return session && isSought ? [{ other, session }] : [];
    });
    const answers = await Promise.all(held.map(({ other }) => other.answers(ANSWER_PATIENCE)));
    held.findLast((_, at) => !answers[at])?.session.happen('detach');
  }

  /** Gives a device its parked shell back; undefined when there is none, or it has ended meanwhile. */
  async function wake(connection: Connection, { name, size }: AttachRequest, isGone: () => boolean) {
    const session = parkedAs(connection.session.family, name);
    if (!session) return undefined;
    unpark(session);
    const replay = await session.wake(size);
    if (session.state !== 'attaching') return undefined;
    if (isGone()) {
      session.sleep();
      return { kind: 'gone' } as const;
    }
    return { kind: 'started', session, shown: { reattach: true, ...replay } } as const;
  }

  /** Ends a tmux session, also one whose client is only about to make it. False when there was none. */
  async function killTmux(tmux: Tmux, target: string): Promise<boolean> {
    const clients = [...running].filter((session) => session.tmuxName === target);
    await Promise.all(clients.map((session) => session.drew()));
    const killed = await tmux.kill(target);
    await Promise.all(clients.filter((session) => session.state === 'closed').map((session) => session.exited));
    // A client that was under way may have made it just now.
    return (clients.length > 0 && (await tmux.kill(target))) || killed;
  }

  return {
    /** Whether shells are kept by tmux here. */
    hasTmux: async (): Promise<boolean> => (await tmuxReady) !== undefined,

    /** Attaches to a session, or makes it. On `attached` the viewer has been told, and gets output from now on. */
    async attach(connection: Connection, request: AttachRequest, viewer: Viewer): Promise<AttachResult> {
      if (!host) return { kind: 'no-host' };
      if (!host.terminals) return { kind: 'no-pty' };
      const seat = seatOf(connection);
      const { name } = request;
      const own = seat.sessions.get(name);
      if (own) {
        own.resize(request.size);
        seat.sessions.delete(name);
        seat.sessions.set(name, own);
        viewer.attached({ pid: own.pid, shell: own.shell, size: request.size, reattach: true });
        return { kind: 'attached' };
      }
      if (seat.sessions.size >= MOST_PER_SOCKET) return { kind: 'full', most: MOST_PER_SOCKET, of: 'socket' };
      const attempt = { cancelled: false };
      seat.attempt = attempt;
      const isGone = () => attempt.cancelled || isStopping || !connection.isOpen;
      let counted = false;
      try {
        await reclaim(connection, name);
        let outcome: Awaited<ReturnType<typeof start | typeof wake>> = await wake(connection, request, isGone);
        if (!outcome) {
          if (!makeRoom()) return { kind: 'full', most: MOST, of: 'relay' };
          counted = true;
          opening++;
          outcome = await start(host, connection, request, isGone);
        }
        if (outcome.kind !== 'started') return outcome;
        seat.sessions.set(name, outcome.session);
        outcome.session.open(viewer, outcome.shown);
        return { kind: 'attached' };
      } finally {
        if (counted) opening--;
        seat.attempt = undefined;
      }
    },

    /** Types text into a session. False when too much waits for its program already; unknown sessions take all. */
    input: (connection: Connection, name: string | undefined, text: string): boolean =>
      find(connection, name)?.write(text) ?? true,

    resize: (connection: Connection, name: string | undefined, size: Size): void =>
      find(connection, name)?.resize(size),

    /** Lets go of a session: its viewer is told, with the message's id. tmux and (for a while) bare shells live on. */
    detach: (connection: Connection, name: string | undefined, id: string): void =>
      void find(connection, name)?.happen('detach', { id }),

    /**
     * Ends a session and its shell: one of this connection, any tmux session of the relay, or a parked shell of this
     * device. The viewer hears nothing of it: the result is for the answer.
     */
    async kill(connection: Connection, name: string | undefined): Promise<KillResult> {
      if (!host) return { kind: 'no-host' };
      const own = find(connection, name);
      const wanted = own?.name ?? name;
      const tmux = await tmuxReady;
      if (wanted === undefined) return { kind: 'unknown', tmux: tmux !== undefined };
      const session = own ?? parkedAs(connection.session.family, wanted);
      session?.happen('kill', { silent: true });
      if (!tmux) {
        await session?.exited;
        return session ? { kind: 'killed', name: wanted } : { kind: 'unknown', name: wanted, tmux: false };
      }
      const killed = await killTmux(tmux, tmuxName(wanted));
      return killed || own ? { kind: 'killed', name: wanted } : { kind: 'unknown', name: wanted, tmux: true };
    },

    /** The sessions a connection may attach to. */
    async list(connection: Connection): Promise<{ kind: 'listed'; rows: Row[]; tmux: boolean } | { kind: 'no-host' }> {
      if (!host) return { kind: 'no-host' };
      const tmux = await tmuxReady;
      const shell = await resolveShell(host.children, [config.terminalShell, host.env.SHELL]);
      const listed = tmux ? await tmux.list() : undefined;
      const own = new Set(seats.get(connection)?.sessions.values());
      const { family } = connection.session;
      const isParked = new Set([...parked].filter((entry) => entry.family === family).map((entry) => entry.session));
      const rows = listRows({ listed, live: [...live.keys()], own, parked: isParked, shell: shell ?? '' });
      return { kind: 'listed', rows, tmux: tmux !== undefined };
    },

    /** The socket is gone, or its grant: lets go of everything it holds. Idempotent. */
    release(connection: Connection, why: 'lost' | 'grant-lost'): void {
      const seat = seats.get(connection);
      if (!seat) return;
      if (seat.attempt) seat.attempt.cancelled = true;
      for (const session of [...seat.sessions.values()]) session.happen(why);
      if (why === 'lost') seats.delete(connection);
      else endForbidden(connection.session.family);
    },

    /** Tells every viewer `server shutdown` and ends all but what tmux keeps. */
    async stop(): Promise<void> {
      isStopping = true;
      for (const session of [...live.keys()]) session.happen('shutdown');
      const exits = Promise.all([...running].map((session) => session.exited));
      await withTimeout({ clock, timeout: SHUTDOWN_PATIENCE }, exits, () => {});
    },
  };
}
