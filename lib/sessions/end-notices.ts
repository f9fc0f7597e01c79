import type { Clock } from '../kit/clock.ts';
import type { Session } from './session.ts';
import type { Sessions } from './sessions.ts';

/** Milliseconds between two warnings about the same session. */
const PERIOD = 24 * 3_600_000;

export interface EndNoticesParts {
  sessions: Pick<Sessions, 'endingSoon' | 'takeNotices'>;
  clock: Clock;
  /** Publishes that a session ends soon. */
  publish(session: Session): void;
  /** Calls the devices of a session to it, by a push. */
  push(session: Session): void;
}

/**
 * Warns about sessions that end soon, with the first sweep after a start, and once a day after that; their devices get one
 * push, three days before the end (contract 11 §2).
 */
export function createEndNotices({ sessions, clock, publish, push }: EndNoticesParts) {
  let warnedAt: number | undefined;
  return {
    async sweep(): Promise<void> {
      for (const session of await sessions.takeNotices()) push(session);
      if (warnedAt !== undefined && clock.monotonic() - warnedAt < PERIOD) return;
      warnedAt = clock.monotonic();
      for (const session of sessions.endingSoon()) publish(session);
    },
  };
}
