import { isObject } from '../kit/json.ts';
import type { Route } from './gates/gate.ts';
import type { Outcome } from './gates/pipeline.ts';
import { line } from './text.ts';
import type { ActivityEntry, PhoneCommand } from './types.ts';

const CAPACITY = 100;

/** The phone's own log: newest first, in memory (contract 03 §8.8). */
export interface ActivityLog {
  add(entry: ActivityEntry): void;
  list(): ActivityEntry[];
}

export function createActivityLog(): ActivityLog {
  const entries: ActivityEntry[] = [];
  return {
    add(entry) {
      entries.unshift(entry);
      if (entries.length > CAPACITY) entries.pop();
    },
    list: () => [...entries],
  };
}

function summaryOf(route: Route | null, command: PhoneCommand): string {
  const what = line(String(command.path).replace(/^\//, ''), 24);
  const more = route?.summary?.(command.body) ?? '';
  return line(more === '' ? what : `${what} ${more}`, 80);
}

/** Says how it ended without repeating what was read: error, or the names of what came back. */
function resultText({ answer }: Outcome): string | undefined {
  if (answer.error !== undefined) return line(answer.error, 140);
  if (!isObject(answer.result)) return undefined;
  const { summary, message } = answer.result;
  const text = [summary, message].find((value) => typeof value === 'string');
  return line((text as string | undefined) ?? Object.keys(answer.result).join(', '), 140);
}

/** One row for a command that ended. */
export function activityEntry(
  command: PhoneCommand,
  route: Route | null,
  outcome: Outcome,
  facts: Pick<ActivityEntry, 'at' | 'durationMs' | 'own'>,
): ActivityEntry {
  const { status, result } = outcome.answer;
  const media = isObject(result) && typeof result.media === 'string' ? result.media : '';
  const thumbnailToken = media.startsWith('MEDIA:svc-relay://') ? media.slice('MEDIA:svc-relay://'.length) : undefined;
  return {
    requestId: line(String(command.requestId), 64),
    method: line(String(command.method), 8),
    path: line(String(command.path), 25),
    summary: summaryOf(route, command),
    decision: outcome.decision,
    status,
    outcome: status === 200 ? 'success' : status === 403 ? 'blocked' : 'failed',
    resultText: resultText(outcome),
    thumbnailToken,
    ...facts,
  };
}
