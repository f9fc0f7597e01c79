import type { Session } from './session.ts';

/** Shells of agents' runs that are remembered; the longest known is forgotten first. */
const MAX_SHELLS = 256;

/**
 * The shells that runs of agents opened, which a freeze ends (contract 09 §3). By name, because a shell in tmux outlives
 * the client that was attached to it. A shell that its owner opens under that name is the owner's.
 */
export function createRunShells() {
  const names = new Set<string>();
  const attached = new WeakSet<Session>();

  return {
    /** Somebody has opened a shell, or come back to one that there was. */
    opened(session: Session, { name, runId, reattach }: { name: string; runId?: string; reattach: boolean }): void {
      if (runId === undefined) {
        if (!reattach) names.delete(name);
        return;
      }
      attached.add(session);
      // A shell from before the run belongs to its owner: only the attachment of the run ends.
      if (reattach && !names.has(name)) return;
      names.delete(name);
      names.add(name);
      const [oldest] = names;
      if (names.size > MAX_SHELLS && oldest !== undefined) names.delete(oldest);
    },

    isOfRun: (session: Session): boolean => attached.has(session),

    /** The names, which are forgotten. */
    take(): string[] {
      const taken = [...names];
      names.clear();
      return taken;
    },
  };
}
