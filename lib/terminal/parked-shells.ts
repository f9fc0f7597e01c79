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
  session: Session;
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
  const parked = new Set<ParkedShell>();

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

  function armExpiry(shell: ParkedShell): void {
    const until = grantExpiry(shell.family) ?? null;
    const grace = shell.since + graceSeconds * 1000;
    const end = until === null ? grace : Math.min(grace, until * 1000);
    shell.cancel();
    shell.cancel = clock.after(Math.max(0, Math.ceil(end - clock.now())), () => void shell.session.dispatch('expired'));
  }

  /** Ends the shells of a family that lost its grant, and adjusts the expiry of others. */
  function recheck(family: string): void {
    const isAllowed = grantExpiry(family) !== undefined;
    for (const shell of [...parked]) {
      if (shell.family !== family) continue;
      if (isAllowed) armExpiry(shell);
      else shell.session.dispatch('grant-lost');
    }
  }

  return {
    recheck,

    park(session: Session, family: string): void {
      const shell: ParkedShell = { session, family, since: clock.now(), cancel: () => {} };
      parked.add(shell);
      queueMicrotask(() => recheck(family));
      armExpiry(shell);
    },

    /** Removes a shell that was reclaimed or has ended. */
    remove(session: Session): void {
      for (const shell of parked) {
        if (shell.session !== session) continue;
        shell.cancel();
        parked.delete(shell);
      }
    },

    /** The parked shell of a family and name; the one parked last, if there are several. */
    find: (family: string, name: string): Session | undefined =>
      [...parked].filter((shell) => shell.family === family && shell.session.name === name).at(-1)?.session,

    /** The parked shells of a family. */
    ofFamily: (family: string): Set<Session> =>
      new Set([...parked].filter((shell) => shell.family === family).map(({ session }) => session)),

    /** Ends the shell parked longest, to make room for another. False if none is parked. */
    evictOldest(): boolean {
      const [oldest] = parked;
      oldest?.session.dispatch('expired');
      return oldest !== undefined;
    },
  };
}
