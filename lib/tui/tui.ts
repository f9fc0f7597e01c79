import { describeError } from '../errors.ts';
import type { Child, Exit, Host } from '../host/index.ts';
import { type Clock, nextTurn } from '../kit/clock.ts';
import { compactedPieces } from '../kit/json-text.ts';
import type { Log } from '../log.ts';
import type { Connection } from '../socket/channel.ts';
import { type AttachPayload, clampEdge, type Plan, planCommand } from './command.ts';
import { createGateway, type Gateway, type GatewayEvents } from './gateway.ts';

const MAX_GATEWAYS = 16;
/** Unsent bytes above which a gateway is paused, and below which it is resumed (contract 02 §1.7). */
const HIGH_WATER = 4 * 1024 * 1024;
const LOW_WATER = 1024 * 1024;

export interface TuiDeps {
  /** Absent at the edge, where no programs can be started. */
  host?: Host;
  config: { tuiCommand?: string; home: string };
  clock: Clock;
  log: Log;
}

/** Receives the events of a gateway. */
export interface TuiListener extends GatewayEvents {
  /** The gateway has started. Called before anything else. */
  attached(pid: number): void;
}

export type AttachResult =
  | { kind: 'attached' }
  /** The socket, the grant or the relay ended during the start. */
  | { kind: 'gone' }
  | { kind: 'no-host' }
  /** The relay runs its maximum of gateways. */
  | { kind: 'full'; limit: number }
  | Exclude<Plan, { kind: 'command' }>;

export type RequestResult = 'written' | 'no-host' | 'no-session' | 'full';

/** The gateway of a connection, or one that is starting, or both while one replaces the other. */
interface Slot {
  gateway?: Gateway;
  starting?: { cancelled: boolean };
}

/**
 * The TUI gateways of the relay: at most one process per socket and 16 in total (contract 02 §4). Messages of one
 * connection must come one after another; its end, the loss of its grant and the shutdown may come at any time.
 */
export function createTui({ host, config, clock, log }: TuiDeps) {
  const encoder = new TextEncoder();
  const slots = new Map<Connection, Slot>();
  /** Number of gateways that run, start or end. */
  let count = 0;
  const endings = new Set<Promise<void>>();
  const attempts = new Set<Promise<unknown>>();
  let stopping = false;

  function end(gateway: Gateway): Promise<void> {
    const ending = gateway.end().then(() => {
      endings.delete(ending);
      count -= 1;
    });
    endings.add(ending);
    return ending;
  }

  /** Ends the gateway of a connection. True if there was one, or one was starting. */
  function release(connection: Connection): boolean {
    const slot = slots.get(connection);
    if (!slot) return false;
    slots.delete(connection);
    if (slot.starting) slot.starting.cancelled = true;
    if (slot.gateway) void end(slot.gateway);
    return true;
  }

  /** Reserves one of the 16 places, waiting for a gateway that is ending. */
  async function reserve(): Promise<boolean> {
    while (count >= MAX_GATEWAYS) {
      if (endings.size === 0) return false;
      await Promise.race(endings);
    }
    count += 1;
    return true;
  }

  async function start(
    host: Host,
    connection: Connection,
    slot: Slot,
    attempt: { cancelled: boolean },
    payload: AttachPayload,
    listener: TuiListener,
  ): Promise<AttachResult> {
    const plan = await planCommand({ host, config }, payload);
    if (plan.kind !== 'command') return plan;
    if (attempt.cancelled) return { kind: 'gone' };
    if (slot.gateway) {
      const old = slot.gateway;
      slot.gateway = undefined;
      await end(old);
    }
    if (!(await reserve())) return { kind: 'full', limit: MAX_GATEWAYS };
    if (attempt.cancelled) {
      count -= 1;
      return { kind: 'gone' };
    }
    let child: Child;
    try {
      child = await host.children.spawn(plan.command);
    } catch (error) {
      count -= 1;
      log.warn(`cannot start a gateway: ${describeError(error)}`);
      // Only the code, since the message contains paths of the host.
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
          count -= 1;
          slot.gateway = undefined;
          if (!slot.starting) slots.delete(connection);
          log.info(`gateway ${child.pid} exited (${describeExit(exit)})`);
          listener.exited(exit);
        },
      },
    );
    if (attempt.cancelled) {
      void end(gateway);
      return { kind: 'gone' };
    }
    slot.gateway = gateway;
    log.info(`gateway ${child.pid} started`);
    listener.attached(child.pid);
    unfollow = connection.follow({ high: HIGH_WATER, low: LOW_WATER, pause: gateway.pause, resume: gateway.resume });
    return { kind: 'attached' };
  }

  return {
    /** Starts a gateway for this connection, replacing its current one (contract 02 §4.2, §4.3). */
    async attach(connection: Connection, payload: AttachPayload, listener: TuiListener): Promise<AttachResult> {
      if (!host) return { kind: 'no-host' };
      if (stopping) return { kind: 'gone' };
      const slot = slots.get(connection) ?? {};
      const attempt = { cancelled: false };
      slot.starting = attempt;
      slots.set(connection, slot);
      const starting = start(host, connection, slot, attempt, payload, listener);
      attempts.add(starting);
      try {
        return await starting;
      } finally {
        attempts.delete(starting);
        slot.starting = undefined;
        if (!slot.gateway && slots.get(connection) === slot) slots.delete(connection);
      }
    },

    /** True if a gateway runs for this connection. */
    isAttached: (connection: Connection): boolean => slots.get(connection)?.gateway !== undefined,

    /**
     * Writes one JSON-RPC message, the text of an object; `lost` is called if the gateway no longer reads its input
     * (contract 02 §4.4). The text becomes one line and is otherwise unchanged, including numbers that a double cannot
     * represent.
     */
    async request(connection: Connection, message: string, lost: () => void): Promise<RequestResult> {
      if (!host) return 'no-host';
      const gateway = slots.get(connection)?.gateway;
      if (!gateway) return 'no-session';
      const pieces: Uint8Array[] = [];
      let last: string | undefined;
      for (const piece of compactedPieces(message)) {
        if (last !== undefined) {
          pieces.push(encoder.encode(last));
          await nextTurn();
        }
        last = piece;
      }
      pieces.push(encoder.encode(`${last}\n`));
      if (slots.get(connection)?.gateway !== gateway) return 'no-session';
      return gateway.writeLine(pieces, lost) ? 'written' : 'full';
    },

    /** Tells the gateway the window size. No effect without a gateway or a valid size. */
    resize(connection: Connection, size: { cols?: unknown; rows?: unknown }): void {
      const cols = clampEdge(size.cols);
      const rows = clampEdge(size.rows);
      if (cols === undefined || rows === undefined) return;
      const id = `resize-${crypto.randomUUID()}`;
      const message = { jsonrpc: '2.0', id, method: 'terminal.resize', params: { cols, rows } };
      slots.get(connection)?.gateway?.write(JSON.stringify(message));
    },

    /**
     * Ends the gateway of this connection without an event for its listener. True when there was one, or one was starting
     * (contract 02 §4.6).
     */
    release,

    /** Ends every gateway and prevents new ones. Resolves when all have exited, after about 4 s at most. */
    async stop(): Promise<void> {
      stopping = true;
      for (const connection of [...slots.keys()]) release(connection);
      await Promise.allSettled(attempts);
      await Promise.all(endings);
    },
  };
}

/** `code=3` or `signal=SIGSEGV`. */
export const describeExit = ({ code, signal }: Exit): string => (signal === null ? `code=${code}` : `signal=${signal}`);
