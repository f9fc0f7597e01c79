import type { CommandRecord } from '../dispatch/dispatcher.ts';
import type { Decision } from './response.ts';

/** One command, as `GET /bridge/activity` shows it (contract 03 §6). Contains no secrets. */
export interface ActivityRecord extends CommandRecord<Decision> {
  method: string;
  path: string;
  params: Record<string, unknown>;
  device_id: string | null;
  device_name: string | null;
  alias_used: string | null;
}
