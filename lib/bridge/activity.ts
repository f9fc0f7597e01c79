import type { Decision } from './response.ts';

/** One command, as `GET /bridge/activity` shows it (contract 03 §6). Contains no secrets. */
export interface ActivityRecord {
  request_id: string;
  method: string;
  path: string;
  params: Record<string, unknown>;
  /** Epoch milliseconds. */
  sent_at: number;
  response_status: number | null;
  result_summary: string | null;
  error: string | null;
  decision: Decision;
  device_id: string | null;
  device_name: string | null;
  alias_used: string | null;
}
