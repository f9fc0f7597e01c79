import { compacted } from '../dispatch/json-text.ts';
import { describeError } from '../errors.ts';
import type { Child, Exit, Host } from '../host/index.ts';
import type { Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import type { Connection } from '../socket/channel.ts';
import { type Plan, planCommand, type Wish } from './command.ts';
import { createGateway, type Gateway, type GatewayEvents } from './gateway.ts';
import { clampEdge } from './size.ts';

const MOST_GATEWAYS = 16;
/** Unsent bytes above which a gateway's pipe is paused, and below which it is read again (contract 02 §1.7). */
const HIGH = 4 * 1024 * 1024;
const LOW = 1024 * 1024;

export interface TuiParts {
  /** Absent at the edge, where no program can be started. */
  host?: Host;
  config: { tuiCommand?: string; home: string };
  clock: Clock;
  log: Log;
}

/** Who is told what a gateway does. */
export interface TuiListener extends GatewayEvents {
  /** It runs. Called before anything else. */
  attached(pid: number): void;
}

export type Attached =
  | { kind: 'attached' }
  /** Ended while it was starting: the socket, the grant or the relay is gone. */
  | { kind: 'gone' }
  | { kind: 'no-host' }
  /** As many gateways run as may. */
  | { kind: 'full'; most: number }
  | Exclude<Plan, { kind: 'command' }>;

export type Requested = 'written' | 'no-host' | 'no-session' | 'full';

/** What a connection has: a gateway, one that is being started, or (while an old one is replaced) both. */
interface Seat {
  gateway?: Gateway;
  starting?: { cancelled: boolean };
}

export type Tui = ReturnType<typeof createTui>;

/**
 * The TUI gateways of the relay: at most one process per socket and 16 in all (contract 02 §4). Messages of one
 * connection must come one after another; its end, the loss of its grant and the shutdown may come at any time.
 */
export function createTui({ host, config, clock, log }: TuiParts) {
  const seats = new Map<Connection, Seat>();
  /** Processes that have not been reaped, and those about to be started. */
  let taken = 0;
  const endings = new Set<Promise<void>>();
  const attempts = new Set<Promise<unknown>>();
  let stopping = false;

  /** Ends what a seat has. */
  function end(gateway: Gateway): Promise<void> {
    const ending = gateway.end().then(() => {
      endings.delete(ending);
      taken -= 1;
    });
    endings.add(ending);
    return ending;
  }

  /** True when there was something to end. */
  function release(connection: Connection): boolean {
    const seat = seats.get(connection);
    if (!seat) return false;
    seats.delete(connection);
    if (seat.starting) seat.starting.cancelled = true;
    if (seat.gateway) void end(seat.gateway);
    return true;
  }

  /** Takes one of the 16 places. One that is about to become free is worth waiting for. */
  async function takePlace(): Promise<boolean> {
    while (taken >= MOST_GATEWAYS) {
      if (endings.size === 0) return false;
      await Promise.race(endings);
    }
    taken += 1;
    return true;
  }

  async function start(
    host: Host,
    connection: Connection,
    seat: Seat,
    attempt: { cancelled: boolean },
    wish: Wish,
    listener: TuiListener,
  ): Promise<Attached> {
    const plan = await planCommand({ host, config }, wish);
    if (plan.kind !== 'command') return plan;
    if (attempt.cancelled) return { kind: 'gone' };
    if (seat.gateway) {
      const old = seat.gateway;
      seat.gateway = undefined;
      await end(old);
    }
    if (!(await takePlace())) return { kind: 'full', most: MOST_GATEWAYS };
    if (attempt.cancelled) {
      taken -= 1;
      return { kind: 'gone' };
    }
    let child: Child;
    try {
      child = await host.children.spawn(plan.command);
    } catch (error) {
      taken -= 1;
      log.warn(`a gateway could not be started: ${describeError(error)}`);
      // The code alone: the message has paths of the host.
      return { kind: 'failed', reason: String((error as { code?: unknown }).code ?? 'unknown error') };
    }
    let unfollow = () => {};
    const gateway = createGateway(
      child,
      { clock, log },
      {
        received: listener.received,
        exited(exit) {
          unfollow();
          taken -= 1;
          seat.gateway = undefined;
          if (!seat.starting) seats.delete(connection);
          log.info(`gateway ${child.pid} exited (${describeExit(exit)})`);
          listener.exited(exit);
        },
      },
    );
    if (attempt.cancelled) {
      void end(gateway);
      return { kind: 'gone' };
    }
    seat.gateway = gateway;
    log.info(`gateway ${child.pid} started`);
    listener.attached(child.pid);
    unfollow = connection.follow({ high: HIGH, low: LOW, pause: gateway.pause, resume: gateway.resume });
    return { kind: 'attached' };
  }

  return {
    /** Starts a gateway for this connection, in the place of the one it has (contract 02 §4.2, §4.3). */
    async attach(connection: Connection, wish: Wish, listener: TuiListener): Promise<Attached> {
      if (!host) return { kind: 'no-host' };
      if (stopping) return { kind: 'gone' };
      const seat = seats.get(connection) ?? {};
      const attempt = { cancelled: false };
      seat.starting = attempt;
      seats.set(connection, seat);
      const starting = start(host, connection, seat, attempt, wish, listener);
      attempts.add(starting);
      try {
        return await starting;
      } finally {
        attempts.delete(starting);
        seat.starting = undefined;
        if (!seat.gateway && seats.get(connection) === seat) seats.delete(connection);
      }
    },

    /**
     * Writes one JSON-RPC message, the text of an object; `lost` is called when the gateway does not read any more
     * (contract 02 §4.4). It is made one line and is otherwise passed as it is: numbers that a double cannot hold, too.
     */
    request(connection: Connection, message: string, lost: () => void): Requested {
      if (!host) return 'no-host';
      const gateway = seats.get(connection)?.gateway;
      if (!gateway) return 'no-session';
      return gateway.write(compacted(message), lost) ? 'written' : 'full';
    },

    /** Tells the gateway the size of the window. Without a gateway or a size: nothing. */
    resize(connection: Connection, size: { cols?: unknown; rows?: unknown }): void {
      const cols = clampEdge(size.cols);
      const rows = clampEdge(size.rows);
      if (cols === undefined || rows === undefined) return;
      const id = `resize-${crypto.randomUUID()}`;
      const message = { jsonrpc: '2.0', id, method: 'terminal.resize', params: { cols, rows } };
      seats.get(connection)?.gateway?.write(JSON.stringify(message));
    },

    /**
     * Ends the gateway of this connection, without a word to its listener. True when there was one, or one was being
     * started (contract 02 §4.6).
     */
    release,

    /** Ends every gateway and lets none start again. Resolves when they are gone, after about 4 s at most. */
    async stop(): Promise<void> {
      stopping = true;
      for (const connection of [...seats.keys()]) release(connection);
      await Promise.allSettled(attempts);
      await Promise.all(endings);
    },
  };
}

/** `code=3` or `signal=SIGSEGV`. */
export const describeExit = ({ code, signal }: Exit): string => (signal === null ? `code=${code}` : `signal=${signal}`);
