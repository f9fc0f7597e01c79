import type { Payload } from '../socket/envelope.ts';
import type { Dialect, Step, StreamState } from './events.ts';
import { previewObject } from './preview.ts';

const TERMINAL = new Set(['run.completed', 'done', 'error']);
const ENVELOPE_FIELDS = ['type', 'event', 'session_id', 'run_id', 'seq', 'ts', 'timestamp'];

/**
 * Events with the assistant's own text, which is not cut like a preview. Includes the names of other agents, and the
 * ends of a turn, which hold the whole text if an agent streams nothing (contract 02 §5.6).
 */
const ASSISTANT_EVENT =
  /^(?:assistant\..*|message\..*|tool\.progress|(?:content_|thinking_|reasoning_)?delta|(?:run\.|content_)?completed?|done)$/s;
const MAX_ASSISTANT_TEXT = 1024 * 1024;
const ASSISTANT_LIMITS = {
  delta: MAX_ASSISTANT_TEXT,
  thinking_delta: MAX_ASSISTANT_TEXT,
  content: MAX_ASSISTANT_TEXT,
  text: MAX_ASSISTANT_TEXT,
};

/** A larger upstream `seq` is ignored, because counting on from it would lose precision. */
const MAX_SEQ = 2 ** 52;

/** Every event as one `stream.event` envelope (contract 02 §5.5). */
export const typed: Dialect = (state, event, now) => {
  if (event.kind === 'mark') return step(state, 'done', {}, { state: 'final' }, now);
  if (event.kind !== 'event' && state.final) return { state };
  if (event.kind === 'end') return step(state, 'done', {}, { state: 'final', synthetic: true }, now);
  if (event.kind === 'cancelled') return step(state, 'done', {}, { state: 'final', cancelled: true }, now);
  if (event.kind === 'waiting') return step(state, 'relay.waiting', {}, { seconds: event.seconds }, now);
  const name = event.type ?? 'assistant.delta';
  const payload = { ...event.data };
  for (const field of ENVELOPE_FIELDS) delete payload[field];
  return step(
    state,
    name,
    event.data,
    previewObject(payload, 0, ASSISTANT_EVENT.test(name) ? ASSISTANT_LIMITS : {}),
    now,
  );
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
