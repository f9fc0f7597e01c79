import { isObject } from '../kit/json.ts';
import type { CommandRoute } from './gates/gate.ts';
import type { Outcome } from './gates/pipeline.ts';
import { singleLine } from './text.ts';
import type { ActivityEntry, PhoneCommand } from './types.ts';

function summaryOf(route: CommandRoute | null, command: PhoneCommand): string {
  const name = singleLine(String(command.path).replace(/^\//, ''), 24);
  const details = route?.summary?.(command.body) ?? '';
  return singleLine(details === '' ? name : `${name} ${details}`, 80);
}

/** The outcome without any content that was read: the error, or the names of the result's members. */
function resultText({ answer }: Outcome): string | undefined {
  if (answer.error !== undefined) return singleLine(answer.error, 140);
  if (!isObject(answer.result)) return undefined;
  const { summary, message } = answer.result;
  const text = [summary, message].find((value) => typeof value === 'string');
  return singleLine((text as string | undefined) ?? Object.keys(answer.result).join(', '), 140);
}

/** The log row of a finished command. */
export function activityEntry(
  command: PhoneCommand,
  route: CommandRoute | null,
  outcome: Outcome,
  facts: Pick<ActivityEntry, 'at' | 'durationMs' | 'own'>,
): ActivityEntry {
  const { status, result } = outcome.answer;
  const media = isObject(result) && typeof result.media === 'string' ? result.media : '';
  const thumbnailToken = media.startsWith('MEDIA:svc-relay://') ? media.slice('MEDIA:svc-relay://'.length) : undefined;
  return {
    requestId: singleLine(String(command.requestId), 64),
    method: singleLine(String(command.method), 8),
    path: singleLine(String(command.path), 25),
    summary: summaryOf(route, command),
    decision: outcome.decision,
    status,
    outcome: status === 200 ? 'success' : status === 403 ? 'blocked' : 'failed',
    resultText: resultText(outcome),
    thumbnailToken,
    ...facts,
  };
}
