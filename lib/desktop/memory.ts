import type { Storage } from 'unstorage';
import type { Link } from '../dispatch/link.ts';
import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { ControlRecord } from './control.ts';
import type { TargetRecord } from './targets.ts';

/** Under the id of a socket what is known of it, under `<id>:control` the control sessions that it is the target of. */
export type DesktopRecord = TargetRecord | { sessions: ControlRecord[] };

export type Memory = ReturnType<typeof createMemory>;

const controlKey = ({ id }: Link): string => `${id}:control`;

/**
 * Keeps desktops and control sessions in a store, for an object that is put away while their sockets stay open (edge).
 * Nothing waits for a write: a lost one costs what the desktop's next status brings back.
 */
export function createMemory(store: Storage<DesktopRecord>, log: Log) {
  const written = (write: Promise<unknown>): void => {
    write.catch((error) => log.warn(`a desktop could not be saved: ${describeError(error)}`));
  };
  return {
    saveTarget: (link: Link, record: TargetRecord): void => written(store.setItem(link.id, record)),

    saveControl(link: Link, sessions: ControlRecord[]): void {
      const key = controlKey(link);
      written(sessions.length > 0 ? store.setItem(key, { sessions }) : store.removeItem(key));
    },

    forget(link: Link): void {
      written(store.removeItem(link.id));
      written(store.removeItem(controlKey(link)));
    },

    /** What was kept of a socket; nothing for one that said nothing. */
    async load(link: Link): Promise<{ target: TargetRecord; sessions: ControlRecord[] } | undefined> {
      const target = (await store.getItem(link.id)) as TargetRecord | null;
      if (!target) return undefined;
      const control = (await store.getItem(controlKey(link))) as { sessions: ControlRecord[] } | null;
      return { target, sessions: control?.sessions ?? [] };
    },
  };
}
