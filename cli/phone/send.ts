import type { Command } from 'cac';
import { bytesToHex, randomBytes } from '../../lib/kit/bytes.ts';
import { newMessageId } from '../../lib/phone/message.ts';
import { type OperatorRelay, openOperatorRelay } from '../operator-relay.ts';
import { asChoice, asText, flag, type Options, option } from '../options.ts';
import { type CommandContext, CommandError, line, printableLines, printJson, quote, sentence } from '../output.ts';
import { RELAY_OPTION } from '../remote-relay.ts';
import { asAnswers, check, explain, GONE, post, progress, type Sent, seconds, textOf, whyQueued } from './outgoing.ts';
import { createTracker } from './track.ts';
import { type PhoneReply, startWaiting } from './wait.ts';

/** Seconds. */
const DEFAULT_WAIT = 300;
/** Milliseconds for which somebody at a terminal waits to see whether the phone shows the message. */
const SHOWN_WAIT = 2000;
const SURFACINGS = ['default', 'notification', 'inbox', 'session'] as const;

/** `svc phone send`: lets people and scripts on this machine send messages to the phone like the agent. */
export function define(command: Command): void {
  command
    .option('--title <title>', 'title of the notification')
    .option('--chat <id>', 'the chat it belongs to (default: none, or a new one with --wait)')
    .option('--answers <list>', '1 to 4 answers to choose from, such as yes,no')
    .option('--surfacing <how>', 'default, notification, inbox (silent) or session (into the open chat)')
    .option(
      '--wait [duration]',
      'wait for the reply and print it: seconds, or 5m (default 5m). Leaves other replies alone',
    )
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} send "Dinner is ready" --title Kitchen`)
    .example((name) => `make 2>&1 | tail -1 | ${name} send - --surfacing inbox`)
    .example((name) => `answer=$(${name} send "Deploy now?" --wait 10m)   # only the reply goes to stdout`)
    .example((name) => `${name} send "Which one?" --answers red,blue,none --wait`)
    .example((name) => `${name} send --wait -- "5 minutes left, go on?"    # after -- everything is text`)
    .action(run);
}

async function run(given: string, options: Options, context: CommandContext): Promise<void> {
  const wait = options.wait === true ? DEFAULT_WAIT : option(options, '--wait', seconds);
  // The reply is recognized by its chat, so without --chat the message gets a new one.
  const ownChat = wait === undefined ? undefined : `svc-${bytesToHex(randomBytes(4))}`;
  const message = {
    text: await textOf(given, context),
    title: option(options, '--title', asText),
    chat_id: option(options, '--chat', asText) ?? ownChat,
    surfacing: option(options, '--surfacing', asChoice(...SURFACINGS)),
    answers: option(options, '--answers', asAnswers),
    message_id: newMessageId(),
  };
  check(message);
  const relay = await openOperatorRelay(options, context);
  const tracker = await createTracker(relay, message.message_id);
  if (wait === undefined) {
    const sent = await post(relay, message);
    const wait = sent.delivered && context.stdout.isTTY && !flag(options, '--json') ? SHOWN_WAIT : 0;
    const state = await tracker.until((seen) => seen !== 'sent', wait, context.stop);
    return report({ ...sent, state }, relay, options, context);
  }

  const waiting = startWaiting({
    relay,
    chatId: message.chat_id ?? '',
    messageId: message.message_id,
    seconds: wait,
    stop: context.stop,
  });
  const over = new AbortController();
  try {
    const sent = await post(relay, message);
    if (!flag(options, '--json')) await explain(sent, relay, context, `Waiting ${wait} s for the reply.`);
    progress(tracker, sent, over.signal, options, context);
    const { replies, acknowledge } = await waiting.replies;
    over.abort();
    const state = await tracker.refresh();
    await finish({ ...sent, state: replies.length > 0 ? 'answered' : state }, replies, wait, options, context);
    await acknowledge();
  } finally {
    over.abort();
    waiting.end();
  }
}

async function report(sent: Sent, relay: OperatorRelay, options: Options, context: CommandContext): Promise<void> {
  const { delivered, buffered, message_id: id, state } = sent;
  if (flag(options, '--json')) printJson(context.stdout, sent);
  else if (delivered && state === 'queued') {
    sentence(context.stdout, `Queued again: ${id}`);
    sentence(context.stdout, 'The phone did not confirm it. It is delivered again when a phone connects.');
  } else if (delivered) line(context.stdout, `${state === 'shown' ? 'Shown' : 'Delivered'}: ${id}`);
  else {
    sentence(context.stdout, `Queued: ${id} (${buffered} waiting)`);
    const until = 'The message is kept for 24 hours and delivered when one listens.';
    sentence(context.stdout, `${await whyQueued(relay)} ${until}`);
    sentence(context.stdout, `Cancel it with: ${context.program} cancel ${id}`);
  }
}

/** Next step without a reply, by the last known state. */
function afterSilence({ state, delivered }: Sent, { program }: CommandContext): string {
  const gone = GONE[state ?? ''];
  if (gone !== undefined) return `${gone} See: ${program} history`;
  const later = 'The relay keeps a later reply for readers of GET /phone/replies.';
  if (state === 'shown') return `The phone has shown it. ${later}`;
  if (state === 'sent' || (delivered && state !== 'queued')) return `The phone has received it. ${later}`;
  return `No phone has received it. List the queue with: ${program} list`;
}

async function finish(
  sent: Sent,
  replies: PhoneReply[],
  wait: number,
  options: Options,
  context: CommandContext,
): Promise<void> {
  if (flag(options, '--json')) printJson(context.stdout, { ...sent, reply: replies[0] ?? null, replies });
  else for (const { text } of replies) quote(context.stdout, printableLines(text));
  if (replies.length > 0) return;
  throw new CommandError(
    context.stop?.aborted ? 'stopped before a reply came' : `no reply came within ${wait} s`,
    afterSilence(sent, context),
  );
}
