import { parseObject } from '../kit/json.ts';
import type { Payload } from '../socket/envelope.ts';
import type { SseEvent } from './sse.ts';

/** What the agent's stream says: an event, the `[DONE]` mark, or that it has ended cleanly. */
export type AgentEvent = { kind: 'event'; type?: string; data: Payload } | { kind: 'mark' } | { kind: 'end' };

/** What is remembered of one `chat.send` while its stream runs. */
export interface StreamState {
  readonly sessionId: string;
  /** The last `run_id` seen. */
  readonly runId: string | null;
  /** The last `seq` sent. */
  readonly seq: number;
  /** A terminal event was sent. */
  readonly final: boolean;
}

/** What is sent for one event, if anything, and the state after it. */
export interface Step {
  state: StreamState;
  send?: { type: string; payload: Payload };
}

/** One of the two forms in which a client gets the stream (contract 02 §5.4). `now` is epoch milliseconds. */
export type Dialect = (state: StreamState, event: AgentEvent, now: number) => Step;

export const startOf = (sessionId: string): StreamState => ({ sessionId, runId: null, seq: 0, final: false });

/** The first of the values that is a text and not empty, else `''`. */
export const firstText = (...values: unknown[]): string =>
  values.find((value): value is string => typeof value === 'string' && value !== '') ?? '';

/** An event of the agent's stream, or undefined for one that says nothing (contract 02 §5.3). */
export function readEvent({ event, data }: SseEvent): AgentEvent | undefined {
  if (data.trim() === '[DONE]') return { kind: 'mark' };
  const value = parseObject(data);
  if (!value) return undefined;
  return { kind: 'event', type: firstText(event, value.type, value.event) || undefined, data: value };
}
