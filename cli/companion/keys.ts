import type { FreezeSwitch } from '../../lib/companion/link/freeze.ts';
import type { Messages, ReceivedMessage, ReplyDraft } from '../../lib/companion/messages.ts';
import type { SettingsStore } from '../../lib/companion/safety-settings.ts';
import { describeError } from '../../lib/errors.ts';
import type { Clock } from '../../lib/kit/clock.ts';
import { type Input, printable } from '../output.ts';
import { createChunkReader } from '../stdin.ts';
import { allGrants, CAPABILITIES, cycleGrant, grantText } from './grants.ts';
import { SENDER } from './phone.ts';
import type { LinePrompt } from './prompt.ts';
import type { Questions } from './questions.ts';
import type { TerminalView } from './terminal-view.ts';
import { triggerLines } from './trigger-lines.ts';

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
  '  1 to 4   answer the question of the agent that stands at the bottom; x leaves it for later',
  '  w i      reply to the newest message; show the last messages',
  '  s        let the phone receive a text message: type it',
  '  e        list the notification triggers, and what they did last',
  '  k        kill switch of the notification triggers: while it is on, none of them asks',
  '  f        freeze the relay: the agent can act on no device; while it is frozen, f and then Enter ends that',
  '  r        reconnect now instead of waiting',
  '  ?        this help',
  '  q        quit (so does Ctrl-C)',
];

export interface KeyDeps {
  input: Input;
  view: TerminalView;
  questions: Questions;
  settings: SettingsStore;
  messages: Messages;
  prompt: LinePrompt;
  freeze: FreezeSwitch;
  clock: Clock;
  /** Prints the screen of the phone. */
  showScreen(): void;
  /** Lets the phone receive a text message. */
  receiveSms(text: string): void;
  reconnect(): void;
  quit(): void;
  onFailure(error: unknown): void;
}

/** Reads single keys from a terminal. Returns a function that stops and restores the terminal. */
export function readKeys(deps: KeyDeps): () => void {
  const { input, view, questions, settings, messages, prompt, freeze, clock } = deps;
  const { showScreen, receiveSms, reconnect, quit, onFailure } = deps;
  /** `f` was pressed while the relay is frozen: Enter ends the freeze, every other key leaves it. */
  let isEnding = false;
  const update = (change: Parameters<SettingsStore['update']>[0]) => void settings.update(change).catch(onFailure);

  function listGrants(): void {
    const now = clock.now();
    const rows = CAPABILITIES.map(
      (id, index) => `  ${DIGITS[index]}  ${id.padEnd(18)} ${grantText(settings.get(), id, now)}`,
    );
    const { policy } = settings.get();
    view.print('Grants', ...rows, ...(policy === 'bound' ? [] : [`  (the policy is ${policy}: nothing is allowed)`]));
  }

  function send(draft: ReplyDraft): void {
    try {
      view.print(`  you: ${printable(messages.reply(draft).text)}`);
    } catch (error) {
      view.print(`! ${describeError(error)}`);
    }
  }

  function openReply(): void {
    const [original] = messages.list();
    if (!original) {
      view.print('There is no message to reply to.');
      return;
    }
    const { chatId, messageId: replyTo, title } = original;
    messages.setThreadOpen(true);
    prompt.open({
      label: `Reply to ${printable(title ?? 'the agent')}`,
      onClose: () => messages.setThreadOpen(false),
      onText: (text) => send({ text, chatId, replyTo }),
    });
  }

  /** The agent's question while it is the one at the bottom: a question of the phone comes first. */
  const asked = () => (questions.open().length > 0 ? undefined : messages.question());

  function flip(toggle: 'masterEnabled' | 'messagesEnabled', name: string): void {
    const isOn = !settings.get()[toggle];
    update({ [toggle]: isOn });
    view.print(`${name} toggle is ${isOn ? 'ON' : 'off'}.`);
  }

  function flipKillSwitch(): void {
    const isOn = !settings.get().triggers.notification_triggers_kill_switch;
    update({ triggers: { notification_triggers_kill_switch: isOn } });
    view.print(`Kill switch of the notification triggers is ${isOn ? 'ON: none of them asks' : 'off'}.`);
  }

  /** Freezes at once. Pressed again, in a hurry or not, it does not end the freeze by itself. */
  function pressFreeze(): void {
    if (freeze.state()) {
      isEnding = true;
      view.print('End the freeze? Enter ends it; any other key leaves it.');
      return;
    }
    freeze.freeze().catch((error) => view.print(`! cannot freeze the relay: ${printable(describeError(error))}`));
  }

  function endFreeze(): void {
    freeze.end().catch((error) => view.print(`! cannot end the freeze: ${printable(describeError(error))}`));
  }

  function setGrants(capabilities: ReturnType<typeof allGrants>): void {
    update({ capabilities });
    listGrants();
  }

  /** The keys that mean the same whatever is asked. */
  const actions: Readonly<Record<string, () => void>> = {
    f: pressFreeze,
    q: quit,
    '\u0003': quit,
    '\u0004': quit,
    m: () => flip('masterEnabled', 'Master'),
    t: () => flip('messagesEnabled', 'Messages'),
    w: openReply,
    i: () => view.print(...inboxLines(messages.list())),
    g: listGrants,
    A: () => setGrants(allGrants()),
    N: () => setGrants({}),
    y: () => questions.answer({ allowed: true, dontAskAgain: false }),
    a: () => questions.answer({ allowed: true, dontAskAgain: true }),
    n: () => questions.answer({ allowed: false }),
    v: showScreen,
    s: () => prompt.open({ label: `Text message from ${SENDER.name}`, onText: receiveSms }),
    e: () => view.print(...triggerLines(settings.get().triggers)),
    k: flipKillSwitch,
    r: reconnect,
    '?': () => view.print(...HELP),
    h: () => view.print(...HELP),
  };

  function press(key: string): void {
    const digit = DIGITS.indexOf(key);
    const question = asked();
    const wasEnding = isEnding;
    isEnding = false;
    if (prompt.isOpen) prompt.key(key);
    else if (wasEnding && (key === '\r' || key === '\n')) endFreeze();
    else if (question && digit >= 0 && digit < question.answers.length)
      send({ replyTo: question.messageId, answerIndex: digit });
    else if (question && key === 'x') {
      messages.putAside(question.messageId);
      view.refresh();
    } else if (digit >= 0) {
      const id = CAPABILITIES[digit] as string;
      update({ capabilities: cycleGrant(settings.get(), id, clock.now()) });
      view.print(`${id}: ${grantText(settings.get(), id, clock.now())}`);
    } else actions[key]?.();
  }

  const textOf = createChunkReader();
  let pasting = false;
  const onData = (data: Buffer | string) => {
    let text = textOf(data);
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
