import type { DesktopControlRecord, DesktopDeviceRecord, Store } from '../../storage/schema.ts';
import type { Link } from '../dispatch/link.ts';
import { openSocketStore } from '../dispatch/socket-store.ts';
import type { Clock } from '../kit/clock.ts';
import { isObject, type JsonObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import type { ControlSessions } from './control.ts';
import type { DesktopRegistry } from './registry.ts';

const socketKey = ({ id }: Link): string => `socket:${id}`;
const controlKey = ({ id }: Link): string => `control:${id}`;

export interface PersistenceParts {
  store: Store<'desktop'>;
  clock: Clock;
  log: Log;
}

export type Persistence = Awaited<ReturnType<typeof openPersistence>>;

/** Stores the registry and the control sessions for an object that is evicted while its sockets stay open (edge). */
export async function openPersistence(parts: PersistenceParts) {
  const stored = await openSocketStore({ ...parts, name: 'the desktop registry' });

  return {
    /** The state that a socket reported has changed, or the socket is gone. */
    socketChanged(link: Link, registry: DesktopRegistry): void {
      stored.save(socketKey(link), () => registry.record(link) ?? null);
    },

    /** The control sessions of a target have changed. */
    controlChanged(link: Link, control: ControlSessions): void {
      stored.save(controlKey(link), () => {
        const sessions = control.records(link);
        return sessions.length > 0 ? { sessions } : null;
      });
    },

    /** Restores the device and control sessions of a socket that outlived the memory of the process. */
    restore(link: Link, { registry, control }: { registry: DesktopRegistry; control: ControlSessions }): void {
      const device = stored.take(socketKey(link));
      const sessions = stored.take(controlKey(link))?.sessions;
      if (!isDeviceRecord(device)) return;
      registry.restore(link, device);
      if (Array.isArray(sessions)) control.restore(link, sessions.filter(isControlRecord));
    },

    /** Every socket is back: drops what belongs to others. */
    restored(): void {
      for (const [key] of stored.takeRest()) stored.save(key, () => null);
    },
  };
}

const isDeviceRecord = (record: JsonObject | undefined): record is JsonObject & DesktopDeviceRecord =>
  record !== undefined &&
  (record.status === null || typeof record.status === 'string') &&
  typeof record.id === 'string' &&
  Array.isArray(record.tools) &&
  isObject(record.hints) &&
  typeof record.connected_at === 'number' &&
  typeof record.last_seen_at === 'number';

const isControlRecord = (record: unknown): record is DesktopControlRecord =>
  isObject(record) &&
  [record.id, record.targetId, record.family, record.deviceId, record.runId].every((id) => typeof id === 'string') &&
  typeof record.usedAt === 'number';
