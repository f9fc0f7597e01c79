import type { CommandRecord } from '../dispatch/dispatcher.ts';
import type { Payload } from '../socket/envelope.ts';
import type { Decision } from './response.ts';

/** One command, as `GET /desktop/health` and `GET /desktop/activity` show it (contract 07 §2.3, 09 §9). Contains no secrets. */
export interface ActivityRecord extends CommandRecord<Decision> {
  tool: string;
  /** Null for a call that was refused before a desktop was chosen. */
  device_id: string | null;
  /** Null in the same case; absent in records of older versions. */
  device_name?: string | null;
  args: Payload;
}
