import type { Payload } from '../socket/envelope.ts';
import { type Dialect, errorText, firstString, flag } from './events.ts';
import { preview } from './preview.ts';

type Shape = (data: Payload, sessionId: string) => Payload;

/** The first value that is neither missing, null nor an empty string. */
const firstOf = (...values: unknown[]): unknown =>
  values.find((value) => value !== undefined && value !== null && value !== '');

const messageId = (data: Payload) => firstString(data.message_id, data.id);

const tool = (data: Payload) => ({
  tool_name: firstString(data.tool_name, data.name),
  tool_call_id: firstString(data.tool_call_id, data.call_id),
});

const delta: Shape = (data, session_id) => ({
  session_id,
  message_id: messageId(data),
  delta: firstString(data.delta, data.content),
});

const progress: Shape = (data, session_id) => ({
  session_id,
  message_id: messageId(data),
  delta: firstString(data.delta, data.thinking_delta, data.text),
});

const toolStarted: Shape = (data) => ({
  ...tool(data),
  preview: preview(firstOf(data.preview) ?? ''),
  args: preview(firstOf(data.args, data.arguments) ?? {}),
});

const toolCompleted: Shape = (data) => ({
  ...tool(data),
  result_preview: preview(firstOf(data.result_preview, data.result) ?? ''),
  success: flag(data.success, true),
});

const toolFailed: Shape = (data) => ({
  ...tool(data),
  error: errorText(data.error, data.message) || 'Tool failed',
});

const turnCompleted: Shape = (data, session_id) => ({
  session_id,
  message_id: messageId(data),
  content: firstString(data.content),
  completed: flag(data.completed, true),
  partial: flag(data.partial, false),
  interrupted: flag(data.interrupted, false),
});

const completed: Shape = (data, session_id) => ({
  session_id,
  message_id: messageId(data),
  content: firstString(data.content),
  api_calls: Number.isInteger(data.api_calls) ? data.api_calls : 0,
});

const failed: Shape = (data) => ({ message: errorText(data.message, data.error) || 'Unknown error' });

/** Envelope type, payload, and the upstream types that are translated into it (contract 02 §5.6). */
const TABLE: [type: string, shape: Shape, upstream: string[]][] = [
  ['chat.delta', delta, ['assistant.delta', 'content_delta', 'delta']],
  ['chat.progress', progress, ['tool.progress', 'thinking_delta', 'reasoning_delta']],
  ['chat.tool.started', toolStarted, ['tool.pending', 'tool.started', 'tool_start', 'tool_started']],
  ['chat.tool.completed', toolCompleted, ['tool.completed', 'tool_result', 'tool_completed']],
  ['chat.tool.failed', toolFailed, ['tool.failed']],
  ['chat.turn.completed', turnCompleted, ['assistant.completed']],
  ['chat.completed', completed, ['run.completed', 'done', 'content_complete', 'complete', 'completed']],
  ['chat.error', failed, ['error']],
];
const TERMINAL = new Set(['chat.completed', 'chat.error']);
const BY_UPSTREAM = new Map(TABLE.flatMap(([type, shape, names]) => names.map((name) => [name, { type, shape }])));

/**
 * Envelopes for clients without typed events (contract 02 §5.6), which have none for a silent agent. Only the first
 * terminal event is sent.
 */
export const legacy: Dialect = (state, event, _now) => {
  const isEnd = event.kind === 'end' || event.kind === 'cancelled';
  const name = event.kind === 'event' ? event.type : isEnd ? 'done' : undefined;
  const row = name === undefined ? undefined : BY_UPSTREAM.get(name);
  if (!row) return { state };
  const isTerminal = TERMINAL.has(row.type);
  if (isTerminal && state.final) return { state };
  const payload = row.shape(event.kind === 'event' ? event.data : {}, state.sessionId);
  return {
    state: { ...state, final: state.final || isTerminal },
    send: { type: row.type, payload: event.kind === 'cancelled' ? { ...payload, interrupted: true } : payload },
  };
};
