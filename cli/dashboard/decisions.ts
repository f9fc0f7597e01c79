import { systemClock } from '../../lib/kit/clock.ts';
import { withTimeout } from '../../lib/kit/timeouts.ts';

/** Milliseconds that the dashboard gets for each decision. */
const DECISION_TIMEOUT = 5_000;

export type Decisions = ReturnType<typeof createDecisions>;

/**
 * Waits for an answer of the dashboard, whether that comes at once or later. Rejects after `timeout` milliseconds: a
 * dashboard that hangs counts as one that throws.
 */
export const createDecisions =
  (timeout = DECISION_TIMEOUT) =>
  <T>(asked: T | Promise<T>): Promise<T> =>
    withTimeout({ clock: systemClock, timeout }, Promise.resolve(asked), () => {
      throw new Error('the dashboard does not answer');
    });
