import type { BridgeDeviceRecord, BridgeSelectionRecord, Store } from '../../storage/schema.ts';
import type { Link } from '../dispatch/link.ts';
import { describeError } from '../errors.ts';
import { isObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import type { Payload } from '../socket/envelope.ts';
import type { Device, Registry } from './registry.ts';

const CHOSEN = 'chosen';
const MAX_STATUS = 64 * 1024;
const MAX_SUPERSEDED = 8;

export interface Memory {
  /** A device has reported, possibly in place of itself on another socket. */
  save(device: Device, replaced?: Device): void;
  forget(device: Device): void;
  /** Keeps what is chosen, when it has changed. */
  saveChosen(): void;
  /** Registers the device of a socket that outlived the process's memory. */
  restore(link: Link): Promise<void>;
}

/**
 * Keeps the registry in a store, for an object that is put away while its sockets stay open (edge). Nothing waits for
 * a write: a lost one costs what the phone's next report brings back.
 */
export function createMemory(registry: Registry, store: Store<'bridge'>, log: Log): Memory {
  const older = new Map<string, string[]>();
  let chosen = '';

  const written = (write: Promise<unknown>): void => {
    write.catch((error) => log.warn(`the bridge registry could not be saved: ${describeError(error)}`));
  };

  return {
    save(device, replaced) {
      const { family } = device.link.session;
      const superseded = older.get(family) ?? [];
      if (replaced && replaced.link.session.family !== family) written(store.removeItem(replaced.link.session.family));
      else if (replaced) {
        superseded.push(replaced.link.id);
        older.set(family, superseded.slice(-MAX_SUPERSEDED));
      }
      const record: BridgeDeviceRecord = {
        socket: device.link.id,
        superseded: older.get(family) ?? [],
        status: short(device.status),
        connected_at: device.connectedAt,
        last_seen_at: device.lastSeenAt,
      };
      written(store.setItem(family, record));
    },

    forget(device) {
      const { family } = device.link.session;
      older.delete(family);
      written(store.removeItem(family));
    },

    saveChosen() {
      const { active, recent } = registry.chosen;
      const key = JSON.stringify([active, recent]);
      if (key === chosen) return;
      chosen = key;
      written(store.setItem(CHOSEN, { active, recent }));
    },

    async restore(link) {
      const { family } = link.session;
      const record = (await store.getItem(family)) as BridgeDeviceRecord | null;
      if (!record || !isObject(record.status)) return;
      if (record.superseded.includes(link.id)) {
        older.set(family, record.superseded);
        const id = link.session.device.id;
        registry.supersede(link, id);
        return;
      }
      if (record.socket !== link.id) return;
      registry.restore(link, {
        status: record.status,
        connectedAt: record.connected_at,
        lastSeenAt: record.last_seen_at,
      });
      const saved = (await store.getItem(CHOSEN)) as BridgeSelectionRecord | null;
      if (saved) registry.restoreChosen(saved);
    },
  };
}

/** A report that may be stored: of one that is too long, only what the relay itself goes by. */
function short(status: Payload): Payload {
  if (JSON.stringify(status).length <= MAX_STATUS) return status;
  const bridge = isObject(status.bridge) ? status.bridge : {};
  return { bridge: { device_control_supported: bridge.device_control_supported } };
}
