import { appliedOnly, describeError } from '../errors.ts';
import { type Cancel, type Clock, every } from './clock.ts';
import type { Warnings } from './entries.ts';

/** Milliseconds between two attempts. */
const RETRY_PERIOD = 5_000;

export interface AppliedOptions {
  clock: Clock;
  log: Warnings;
  /** A sentence that names the change. */
  what: string;
  /** Stores the present state. Rejects if that fails. */
  save(): Promise<unknown>;
}

/** Stores changes that are in effect already: after a failure, again until that succeeds (contract 01 §6.7). */
export function createApplied({ clock, log, what, save }: AppliedOptions) {
  let cancelRetry: Cancel | undefined;
  const warn = (error: unknown) => log.warn(`${what}, which could not be stored: ${describeError(error)}`);

  /** Ends the attempts. */
  function stop(): void {
    cancelRetry?.();
    cancelRetry = undefined;
  }

  async function retry(): Promise<void> {
    await save();
    stop();
  }

  return {
    /**
     * Resolves once the change is stored.
     * @throws RelayError `unavailable` if that fails.
     */
    async store(): Promise<void> {
      try {
        await save();
      } catch (error) {
        warn(error);
        cancelRetry ??= every(clock, RETRY_PERIOD, retry, warn);
        throw appliedOnly(what);
      }
    },

    stop,
  };
}
