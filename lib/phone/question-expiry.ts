import type { QueuedMessage } from '../../storage/schema.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { RETENTION } from './delivery.ts';
import { isQuestion } from './question.ts';

/**
 * Expires queued questions on time, because devices with copies show them as open. Other messages expire when the queue is
 * next used.
 */
export function createQuestionExpiry(clock: Clock, expire: () => void) {
  /** Expiry of the oldest queued question, epoch milliseconds. */
  let at: number | null = null;
  let cancel: Cancel = () => {};

  function due(): void {
    at = null;
    // Schedules the next one even if the clock was set back meanwhile.
    expire();
  }

  return {
    /** The queue has changed. */
    schedule(queue: readonly QueuedMessage[]): void {
      let oldest = Number.POSITIVE_INFINITY;
      for (const { message } of queue) if (isQuestion(message.metadata)) oldest = Math.min(oldest, message.sent_at);
      const next = oldest === Number.POSITIVE_INFINITY ? null : oldest + RETENTION + 1;
      if (next === at) return;
      cancel();
      at = next;
      cancel = next === null ? () => {} : clock.after(Math.max(0, next - clock.now()), due);
    },

    stop(): void {
      cancel();
    },
  };
}
