import * as v from 'valibot';
import type { BridgeDeviceRecord, BridgeSelectionRecord, Store } from '../../storage/schema.ts';
import type { Link } from '../dispatch/link.ts';
import { openSocketStore } from '../dispatch/socket-store.ts';
import type { Clock } from '../kit/clock.ts';
import { readAs } from '../kit/entries.ts';
import { isObject, type JsonObject, parseObject } from '../kit/json.ts';
import { sha256 } from '../kit/sha256.ts';
import type { Log } from '../log.ts';
import type { Payload } from '../socket/envelope.ts';
import { aliasesOf } from './identity.ts';
import { type Device, type KnownDevice, keyOf, type PhoneRegistry } from './registry.ts';

const MAX_STATUS = 64 * 1024;
const SELECTION = 'selection';
const NEWEST = 'newest';
const socketKey = (socketId: string): string => `socket:${socketId}`;
const departedKey = (key: string): string => `departed:${sha256(key)}`;

/** Stores the registry for an object that is evicted while its sockets stay open (edge). */
export async function openPersistence(deps: { store: Store<'bridge'>; clock: Clock; log: Log }) {
  const stored = await openSocketStore({ ...deps, name: 'the bridge registry' });
  let selection = '';

  return {
    /** The device on a socket, or the socket's place in the registry, has changed. */
    socketChanged(link: Link, registry: PhoneRegistry): void {
      stored.save(socketKey(link.id), () => {
        const device = registry.of(link);
        const id = registry.supersededOn(link);
        if (device) return toRecord(device, device.connectedAt);
        return id === undefined || !link.isOpen ? null : { superseded: id };
      });
      const { active, recent } = registry.selection;
      const key = JSON.stringify([active, recent]);
      if (key === selection) return;
      selection = key;
      stored.save(SELECTION, () => ({ ...registry.selection }));
    },

    /** The device of this key has departed, or has returned. */
    departedChanged(key: string, registry: PhoneRegistry): void {
      const record = (known: KnownDevice | undefined) => (known ? toRecord(known, null) : null);
      stored.save(departedKey(key), () => record(registry.departed(key)));
      stored.save(NEWEST, () => record(registry.newest()));
    },

    /** Restores the device of a socket that outlived the memory of the process. */
    restore(link: Link, registry: PhoneRegistry): void {
      const record = stored.take(socketKey(link.id));
      if (!record) return;
      if (typeof record.superseded === 'string') registry.supersede(link, record.superseded);
      const known = fromRecord(record);
      const { connected_at: connectedAt } = record;
      if (known && typeof connectedAt === 'number') registry.restore(link, { ...known, connectedAt });
    },

    /** Every socket is restored: restores the rest. Devices without a restored socket have departed. */
    restored(registry: PhoneRegistry): void {
      const saved = stored.take(SELECTION) as BridgeSelectionRecord | undefined;
      const rest = stored.takeRest().map(([key, record]) => ({ key, known: fromRecord(record) }));
      for (const { key, known } of rest.sort((a, b) => (a.known?.lastSeenAt ?? 0) - (b.known?.lastSeenAt ?? 0))) {
        if (known) registry.restoreDeparted(known);
        // Earlier versions stored departed devices under their id alone.
        if (key === NEWEST || (known && key === departedKey(keyOf(known)))) continue;
        stored.save(key, () => null);
        if (known) this.departedChanged(keyOf(known), registry);
      }
      if (saved) registry.restoreSelection(saved);
    },
  };
}

const toRecord = (device: KnownDevice | Device, connectedAt: number | null): BridgeDeviceRecord => ({
  id: device.id,
  source: device.source,
  name: device.name,
  surface: device.surface,
  form_factor: device.formFactor,
  family: device.family,
  prefix: device.prefix,
  status: shortText(device.status),
  connected_at: connectedAt,
  last_seen_at: device.lastSeenAt,
});

const Stored: v.GenericSchema<unknown, BridgeDeviceRecord> = v.object({
  source: v.picklist(['session', 'payload', 'socket']),
  ...v.entriesFromList(['id', 'name', 'surface', 'form_factor', 'family', 'prefix', 'status'], v.string()),
  connected_at: v.nullable(v.number()),
  last_seen_at: v.number(),
});

function fromRecord(record: JsonObject): KnownDevice | undefined {
  const read = readAs(Stored)(record);
  const status = read ? parseObject(read.status) : null;
  if (!read || !status) return undefined;
  const { id, source, name, surface, form_factor: formFactor, family, prefix, last_seen_at: lastSeenAt } = read;
  const aliases = aliasesOf({ id, name, surface, formFactor });
  return { id, source, name, surface, formFactor, aliases, family, prefix, status, lastSeenAt };
}

/** A report in storable length: a longer one is reduced to the members that the relay reads. */
function shortText(status: Payload): string {
  const text = JSON.stringify(status);
  if (text.length <= MAX_STATUS) return text;
  const bridge = isObject(status.bridge) ? status.bridge : {};
  return JSON.stringify({ bridge: { device_control_supported: bridge.device_control_supported } });
}
