import type { Prompt } from './core/state.ts';
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
