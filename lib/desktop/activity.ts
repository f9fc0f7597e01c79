import type { Payload } from '../socket/envelope.ts';
import type { Decision } from './response.ts';

/** One command, as `GET /desktop/health` shows it (contract 07 §2.3). Contains no secrets. */
export interface ActivityRecord {
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
