import { describeError } from '../../errors.ts';
import type { Clock } from '../../kit/clock.ts';
import { isObject } from '../../kit/json.ts';
import { isLongerThan, type Payload } from '../../socket/envelope.ts';
import type { PhoneAnswer, PhoneCommand } from '../types.ts';

/** As many as a relay has in flight with one device (contract 03 §1.4). */
const MAX_IN_FLIGHT = 64;
/** A larger frame would cost the socket (contract 03 §1.1). */
const MAX_ANSWER = 4 * 1024 * 1024 - 4096;

/** A command that was answered, for whoever watches. */
export interface Answered {
  command: PhoneCommand;
  answer: PhoneAnswer;
  /** Milliseconds. */
  took: number;
}

export interface CommandParts {
  handle(command: PhoneCommand): Promise<PhoneAnswer>;
  clock: Clock;
  onCommand?(command: PhoneCommand): void;
  onAnswer?(answered: Answered): void;
}

/** The command of a `bridge.command` payload; null without a usable `request_id` (contract 03 §8.1, gate 0). */
export function readCommand(payload: Payload): PhoneCommand | null {
  const { request_id: requestId, method, path, params, body } = payload;
  if (typeof requestId !== 'string' || requestId === '' || requestId.length > 256) return null;
  return {
    requestId,
    // An unknown pair is refused by the phone's registry, with the answer that belongs to it.
    method: (typeof method === 'string' ? method.toUpperCase() : '') as PhoneCommand['method'],
    path: typeof path === 'string' ? path : '',
    params: isObject(params) ? params : {},
    body: isObject(body) ? body : {},
  };
}

/** Runs commands side by side, each to exactly one answer. */
export function createCommands({ handle, clock, onCommand, onAnswer }: CommandParts) {
  const running = new Set<string>();

  async function answerOf(command: PhoneCommand): Promise<PhoneAnswer> {
    if (running.size >= MAX_IN_FLIGHT) return { status: 429, result: { error: 'too many commands at once' } };
    running.add(command.requestId);
    try {
      return await handle(command);
    } catch (error) {
      return { status: 500, result: { error: describeError(error) } };
    } finally {
      running.delete(command.requestId);
    }
  }

  /** `reply` gets the payload of `bridge.response`. A second command with the id of a running one is dropped. */
  return async function run(command: PhoneCommand, reply: (payload: Payload) => void): Promise<void> {
    if (running.has(command.requestId)) return;
    const began = clock.monotonic();
    onCommand?.(command);
    const given = await answerOf(command);
    const { answer, payload } = sendable(command.requestId, given);
    reply(payload);
    onAnswer?.({ command, answer, took: clock.monotonic() - began });
  };
}

const payloadOf = (requestId: string, { status, result, error, blocked }: PhoneAnswer): Payload => ({
  request_id: requestId,
  status,
  result: result ?? null,
  error,
  blocked,
});

/** An answer as it may go over the wire: one that is no JSON, or is too large for a frame, becomes an error. */
function sendable(requestId: string, answer: PhoneAnswer): { answer: PhoneAnswer; payload: Payload } {
  const instead = (error: string) => {
    const failed: PhoneAnswer = { status: 500, result: { error }, error };
    return { answer: failed, payload: payloadOf(requestId, failed) };
  };
  try {
    const payload = payloadOf(requestId, answer);
    if (isLongerThan(JSON.stringify(payload), MAX_ANSWER)) return instead('the answer is larger than 4 MiB');
    return { answer, payload };
  } catch {
    return instead('the answer cannot be sent');
  }
}
