import { cutText } from '../../../chat/preview.ts';
import { isSessionId } from '../../../chat/upstream.ts';
import { type JsonObject, parseObject, trimmedText } from '../../../kit/json.ts';
import { MAX_TOOL_ANSWER, speechSafe } from './speech-safe.ts';

/** The only functions that a provider may call, in this order (contract 06 §6.2). */
export const TOOL_SURFACE = ['svc_run_task', 'svc_get_status', 'svc_cancel', 'svc_confirm'] as const;
export type ToolName = (typeof TOOL_SURFACE)[number];

export interface ToolSchema {
  type: 'function';
  name: ToolName;
  description: string;
  parameters: JsonObject;
}

/** Characters of a task, and of a text turn. */
const MAX_TASK = 5000;
const MAX_ID = 200;
const MAX_PROFILE = 128;
const MAX_SUMMARY = 1200;
const MAX_ERROR = 240;
const MAX_REQUEST_PREVIEW = 120;
const MODES = ['chat', 'run', 'background'] as const;
const ANSWERS = ['allow', 'allow_once', 'deny', 'cancel'] as const;

const string = (description: string, values?: readonly string[]): JsonObject => ({
  type: 'string',
  description,
  ...(values ? { enum: values } : {}),
});

const tool = (
  name: ToolName,
  description: string,
  properties: Record<string, JsonObject>,
  required: string[],
): ToolSchema => ({
  type: 'function',
  name,
  description,
  parameters: { type: 'object', properties, required, additionalProperties: false },
});

/** The functions as a provider gets them. */
export const TOOLS: readonly ToolSchema[] = [
  tool(
    'svc_run_task',
    "Gives a task or question to the user's agent and returns its answer. Use it for everything that needs memory, tools, " +
      'current or external data, devices, files, side effects or precision. Do not answer such requests yourself.',
    {
      text: string('The complete request, in the words of the user, with what the conversation adds to it.'),
      profile: string('Name of an agent profile, only if the user asked for one.'),
      session_id: string('A chat session to continue, only if the user named one.'),
      mode: string('background for work that the user does not want to wait for; otherwise chat.', MODES),
    },
    ['text'],
  ),
  tool(
    'svc_get_status',
    'Tells what the agent is doing: progress, the queue, a confirmation that it waits for. Use it for questions about ' +
      'status, queue and progress. It starts nothing.',
    { run_id: string('Leave it out: it stands for the current run.') },
    [],
  ),
  tool(
    'svc_cancel',
    'Stops what the agent is doing, and empties the queue. Use it only when the user wants the work stopped.',
    { run_id: string('Leave it out: it stands for the current run.') },
    [],
  ),
  tool(
    'svc_confirm',
    'Passes on the answer of the user to a confirmation that the agent has asked for. Never decide it yourself.',
    {
      confirmation_id: string('The pending_confirmation_id of svc_get_status.'),
      answer: string('What the user decided.', ANSWERS),
    },
    ['confirmation_id', 'answer'],
  ),
];

/** A checked function call of a provider. `refused` contains the result to answer with. */
export type ToolCall =
  | {
      name: 'svc_run_task';
      text: string;
      profile?: string;
      sessionId?: string;
      mode: (typeof MODES)[number];
    }
  | { name: 'svc_get_status' | 'svc_cancel'; runId?: string }
  | { name: 'svc_confirm'; confirmationId: string; answer: (typeof ANSWERS)[number] }
  | { name: 'refused'; result: JsonObject };

/** Reads a function call of a provider. Arguments other than a JSON object count as `{}` (contract 06 §6.2). */
export function readToolCall(name: string, args: string): ToolCall {
  const given = parseObject(args) ?? {};
  switch (name) {
    case 'svc_run_task': {
      const text = trimmedText(given.text).slice(0, MAX_TASK).toWellFormed();
      if (text === '') return refuse('text is required');
      const profile = trimmedText(given.profile);
      const sessionId = trimmedText(given.session_id);
      return {
        name,
        text,
        ...(profile !== '' && profile.length <= MAX_PROFILE ? { profile } : {}),
        ...(isSessionId(sessionId) && sessionId.length <= MAX_ID ? { sessionId } : {}),
        mode: oneOf(MODES, given.mode) ?? 'chat',
      };
    }
    case 'svc_get_status':
    case 'svc_cancel': {
      const runId = trimmedText(given.run_id).slice(0, MAX_ID);
      return { name, ...(runId === '' ? {} : { runId }) };
    }
    case 'svc_confirm': {
      const confirmationId = trimmedText(given.confirmation_id);
      if (confirmationId === '') return refuse('confirmation_id is required');
      if (confirmationId.length > MAX_ID) return refuse(`confirmation_id has at most ${MAX_ID} characters`);
      if (trimmedText(given.answer) === '') return refuse('answer is required');
      const answer = oneOf(ANSWERS, given.answer);
      return answer ? { name, confirmationId, answer } : refuse(`answer must be one of ${ANSWERS.join(', ')}`);
    }
    default: {
      const error = `tool is not allowed: ${cutText(name, MAX_ID)}`;
      return { name: 'refused', result: { ok: false, error, allowed_tools: [...TOOL_SURFACE] } };
    }
  }
}

const refuse = (error: string): ToolCall => ({ name: 'refused', result: { ok: false, error } });

function oneOf<T extends string>(values: readonly T[], value: unknown): T | undefined {
  const word = trimmedText(value).toLowerCase();
  return values.find((candidate) => candidate === word);
}

/** Facts about a run in tool results. `interface` comes from `interfaceOf`. */
export interface RunFacts {
  runId: string | null;
  sessionId: string | null;
  interface: JsonObject;
}

export interface FinishedRun extends RunFacts {
  /** The whole answer, as upstream gave it. */
  answer: string;
  profile: string | null;
  toolCount: number;
  lastToolName: string | null;
}

export type RunStatus =
  | 'idle'
  | 'running'
  | 'waiting_for_confirmation'
  | 'completed'
  | 'cancelled'
  | 'error'
  | 'timeout';

export interface StatusFacts extends RunFacts {
  status: RunStatus;
  pendingConfirmationId: string | null;
  activeToolName: string | null;
  lastToolName: string | null;
  lastToolStatus: string | null;
  lastToolMessage: string | null;
  completedToolCount: number;
  /** The queued tasks, the next one first. */
  queue: readonly string[];
}

const NO_IDS = 'Speak no ids and no function names.';

/** Results of the functions, each sent as one JSON text (contract 06 §6.2). */
export const toolResults = {
  done({ answer, profile, toolCount, lastToolName, ...run }: FinishedRun): JsonObject {
    const text = speechSafe(answer, MAX_TOOL_ANSWER);
    return {
      ok: true,
      status: 'completed',
      ...idsOf(run),
      profile,
      text,
      answer: text,
      summary: cutText(text, MAX_SUMMARY),
      tool_count: toolCount,
      last_tool_name: lastToolName,
      raw_text_omitted: text !== answer,
      interface: run.interface,
      spoken_response: text,
      provider_instruction: `Tell the user what spoken_response says, and nothing that it does not say. ${NO_IDS}`,
    };
  },

  /** A result of the fast lane, which answers during another run. */
  fastLane: (run: FinishedRun): JsonObject => ({ ...toolResults.done(run), fast_lane: true }),

  failed: (error: string, run: RunFacts): JsonObject => ({
    ok: false,
    error: cutText(error, MAX_ERROR),
    ...idsOf(run),
    interface: run.interface,
  }),

  /** The user cancelled the run, and expects no answer. */
  cancelledRun: (run: RunFacts): JsonObject => ({
    ok: false,
    cancelled: true,
    ...idsOf(run),
    interface: run.interface,
  }),

  /** Without ids, which models read aloud. */
  promoted: (facts: Pick<RunFacts, 'interface'>): JsonObject => ({
    ok: true,
    status: 'running_in_background',
    instruction: `The task goes on in the background and its result is delivered later. Do not run it again. ${NO_IDS}`,
    interface: facts.interface,
  }),

  queued: (position: number, facts: Pick<RunFacts, 'interface'>): JsonObject => ({
    ok: true,
    status: 'queued',
    queue_position: position,
    instruction: `Tell the user that this task starts when the one before it is done. Do not run it again. ${NO_IDS}`,
    interface: facts.interface,
  }),

  /** The queue is full. */
  alreadyRunning: ({ runId, interface: shown }: Pick<RunFacts, 'runId' | 'interface'>): JsonObject => ({
    ok: true,
    status: 'already_running',
    run_id: runId,
    instruction: `Tell the user that too many tasks wait already. ${NO_IDS}`,
    interface: shown,
  }),

  status: ({ queue, ...facts }: StatusFacts): JsonObject => ({
    ok: true,
    ...idsOf(facts),
    status: facts.status,
    pending_confirmation_id: facts.pendingConfirmationId,
    active_tool_name: facts.activeToolName,
    last_tool_name: facts.lastToolName,
    last_tool_status: facts.lastToolStatus,
    last_tool_message: facts.lastToolMessage,
    completed_tool_count: facts.completedToolCount,
    queued_count: queue.length,
    queued_items: queue.map((request, index) => ({
      position: index + 1,
      request_preview: cutText(request, MAX_REQUEST_PREVIEW),
    })),
    interface: facts.interface,
  }),

  cancelled: (status: RunStatus, run: RunFacts): JsonObject => ({
    ok: true,
    ...idsOf(run),
    status,
    interface: run.interface,
  }),

  confirmed: (confirmationId: string, facts: Pick<RunFacts, 'interface'>): JsonObject => ({
    ok: true,
    confirmation_id: confirmationId,
    status: 'forwarded_to_svc_ui',
    interface: facts.interface,
  }),
};

const idsOf = ({ runId, sessionId }: Pick<RunFacts, 'runId' | 'sessionId'>): JsonObject => ({
  run_id: runId,
  session_id: sessionId,
});
