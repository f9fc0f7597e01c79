import type { ReceivedMessage, Surface } from '../lib/companion/messages.ts';
import { createMessages, type Messages } from '../lib/companion/messages.ts';
import type { SettingsStore } from '../lib/companion/safety-settings.ts';
import { describeError, RelayError } from '../lib/errors.ts';
import type { Clock } from '../lib/kit/clock.ts';
import { asObject } from '../lib/kit/json.ts';
import type { Log } from '../lib/log.ts';
import type { View } from './companion-view.ts';
import { printable, type Style } from './output.ts';

/** The messages of a companion, shown on its view as they come. */
export const createMessagesBehind = (parts: {
  settings: SettingsStore;
  clock: Clock;
  log: Log;
  view: View;
}): Messages => {
  const { view, ...rest } = parts;
  return createMessages({
    ...rest,
    onMessage: (message, surface) => view.message(message, surface),
    onBacklog: (count) => view.backlog(count),
    onAcknowledged: (reply) => view.replied(reply),
    onSubscribed: (isSubscribed) => view.subscribed(isSubscribed),
  });
};

/** `Message from Kitchen: Dinner is ready`, quietly for one that only goes to the inbox. */
export function messageText(message: ReceivedMessage, surface: Surface, style: Style): string {
  const from = message.title ? ` from ${printable(message.title)}` : '';
  const late = message.queued ? ' (it had waited)' : '';
  const text = `Message${from}${late}: ${printable(message.text)}`;
  return surface === 'silent' ? style.dim(text) : style.bold(text);
}

/** The newest ten, the oldest of them first, as lines. */
export const inboxLines = (messages: readonly ReceivedMessage[]): string[] =>
  messages.length === 0
    ? ['No messages yet.']
    : ['Messages', ...[...messages.slice(0, 10)].reverse().map(({ title, text }) => `  ${rowText(title, text)}`)];

const rowText = (title: string | null, text: string): string =>
  `${title ? `${printable(title)}: ` : ''}${printable(text)}`;

/**
 * A script's `{"reply":{"text":…,"chat_id"?,"reply_to"?}}`.
 * @throws RelayError as `Messages.answer`, and `invalid` for what is none.
 */
export function obeyReply(said: unknown, messages: Messages): void {
  const { text, chat_id: chatId, reply_to: replyTo } = asObject(said) ?? {};
  const isLabel = (value: unknown): value is string | undefined => value === undefined || typeof value === 'string';
  if (typeof text !== 'string' || !isLabel(chatId) || !isLabel(replyTo)) {
    throw new RelayError('invalid', 'a reply needs a text, and chat_id and reply_to are strings');
  }
  messages.reply({ text, chatId, replyTo });
}

export interface Prompt {
  readonly isOpen: boolean;
  /** The line as it stands; null while nothing is written. */
  line(): string | null;
  /** Begins an answer to the newest message. */
  open(): void;
  /** One key of the person who writes. */
  key(key: string): void;
  cancel(): void;
}

export interface PromptParts {
  messages: Messages;
  /** The line has changed. */
  onChange(): void;
  print(...lines: string[]): void;
}

const MAX_LINE = 4096;

/** One line of text, written below what scrolls: Enter sends it, Esc leaves it. */
export function createPrompt({ messages, onChange, print }: PromptParts): Prompt {
  let to: ReceivedMessage | null = null;
  let written = '';

  function close(): void {
    to = null;
    messages.setThreadOpen(false);
    onChange();
  }

  function send(): void {
    const { chatId, messageId: replyTo } = to as ReceivedMessage;
    const text = written;
    close();
    if (text.trim() === '') return;
    try {
      messages.reply({ text, chatId, replyTo });
      print(`  you: ${printable(text)}`);
    } catch (error) {
      print(`! ${describeError(error)}`);
    }
  }

  return {
    get isOpen() {
      return to !== null;
    },
    line: () => (to ? `Reply to ${printable(to.title ?? 'the agent')}: ${written}_   (Enter sends, Esc leaves)` : null),
    open() {
      to = messages.list()[0] ?? null;
      if (!to) return print('There is no message to answer.');
      written = '';
      messages.setThreadOpen(true);
      onChange();
    },
    key(key) {
      if (key === '\r' || key === '\n') return send();
      if (key === '\u0003' || key === '\u0004') return close();
      if (key === '\u007f' || key === '\b') written = [...written].slice(0, -1).join('');
      else if (key >= ' ' && written.length < MAX_LINE) written += key;
      onChange();
    },
    cancel: close,
  };
}
