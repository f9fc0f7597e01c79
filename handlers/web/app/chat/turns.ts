import { initialState } from '../../../../lib/chat/events.ts';
import { legacy } from '../../../../lib/chat/legacy.ts';
import { asObject } from '../../../../lib/kit/json.ts';
import type { Message } from '../../../../lib/socket/envelope.ts';

/** A call of a tool during an answer. */
export interface ToolCall {
  id: string;
  name: string;
  state: 'running' | 'done' | 'failed';
  /** Its arguments, and its result or error, as shown by the relay: shortened, without secrets. */
  args: unknown;
  result: string;
}

/** Tokens of an answer, as counted by the API server. */
export interface TokenUsage {
  input: number;
  output: number;
  total: number;
}

/** One message of a conversation. */
export interface Turn {
  /** For both sides of an exchange: its `client_turn_id` (contract 10 §1). */
  request: string;
  /** The relay's name for it, if the relay stores turns, and its last event included here. */
  turnId?: string;
  seq?: number;
  from: 'person' | 'agent';
  text: string;
  reasoning: string;
  tools: readonly ToolCall[];
  /** `stopped` by the person; `broken` if the connection or the agent failed, with the reason in `error`. */
  state: 'streaming' | 'done' | 'stopped' | 'broken';
  error?: string;
  /** Present if the API server reports it. */
  usage?: TokenUsage;
  /** Epoch ms. */
  at: number;
}

/** Stored characters of reasoning and of a tool's result per answer, and the number of its calls. */
const MAX_REASONING = 64 * 1024;
const MAX_RESULT = 4 * 1024;
const MAX_TOOLS = 200;

export const personTurn = (request: string, text: string, at: number): Turn => ({
  request,
  from: 'person',
  text,
  reasoning: '',
  tools: [],
  state: 'done',
  at,
});

export const agentTurn = (request: string, at: number): Turn => ({
  ...personTurn(request, '', at),
  from: 'agent',
  state: 'streaming',
});

/** A message of a stream. */
export type Step = Pick<Message, 'type' | 'payload'>;

/**
 * The answer after a message of its stream (contract 02 §5.5). Returns the same turn for an irrelevant message, or one that
 * it already includes.
 */
export function advance(turn: Turn, step: Step): Turn {
  const { turn_id: turnId, seq } = step.payload;
  if (typeof turnId !== 'string') return advanceTyped(turn, step);
  if (typeof seq !== 'number') return { ...advanceTyped(turn, step), turnId };
  return seq <= (turn.seq ?? 0) ? turn : { ...advanceTyped(turn, step), turnId, seq };
}

function advanceTyped(turn: Turn, step: Step): Turn {
  if (step.type !== 'stream.event') return advanceUntyped(turn, step);
  const data = asObject(step.payload.payload) ?? {};
  // Agents name their events differently. The relay's table for clients without typed events contains all of the names.
  const event = { kind: 'event', type: textOf(step.payload.event), data } as const;
  const { send } = legacy(initialState(''), event, 0);
  if (!send) return turn;
  const isStopped = data.cancelled === true || data.interrupted === true;
  const payload = isStopped ? { ...send.payload, interrupted: true } : send.payload;
  const usage = usageOf(data.usage);
  const next = advanceUntyped(turn, { ...send, payload });
  return usage ? { ...next, usage } : next;
}

/** The usage, under any of the names used by API servers. */
export function usageOf(value: unknown): TokenUsage | undefined {
  const usage = asObject(value);
  if (!usage) return undefined;
  const count = (...names: string[]) =>
    names
      .map((name) => usage[name])
      .find((found): found is number => Number.isSafeInteger(found) && Number(found) >= 0);
  const input = count('input_tokens', 'prompt_tokens');
  const output = count('output_tokens', 'completion_tokens');
  const total = count('total_tokens') ?? (input ?? 0) + (output ?? 0);
  return total === 0 ? undefined : { input: input ?? 0, output: output ?? 0, total };
}

/** After a message of a stream without typed events (contract 02 §5.6), and after one of the relay itself. */
function advanceUntyped(turn: Turn, { type, payload }: Step): Turn {
  switch (type) {
    case 'chat.delta':
      return { ...turn, text: turn.text + textOf(payload.delta) };
    case 'chat.progress':
      return { ...turn, reasoning: (turn.reasoning + textOf(payload.delta)).slice(-MAX_REASONING) };
    case 'chat.tool.started':
      return { ...turn, tools: [...turn.tools, startedTool(payload)].slice(-MAX_TOOLS) };
    case 'chat.tool.completed': {
      const state = payload.success === false ? 'failed' : 'done';
      return endTool(turn, payload, state, payload.result_preview);
    }
    case 'chat.tool.failed':
      return endTool(turn, payload, 'failed', payload.error);
    case 'chat.turn.completed':
      return withWhole(turn, payload.content);
    case 'chat.completed': {
      const whole = withWhole(turn, payload.content);
      return { ...whole, tools: turn.tools.map(ended), state: payload.interrupted === true ? 'stopped' : 'done' };
    }
    case 'chat.error':
      return broken(turn, textOf(payload.message) || 'The agent failed.');
    default:
      return turn;
  }
}

/** An answer that will not continue. */
export const broken = (turn: Turn, error: string): Turn => ({
  ...turn,
  tools: turn.tools.map(ended),
  state: 'broken',
  error,
});

const startedTool = ({ tool_call_id, tool_name, args, preview }: Message['payload']): ToolCall => ({
  id: textOf(tool_call_id),
  name: textOf(tool_name) || 'tool',
  state: 'running',
  args: args ?? preview ?? null,
  result: '',
});

/** Ends the call that a message names, else the last running call of that name. */
function endTool(turn: Turn, payload: Message['payload'], state: ToolCall['state'], result: unknown): Turn {
  const id = textOf(payload.tool_call_id);
  const name = textOf(payload.tool_name);
  const at = turn.tools.findLastIndex((tool) =>
    id === '' ? tool.name === name && tool.state === 'running' : tool.id === id,
  );
  const text = (typeof result === 'string' ? result : JSON.stringify(result ?? '')).slice(0, MAX_RESULT);
  if (at < 0) return { ...turn, tools: [...turn.tools, { ...startedTool(payload), state, result: text }] };
  return { ...turn, tools: turn.tools.map((tool, index) => (index === at ? { ...tool, state, result: text } : tool)) };
}

const ended = (tool: ToolCall): ToolCall => (tool.state === 'running' ? { ...tool, state: 'done' } : tool);

/** Some agents send the whole text at the end, some of them without deltas. */
const withWhole = (turn: Turn, content: unknown): Turn =>
  textOf(content) !== '' && turn.text === '' ? { ...turn, text: textOf(content) } : turn;

export const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');
