import { describeError } from '../../errors.ts';
import type { Cancel, Clock } from '../../kit/clock.ts';
import { isObject } from '../../kit/json.ts';
import { isLongerThan, type Message, type Payload } from '../../socket/envelope.ts';
import type { Phone } from '../phone.ts';
import type { PhoneAnswer, PhoneCommand } from '../types.ts';
import type { Connection } from './connection.ts';

/** Maximum commands of a relay in flight with one device (contract 03 §1.4). */
const MAX_IN_FLIGHT = 64;
/** The relay closes the socket on a larger frame (contract 03 §1.1). */
const MAX_ANSWER_BYTES = 4 * 1024 * 1024 - 4096;

/** A command and its answer. */
export interface AnsweredCommand {
  command: PhoneCommand;
  answer: PhoneAnswer;
  durationMs: number;
  /** True if its caller was told that it failed, so that the answer was not sent. */
  isCancelled?: boolean;
}

/** The part of the phone that the link uses. */
export type LinkPhone = Pick<Phone, 'handle' | 'status' | 'onStatusChange'>;

export interface BridgeDeps {
  phone: LinkPhone;
  clock: Clock;
  onAnswer?(answered: AnsweredCommand): void;
}

export type Bridge = ReturnType<typeof createBridge>;

/** The phone's side of channel `bridge` (contract 03 §1): runs commands and reports the phone's status. */
export function createBridge({ phone, clock, onAnswer }: BridgeDeps) {
  const waits = createOwnerWaits(clock);
  /** Unanswered commands, keyed by request id. */
  const running = new Map<string, AbortController>();

  async function handle(command: PhoneCommand): Promise<PhoneAnswer> {
    try {
      return await phone.handle(command);
    } catch (error) {
      return { status: 500, result: { error: describeError(error) } };
    }
  }

  /**
   * Runs a command beside others. It gets exactly one answer, on the connection that it came from, unless the relay cancels
   * it. A command with the id of a running one is dropped.
   */
  async function run(connection: Pick<Connection, 'send'>, command: PhoneCommand): Promise<void> {
    const { requestId } = command;
    if (running.has(requestId)) return;
    const startedAt = clock.monotonic();
    const cancelled = new AbortController();
    let answer: PhoneAnswer = { status: 429, result: { error: 'too many commands at once' } };
    if (running.size < MAX_IN_FLIGHT) {
      running.set(requestId, cancelled);
      const ownerAsked = () => waits.ask(connection, requestId);
      answer = await handle({ ...command, ownerAsked, gone: cancelled.signal });
      running.delete(requestId);
    }
    const sent = sendable(requestId, answer);
    const { aborted: isCancelled } = cancelled.signal;
    if (!isCancelled) connection.send('bridge', 'bridge.response', sent.payload);
    onAnswer?.({ command, answer: sent.answer, durationMs: clock.monotonic() - startedAt, isCancelled });
  }

  return {
    status: {
      payload: () => phone.status(),
      onChange: (listener: () => void): Cancel => phone.onStatusChange(listener),
    },
    isIdle: () => running.size === 0,
    receive(connection: Pick<Connection, 'send'>, { type, payload }: Message): void {
      const { request_id: id, reason } = payload;
      if (type === 'bridge.command') {
        const command = readCommand(payload);
        if (command) void run(connection, command);
      } else if (type === 'command.waiting') waits.confirmed(payload);
      // Stops the command if that is still possible, and suppresses its answer (contract 09 §3).
      else if (type === 'bridge.cancel' && typeof id === 'string') running.get(id)?.abort(reason);
    },
    /** The connection was lost, and every command with it. */
    cancelAll(): void {
      for (const cancelled of running.values()) cancelled.abort();
    },
  };
}

/** The command of a `bridge.command` payload; null without a usable `request_id` (contract 03 §8.1, gate 0). */
function readCommand(payload: Payload): PhoneCommand | null {
  const { request_id: requestId, method, path, body } = payload;
  if (typeof requestId !== 'string' || requestId === '' || requestId.length > 256) return null;
  return {
    requestId,
    // An unknown method or path is left to the phone, which refuses it with the proper answer.
    method: (typeof method === 'string' ? method.toUpperCase() : '') as PhoneCommand['method'],
    path: typeof path === 'string' ? path : '',
    body: isObject(body) ? body : {},
  };
}

/** Milliseconds for a relay to confirm that it waits; older relays never do. */
const CONFIRM_WITHIN = 1_000;

/** Tells relays that the owner is being asked before a command is carried out (`command.waiting`). */
function createOwnerWaits(clock: Clock) {
  /** Keyed by request id, at most one per running command. */
  const waiting = new Map<string, (ms: number | null) => void>();

  return {
    /**
     * Resolves with the milliseconds from the command's start for which the relay waits; null if it does not confirm.
     */
    ask(connection: Pick<Connection, 'send'>, requestId: string): Promise<number | null> {
      return new Promise((resolve) => {
        const settle = (ms: number | null) => {
          cancel();
          waiting.delete(requestId);
          resolve(ms);
        };
        const cancel = clock.after(CONFIRM_WITHIN, () => settle(null));
        waiting.set(requestId, settle);
        connection.send('bridge', 'command.waiting', { request_id: requestId, for: 'owner' });
      });
    },

    /** The relay's answer. */
    confirmed({ request_id: id, timeout_ms: ms }: Payload): void {
      if (typeof id === 'string' && typeof ms === 'number' && ms > 0) waiting.get(id)?.(ms);
    },
  };
}

const payloadOf = (requestId: string, { status, result, error, blocked }: PhoneAnswer): Payload => ({
  request_id: requestId,
  status,
  result: result ?? null,
  error,
  blocked,
});

/** An answer that can be sent: an error if it is not JSON or too large for a frame. */
function sendable(requestId: string, answer: PhoneAnswer): { answer: PhoneAnswer; payload: Payload } {
  const failure = (error: string) => {
    const failed: PhoneAnswer = { status: 500, result: { error }, error };
    return { answer: failed, payload: payloadOf(requestId, failed) };
  };
  try {
    const payload = payloadOf(requestId, answer);
    if (isLongerThan(JSON.stringify(payload), MAX_ANSWER_BYTES)) return failure('the answer is larger than 4 MiB');
    return { answer, payload };
  } catch {
    return failure('the answer cannot be encoded as JSON');
  }
}
