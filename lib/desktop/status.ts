import { isObject } from '../kit/json.ts';
import type { Payload } from '../socket/envelope.ts';
import type { ActivityRecord } from './activity.ts';
import type { Device } from './registry.ts';

const text = (value: unknown): string | null => (typeof value === 'string' ? value : null);
const number = (value: unknown): number | null => (typeof value === 'number' ? value : null);
const boolean = (value: unknown): boolean | null => (typeof value === 'boolean' ? value : null);
const object = (value: unknown): Payload | null => (isObject(value) ? value : null);

const toolsOf = ({ tools }: Device): string[] => [...tools].sort();

/**
 * The health body: the desktop heard last at the top level, then all desktops, then the newest commands (contract 07
 * §2.3).
 */
export function healthOf(devices: readonly Device[], pending: number, commands: readonly ActivityRecord[]): Payload {
  const [newest] = devices;
  const status = newest?.status ?? {};
  return {
    connected: newest !== undefined,
    advertised_tools: newest ? toolsOf(newest) : [],
    pending_commands: pending,
    last_seen_at: newest ? newest.lastSeenAt / 1000 : null,
    host: text(status.host),
    platform: text(status.platform),
    arch: text(status.arch),
    node: text(status.node),
    version: text(status.version),
    pid: number(status.pid),
    uptime_ms: number(status.uptime_ms),
    started_at_ms: number(status.started_at_ms),
    interactive: boolean(status.interactive),
    last_error: object(status.last_error),
    computer_use: object(status.computer_use),
    clients: devices.map((device) => ({
      device_id: device.id,
      device_name: device.name,
      advertised_tools: toolsOf(device),
      last_seen_at: device.lastSeenAt / 1000,
    })),
    recent_commands: commands,
  };
}
