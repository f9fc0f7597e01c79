import { cutText } from '../../../chat/preview.ts';
import type { JsonObject } from '../../../kit/json.ts';
import type { ToolOutcome } from '../core/state.ts';
import { MAX_TOOL_ANSWER, speechSafe } from './speech-safe.ts';

const MAX_SUMMARY = 1200;
const MAX_ERROR = 240;
const MAX_REQUEST_PREVIEW = 120;
const NO_IDS = 'Speak no ids and no function names.';

/** Facts of the session in the results of functions. `interface` comes from `interfaceOf`. */
export interface ResultFacts {
  sessionId: string | null;
  profile: string | null;
  interface: JsonObject;
}

/** The outcome of a function call, as the provider gets it in one JSON text (contract 06 §6.2). */
export const toolResult = (outcome: ToolOutcome, facts: ResultFacts): JsonObject =>
  outcome.type === 'refused' ? outcome.result : { ...membersOf(outcome, facts), interface: facts.interface };

function membersOf(
  outcome: Exclude<ToolOutcome, { type: 'refused' }>,
  { sessionId: session_id, profile }: ResultFacts,
): JsonObject {
  switch (outcome.type) {
    case 'completed': {
      const { runId: run_id, answer, toolCount, lastToolName } = outcome.result;
      const text = speechSafe(answer, MAX_TOOL_ANSWER);
      return {
        ok: true,
        status: 'completed',
        run_id,
        session_id,
        profile,
        text,
        answer: text,
        summary: cutText(text, MAX_SUMMARY),
        tool_count: toolCount,
        last_tool_name: lastToolName,
        raw_text_omitted: text !== answer,
        spoken_response: text,
        provider_instruction: `Tell the user what spoken_response says, and nothing that it does not say. ${NO_IDS}`,
        ...(outcome.isFast && { fast_lane: true }),
      };
    }
    case 'failed':
      return { ok: false, error: cutText(outcome.error, MAX_ERROR), run_id: outcome.runId, session_id };
    case 'cancelled':
      return { ok: false, cancelled: true, run_id: outcome.runId, session_id };
    case 'promoted':
      // Without ids, which models read aloud.
      return {
        ok: true,
        status: 'running_in_background',
        instruction: `The task goes on in the background and its result is delivered later. Do not run it again. ${NO_IDS}`,
      };
    case 'queued':
      return {
        ok: true,
        status: 'queued',
        queue_position: outcome.position,
        instruction: `Tell the user that this task starts when the one before it is done. Do not run it again. ${NO_IDS}`,
      };
    case 'already_running':
      return {
        ok: true,
        status: 'already_running',
        run_id: outcome.runId,
        instruction: `Tell the user that too many tasks wait already. ${NO_IDS}`,
      };
    case 'status': {
      const { facts: run, queue } = outcome;
      return {
        ok: true,
        run_id: run?.runId ?? null,
        session_id,
        status: run?.status ?? 'idle',
        pending_confirmation_id: run?.confirmationId ?? null,
        active_tool_name: run?.activeToolName ?? null,
        last_tool_name: run?.lastToolName ?? null,
        last_tool_status: run?.lastToolStatus ?? null,
        last_tool_message: run?.lastToolMessage ?? null,
        completed_tool_count: run?.toolCount ?? 0,
        queued_count: queue.length,
        queued_items: queue.map(({ text }, index) => ({
          position: index + 1,
          request_preview: cutText(text, MAX_REQUEST_PREVIEW),
        })),
      };
    }
    case 'cancel':
      return { ok: true, run_id: outcome.runId, session_id, status: outcome.hadRun ? 'cancelled' : 'idle' };
    case 'confirmed':
      return { ok: true, confirmation_id: outcome.confirmationId, status: 'forwarded_to_svc_ui' };
  }
}

/** The result of a function for a provider that does not know the call. */
export const lateResultText = (toolName: string, result: JsonObject): string =>
  `Result of ${toolName}, which you called before the connection was renewed: ${JSON.stringify(result)}`;
