import type { Messages, ReceivedMessage } from '../../lib/companion/messages.ts';
import type { SettingsStore } from '../../lib/companion/safety-settings.ts';
import { describeError } from '../../lib/errors.ts';
import type { Clock } from '../../lib/kit/clock.ts';
import { type Input, printable } from '../output.ts';
import { allGrants, CAPABILITIES, cycleGrant, grantText } from './grants.ts';
import type { Questions } from './questions.ts';
import type { TerminalView } from './terminal-view.ts';

/** The keys that switch the capabilities, in the order of `CAPABILITIES`. */
const DIGITS = '1234567890';

/** Bracketed paste: the terminal marks pasted text. */
const PASTE_MODE_ON = '\u001b[?2004h';
const PASTE_MODE_OFF = '\u001b[?2004l';
const PASTE_BEGIN = '\u001b[200~';
const PASTE_END = '\u001b[201~';

const HELP = [
  'Keys',
  '  m        master toggle: while it is off, almost every command is refused',
  '  g        list the grants; 1 to 9 and 0 switch one, A grants all, N revokes all',
  '  y n a    answer the question: allow, deny, allow and stop asking about this until you quit',
  '  v        show the screen of the simulated phone',
  '  t        messages toggle: while it is on, the agent can write to you',
  '  w i      reply to the newest message; show the last messages',
  '  r        reconnect now instead of waiting',
  '  ?        this help',
  '  q        quit (so does Ctrl-C)',
];

export interface KeyParts {
  input: Input;
  view: TerminalView;
  questions: Questions;
  settings: SettingsStore;
  messages: Messages;
  prompt: ReplyPrompt;
  clock: Clock;
  /** Prints the screen of the phone. */
  showScreen(): void;
  reconnect(): void;
  quit(): void;
  onFailure(error: unknown): void;
}

/** Reads single keys from a terminal. Returns a function that stops and restores the terminal. */
export function readKeys(parts: KeyParts): () => void {
  const { input, view, questions, settings, messages, prompt, clock, showScreen, reconnect, quit, onFailure } = parts;
  const update = (change: Parameters<SettingsStore['update']>[0]) => void settings.update(change).catch(onFailure);

  function listGrants(): void {
    const now = clock.now();
    const rows = CAPABILITIES.map(
      (id, index) => `  ${DIGITS[index]}  ${id.padEnd(18)} ${grantText(settings.get(), id, now)}`,
    );
    const { policy } = settings.get();
    view.print('Grants', ...rows, ...(policy === 'bound' ? [] : [`  (the policy is ${policy}: nothing is allowed)`]));
  }

  function press(key: string): void {
    const digit = DIGITS.indexOf(key);
    if (prompt.isOpen) prompt.key(key);
    else if (key === 'q' || key === '\u0003' || key === '\u0004') quit();
    else if (key === 'm') {
      const masterEnabled = !settings.get().masterEnabled;
      update({ masterEnabled });
      view.print(`Master toggle is ${masterEnabled ? 'ON' : 'off'}.`);
    } else if (key === 't') {
      const messagesEnabled = !settings.get().messagesEnabled;
      update({ messagesEnabled });
      view.print(`Messages toggle is ${messagesEnabled ? 'ON' : 'off'}.`);
    } else if (key === 'w') prompt.open();
    else if (key === 'i') view.print(...inboxLines(messages.list()));
    else if (key === 'g') listGrants();
    else if (key === 'A' || key === 'N') {
      update({ capabilities: key === 'A' ? allGrants() : {} });
      listGrants();
    } else if (digit >= 0) {
      const id = CAPABILITIES[digit] as string;
      update({ capabilities: cycleGrant(settings.get(), id, clock.now()) });
      view.print(`${id}: ${grantText(settings.get(), id, clock.now())}`);
    } else if (key === 'y' || key === 'a') questions.answer({ allowed: true, dontAskAgain: key === 'a' });
    else if (key === 'n') questions.answer({ allowed: false });
    else if (key === 'v') showScreen();
    else if (key === 'r') reconnect();
    else if (key === '?' || key === 'h') view.print(...HELP);
  }

  let pasting = false;
  const onData = (data: Buffer | string) => {
    let text = String(data);
    // Pasted text is dropped: a `y` or an `a` in it must not allow anything.
    const begin = text.lastIndexOf(PASTE_BEGIN);
    const end = text.lastIndexOf(PASTE_END);
    const pasted = pasting || begin >= 0;
    if (begin >= 0 || end >= 0) pasting = begin > end;
    if (pasted && text !== '\u0003') text = pasting ? '' : text.slice(end + PASTE_END.length);
    // Arrow keys and the like arrive as one escape sequence, not as single keys.
    if (text.startsWith('\u001b')) {
      if (text === '\u001b' && prompt.isOpen) prompt.cancel();
      return;
    }
    for (const key of text) press(key);
  };
  input.setRawMode?.(true);
  view.control(PASTE_MODE_ON);
  input.on('data', onData);
  input.resume();
  return () => {
    input.off('data', onData);
    view.control(PASTE_MODE_OFF);
    input.setRawMode?.(false);
    input.pause();
  };
}

/** The ten newest messages as lines, oldest first. */
function inboxLines(messages: readonly ReceivedMessage[]): string[] {
  if (messages.length === 0) return ['No messages yet.'];
  const rows = messages.slice(0, 10).map(({ title, text }) => {
    const from = title ? `${printable(title)}: ` : '';
    return `  ${from}${printable(text)}`;
  });
  return ['Messages', ...rows.reverse()];
}

/** A reply while it is being written, on the status line. */
export interface ReplyPrompt {
  readonly isOpen: boolean;
  /** The text of the status line; null while closed. */
  line(): string | null;
  /** Starts a reply to the newest message. */
  open(): void;
  key(key: string): void;
  cancel(): void;
}

export interface ReplyPromptParts {
  messages: Messages;
  /** The line has changed. */
  onChange(): void;
  print(...lines: string[]): void;
}

const MAX_REPLY = 4096;

/** Reads one line of text: Enter sends it, Esc discards it. */
export function createReplyPrompt({ messages, onChange, print }: ReplyPromptParts): ReplyPrompt {
  let original: ReceivedMessage | null = null;
  let written = '';

  function close(): void {
    original = null;
    messages.setThreadOpen(false);
    onChange();
  }

  function send(): void {
    const { chatId, messageId: replyTo } = original as ReceivedMessage;
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
      return original !== null;
    },
    line: () =>
      original
        ? `Reply to ${printable(original.title ?? 'the agent')}: ${written}_   (Enter sends, Esc discards)`
        : null,
    open() {
      original = messages.list()[0] ?? null;
      if (!original) return print('There is no message to reply to.');
      written = '';
      messages.setThreadOpen(true);
      onChange();
    },
    key(key) {
      if (key === '\r' || key === '\n') return send();
      if (key === '\u0003' || key === '\u0004') return close();
      if (key === '\u007f' || key === '\b') written = [...written].slice(0, -1).join('');
      else if (key >= ' ' && written.length < MAX_REPLY) written += key;
      onChange();
    },
    cancel: close,
  };
}
