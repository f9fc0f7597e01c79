import * as v from 'valibot';
import type { Clock } from '../kit/clock.ts';
import { surfacingOf, URGENCIES } from '../phone/asks.ts';
import { PHONE_GRANT, type PhoneMessaging } from '../phone/phone.ts';
import { actorText } from './actor.ts';
import { createApproval, seconds } from './approve.ts';
import type { Gate } from './gate.ts';
import { input, oneOf, requiredText, text } from './input.ts';
import type { Operation, Outcome } from './operation.ts';

/** Milliseconds after its delivery in which a message may still be reported as shown. */
const SHOWN_WITHIN = 2_000;
/** Maximum replies in one answer, and characters of each. */
const MAX_REPLIES = 50;
const MAX_REPLY = 16_384;

export interface PhoneOperationDeps {
  phone: PhoneMessaging;
  gate: Gate;
  clock: Clock;
}

const message = v.pipe(
  requiredText('text', 'what the owner reads; plain text'),
  v.maxLength(16_384, 'text must have at most 16,384 characters'),
);
const label = (name: string, description: string) =>
  v.optional(v.pipe(text(name, description), v.maxLength(256, `${name} must have at most 256 characters`)));
const shared = {
  text: message,
  title: label('title', 'a short heading'),
  chat_id: label('chat_id', 'the conversation on the phone; a new name opens one'),
  urgency: v.optional(oneOf('urgency', URGENCIES, 'low is silent; high also notifies while the chat is open')),
};

const SendInput = input(shared);
const AskInput = input({
  ...shared,
  answers: v.optional(
    v.pipe(
      v.array(v.string('answers must be strings'), 'answers must be an array'),
      v.description('1 to 4 answers to tap, each at most 40 characters; free text stays possible'),
    ),
  ),
  timeout_s: seconds,
});
const InboxInput = input({
  cursor: v.optional(
    v.pipe(
      text('cursor', 'from the last call: only replies after it; without it, the newest replies'),
      v.regex(/^\d{1,15}$/, 'cursor must be one from an earlier call'),
    ),
  ),
});

const answer = (value: Record<string, unknown>): Outcome => ({ json: JSON.stringify(value) });

/**
 * The operations with which an agent reaches its owner's phone (contract 09 §7). Allowed during a freeze, since they reach
 * the owner.
 */
export function phoneOperations({ phone, gate, clock }: PhoneOperationDeps): Operation[] {
  const send: Operation<v.InferOutput<typeof SendInput>> = {
    name: 'phone_send',
    title: 'Send a message to the phone',
    description:
      "Sends a message to the owner's phone and returns at once. `state` says what became of it: `queued` (no phone is " +
      'connected; it is delivered within 24 hours), `sent`, or `shown`. Use phone_ask when you need an answer.',
    grant: PHONE_GRANT,
    effect: 'act',
    hints: { openWorld: true },
    ignoresFreeze: true,
    input: SendInput,
    async run({ urgency, ...message }, { actor, signal }) {
      const pushed = await phone.push({ ...message, surfacing: surfacingOf(urgency) }, actorText(actor));
      const { messageId, delivered } = pushed;
      const state = delivered ? ((await phone.stateWithin(messageId, SHOWN_WITHIN, signal)) ?? 'sent') : 'queued';
      return answer({ message_id: messageId, delivered, state });
    },
  };

  const ask: Operation<v.InferOutput<typeof AskInput>> = {
    name: 'phone_ask',
    title: 'Ask the owner a question',
    description:
      "Shows a question on the owner's phone and waits for the answer: `answer`, `answer_index` (from 0) when it is one of " +
      '`answers`, `by` (the device), `after_s`. Without an answer in time: `no_answer: true`; that is not a yes.',
    grant: PHONE_GRANT,
    effect: 'act',
    hints: { openWorld: true },
    ignoresFreeze: true,
    input: AskInput,
    async run({ timeout_s: timeout, ...question }, { actor, signal, progress }) {
      const result = await phone.ask({
        ...question,
        by: actorText(actor),
        timeoutMs: timeout * 1000,
        signal,
        onProgress: (state) => progress?.(PROGRESS[state]),
      });
      return answer({ ...result });
    },
  };

  const inbox: Operation<v.InferOutput<typeof InboxInput>> = {
    name: 'phone_inbox',
    title: 'Read replies from the phone',
    description:
      'Lists what the owner has written on the phone since `cursor`, oldest first, at most 50 replies, and the next `cursor`. ' +
      'Takes nothing away.',
    grant: PHONE_GRANT,
    effect: 'read',
    hints: { idempotent: true },
    ignoresFreeze: true,
    input: InboxInput,
    async run({ cursor }) {
      const { items } = phone.history({ since: Number(cursor ?? 0), limit: Number.POSITIVE_INFINITY });
      const all = items.filter((item) => item.kind === 'reply');
      const shown = cursor === undefined ? all.slice(-MAX_REPLIES) : all.slice(0, MAX_REPLIES);
      const isWhole = cursor === undefined || shown.length === all.length;
      return answer({
        replies: shown.map(({ message_id, chat_id, text, reply_to, ts }) => ({
          message_id,
          chat_id,
          text: text.slice(0, MAX_REPLY).toWellFormed(),
          ...(text.length > MAX_REPLY && { cut: true }),
          reply_to,
          ts,
        })),
        cursor: String(isWhole ? phone.historyEnd() : (shown.at(-1)?.seq ?? 0)),
      });
    },
  };

  return [send, ask, createApproval({ phone, gate, clock }), inbox] as Operation[];
}

const PROGRESS = {
  queued: 'no phone is connected: the question waits for one',
  sent: 'the question was sent to the phone',
  shown: 'the phone shows the question',
} as const;
