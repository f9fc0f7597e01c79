import { isObject, type JsonObject } from '../../../../lib/kit/json.ts';

/** One utterance. */
export interface LiveTurn {
  key: string;
  from: 'person' | 'agent';
  text: string;
  /** `stopped`: the agent was interrupted. `cut`: its provider did not finish. */
  state: 'open' | 'done' | 'stopped' | 'cut';
}

export interface LiveTool {
  id: string;
  name: string;
  state: 'running' | 'done' | 'failed';
}

/** A question that the agent waits for (contract 06 §6.5). */
export interface LiveQuestion {
  id: string;
  text: string;
}

/** The visible part of a conversation. */
export interface LiveView {
  turns: readonly LiveTurn[];
  /** Counts the sessions, whose responses may share ids, and the utterances. */
  session: number;
  said: number;
  /** The tools of the running task, the latest last. */
  tools: readonly LiveTool[];
  question: LiveQuestion | null;
  /** State of the task, as worded by the relay; empty without one. */
  progress: string;
  /** True while somebody waits for an answer. */
  isBusy: boolean;
  /** True while the relay reconnects to its provider (contract 06 §6.9). */
  isRedialling: boolean;
  /** True if the task continues while the conversation moves on. */
  isInBackground: boolean;
  /** Number of queued tasks. */
  queued: number;
  /** Why a background task has failed. */
  failure: string;
  /** The last answer, if it was only written. */
  unspoken: string;
  /** Usage of the conversation so far; null before the provider counts anything. */
  cost: LiveCost | null;
}

export interface LiveCost {
  minutes: number;
  /** Both directions, as the provider counts them. */
  audioTokens: number;
}

export const EMPTY_VIEW: LiveView = {
  turns: [],
  session: 0,
  said: 0,
  tools: [],
  question: null,
  progress: '',
  isBusy: false,
  isRedialling: false,
  isInBackground: false,
  queued: 0,
  failure: '',
  unspoken: '',
  cost: null,
};

const MAX_TURNS = 200;
const MAX_TOOLS = 6;

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

/** The task is over, and hidden. */
const NO_TASK = { tools: [], question: null, progress: '', isInBackground: false } as const;

/** The view after an event of the relay (contract 06 §4.2). */
export function withEvent(view: LiveView, event: JsonObject): LiveView {
  const { turns } = view;
  switch (event.type) {
    case 'voice.provider.reconnecting':
      return { ...view, isRedialling: true };
    case 'voice.provider.reconnected':
      return { ...view, isRedialling: false };
    case 'voice.input_transcript.delta':
      return { ...view, turns: appended(turns, 'person', `said ${view.said}`, textOf(event.delta)) };
    case 'voice.input_transcript.final':
      return transcribed(view, textOf(event.text).trim());
    case 'voice.response.started':
      return { ...view, isBusy: true, unspoken: '' };
    case 'voice.response.delta':
      return {
        ...view,
        turns: appended(turns, 'agent', keyOf(view, event), textOf(event.delta)),
        unspoken: event.delivery === 'visual_only' ? textOf(event.delta) : view.unspoken,
      };
    case 'voice.response.done':
      return { ...view, turns: answered(view, event), isBusy: false, cost: costIn(event) ?? view.cost };
    case 'svc.run.started':
      return { ...view, failure: '' };
    case 'svc.run.progress':
      return { ...view, progress: textOf(event.message) };
    case 'svc.run.promoted':
      return { ...view, isInBackground: true, isBusy: event.spoken_handoff === true, queued: countIn(event) };
    case 'svc.run.queued':
      return { ...view, queued: countIn(event) };
    case 'svc.run.background_completed':
      return { ...view, ...NO_TASK, queued: countIn(event), failure: event.ok === false ? textOf(event.error) : '' };
    case 'svc.run.completed':
      return { ...view, ...NO_TASK };
    case 'svc.run.cancelled':
      return { ...view, ...NO_TASK, queued: 0, isBusy: false };
    case 'svc.tool.started':
      return { ...view, tools: withTool(view.tools, event, 'running') };
    case 'svc.tool.completed':
      return { ...view, tools: withTool(view.tools, event, event.success === false ? 'failed' : 'done') };
    case 'svc.tool.failed':
      return { ...view, tools: withTool(view.tools, event, 'failed') };
    case 'svc.confirmation.requested':
      return { ...view, question: { id: textOf(event.confirmation_id), text: textOf(event.message) } };
    case 'svc.confirmation.forwarded':
      return { ...view, question: null };
    default:
      return view;
  }
}

/** Cuts off the utterance in progress. */
export const withCut = (view: LiveView): LiveView => ({
  ...view,
  turns: view.turns.map((turn) =>
    turn.state === 'open' && turn.from === 'agent' ? { ...turn, state: 'stopped' } : turn,
  ),
});

/** The session has ended, and nothing is running. */
export const withEnd = (view: LiveView): LiveView => ({
  ...withCut(view),
  ...NO_TASK,
  session: view.session + 1,
  isBusy: false,
  isRedialling: false,
  queued: 0,
});

const keyOf = ({ session }: LiveView, { response_id }: JsonObject): string =>
  `answer ${session} ${textOf(response_id)}`;
const MINUTE = 60_000;

function costIn({ usage, at_ms: at }: JsonObject): LiveCost | null {
  if (!isObject(usage) || typeof at !== 'number') return null;
  const { input_audio_tokens: input, output_audio_tokens: output } = usage;
  const audioTokens = (typeof input === 'number' ? input : 0) + (typeof output === 'number' ? output : 0);
  return audioTokens > 0 ? { minutes: Math.max(1, Math.round(at / MINUTE)), audioTokens } : null;
}

const countIn = ({ queued_count }: JsonObject): number => (typeof queued_count === 'number' ? queued_count : 0);

function appended(turns: readonly LiveTurn[], from: LiveTurn['from'], key: string, text: string): readonly LiveTurn[] {
  if (text === '') return turns;
  const open = turns.findLast((turn) => turn.key === key && turn.from === from);
  if (!open) return [...turns, { key, from, text, state: 'open' } as const].slice(-MAX_TURNS);
  // Interrupted speech is not heard, so it is not shown either.
  if (open.state === 'stopped') return turns;
  return turns.map((turn) => (turn === open ? { ...turn, text: turn.text + text } : turn));
}

/** The final transcript of the utterance; an empty one was noise. */
function transcribed(view: LiveView, text: string): LiveView {
  const others = view.turns.filter(({ from, state }) => from !== 'person' || state !== 'open');
  if (text === '') return { ...view, turns: others, isBusy: false };
  const said = { key: `said ${view.said}`, from: 'person', text, state: 'done' } as const;
  return { ...view, turns: [...others, said].slice(-MAX_TURNS), said: view.said + 1 };
}

function answered(view: LiveView, event: JsonObject): readonly LiveTurn[] {
  const state = event.cancelled === true ? 'stopped' : event.incomplete === true ? 'cut' : 'done';
  // A cancelled turn may have had no response yet.
  const isMeant = ({ from, key }: LiveTurn) =>
    from === 'agent' && (typeof event.response_id !== 'string' || key === keyOf(view, event));
  return view.turns.map((turn) => (turn.state === 'open' && isMeant(turn) ? { ...turn, state } : turn));
}

function withTool(tools: readonly LiveTool[], event: JsonObject, state: LiveTool['state']): readonly LiveTool[] {
  const id = textOf(event.tool_call_id);
  const others = tools.filter((tool) => tool.id !== id);
  const name = textOf(event.tool_name) || tools.find((tool) => tool.id === id)?.name || '';
  return [...others, { id, name, state }].slice(-MAX_TOOLS);
}
