import type { DatabaseRow, HostDatabases } from '../host/index.ts';

/** One image generation call (contract 04 §7). Times are epoch seconds. */
export type ImageActivity = {
  call_id: string;
  tool_name: 'image_generate';
  state: 'running' | 'completed';
  started_at: number;
  completed_at: number | null;
};

/**
 * Parses the last 250 messages of a session inside the database, so that no prompt, argument or result leaves the
 * database. `kind` is `call`, one row per call, or `result`. An element of `tool_calls` that is not an object has no
 * id.
 */
const SQL = `
WITH newest AS (
  SELECT id, role, timestamp AS at, tool_calls AS calls, tool_name, tool_call_id
  FROM messages
  WHERE session_id = ? AND active = 1 AND timestamp >= ? AND typeof(timestamp) IN ('real', 'integer')
  ORDER BY timestamp DESC, id DESC LIMIT 250
), called AS (
  SELECT newest.id AS row, at, item.key AS place, CASE item.type WHEN 'object' THEN item.value ELSE '{}' END AS call
  FROM newest, json_each(CASE WHEN json_valid(calls) AND json_type(calls) = 'array' THEN calls ELSE '[]' END) AS item
  WHERE role = 'assistant'
)
SELECT 'call' AS kind, row, at, place, json_extract(call, '$.id') AS call_id
  FROM called
  WHERE json_type(call, '$.id') = 'text' AND json_extract(call, '$.id') <> ''
    AND COALESCE(json_extract(call, '$.function.name'), json_extract(call, '$.name')) = 'image_generate'
UNION ALL
SELECT 'result', id, at, 0, tool_call_id FROM newest WHERE role = 'tool' AND tool_name = 'image_generate'
ORDER BY 3, 2, 4`;

/**
 * Image generation calls of a chat session since `since` (epoch seconds), oldest first, from the database in the
 * profile's home. A missing or broken database yields an empty list.
 */
export async function readImageActivity(
  databases: HostDatabases,
  home: string,
  { sessionId, since }: { sessionId: string; since: number },
): Promise<ImageActivity[]> {
  const { rows } = await databases.read({ path: `${home}/state.db`, sql: SQL, params: [sessionId, since] });
  return activitiesOf(rows ?? []);
}

/** Joins calls with their results. Rows are oldest first; malformed ones are skipped. */
function activitiesOf(rows: DatabaseRow[]): ImageActivity[] {
  const activities = new Map<string, ImageActivity>();
  for (const { kind, at, call_id: id } of rows) {
    const time = Number(at);
    if (typeof id !== 'string' || !Number.isFinite(time)) continue;
    const known = activities.get(id);
    if (kind === 'result') {
      if (known) Object.assign(known, { state: 'completed', completed_at: time });
    } else if (!known) {
      activities.set(id, {
        call_id: id,
        tool_name: 'image_generate',
        state: 'running',
        started_at: time,
        completed_at: null,
      });
    }
  }
  return [...activities.values()];
}
