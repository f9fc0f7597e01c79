import type { Clock } from '../kit/clock.ts';
import { createEvent } from '../kit/event.ts';
import type { Session } from './session.ts';
import type { Sessions } from './sessions.ts';

/** Milliseconds between two warnings about the same session. */
const PERIOD = 24 * 3_600_000;

export interface EndNoticesDeps {
  sessions: Pick<Sessions, 'endingSoon' | 'takeNotices'>;
  clock: Clock;
}

/**
 * Reports sessions that end soon, with the first sweep after a start and then once a day. Their devices get one push, three
 * days before the end (contract 11 §2).
 */
export function createEndNotices({ sessions, clock }: EndNoticesDeps) {
  const [warnings, pushes] = [createEvent<[session: Session]>(), createEvent<[session: Session]>()];
  let warnedAt: number | undefined;
  return {
    onWarning: warnings.on,

    /** Calls back when the devices of a session are to get their push. */
    onPush: pushes.on,

    async sweep(): Promise<void> {
      for (const session of await sessions.takeNotices()) pushes.emit(session);
      if (warnedAt !== undefined && clock.monotonic() - warnedAt < PERIOD) return;
      warnedAt = clock.monotonic();
      for (const session of sessions.endingSoon()) warnings.emit(session);
    },
  };
}
