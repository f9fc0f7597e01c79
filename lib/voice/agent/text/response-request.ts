import { cutText } from '../../../chat/preview.ts';
import type { Prompt } from '../core/state.ts';
import type { ResponseRequest } from '../provider/provider.ts';
import { isJsonAnswer, MAX_DELIVERED_ANSWER, speechSafe } from './speech-safe.ts';

const MAX_REQUEST = 1000;

/** A request to the provider in words (contract 06 §6.7, §6.9, §7). Without ids. */
export function responseRequest(prompt: Prompt | null): ResponseRequest {
  switch (prompt?.type) {
    case undefined:
      return {};
    case 'handoff':
      return {
        instructions:
          'Tell the user in one short sentence that the task has been started and that you will report when it is done. ' +
          'Give no answer to it, speak no ids, and call no function.',
      };
    case 'transition':
      return {
        instructions:
          'Tell the user in one short sentence that you now begin with the next task that was waiting. Give no answer to ' +
          'it, speak no ids, and call no function.',
      };
    case 'repeat':
      return {
        instructions:
          'The connection was interrupted, and the last words of the user were lost. Ask them in one short sentence to ' +
          'say it again. Answer nothing else, and call no function.',
      };
    case 'delivered':
      return inLines(
        'The user has already been given the following answer. Do not deliver it again unless they ask for it; take it as',
        'known, and respond to what they have just said.',
        '',
        ...requestAndAnswer(prompt),
      );
    case 'rest':
      return inLines(
        'The connection was interrupted while you spoke. Say only the rest of your answer: go on after the words that the user',
        'has heard, do not repeat them, and do not mention the interruption.',
        '',
        ...(prompt.result ? requestAndAnswer(prompt.result) : []),
        `The user has heard: ${oneLine(prompt.said)}`,
      );
    case 'delivery':
      return deliveryRequest(prompt);
  }
}

/** The response that delivers a result (contract 06 §7.1). A provider with a primitive for exact text ignores the words. */
function deliveryRequest({ mode, result }: Extract<Prompt, { type: 'delivery' }>): ResponseRequest {
  const { request, answer, isOk } = result;
  // JSON is described, and so is a failure.
  const isVerbatim = isOk && mode === 'speak_verbatim' && !isJsonAnswer(answer);
  const order = isVerbatim
    ? 'Read the following answer to the user word for word. Add nothing, leave out nothing, and call no function.'
    : 'Tell the user the following answer as a short natural summary that keeps names and numbers. Do not say that you ' +
      'will look or come back to it, ask nothing, and call no function.';
  const words = isOk ? answer : `The task has failed: ${answer}`;
  return {
    ...inLines(order, '', ...requestAndAnswer({ request, answer: words })),
    ...(isVerbatim && { exactText: speechSafe(answer, MAX_DELIVERED_ANSWER) }),
  };
}

const inLines = (...lines: string[]): ResponseRequest => ({ instructions: lines.join('\n') });

const requestAndAnswer = ({ request, answer }: { request: string; answer: string }): string[] => [
  `The user asked: ${oneLine(request)}`,
  `The answer: ${speechSafe(answer, MAX_DELIVERED_ANSWER)}`,
];

const oneLine = (text: string): string => cutText(text.replace(/\s+/g, ' ').trim(), MAX_REQUEST);
