import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Session as PairedSession } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { endShells, type RevocationDeps, type ShellsEnded } from './revocation.ts';

/** Milliseconds by which the end of a device's shells may delay an answer. */
const END_TIMEOUT = 5_000;
/** Remaining seconds after the smallest reduction (contract 01 §6.4). */
const SMALLEST = 1;

const MIN_RETRY_DELAY = 1_000;
const MAX_RETRY_DELAY = 60_000;
/** Devices whose shells are tried again, as many as may be paired. */
const MAX_UNFINISHED = 4096;

export interface ShellEndsDeps extends RevocationDeps {
  sessions: Pick<Sessions, 'byFamily' | 'list' | 'onEnd' | 'onReduce' | 'shellsEnded' | 'takeExpiredWhileDown'>;
  clock: Clock;
}

/** The part of an answer about the shells of a device. */
export interface ShellsGone {
  /** Number of shells that have ended. */
  count: number;
  /** True if others may still run. */
  isLeft: boolean;
}

export const NO_SHELLS: ShellsGone = { count: 0, isLeft: false };

/**
 * Ends the shells of devices that are revoked, and of those whose `terminal` grant was reduced once it is over, also when
 * that happens while no relay runs (contract 01 §6.4, 02 §1.5). Shells that cannot be ended, or searched for, are retried
 * while the relay runs: after a second, then less and less often.
 */
export function createShellEnds({ host, running, sessions, clock, log, tmux }: ShellEndsDeps) {
  const endings = new Set<Promise<ShellsEnded>>();
  /** Keyed by family whose reduced grant is over: the attempt to end its shells for that reason. */
  const overdue = new Map<string, Promise<ShellsEnded>>();
  /** Keyed by family, one per session at most: timer for the end of the reduced grant. */
  const timers = new Map<string, Cancel>();
  /** Keyed by family: devices whose shells may still run, and their marks. */
  const unfinished = new Map<string, { session: PairedSession; marks: readonly string[] }>();
  let cancelRetry: Cancel | undefined;
  let retryDelay = MIN_RETRY_DELAY;
  let isStopping = false;

  function begin(session: PairedSession): Promise<ShellsEnded> {
    const earlier = unfinished.get(session.family);
    const deps = { host, running, sessions, log, tmux };
    const ending: Promise<ShellsEnded> = endShells(deps, session, earlier?.marks).then(async (outcome) => {
      endings.delete(ending);
      if (outcome.failure !== undefined) remember(session, outcome);
      else {
        // Another attempt may have failed meanwhile, for shells that this one did not cover.
        if (unfinished.get(session.family) === earlier) unfinished.delete(session.family);
        if (left(session) <= 0) await sessions.shellsEnded(session);
      }
      return outcome;
    });
    endings.add(ending);
    return ending;
  }

  function remember(session: PairedSession, { failure, marks }: ShellsEnded): void {
    const { family, prefix } = session;
    const isNew = !unfinished.has(family);
    if (isNew) log.error(`the shells of session ${prefix} may go on, which is tried again: ${failure}`);
    if (isNew && unfinished.size >= MAX_UNFINISHED) return;
    unfinished.set(family, { session, marks });
    if (!isStopping) cancelRetry ??= clock.after(retryDelay, () => void retry());
  }

  async function retry(): Promise<void> {
    retryDelay = Math.min(retryDelay * 2, MAX_RETRY_DELAY);
    // Sequentially, since each scans every process.
    for (const { session } of [...unfinished.values()]) if (!isStopping) await begin(session);
    cancelRetry = undefined;
    if (unfinished.size === 0) retryDelay = MIN_RETRY_DELAY;
    else if (!isStopping) cancelRetry = clock.after(retryDelay, () => void retry());
  }

  function finish(session: PairedSession): void {
    const { family } = session;
    if (overdue.has(family)) return;
    overdue.set(
      family,
      begin(session).finally(() => overdue.delete(family)),
    );
  }

  /** The outcome of an attempt, after five seconds at the latest. */
  const outcomeOf = (ending: Promise<ShellsEnded>): Promise<ShellsGone> =>
    withTimeout(
      { clock, timeout: END_TIMEOUT },
      ending.then(({ count, failure }) => ({ count, isLeft: failure !== undefined })),
      () => ({ count: 0, isLeft: true }),
    );

  function disarm(family: string): void {
    timers.get(family)?.();
    timers.delete(family);
  }

  /** Seconds that the reduced grant has left: 0 if it was removed, infinite if it was not reduced. */
  function left({ terminalReduced, grants: { terminal } }: PairedSession): number {
    if (!terminalReduced || terminal === null) return Number.POSITIVE_INFINITY;
    return terminal === undefined ? 0 : terminal - seconds(clock);
  }

  /** Ends the shells if the grant was reduced and is over; otherwise sets a timer for its end. */
  function check(session: PairedSession): void {
    const { family } = session;
    const rest = left(session);
    if (rest === Number.POSITIVE_INFINITY) return;
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
     * Ends the shells of a device, with everything that runs in them: bare ones, and those in tmux that no other device has
     * attached. Call it before the session ends. Resolves when they have ended, after five seconds at the latest, and never
     * rejects.
     */
    end: (session: PairedSession): Promise<ShellsGone> => outcomeOf(begin(session)),

    /**
     * After a reduction that removes the `terminal` grant down to its last second, ends the shells like `end`; shells
     * started in that second end after it. After any other reduction, none end yet: they end with the grant. Call it in the
     * turn of the reduction, since the shells of a removed grant begin to end with it.
     */
    async afterReduction(session: PairedSession): Promise<ShellsGone> {
      return left(session) > SMALLEST ? NO_SHELLS : outcomeOf(overdue.get(session.family) ?? begin(session));
    },

    /** Resolves when no shells are being ended any more. */
    async stop(): Promise<void> {
      isStopping = true;
      cancelRetry?.();
      for (const family of [...timers.keys()]) disarm(family);
      await Promise.all(endings);
    },
  };
}
