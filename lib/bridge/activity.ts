import type { Decision } from './answer.ts';

/** One command, as `GET /bridge/activity` shows it (contract 03 §6). Nothing in it is secret. */
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

export interface Activity {
  /** Adds the newest record; the oldest makes room for it. Whoever added it may still change it. */
  add(record: ActivityRecord): void;
  /** The newest records, newest first. */
  list(limit: number): ActivityRecord[];
}

/** A ring of the last commands. A settled command holds its own record: nothing here is ever searched. */
export function createActivity(size = 100): Activity {
  const ring: ActivityRecord[] = [];
  let next = 0;
  return {
    add(record) {
      ring[next] = record;
      next = (next + 1) % size;
    },
    list(limit) {
      const count = Math.min(limit, ring.length);
      return Array.from({ length: count }, (_, at) => ring[(next - 1 - at + 2 * size) % size] as ActivityRecord);
    },
  };
}
