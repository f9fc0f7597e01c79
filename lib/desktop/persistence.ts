import * as v from 'valibot';
import type { DesktopControlRecord, DesktopDeviceRecord, Store } from '../../storage/schema.ts';
import type { Link } from '../dispatch/link.ts';
import { openSocketStore } from '../dispatch/socket-store.ts';
import type { Clock } from '../kit/clock.ts';
import { listOf, readAs } from '../kit/entries.ts';
import type { Log } from '../log.ts';
import type { ControlSessions } from './control.ts';
import type { DesktopRegistry } from './registry.ts';

const socketKey = ({ id }: Link): string => `socket:${id}`;
const controlKey = ({ id }: Link): string => `control:${id}`;

/** Stores the registry and the control sessions for an object that is evicted while its sockets stay open (edge). */
export async function openPersistence(deps: { store: Store<'desktop'>; clock: Clock; log: Log }) {
  const stored = await openSocketStore({ ...deps, name: 'the desktop registry' });

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
      const device = readAs(StoredDevice)(stored.take(socketKey(link)));
      const sessions = stored.take(controlKey(link));
      if (!device) return;
      registry.restore(link, device);
      control.restore(link, readAs(StoredControl)(sessions)?.sessions ?? []);
    },

    /** Every socket is restored: drops the records of all others. */
    restored(): void {
      for (const [key] of stored.takeRest()) stored.save(key, () => null);
    },
  };
}

const text = v.optional(v.string());
const StoredDevice: v.GenericSchema<unknown, DesktopDeviceRecord> = v.object({
  status: v.nullable(v.string()),
  id: v.string(),
  tools: v.array(v.string()),
  hints: v.object({ workspace: text, active_editor: text }),
  ...v.entriesFromList(['connected_at', 'last_seen_at'], v.number()),
});
const Control: v.GenericSchema<DesktopControlRecord> = v.object({
  ...v.entriesFromList(['id', 'targetId', 'family', 'deviceId', 'runId'], v.string()),
  ...v.entriesFromList(['chatSession', 'profile'], text),
  usedAt: v.number(),
});
const StoredControl = v.object({ sessions: listOf(Control) });
