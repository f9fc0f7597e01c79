import type { Payload } from '../socket/envelope.ts';
import type { Dialect, Step, StreamState } from './events.ts';
import { previewObject } from './preview.ts';

const TERMINAL = new Set(['run.completed', 'done', 'error']);
const ENVELOPE_FIELDS = ['type', 'event', 'session_id', 'run_id', 'seq', 'ts', 'timestamp'];

/** The assistant's own words are not cut like a preview. */
const SPOKEN = /^(?:assistant\.|message\.|tool\.progress$)/;
const MAX_SPOKEN = 1024 * 1024;
const WORDS = { delta: MAX_SPOKEN, content: MAX_SPOKEN, text: MAX_SPOKEN };

/** Beyond this an upstream `seq` would leave no room to count on. */
const MAX_SEQ = 2 ** 52;

/** Every event as one `stream.event` envelope (contract 02 §5.5). */
export const typed: Dialect = (state, event, now) => {
  if (event.kind === 'mark') return step(state, 'done', {}, { state: 'final' }, now);
  if (event.kind === 'end') {
    return state.final ? { state } : step(state, 'done', {}, { state: 'final', synthetic: true }, now);
  }
  const name = event.type ?? 'assistant.delta';
  const payload = { ...event.data };
  for (const field of ENVELOPE_FIELDS) delete payload[field];
  return step(state, name, event.data, previewObject(payload, 0, SPOKEN.test(name) ? WORDS : {}), now);
};

function step(state: StreamState, name: string, data: Payload, payload: Payload, now: number): Step {
  const { session_id, run_id, seq: given, ts, timestamp } = data;
  const isAhead = Number.isInteger(given) && (given as number) > state.seq && (given as number) <= MAX_SEQ;
  const seq = isAhead ? (given as number) : state.seq + 1;
  const runId = typeof run_id === 'string' ? run_id : state.runId;
  const time = [ts, timestamp].find((value) => typeof value === 'string') ?? new Date(now).toISOString();
  return {
    state: { ...state, seq, runId, final: state.final || TERMINAL.has(name) },
    send: {
      type: 'stream.event',
      payload: {
        type: 'stream.event',
        schema_version: 1,
        session_id: typeof session_id === 'string' && session_id !== '' ? session_id : state.sessionId,
        run_id: runId,
        seq,
        event: name,
        ts: time,
        payload,
      },
    },
  };
}
