import { cutText } from '../../../chat/preview.ts';
import { isSessionId } from '../../../chat/upstream.ts';
import { type JsonObject, parseObject, trimmedText } from '../../../kit/json.ts';
import type { ProviderTool } from '../provider/provider.ts';

/** The only functions that a provider may call, in this order (contract 06 §6.2). */
export const TOOL_SURFACE = ['svc_run_task', 'svc_get_status', 'svc_cancel', 'svc_confirm'] as const;

/** Characters of a task, and of a text turn. */
const MAX_TASK = 5000;
const MAX_ID = 200;
const MAX_PROFILE = 128;
const MODES = ['chat', 'run', 'background'] as const;
const ANSWERS = ['allow', 'allow_once', 'deny', 'cancel'] as const;

const string = (description: string, values?: readonly string[]): JsonObject => ({
  type: 'string',
  description,
  ...(values ? { enum: values } : {}),
});

const tool = (
  name: (typeof TOOL_SURFACE)[number],
  description: string,
  properties: Record<string, JsonObject>,
  required: string[],
): ProviderTool => ({
  name,
  description,
  parameters: { type: 'object', properties, required, additionalProperties: false },
});

/** The functions as a provider gets them. */
export const TOOLS: readonly ProviderTool[] = [
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
      profile: string | null;
      sessionId: string | null;
      mode: 'foreground' | 'background';
    }
  | { name: 'svc_get_status' | 'svc_cancel' }
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
        profile: profile !== '' && profile.length <= MAX_PROFILE ? profile : null,
        sessionId: isSessionId(sessionId) && sessionId.length <= MAX_ID ? sessionId : null,
        mode: trimmedText(given.mode).toLowerCase() === 'background' ? 'background' : 'foreground',
      };
    }
    case 'svc_get_status':
    case 'svc_cancel':
      return { name };
    case 'svc_confirm': {
      const confirmationId = trimmedText(given.confirmation_id);
      if (confirmationId === '') return refuse('confirmation_id is required');
      if (confirmationId.length > MAX_ID) return refuse(`confirmation_id has at most ${MAX_ID} characters`);
      if (trimmedText(given.answer) === '') return refuse('answer is required');
      const word = trimmedText(given.answer).toLowerCase();
      const answer = ANSWERS.find((candidate) => candidate === word);
      return answer ? { name, confirmationId, answer } : refuse(`answer must be one of ${ANSWERS.join(', ')}`);
    }
    default: {
      const error = `tool is not allowed: ${cutText(name, MAX_ID)}`;
      return { name: 'refused', result: { ok: false, error, allowed_tools: [...TOOL_SURFACE] } };
    }
  }
}

const refuse = (error: string): ToolCall => ({ name: 'refused', result: { ok: false, error } });
