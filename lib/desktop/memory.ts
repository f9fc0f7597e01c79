import type { DesktopControlRecord, DesktopTargetRecord, Store } from '../../storage/schema.ts';
import type { Link } from '../dispatch/link.ts';
import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';

export type Memory = ReturnType<typeof createMemory>;

/** A socket's id is the key of its target record; this is the key of that target's control sessions. */
const controlKey = ({ id }: Link): string => `${id}:control`;

/**
 * Keeps desktops and control sessions in a store, for an object that is put away while their sockets stay open (edge).
 * Nothing waits for a write: a lost one costs what the desktop's next status brings back.
 */
export function createMemory(store: Store<'desktop'>, log: Log) {
  const written = (write: Promise<unknown>): void => {
    write.catch((error) => log.warn(`a desktop could not be saved: ${describeError(error)}`));
  };
  return {
    saveTarget: (link: Link, record: DesktopTargetRecord): void => written(store.setItem(link.id, record)),

    saveControl(link: Link, sessions: DesktopControlRecord[]): void {
      const key = controlKey(link);
      written(sessions.length > 0 ? store.setItem(key, { sessions }) : store.removeItem(key));
    },

    forget(link: Link): void {
      written(store.removeItem(link.id));
      written(store.removeItem(controlKey(link)));
    },

    /** What was kept of a socket; nothing for one that said nothing. */
    async load(link: Link): Promise<{ target: DesktopTargetRecord; sessions: DesktopControlRecord[] } | undefined> {
      const target = (await store.getItem(link.id)) as DesktopTargetRecord | null;
      if (!target) return undefined;
      const control = (await store.getItem(controlKey(link))) as { sessions: DesktopControlRecord[] } | null;
      return { target, sessions: control?.sessions ?? [] };
    },
  };
}
