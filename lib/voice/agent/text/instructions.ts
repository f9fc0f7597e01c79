import type { JsonObject } from '../../../kit/json.ts';
import { MINUTE } from '../../../kit/units.ts';
import { type ContextMessage, contextLines } from './context.ts';
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
