import { cutText } from '../../../chat/preview.ts';
import type { JsonObject } from '../../../kit/json.ts';
import { MINUTE } from '../../../kit/units.ts';
import type { ResultDelivery } from '../settings.ts';
import { type ContextMessage, contextLines } from './context.ts';
import { isJsonAnswer, MAX_DELIVERED_ANSWER, speechSafe } from './speech-safe.ts';
import { TOOL_SURFACE } from './tools.ts';

/** Facts about a session for clients, the agent and the provider. */
export interface SessionFacts {
  provider: string;
  model: string;
  voice: string;
  /** Name of the profile; null for none. */
  profile: string | null;
  chatSessionId: string | null;
  configScope: string;
}

/** A moment in the relay's time zone. */
export interface LocalTime {
  /** `YYYY-MM-DD`. */
  date: string;
  /** `HH:MM:SS`. */
  time: string;
  /** `+02:00`. */
  offset: string;
}

const ENGINE = 'realtime_agent';
const ENGINE_LABEL = 'Realtime agent voice';
const STABLE_ENGINE = 'svc_voice_output';
const STABLE_ENGINE_LABEL = 'Stable voice output';
const MAX_REQUEST = 1000;

const two = (value: number): string => String(value).padStart(2, '0');

/**
 * Local date and time of a moment, epoch ms. `offset` is minutes east of UTC; by default that of the relay's time zone,
 * which is UTC at the edge.
 */
export function localTime(now: number, offset = -new Date(now).getTimezoneOffset()): LocalTime {
  const local = new Date(now + offset * MINUTE).toISOString();
  const minutes = Math.abs(offset);
  const sign = offset < 0 ? '-' : '+';
  return {
    date: local.slice(0, 10),
    time: local.slice(11, 19),
    offset: `${sign}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`,
  };
}

/** The `interface` object of events and results of tools (contract 06 §5.4). */
export function interfaceOf(facts: SessionFacts, { date, time, offset }: LocalTime): JsonObject {
  const { provider, model, voice, profile, chatSessionId, configScope } = facts;
  return {
    client_surface: 'android_voice_mode',
    engine: ENGINE,
    engine_label: ENGINE_LABEL,
    stable_engine: STABLE_ENGINE,
    stable_engine_label: STABLE_ENGINE_LABEL,
    provider,
    model,
    voice,
    profile: profile ?? 'default',
    chat_session_id: chatSessionId,
    config_scope: configScope,
    path_summary: pathSummary(facts),
    current_date: date,
    current_time: time,
    current_timezone: `UTC${offset}`,
    current_datetime: `${date}T${time}${offset}`,
  };
}

const pathSummary = ({ provider, model, voice, profile }: SessionFacts): string =>
  `Voice mode on the phone, ${ENGINE_LABEL} (${ENGINE}) over ${provider}, model ${model}, voice ${voice}, profile ` +
  `${profile ?? 'default'}. This is not the stable ${STABLE_ENGINE} path.`;

const now = ({ date, time, offset }: LocalTime): string =>
  `Local date ${date}, local time ${time}, UTC offset ${offset}. Answer questions about date and time from this.`;

/** `system_message` of a run: for the agent, whose answer will be spoken (contract 06 §5.4). */
export const systemMessage = (facts: SessionFacts, time: LocalTime): string =>
  [
    'The user speaks to you through a voice interface, and your answer is read to them.',
    pathSummary(facts),
    now(time),
    'Answer concisely, in a few plain sentences that are safe to be spoken: no Markdown, tables, code, URLs, ids or file',
    'paths unless the user asks for them, and no list of sources. Give the result itself, not a plan of how to get it.',
  ].join('\n');

export interface InstructionOptions {
  facts: SessionFacts;
  time: LocalTime;
  /** True to stay silent until the settled answer. */
  finalAnswerOnly: boolean;
  context: readonly ContextMessage[];
  /** From `readProfileBlock`; may be empty. */
  profileBlock: string;
}

/** Instructions of a realtime provider for a whole session (contract 06 §5.4). Never for logs. */
export function providerInstructions({
  facts,
  time,
  finalAnswerOnly,
  context,
  profileBlock,
}: InstructionOptions): string {
  const acknowledgement = finalAnswerOnly
    ? 'Say nothing before a call, and stay silent until the settled answer is there: no acknowledgement, no progress. ' +
      'Only a question for approval or a failure that blocks the work may be spoken before.'
    : 'You may say one short acknowledgement before a call.';
  return [
    "You are the voice of the user's own agent.",
    pathSummary(facts),
    now(time),
    '',
    'Rules:',
    '- You may answer small talk and timeless facts yourself.',
    '- Everything that needs memory, tools, current or external data, devices, files, side effects or precision goes ' +
      'through svc_run_task. Never guess such an answer.',
    '- Questions about status, progress or the queue go through svc_get_status.',
    '- svc_cancel is for when the user wants the work stopped. svc_confirm passes on what the user decided.',
    `- ${acknowledgement}`,
    '- Give no substantive answer before the result of the function is there. Then say what it says, and add nothing.',
    '- A result that is already in the conversation is recalled; do not run its task again.',
    '- Never speak ids, function names or file paths.',
    `- There are no other tools than ${TOOL_SURFACE.join(', ')}.`,
    ...section('Conversation before this session, oldest message first:', contextLines(context).join('\n')),
    ...section('Profile of the agent. It is background, and changes none of the rules above:', profileBlock),
  ].join('\n');
}

const section = (title: string, text: string): string[] => (text === '' ? [] : ['', title, text]);

export interface Delivery {
  /** The user's request. */
  request: string;
  /** The whole answer, as received from upstream. */
  answer: string;
}

/**
 * True if an answer is to be read word for word. A provider with an exact-text primitive needs no instructions for that.
 * JSON is described (contract 06 §7.1).
 */
export const isVerbatim = (mode: ResultDelivery, answer: string): boolean =>
  mode === 'speak_verbatim' && !isJsonAnswer(answer);

/** Instructions of the response that delivers a result (contract 06 §7.1). Without ids. */
export function deliveryInstructions(mode: ResultDelivery, { request, answer }: Delivery): string {
  const order = isVerbatim(mode, answer)
    ? 'Read the following answer to the user word for word. Add nothing, leave out nothing, and call no function.'
    : 'Tell the user the following answer as a short natural summary that keeps names and numbers. Do not say that you ' +
      'will look or come back to it, ask nothing, and call no function.';
  return [order, '', ...requestAndAnswer({ request, answer })].join('\n');
}

/** Instructions of the next user turn after the relay has delivered an answer itself (contract 06 §7.3). */
export const deliveredInstructions = (delivery: Delivery): string =>
  [
    'The user has already been given the following answer. Do not deliver it again unless they ask for it; take it as',
    'known, and respond to what they have just said.',
    '',
    ...requestAndAnswer(delivery),
  ].join('\n');

const requestAndAnswer = ({ request, answer }: Delivery): string[] => [
  `The user asked: ${cutText(request.replace(/\s+/g, ' ').trim(), MAX_REQUEST)}`,
  `The answer: ${speechSafe(answer, MAX_DELIVERED_ANSWER)}`,
];

/** Instructions of the response that hands a task to the background (contract 06 §6.7). */
export const HANDOFF_INSTRUCTIONS =
  'Tell the user in one short sentence that the task has been started and that you will report when it is done. Give no ' +
  'answer to it, speak no ids, and call no function.';

/** Instructions of the transition to the next queued task (contract 06 §6.7). */
export const QUEUED_INSTRUCTIONS =
  'Tell the user in one short sentence that you now begin with the next task that was waiting. Give no answer to it, ' +
  'speak no ids, and call no function.';

/** Instructions of the response after the user's last words were lost with a connection (contract 06 §6.9). */
export const REPEAT_INSTRUCTIONS =
  'The connection was interrupted, and the last words of the user were lost. Ask them in one short sentence to say it ' +
  'again. Answer nothing else, and call no function.';

/** Instructions of the response that ends an answer which was interrupted after `said` (contract 06 §6.9). */
export const restInstructions = (said: string, delivery?: Delivery): string =>
  [
    'The connection was interrupted while you spoke. Say only the rest of your answer: go on after the words that the user',
    'has heard, do not repeat them, and do not mention the interruption.',
    '',
    ...(delivery ? requestAndAnswer(delivery) : []),
    `The user has heard: ${cutText(said.replace(/\s+/g, ' ').trim(), MAX_REQUEST)}`,
  ].join('\n');
