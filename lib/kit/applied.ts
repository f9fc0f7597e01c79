import { appliedOnly, describeError } from '../errors.ts';
import { type Cancel, type Clock, every } from './clock.ts';
import type { Warnings } from './entries.ts';

/** Milliseconds between two attempts. */
const RETRY_PERIOD = 5_000;

export interface AppliedOptions {
  clock: Clock;
  log: Warnings;
  /** Stores the present state. Rejects if that fails. */
  save(): Promise<unknown>;
}

/** Stores changes that are in effect already: after a failure, again until that succeeds (contract 01 §6.7). */
export function createApplied({ clock, log, save }: AppliedOptions) {
  let cancelRetry: Cancel | undefined;

  async function retry(): Promise<void> {
    await save();
    cancelRetry?.();
    cancelRetry = undefined;
  }

  return {
    /**
     * Resolves once the change is stored. `what` is a sentence that names it.
     * @throws RelayError `unavailable` if that fails.
     */
    async store(what: string): Promise<void> {
      try {
        await save();
      } catch (error) {
        const warn = (failure: unknown) => log.warn(`${what}, which could not be stored: ${describeError(failure)}`);
        warn(error);
        cancelRetry ??= every(clock, RETRY_PERIOD, retry, warn);
        throw appliedOnly(what);
      }
    },

    /** Ends the attempts. */
    stop(): void {
      cancelRetry?.();
    },
  };
}
