import type { Session } from './session.ts';

/** Maximum remembered shells of agent runs; the oldest is forgotten first. */
const MAX_SHELLS = 256;

/**
 * The shells that agent runs opened, which a freeze ends (contract 09 §3). Keyed by name, because a shell in tmux outlives
 * the client that was attached to it. A shell that its owner opens under that name belongs to the owner.
 */
export function createRunShells() {
  const names = new Set<string>();
  const attached = new WeakSet<Session>();

  return {
    /** A shell was opened, or an existing one attached. */
    opened(session: Session, { name, runId, reattach }: { name: string; runId?: string; reattach: boolean }): void {
      if (runId === undefined) {
        if (!reattach) names.delete(name);
        return;
      }
      attached.add(session);
      // A shell from before the run belongs to its owner, so only the run's attachment ends.
      if (reattach && !names.has(name)) return;
      names.delete(name);
      names.add(name);
      const [oldest] = names;
      if (names.size > MAX_SHELLS && oldest !== undefined) names.delete(oldest);
    },

    isOfRun: (session: Session): boolean => attached.has(session),

    /** Returns the names and forgets them. */
    take(): string[] {
      const usedNames = [...names];
      names.clear();
      return usedNames;
    },
  };
}
