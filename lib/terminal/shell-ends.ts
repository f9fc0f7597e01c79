import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import type { Session as PairedSession } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { endShells } from './revocation.ts';
import type { Session } from './session.ts';
import type { Tmux } from './tmux.ts';

/** Milliseconds that the end of a device's shells may delay an answer. */
const END_TIMEOUT = 5_000;
/** Seconds that the smallest reduction leaves (contract 01 §6.4). */
const SMALLEST = 1;

export interface ShellEndsParts {
  host: Pick<Host, 'processes'>;
  /** Paired session behind every session whose program runs. */
  running: ReadonlyMap<Session, PairedSession>;
  sessions: Pick<Sessions, 'byFamily' | 'list' | 'onEnd' | 'onReduce' | 'shellsEnded' | 'takeExpiredWhileDown'>;
  clock: Clock;
  log: Log;
  tmux(): Promise<Tmux | undefined> | undefined;
}

export type ShellEnds = ReturnType<typeof createShellEnds>;

/**
 * Ends the shells of devices that are revoked, and of those whose `terminal` grant was reduced once it is over, also when
 * that happens while no relay runs (contract 01 §6.4, 02 §1.5).
 */
export function createShellEnds({ host, running, sessions, clock, log, tmux }: ShellEndsParts) {
  const endings = new Set<Promise<number>>();
  /** Families whose reduced grant is over, and whose shells are being ended for that. */
  const overdue = new Set<string>();
  /** Keyed by family: when the reduced grant ends. One per session at most. */
  const timers = new Map<string, Cancel>();

  function begin(session: PairedSession): Promise<number> {
    const ending: Promise<number> = endShells({ host, running, sessions, log, tmux: tmux() }, session)
      .catch((error) => {
        log.error(`the shells of session ${session.prefix} may go on: ${describeError(error)}`);
        return 0;
      })
      .finally(() => endings.delete(ending));
    endings.add(ending);
    return ending;
  }

  async function finish(session: PairedSession): Promise<void> {
    if (overdue.has(session.family)) return;
    overdue.add(session.family);
    await begin(session);
    await sessions.shellsEnded(session);
    overdue.delete(session.family);
  }

  function disarm(family: string): void {
    timers.get(family)?.();
    timers.delete(family);
  }

  /** Seconds that the reduced grant has left; undefined when it was not reduced. */
  function left({ terminalReduced, grants: { terminal } }: PairedSession): number | undefined {
    return terminalReduced && terminal != null ? terminal - seconds(clock) : undefined;
  }

  /** Ends the shells if the grant was reduced and is over; otherwise sets a timer for its end. */
  function check(session: PairedSession): void {
    const { family } = session;
    const rest = left(session);
    if (rest === undefined) return;
    disarm(family);
    if (rest <= 0) return void finish(session);
    const end = clock.after(Math.ceil(rest * 1000), () => check(session));
    timers.set(family, end);
  }

  sessions.onReduce(check);
  sessions.onEnd((session, reason) => {
    if (reason === 'expired') return check(session);
    disarm(session.family);
    // A refresh gives the family to a new session in the same turn.
    queueMicrotask(() => {
      const next = sessions.byFamily(session.family);
      if (next) check(next);
    });
  });
  for (const session of [...sessions.takeExpiredWhileDown(), ...sessions.list()]) check(session);

  return {
    check,

    /**
     * Ends the shells of a device, with what runs in them: bare ones, and those in tmux that no other device has attached.
     * To be called before its session ends. Resolves with their number when they have ended, after five seconds at the
     * latest, and never rejects.
     */
    end: (session: PairedSession): Promise<number> =>
      withTimeout({ clock, timeout: END_TIMEOUT }, begin(session), () => 0),

    /**
     * After a reduction that takes the grant `terminal` away, down to its last second: ends the shells like `end`. What is
     * started in that second ends after it. Otherwise 0: they end with the grant.
     */
    async afterReduction(session: PairedSession): Promise<number> {
      const rest = left(session);
      return rest === undefined || rest > SMALLEST ? 0 : this.end(session);
    },

    /** Resolves when the shells that are being ended have ended. */
    async stop(): Promise<void> {
      for (const family of [...timers.keys()]) disarm(family);
      await Promise.all(endings);
    },
  };
}
