import { describeError, RelayError } from '../../lib/errors.ts';
import { parseDuration } from '../../lib/pairing/duration.ts';
import { readMessage } from '../../lib/phone/message.ts';
import type { PhoneMessage } from '../../storage/schema.ts';
import { devicesOf, nameOf } from '../devices/rows.ts';
import type { OperatorRelay } from '../operator-relay.ts';
import { flag, type Options } from '../options.ts';
import { type CommandContext, line, sentence, UsageError } from '../output.ts';
import { readAll } from '../stdin.ts';
import type { Tracker } from './track.ts';

export interface Sent {
  message_id: string;
  chat_id: string | null;
  delivered: boolean;
  /** Queued messages including this one; 0 if it was delivered. */
  buffered: number;
  /** The last known state, as in `GET /phone/history`; null if the relay does not report it. */
  state: string | null;
}

/** Splits `yes,no`. */
export const asAnswers = (text: string): string[] => text.split(',').map((answer) => answer.trim());

/** The message, parsed like by the relay. @throws UsageError before the relay is called. */
export function check(message: Record<string, unknown>): PhoneMessage {
  try {
    return readMessage(message, 0);
  } catch (error) {
    throw new UsageError(describeError(error));
  }
}

/** A finite time to wait. */
export function seconds(text: string): number {
  const value = parseDuration(text);
  if (value === 0) throw new RelayError('invalid', 'must have an end, such as 90 or 10m');
  return value;
}

/** The text of a message, from stdin for `-`. */
export async function textOf(given: string, context: CommandContext): Promise<string> {
  const text =
    given === '-' ? (await readAll(context, 'the text', 'stdin is too long for a message')).trimEnd() : given;
  if (text.trim() === '') throw new UsageError('the text is empty');
  return text;
}

export async function post(
  relay: OperatorRelay,
  body: { message_id: string; chat_id?: string; answers?: string[] },
): Promise<Sent> {
  const answer = await relay.call({ method: 'POST', path: '/phone/message', body });
  const { message_id: id, delivered, buffered } = answer;
  return {
    message_id: typeof id === 'string' ? id : body.message_id,
    chat_id: body.chat_id ?? null,
    delivered: delivered === true,
    buffered: typeof buffered === 'number' ? buffered : 0,
    state: null,
  };
}

/** Maximum devices named in an explanation. */
const MAX_NAMED = 3;
/** Clients that accept messages. */
const SURFACES: readonly unknown[] = ['android', 'quest', 'web'];

/**
 * Explains why a message waits. A phone accepts messages as soon as it connects unless they are switched off there (contract
 * 04 §5), so a connected one with a waiting message has them off.
 */
export async function whyQueued(relay: OperatorRelay): Promise<string> {
  const answer = await relay.call({ method: 'GET', path: '/relay/devices' }).catch(() => ({}));
  const connected = devicesOf(answer, Date.now() / 1000).filter(
    ({ state, raw }) => state === 'connected' && SURFACES.includes(raw.client_surface),
  );
  if (connected.length === 0) return 'No phone is listening.';
  const names = connected.slice(0, MAX_NAMED).map(nameOf).join(', ');
  const more = connected.length > MAX_NAMED ? ` and ${connected.length - MAX_NAMED} more` : '';
  const are = connected.length === 1 ? 'is' : 'are';
  return `No phone is listening: ${names}${more} ${are} connected, but messages are switched off there.`;
}

/** Reports on stderr, because stdout is for the reply. */
export async function explain(sent: Sent, relay: OperatorRelay, context: CommandContext, next: string): Promise<void> {
  if (sent.delivered) return line(context.stderr, `Delivered. ${next}`);
  sentence(context.stderr, `${await whyQueued(relay)} It is queued (${sent.buffered} waiting). ${next}`);
}

/** Reports the state of the message on stderr while its reply is awaited. `onState` is called with every new state. */
export function progress(
  tracker: Tracker,
  { delivered }: Sent,
  signal: AbortSignal,
  options: Options,
  context: CommandContext,
  onState?: (state: string) => void,
): void {
  const isQuiet = flag(options, '--json');
  if (isQuiet && !onState) return;
  const words: Record<string, string> = {
    queued: 'The phone did not confirm it: queued again.',
    sent: 'Delivered: a phone has connected.',
    shown: 'The phone shows it.',
    ...GONE,
  };
  const report = (state: string) => {
    if (words[state] !== undefined && !isQuiet) line(context.stderr, words[state]);
    onState?.(state);
  };
  void tracker.follow(delivered ? 'sent' : 'queued', report, signal);
}

/** Why a message can no longer reach a phone, by its state. */
export const GONE: Record<string, string> = {
  expired: 'It has expired: no phone connected in time.',
  cancelled: 'It was cancelled.',
  dropped: 'It was dropped: too many messages waited.',
};
