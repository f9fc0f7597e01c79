import type { Cancel, Clock } from '../clock.ts';
import { RelayError } from '../errors.ts';
import type { Answer } from './answer.ts';

/** How long a phone may take, in milliseconds (contract 03 §4.2). */
export const COMMAND_TIMEOUT = 30_000;
/** Commands under way on one socket. */
export const MAX_IN_FLIGHT = 64;

/** How a command ended: one of these, once. */
export type Outcome =
  | { kind: 'answered'; answer: Answer }
  | { kind: 'timeout' }
  /** It could not be sent, or whoever should answer it is gone. */
  | { kind: 'failed'; error: string }
  /** Nobody waits for it any more. */
  | { kind: 'abandoned' };

interface Pending<Owner> {
  owner: Owner;
  /** Gone once it is settled: outgrown tables of a `Map` hold on to what was in them, and that to a whole request. */
  settle: ((outcome: Outcome) => void) | undefined;
  cancelTimeout: Cancel;
}

export type Commands<Owner extends object> = ReturnType<typeof createCommands<Owner>>;

/**
 * The life cycle of commands: `pending`, then settled exactly once by whichever event comes first (contract 03 §1.4).
 * A command is pending while it is in the table; every event takes it out before anybody is told. `Owner` is the
 * socket that it was sent to, and the only one that may answer it.
 */
export function createCommands<Owner extends object>(clock: Clock) {
  const pending = new Map<string, Pending<Owner>>();
  const inFlight = new WeakMap<Owner, number>();

  const add = (owner: Owner, count: number) => inFlight.set(owner, (inFlight.get(owner) ?? 0) + count);

  /** The one way out of the table. */
  function settle(id: string, outcome: Outcome): void {
    const command = pending.get(id);
    if (!command) return;
    pending.delete(id);
    add(command.owner, -1);
    command.cancelTimeout();
    const { settle } = command;
    command.settle = undefined;
    settle?.(outcome);
  }

  return {
    count: (): number => pending.size,

    /**
     * Begins a command: the time runs from here. `settled` is called once.
     * @throws RelayError `rate-limited` when 64 are under way on this socket.
     */
    open(id: string, owner: Owner, settled: (outcome: Outcome) => void): void {
      if ((inFlight.get(owner) ?? 0) >= MAX_IN_FLIGHT) {
        throw new RelayError('rate-limited', 'too many commands are under way on this phone', { retryAfter: 1 });
      }
      add(owner, 1);
      const cancelTimeout = clock.after(COMMAND_TIMEOUT, () => settle(id, { kind: 'timeout' }));
      pending.set(id, { owner, settle: settled, cancelTimeout });
    },

    /** An answer came. False for one that nobody waits for, or that is not from where the command went. */
    answer(id: string, owner: Owner, read: () => Answer): boolean {
      if (pending.get(id)?.owner !== owner) return false;
      settle(id, { kind: 'answered', answer: read() });
      return true;
    },

    fail: (id: string, error: string): void => settle(id, { kind: 'failed', error }),

    abandon: (id: string): void => settle(id, { kind: 'abandoned' }),

    /** The socket can no longer answer. */
    failAllOf(owner: Owner, error: string): void {
      for (const [id, command] of [...pending]) if (command.owner === owner) settle(id, { kind: 'failed', error });
    },

    failAll(error: string): void {
      for (const id of [...pending.keys()]) settle(id, { kind: 'failed', error });
    },
  };
}
