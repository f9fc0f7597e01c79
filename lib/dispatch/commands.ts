import { describeError, type RelayError } from '../errors.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Link } from './link.ts';

/** Commands under way on one socket (contract 03 §4.2, 07 §2.3). */
export const MAX_IN_FLIGHT = 64;

/** How a command ended: one of these, once. */
export type Outcome<Answer> =
  | { kind: 'answered'; answer: Answer }
  | { kind: 'timeout' }
  /** It could not be sent. */
  | { kind: 'unsent'; error: string }
  /** Whoever should answer it is gone. */
  | { kind: 'failed'; error: string }
  /** Nobody waits for it any more. */
  | { kind: 'abandoned' };

export interface Command<Owner, Answer> {
  id: string;
  /** The socket that it is sent to, and the only one that may answer it. */
  owner: Owner;
  /** What is sent. */
  frame: string;
  /** How long the answer may take, in milliseconds. */
  timeout: number;
  /** The caller's own end. */
  signal?: AbortSignal;
  /** Called once, possibly before `open` returns. */
  settled(outcome: Outcome<Answer>): void;
}

interface Pending<Owner, Answer> {
  owner: Owner;
  /** Gone once it is settled: outgrown tables of a `Map` hold on to what was in them, and that to a whole request. */
  settle: ((outcome: Outcome<Answer>) => void) | undefined;
}

type Sendable = Pick<Link, 'isOpen' | 'sendFrame'>;

/**
 * The life cycle of commands that are sent over a socket: `pending`, then settled exactly once by whichever event
 * comes first (contract 03 §1.4, 07 §2.3). A command is pending while it is in the table; every event takes it out
 * before anybody is told. `full` makes the refusal of one command too many on a socket.
 */
export function createCommands<Owner extends Sendable, Answer>(clock: Clock, full: () => RelayError) {
  const pending = new Map<string, Pending<Owner, Answer>>();
  const inFlight = new WeakMap<Owner, number>();

  const add = (owner: Owner, count: number) => inFlight.set(owner, (inFlight.get(owner) ?? 0) + count);

  /** The one way out of the table. */
  function settle(id: string, outcome: Outcome<Answer>): void {
    const command = pending.get(id);
    if (!command) return;
    pending.delete(id);
    add(command.owner, -1);
    const { settle } = command;
    command.settle = undefined;
    settle?.(outcome);
  }

  const isFull = (owner: Owner): boolean => (inFlight.get(owner) ?? 0) >= MAX_IN_FLIGHT;

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

    /** Whether one more command for this socket would be refused. */
    isFull,

    /**
     * Begins a command: sends it, and the time runs from here.
     * @throws what `full` makes when 64 are under way on this socket.
     */
    open({ id, owner, frame, timeout, signal, settled }: Command<Owner, Answer>): void {
      if (isFull(owner)) throw full();
      add(owner, 1);
      const left = () => settle(id, { kind: 'abandoned' });
      const cancelTimeout: Cancel = clock.after(timeout, () => settle(id, { kind: 'timeout' }));
      pending.set(id, {
        owner,
        settle(outcome) {
          cancelTimeout();
          signal?.removeEventListener('abort', left);
          settled(outcome);
        },
      });
      signal?.addEventListener('abort', left);
      if (signal?.aborted) left();
      else send(id, owner, frame);
    },

    /** An answer came. False for one that nobody waits for, or that is not from where the command went. */
    answer(id: string, owner: Owner, read: () => Answer): boolean {
      if (pending.get(id)?.owner !== owner) return false;
      settle(id, { kind: 'answered', answer: read() });
      return true;
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
