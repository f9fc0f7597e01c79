import type { Command } from 'cac';
import { RelayError } from '../../lib/errors.ts';
import { bytesToHex, randomBytes } from '../../lib/kit/bytes.ts';
import { newMessageId } from '../../lib/phone/message.ts';
import { answersOf } from '../../lib/phone/question.ts';
import { type OperatorRelay, openOperatorRelay, Unreachable } from '../operator-relay.ts';
import { asText, flag, type Options, option } from '../options.ts';
import { type CommandContext, printableLines, printError, printJson, quote, sentence } from '../output.ts';
import { RELAY_OPTION } from '../remote-relay.ts';
import { onSignals } from '../signals.ts';
import { asAnswers, check, explain, GONE, post, progress, type Sent, seconds, textOf } from './outgoing.ts';
import { createTracker } from './track.ts';
import { type PhoneReply, startWaiting, type Waited } from './wait.ts';

/** Seconds. */
const DEFAULT_TIMEOUT = 300;
/** As long as a message waits for a phone. */
const MAX_TIMEOUT = 86_400;

/** Exit codes (contract 09 §7): the first answer is 0, like success of any command. */
const OTHER_ANSWER = 10;
const FREE_TEXT = 3;
const NO_ANSWER = 4;

/** `svc phone ask`: a question to the phone, for scripts and hooks. */
export function define(command: Command): void {
  command
    .option('--answers <list>', '1 to 4 answers to choose from (default: the options of the text, or Yes and No)')
    .option('--timeout <duration>', 'withdraw the question after it: seconds, or 10m (default 5m, at most 24h)')
    .option('--title <title>', 'title of the notification')
    .option('--chat <id>', 'the chat it belongs to (default: a new one)')
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} ask "Deploy now?" --answers yes,no --timeout 10m && ./deploy.sh`)
    .example((name) => `colour=$(${name} ask "Which one?" --answers red,blue)   # exits 0 for red, 11 for blue`)
    .example(
      (name) => `git diff --stat | ${name} ask -   # exit 3: free text, 4: no answer, and the question is withdrawn`,
    )
    .action(run);
}

async function run(given: string, options: Options, context: CommandContext): Promise<number> {
  const timeout = option(options, '--timeout', asTimeout) ?? DEFAULT_TIMEOUT;
  const chat = option(options, '--chat', asText);
  const message = {
    text: await textOf(given, context),
    title: option(options, '--title', asText),
    chat_id: chat ?? `svc-${bytesToHex(randomBytes(4))}`,
    answers: option(options, '--answers', asAnswers),
    message_id: newMessageId(),
    metadata: { question: true },
  };
  const answers = answersOf(check(message).metadata);
  const relay = await openOperatorRelay(options, context);
  const tracker = await createTracker(relay, message.message_id);
  const over = new AbortController();
  const endSignals = onSignals(() => over.abort(), context);
  const waiting = startWaiting({
    relay,
    // In a chat of its own, any reply is the answer; in a shared one, only a reply to this question.
    chatId: chat === undefined ? message.chat_id : undefined,
    messageId: message.message_id,
    seconds: timeout,
    stop: over.signal,
  });
  const end = new AbortController();
  try {
    const begun = performance.now();
    const sent = await post(relay, message);
    if (!flag(options, '--json')) await explain(sent, relay, context, `Waiting ${timeout} s for the answer.`);
    let isReceived = sent.delivered;
    let isGone = false;
    progress(tracker, sent, end.signal, options, context, (state) => {
      if (state === 'sent' || state === 'shown') isReceived = true;
      // Somebody else has withdrawn it, or it was dropped.
      if (GONE[state] === undefined) return;
      isGone = true;
      waiting.end();
    });
    const waited = await waiting.replies;
    end.abort();
    const last = waited.replies.length > 0 ? waited : await withdraw(relay, message.message_id);
    const [reply] = last.replies;
    if (!reply) {
      const inTime = isGone ? '' : ` within ${timeout} s`;
      const reason = over.signal.aborted ? 'stopped before an answer came' : `no answer came${inTime}`;
      return unanswered({ sent, reason, state: await tracker.refresh(), last, isReceived }, options, context);
    }
    const index = indexOf(reply, answers);
    const after_s = Math.round((performance.now() - begun) / 100) / 10;
    if (flag(options, '--json')) {
      const found = { answer: reply.text, ...(index !== undefined && { answer_index: index }), after_s };
      printJson(context.stdout, { message_id: sent.message_id, chat_id: sent.chat_id, ...found });
    } else quote(context.stdout, printableLines(reply.text));
    await last.acknowledge();
    if (index === undefined) return FREE_TEXT;
    return index === 0 ? 0 : OTHER_ANSWER + index;
  } finally {
    end.abort();
    waiting.end();
    endSignals();
  }
}

function asTimeout(text: string): number {
  const value = seconds(text);
  if (value > MAX_TIMEOUT) throw new RelayError('invalid', 'must be at most 24h');
  return value;
}

/** Index of the answer in a reply: the tapped one, or a typed one. */
function indexOf({ answer_index: index, text }: PhoneReply, answers: readonly string[]): number | undefined {
  if (index !== undefined) return index;
  const typed = answers.findIndex((answer) => answer.toLowerCase() === text.trim().toLowerCase());
  return typed < 0 ? undefined : typed;
}

interface Withdrawn extends Waited {
  /** Why phones still show the question; absent if they do not. */
  problem?: string;
}

/** Withdraws the question from phones. If the answer has come at the last moment, returns it. */
async function withdraw(relay: OperatorRelay, messageId: string): Promise<Withdrawn> {
  const none = { replies: [], acknowledge: async () => {} };
  try {
    const { cancelled } = await relay.call({
      method: 'DELETE',
      path: `/phone/outbound?message_id=${encodeURIComponent(messageId)}`,
    });
    if (cancelled !== 0) return none;
    return await startWaiting({ relay, messageId, seconds: 0.1 }).replies;
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
    return { ...none, problem: error.message };
  }
}

interface Silence {
  sent: Sent;
  reason: string;
  state: string | null;
  last: Withdrawn;
  isReceived: boolean;
}

function unanswered(silence: Silence, options: Options, context: CommandContext): number {
  const { message_id: id, chat_id } = silence.sent;
  const { program, stderr } = context;
  const { problem } = silence.last;
  if (flag(options, '--json')) printJson(context.stdout, { message_id: id, chat_id, answer: null, no_answer: true });
  const isOver = silence.state === 'expired' || silence.state === 'dropped';
  printError(context, isOver ? 'no answer came' : silence.reason);
  if (problem !== undefined) {
    sentence(stderr, `The question could not be withdrawn: ${problem}`);
    sentence(stderr, `Withdraw it with: ${program} cancel ${id}`);
    return NO_ANSWER;
  }
  sentence(stderr, isOver ? (GONE[silence.state ?? ''] ?? '') : 'The question was withdrawn.');
  sentence(
    stderr,
    silence.isReceived
      ? `A phone received it. See what became of it with: ${program} history`
      : 'No phone received it. Open the app on a phone, then ask again.',
  );
  return NO_ANSWER;
}
