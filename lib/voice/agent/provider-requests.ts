import type { JsonObject } from '../../kit/json.ts';
import type { Prompt, ToolOutcome } from './core/state.ts';
import type { ResponseRequest } from './provider/provider.ts';
import {
  deliveredInstructions,
  deliveryInstructions,
  HANDOFF_INSTRUCTIONS,
  isVerbatim,
  QUEUED_INSTRUCTIONS,
  REPEAT_INSTRUCTIONS,
  restInstructions,
} from './text/instructions.ts';
import { MAX_DELIVERED_ANSWER, speechSafe } from './text/speech-safe.ts';
import { type RunStatus, toolResults } from './text/tools.ts';

/** Texts of requests to the provider (contract 06 §6.7, §7). */
export function responseRequest(prompt: Prompt | null): ResponseRequest {
  switch (prompt?.type) {
    case undefined:
      return {};
    case 'handoff':
      return { instructions: HANDOFF_INSTRUCTIONS };
    case 'transition':
      return { instructions: QUEUED_INSTRUCTIONS };
    case 'delivered':
      return { instructions: deliveredInstructions(prompt) };
    case 'repeat':
      return { instructions: REPEAT_INSTRUCTIONS };
    case 'rest':
      return { instructions: restInstructions(prompt.said, prompt.result) };
    case 'delivery': {
      const { mode, result } = prompt;
      const { request, isOk } = result;
      if (!isOk) {
        const answer = `The task has failed: ${result.answer}`;
        return { instructions: deliveryInstructions('speak_when_idle', { request, answer }) };
      }
      const instructions = deliveryInstructions(mode, result);
      if (!isVerbatim(mode, result.answer)) return { instructions };
      return { instructions, exactText: speechSafe(result.answer, MAX_DELIVERED_ANSWER) };
    }
  }
}

/** The result of a function for a provider that does not know the call. */
export const lateResultText = (toolName: string, result: JsonObject): string =>
  `Result of ${toolName}, which you called before the connection was renewed: ${JSON.stringify(result)}`;

/** Facts of the session in the results of functions. */
export interface ResultFacts {
  sessionId: string | null;
  profile: string | null;
  interface: JsonObject;
}

/** The outcome of a function call, as the provider gets it (contract 06 §6.2). */
export function toolResult(outcome: ToolOutcome, { profile, ...facts }: ResultFacts): JsonObject {
  switch (outcome.type) {
    case 'completed': {
      const { runId, answer, toolCount, lastToolName } = outcome.result;
      const run = { ...facts, runId, answer, profile, toolCount, lastToolName };
      return outcome.isFast ? toolResults.fastLane(run) : toolResults.done(run);
    }
    case 'failed':
      return toolResults.failed(outcome.error, { ...facts, runId: outcome.runId });
    case 'cancelled':
      return toolResults.cancelledRun({ ...facts, runId: outcome.runId });
    case 'promoted':
      return toolResults.promoted(facts);
    case 'queued':
      return toolResults.queued(outcome.position, facts);
    case 'already_running':
      return toolResults.alreadyRunning({ ...facts, runId: outcome.runId });
    case 'status': {
      const { facts: run, queue } = outcome;
      return toolResults.status({
        ...facts,
        runId: run?.runId ?? null,
        status: run?.status ?? 'idle',
        pendingConfirmationId: run?.confirmationId ?? null,
        activeToolName: run?.activeToolName ?? null,
        lastToolName: run?.lastToolName ?? null,
        lastToolStatus: run?.lastToolStatus ?? null,
        lastToolMessage: run?.lastToolMessage ?? null,
        completedToolCount: run?.toolCount ?? 0,
        queue: queue.map(({ text }) => text),
      });
    }
    case 'cancel': {
      const status: RunStatus = outcome.hadRun ? 'cancelled' : 'idle';
      return toolResults.cancelled(status, { ...facts, runId: outcome.runId });
    }
    case 'confirmed':
      return toolResults.confirmed(outcome.confirmationId, facts);
    case 'refused':
      return outcome.result;
  }
}
