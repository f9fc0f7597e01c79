import { isObject, parseObject } from '../kit/json.ts';
import type { Payload } from '../socket/envelope.ts';
import type { SseEvent } from './sse.ts';

/** An event of the agent's stream, its `[DONE]` mark, its clean end, its end by the client, or its silence. */
export type AgentEvent =
  | { kind: 'event'; type?: string; data: Payload }
  | { kind: 'mark' }
  | { kind: 'end' }
  | { kind: 'cancelled' }
  | { kind: 'waiting'; seconds: number };

/** State of one `chat.send` while its stream runs. */
export interface StreamState {
  readonly sessionId: string;
  /** The last `run_id` seen. */
  readonly runId: string | null;
  /** The last `seq` sent. */
  readonly seq: number;
  /** True if a terminal event was sent. */
  readonly final: boolean;
}

/** The message to send for an event, if any, and the next state. */
export interface Step {
  state: StreamState;
  send?: { type: string; payload: Payload };
}

/** One of the two dialects in which clients get the stream (contract 02 §5.4). `now` is epoch ms. */
export type Dialect = (state: StreamState, event: AgentEvent, now: number) => Step;

export const initialState = (sessionId: string): StreamState => ({ sessionId, runId: null, seq: 0, final: false });

/** The first value that is a non-empty string, or `''`. */
export const firstString = (...values: unknown[]): string =>
  values.find((value): value is string => typeof value === 'string' && value !== '') ?? '';

/** The first error that has a text: a string, or an object with a `message`. */
export const errorText = (...values: unknown[]): string =>
  firstString(...values.map((value) => (isObject(value) ? value.message : value)));

export const flag = (value: unknown, fallback: boolean): boolean => (typeof value === 'boolean' ? value : fallback);

/** Parses a server-sent event; undefined if its data is not a JSON object (contract 02 §5.3). */
export function readEvent({ event, data }: SseEvent): AgentEvent | undefined {
  if (data.trim() === '[DONE]') return { kind: 'mark' };
  const value = parseObject(data);
  if (!value) return undefined;
  return { kind: 'event', type: firstString(event, value.type, value.event) || undefined, data: value };
}
