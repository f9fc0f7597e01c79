import type { ChatTool, ChatTurnHead } from '../../storage/schema.ts';
import { isObject } from '../kit/json.ts';
import { visibleLine } from '../kit/text.ts';
import type { Payload } from '../socket/envelope.ts';
import type { Turn } from './chat.ts';
import { type AgentEvent, initialState } from './events.ts';
import { legacy } from './legacy.ts';
import { cutText, preview, previewObject } from './preview.ts';

/** Characters of an answer, and of a question, that are stored. */
export const MAX_TEXT = 1024 * 1024;
/** Calls of tools that are stored of a turn. */
export const MAX_TOOLS = 200;
/** Characters of a usage as JSON; a longer one is left out. */
const MAX_USAGE = 4096;
/** Characters of an answer in a list of turns. */
const MAX_PREVIEW = 120;

/** The answer of a turn so far. */
export interface Answer {
  readonly text: string;
  readonly tools: readonly ChatTool[];
  readonly usage?: Payload;
  /** True if text or tools beyond the limits were left out. */
  readonly truncated: boolean;
}

/** The end of a turn. */
export type Ending = { state: 'done' | 'cancelled' } | { state: 'failed'; error: string };

/** The answer after an event, and the end of the turn if the event ends it. */
export interface AnswerStep {
  answer: Answer;
  ending?: Ending;
}

export const emptyAnswer = (): Answer => ({ text: '', tools: [], truncated: false });

/** The beginning of an answer on one line, for lists and notifications. */
export const previewOf = (text: string): string => visibleLine(text.slice(0, MAX_PREVIEW)).toWellFormed().trim();

/**
 * Adds an event of the agent's stream to the answer of a turn (contract 10 §1). Pure. Agents name their events
 * differently: the table for clients without typed events knows all of the names.
 */
export function advanceAnswer(answer: Answer, event: AgentEvent): AnswerStep {
  if (event.kind === 'waiting') return { answer };
  if (event.kind === 'cancelled') return { answer: withEndedTools(answer), ending: { state: 'cancelled' } };
  if (event.kind !== 'event') return { answer: withEndedTools(answer), ending: { state: 'done' } };
  // An event without a name is a part of the answer (contract 02 §5.5).
  const { type = 'assistant.delta', data } = event;
  const { send } = legacy(initialState(''), { kind: 'event', type, data }, 0);
  switch (send?.type) {
    case 'chat.delta':
      return append(answer, String(send.payload.delta));
    case 'chat.tool.started':
      return startTool(answer, send.payload);
    case 'chat.tool.completed':
      return endTool(answer, send.payload, send.payload.success === false ? 'failed' : 'done');
    case 'chat.tool.failed':
      return endTool(answer, send.payload, 'failed');
    case 'chat.turn.completed':
      return withUsage(whole(answer, send.payload), data);
    case 'chat.completed': {
      const step = withUsage(whole(answer, send.payload), data);
      return { ...step, answer: withEndedTools(step.answer), ending: { state: 'done' } };
    }
    case 'chat.error':
      return {
        answer: withEndedTools(answer),
        ending: { state: 'failed', error: cutText(String(send.payload.message)) },
      };
    default:
      return { answer };
  }
}

/** Adds text to an answer, up to the limit. Text only grows, which the store relies on. */
function append(answer: Answer, text: string): AnswerStep {
  if (text === '' || answer.text.length >= MAX_TEXT) {
    return { answer: text === '' || answer.truncated ? answer : { ...answer, truncated: true } };
  }
  const room = MAX_TEXT - answer.text.length;
  const truncated = answer.truncated || text.length > room;
  return { answer: { ...answer, text: answer.text + text.slice(0, room), truncated } };
}

/** Some agents send the whole text at the end, some of them without deltas. */
const whole = (answer: Answer, { content }: Payload): AnswerStep =>
  typeof content === 'string' && answer.text === '' ? append(answer, content) : { answer };

function withUsage(step: AnswerStep, { usage }: Payload): AnswerStep {
  const shown = isObject(usage) ? previewObject(usage) : undefined;
  const isSmall = shown && JSON.stringify(shown).length <= MAX_USAGE;
  return isSmall ? { ...step, answer: { ...step.answer, usage: shown } } : step;
}

function startTool(answer: Answer, { tool_call_id, tool_name, preview: shown, args }: Payload): AnswerStep {
  const id = String(tool_call_id);
  const name = cutText(String(tool_name) || 'tool', 256);
  const tool: ChatTool = { id: id.slice(0, 256), name, state: 'running', preview: textOf(shown === '' ? args : shown) };
  // An agent may report the same call as pending, then as started.
  const known = tool.id === '' ? -1 : answer.tools.findIndex((other) => other.id === tool.id);
  return putTool(answer, known < 0 ? answer.tools.length : known, tool);
}

/** Ends the call that an event names, else the last running call of that name. */
function endTool(answer: Answer, payload: Payload, state: 'done' | 'failed'): AnswerStep {
  const id = String(payload.tool_call_id).slice(0, 256);
  const name = cutText(String(payload.tool_name) || 'tool', 256);
  const at = answer.tools.findLastIndex((tool) =>
    id === '' ? tool.name === name && tool.state === 'running' : tool.id === id,
  );
  const known = answer.tools[at] ?? { id, name, preview: '' };
  const result = textOf(payload.result_preview ?? payload.error);
  return putTool(answer, at < 0 ? answer.tools.length : at, { ...known, state, preview: result || known.preview });
}

function putTool(answer: Answer, at: number, tool: ChatTool): AnswerStep {
  if (at >= MAX_TOOLS) return { answer: answer.truncated ? answer : { ...answer, truncated: true } };
  const tools = [...answer.tools];
  tools[at] = tool;
  return { answer: { ...answer, tools } };
}

/** No tool runs after the end of its turn. */
const withEndedTools = (answer: Answer): Answer =>
  answer.tools.some(({ state }) => state === 'running')
    ? { ...answer, tools: answer.tools.map((tool) => (tool.state === 'running' ? { ...tool, state: 'done' } : tool)) }
    : answer;

/** A value as the text of a preview (contract 02 §5.7). */
function textOf(value: unknown): string {
  const shown = preview(value);
  if (typeof shown === 'string') return shown;
  const isEmpty = shown === undefined || shown === null || (isObject(shown) && Object.keys(shown).length === 0);
  return isEmpty ? '' : cutText(JSON.stringify(shown));
}

/** A turn that starts. `at` is epoch seconds. */
export const newHead = (family: string, turn: Turn, clientTurnId: string | undefined, at: number): ChatTurnHead => ({
  id: crypto.randomUUID(),
  family,
  client_turn_id: clientTurnId ?? null,
  session_id: turn.sessionId ?? null,
  profile: turn.profile ?? null,
  state: 'running',
  started_at: at,
  ended_at: null,
  seq: 0,
  preview: '',
  bytes: 0,
  questions: 0,
  texts: 0,
  tools: 0,
});

const marksOf = ({ recovered, truncated }: ChatTurnHead) => ({
  ...(recovered && { recovered }),
  ...(truncated && { truncated }),
});

/** Payload of `chat.turn` (contract 10 §1). */
export const rowOf = (head: ChatTurnHead): Payload => ({
  turn_id: head.id,
  client_turn_id: head.client_turn_id,
  session_id: head.session_id,
  profile: head.profile,
  state: head.state,
  started_at: head.started_at,
  ...(head.ended_at !== null && { ended_at: head.ended_at }),
  seq: head.seq,
  preview: head.preview,
  ...marksOf(head),
});

/** Payload of `chat.snapshot` (contract 10 §1). */
export const snapshotOf = (
  head: ChatTurnHead,
  { question, text, tools }: { question: string; text: string; tools: readonly ChatTool[] },
): Payload => ({
  turn_id: head.id,
  session_id: head.session_id,
  state: head.state,
  question,
  text,
  tools,
  ...(head.usage && { usage: head.usage }),
  ...(head.error !== undefined && { error: head.error }),
  seq: head.seq,
  ...marksOf(head),
});
