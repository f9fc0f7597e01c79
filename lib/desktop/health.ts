import { isObject } from '../kit/json.ts';
import type { Payload } from '../socket/envelope.ts';
import type { Decision } from './answer.ts';
import type { Target } from './targets.ts';

/** One command, as `GET /desktop/health` shows it (contract 07 §2.3). Nothing in it is secret. */
export interface CommandRecord {
  request_id: string;
  tool: string;
  device_id: string;
  args: Payload;
  /** Epoch milliseconds. */
  sent_at: number;
  response_status: number | null;
  result_summary: string | null;
  error: string | null;
  decision: Decision;
}

const text = (value: unknown): string | null => (typeof value === 'string' ? value : null);
const number = (value: unknown): number | null => (typeof value === 'number' ? value : null);
const boolean = (value: unknown): boolean | null => (typeof value === 'boolean' ? value : null);
const object = (value: unknown): Payload | null => (isObject(value) ? value : null);

const toolsOf = ({ tools }: Target): string[] => [...tools].sort();

/** The health body: the desktop heard last on top, then all of them, then the newest commands (contract 07 §2.3). */
export function healthOf(targets: readonly Target[], pending: number, commands: readonly CommandRecord[]): Payload {
  const [newest] = targets;
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
    clients: targets.map((target) => ({
      device_id: target.id,
      device_name: target.name,
      advertised_tools: toolsOf(target),
      last_seen_at: target.lastSeenAt / 1000,
    })),
    recent_commands: commands,
  };
}
