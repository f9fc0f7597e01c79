import { describeError, type RelayError } from '../errors.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { HangUp } from '../kit/event.ts';
import type { Link } from './link.ts';

/** Maximum commands in flight on one socket (contract 03 §4.2, 07 §2.3). */
export const MAX_IN_FLIGHT = 64;
/** Milliseconds from its start for a command whose device asks its owner first (`command.waiting`). */
export const OWNER_TIMEOUT = 150_000;

/** The outcome of a command: exactly one of these. */
export type Outcome<Response> =
  | { kind: 'answered'; response: Response }
  | { kind: 'timeout' }
  /** It could not be sent. */
  | { kind: 'unsent'; error: string }
  /** The device that should have answered is gone. */
  | { kind: 'failed'; error: string }
  /** The relay was frozen (contract 09 §3). */
  | { kind: 'frozen'; why: RelayError }
  /** The caller has disconnected. */
  | { kind: 'abandoned' };

export interface Command<Owner, Response> {
  id: string;
  /** The socket to send it to, the only one that may answer it. */
  owner: Owner;
  /** The text to send; undefined for a command that was sent before the process slept. */
  frame: string | undefined;
  /** Milliseconds in which the response must come. */
  timeout: number;
  /** Aborts when the caller disconnects. */
  signal?: HangUp;
  /** The device asks its owner first: returns the milliseconds that are left. */
  ownerAsked?(): number;
  /** Called once, possibly before `open` returns. */
  settled(outcome: Outcome<Response>): void;
}

/**
 * A command in the table. Its functions are cleared when it is settled: V8 keeps the outgrown tables of a `Map` alive, and
 * with them a whole request.
 */
interface Pending<Owner, Response> {
  owner: Owner;
  /** The device asks its owner first. */
  wait: (() => void) | undefined;
  settle: ((outcome: Outcome<Response>) => void) | undefined;
}

type Sendable = Pick<Link, 'isOpen' | 'sendFrame'>;

/**
 * The life cycle of commands that are sent over a socket: `pending`, then settled exactly once by whichever event comes
 * first (contract 03 §1.4, 07 §2.3). A command is pending while it is in the table; every event removes it before it
 * calls back. `full` creates the error for one command too many on a socket.
 */
export function createCommands<Owner extends Sendable, Response>(clock: Clock, full: () => RelayError) {
  const pending = new Map<string, Pending<Owner, Response>>();
  const inFlight = new WeakMap<Owner, number>();

  const add = (owner: Owner, count: number) => inFlight.set(owner, (inFlight.get(owner) ?? 0) + count);

  /** The only function that removes from the table. */
  function settle(id: string, outcome: Outcome<Response>): void {
    const command = pending.get(id);
    if (!command) return;
    pending.delete(id);
    add(command.owner, -1);
    const { settle } = command;
    command.settle = undefined;
    command.wait = undefined;
    settle?.(outcome);
  }

  function requireRoom(owner: Owner): void {
    if ((inFlight.get(owner) ?? 0) >= MAX_IN_FLIGHT) throw full();
  }

  function send(id: string, owner: Owner, frame: string): void {
    try {
      if (!owner.isOpen) throw new Error('socket is not open');
      owner.sendFrame(frame);
    } catch (error) {
      settle(id, { kind: 'unsent', error: describeError(error) });
    }
  }

  return {
    count: (): number => pending.size,

    /** Number of commands in flight on one socket. */
    countOf: (owner: Owner): number => inFlight.get(owner) ?? 0,

    /** @throws the error of `full` when 64 commands are in flight on this socket. */
    requireRoom,

    /** Begins a command: sends it and starts its timeout. Throws like `requireRoom`. */
    open({ id, owner, frame, timeout, signal, ownerAsked, settled }: Command<Owner, Response>): void {
      requireRoom(owner);
      add(owner, 1);
      const abandon = () => settle(id, { kind: 'abandoned' });
      let cancelTimeout: Cancel = () => {};
      let due = 0;
      const arm = (left: number) => {
        due = clock.monotonic() + left;
        cancelTimeout = clock.after(left, () => settle(id, { kind: 'timeout' }));
      };
      arm(timeout);
      pending.set(id, {
        owner,
        wait() {
          const left = ownerAsked?.() ?? 0;
          if (clock.monotonic() + left <= due) return;
          cancelTimeout();
          arm(left);
        },
        settle(outcome) {
          cancelTimeout();
          signal?.removeEventListener('abort', abandon);
          settled(outcome);
        },
      });
      signal?.addEventListener('abort', abandon);
      if (signal?.aborted) abandon();
      else if (frame !== undefined) send(id, owner, frame);
    },

    /**
     * Handles a response. Returns false unless it comes from the command's own socket and the command is still pending.
     */
    answer(id: string, owner: Owner, read: () => Response): boolean {
      if (pending.get(id)?.owner !== owner) return false;
      settle(id, { kind: 'answered', response: read() });
      return true;
    },

    /** The device asks its owner first. Returns false unless it is a pending command of this socket. */
    wait(id: string, owner: Owner): boolean {
      const command = pending.get(id);
      if (command?.owner !== owner) return false;
      command.wait?.();
      return true;
    },

    /** Ends a command because of a freeze. Returns false if it is no longer pending. */
    freeze(id: string, why: RelayError): boolean {
      const isPending = pending.has(id);
      settle(id, { kind: 'frozen', why });
      return isPending;
    },

    /** The socket can no longer answer. */
    failAllOf(owner: Owner, error: string): void {
      for (const [id, command] of [...pending]) if (command.owner === owner) settle(id, { kind: 'failed', error });
    },

    failAll(error: string): void {
      for (const id of [...pending.keys()]) settle(id, { kind: 'failed', error });
    },
  };
}
