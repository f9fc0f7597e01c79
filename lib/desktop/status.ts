import * as v from 'valibot';
import { isObject } from '../kit/json.ts';
import type { Payload } from '../socket/envelope.ts';
import type { ActivityRecord } from './activity.ts';
import type { Device } from './registry.ts';

const orNull = <T>(schema: v.GenericSchema<T>) => v.fallback(v.nullable(schema), null);

/** The members of a status that are shown; null for one that is missing or of another type. */
const Shown = v.object({
  ...v.entriesFromList(['host', 'platform', 'arch', 'node', 'version'], orNull(v.string())),
  ...v.entriesFromList(['pid', 'uptime_ms', 'started_at_ms'], orNull(v.number())),
  interactive: orNull(v.boolean()),
  ...v.entriesFromList(['last_error', 'computer_use'], orNull(v.custom<Payload>(isObject))),
});

const toolsOf = ({ tools }: Device): string[] => [...tools].sort();

/**
 * The health body: the desktop heard last at the top level, then all desktops, then the newest commands (contract 07
 * §2.3).
 */
export function healthOf(devices: readonly Device[], pending: number, commands: readonly ActivityRecord[]): Payload {
  const [newest] = devices;
  return {
    connected: newest !== undefined,
    advertised_tools: newest ? toolsOf(newest) : [],
    pending_commands: pending,
    last_seen_at: newest ? newest.lastSeenAt / 1000 : null,
    ...v.parse(Shown, newest?.status ?? {}),
    clients: devices.map((device) => ({
      device_id: device.id,
      device_name: device.name,
      advertised_tools: toolsOf(device),
      last_seen_at: device.lastSeenAt / 1000,
    })),
    recent_commands: commands,
  };
}
