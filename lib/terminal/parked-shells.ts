import type { Cancel, Clock } from '../kit/clock.ts';
import { type Expiry, isGranted } from '../sessions/grants.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Session } from './session.ts';

export interface ParkedShellsDeps {
  sessions: Pick<Sessions, 'byFamily' | 'onEnd' | 'onReduce'>;
  /** Seconds for which a shell stays parked. */
  graceSeconds: number;
  clock: Clock;
}

/** A bare shell that waits for the return of its device. */
interface ParkedShell {
  /** Session family of the device. */
  family: string;
  /** Epoch milliseconds. */
  since: number;
  cancel: Cancel;
}

/**
 * Parked shells: each is kept until the grace time or the terminal grant of its device ends, whichever comes first (contract
 * 02 §3.2).
 */
export function createParkedShells({ sessions, graceSeconds, clock }: ParkedShellsDeps) {
  /** Longest parked first. */
  const parked = new Map<Session, ParkedShell>();

  // A refresh ends a session and gives its family to a new one in the same turn, so check after that.
  const recheckLater = ({ family }: { family: string }) => queueMicrotask(() => recheck(family));
  sessions.onEnd(recheckLater);
  sessions.onReduce(recheckLater);

  /** End of the terminal grant of a family; undefined without one. */
  function grantExpiry(family: string): Expiry | undefined {
    const session = sessions.byFamily(family);
    if (!session || !isGranted(session.grants, 'terminal', clock.now() / 1000)) return undefined;
    return session.grants.terminal as Expiry;
  }

  function armExpiry(session: Session, shell: ParkedShell): void {
    const until = grantExpiry(shell.family) ?? null;
    const grace = shell.since + graceSeconds * 1000;
    const end = until === null ? grace : Math.min(grace, until * 1000);
    shell.cancel();
    shell.cancel = clock.after(Math.max(0, Math.ceil(end - clock.now())), () => void session.dispatch('expired'));
  }

  /** Ends the shells of a family that lost its grant, and adjusts the expiry of others. */
  function recheck(family: string): void {
    const isAllowed = grantExpiry(family) !== undefined;
    for (const [session, shell] of [...parked]) {
      if (shell.family !== family) continue;
      if (isAllowed) armExpiry(session, shell);
      else session.dispatch('grant-lost');
    }
  }

  /** The parked shells of a family. */
  const ofFamily = (family: string): Set<Session> =>
    new Set([...parked].filter(([, shell]) => shell.family === family).map(([session]) => session));

  return {
    recheck,

    park(session: Session, family: string): void {
      const shell: ParkedShell = { family, since: clock.now(), cancel: () => {} };
      parked.set(session, shell);
      queueMicrotask(() => recheck(family));
      armExpiry(session, shell);
    },

    /** Removes a shell that was reclaimed or has ended. */
    remove(session: Session): void {
      parked.get(session)?.cancel();
      parked.delete(session);
    },

    /** The parked shell of a family and name; the one parked last, if there are several. */
    find: (family: string, name: string): Session | undefined =>
      [...ofFamily(family)].findLast((session) => session.name === name),

    ofFamily,

    /** Ends the shell parked longest, to make room for another. False if none is parked. */
    evictOldest(): boolean {
      const [oldest] = parked.keys();
      oldest?.dispatch('expired');
      return oldest !== undefined;
    },
  };
}
