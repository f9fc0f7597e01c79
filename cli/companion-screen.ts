import type { SafetySettings } from '../lib/companion/safety-settings.ts';
import type { Clock } from '../lib/kit/clock.ts';
import type { OpenQuestion } from './companion-ask.ts';
import { CAPABILITIES, liveGrants } from './companion-grants.ts';
import { ANSWERS, commandText, stateText, timeOfDay } from './companion-lines.ts';
import { messageText } from './companion-messages.ts';
import type { View } from './companion-view.ts';
import { type CommandContext, createStyle, printable } from './output.ts';

const ERASE = '\r\u001b[2K';
const SHOWN_PROMPT = 70;

export interface ScreenParts {
  context: CommandContext;
  clock: Clock;
  /** A terminal that takes keys gets a line that stays at the bottom. */
  live: boolean;
  /** The questions that wait, the oldest first. */
  open(): readonly OpenQuestion[];
  settings(): SafetySettings;
  /** What somebody is writing; null when nobody is. */
  prompt?(): string | null;
}

export interface Screen extends View {
  /** Lines for people, in the order they happened. */
  print(...lines: string[]): void;
  /** A sequence for the terminal itself. */
  control(sequence: string): void;
  /** Draws the line at the bottom anew. */
  refresh(): void;
}

/** The view for people: what happens as lines that scroll, and on a terminal one line below them that says how things are. */
export function createScreen({ context, clock, live, open, settings, prompt }: ScreenParts): Screen {
  const { stdout } = context;
  const style = createStyle(stdout, context.env);
  let state = 'starting';
  let stateName = state;
  let closed = false;
  /** What was said of the link since it was last online: a relay that is down is not news every half minute. */
  const said = new Set<string>();

  const put = (text: string) => {
    stdout.write(live ? `${ERASE}${text}\n` : `${text}\n`);
    draw();
  };
  const stamped = (text: string) => put(`${style.dim(timeOfDay(clock.now()))}  ${text}`);

  /** What the bottom line says, the longest form first. */
  function bottom(): string[] {
    const [question] = open();
    if (question) {
      const left = Math.max(0, Math.ceil((question.deadline - clock.monotonic()) / 1000));
      const more = open().length > 1 ? `  (${open().length - 1} more)` : '';
      const keys = `y allow  n deny  a always  ${left} s`;
      return [`? ${printable(question.title)}  ${keys}${more}`, `? ${keys}${more}`, `? ${keys}`];
    }
    const written = prompt?.() ?? null;
    // Of a line that is too long, the end is what is being written.
    if (written !== null) return [written, `…${written.slice(-SHOWN_PROMPT)}`];
    const { masterEnabled, messagesEnabled } = settings();
    const grants = `grants ${liveGrants(settings(), clock.now())}/${CAPABILITIES.length}`;
    const messages = messagesEnabled ? ' | messages ON' : '';
    const safety = `master ${masterEnabled ? 'ON' : 'off'} | ${grants}${messages}`;
    return [
      `${state} | ${safety} | m master  g grants  ? help  q quit`,
      `${state} | ${safety} | ? help  q quit`,
      `${stateName} | ${safety} | m master  g grants  ? help  q quit`,
      `${stateName} | ${safety} | ? help  q quit`,
      `${stateName} | ${safety}`,
    ];
  }

  /** Draws the bottom line, cut to the terminal: one that wraps could not be erased. */
  function draw(): void {
    if (!live || closed) return;
    const room = Math.max(10, (stdout.columns || 80) - 1);
    const forms = bottom();
    const text = (forms.find((form) => form.length <= room) ?? forms.at(-1) ?? '').slice(0, room);
    stdout.write(`${ERASE}${open().length > 0 ? style.bold(text) : style.dim(text)}`);
  }

  // The countdown of a question, and of the leases.
  let cancelTick = () => {};
  const tick = () => {
    draw();
    cancelTick = clock.after(1000, tick);
  };
  if (live) tick();

  return {
    print(...lines) {
      for (const text of lines) put(text);
    },
    control: (sequence) => void stdout.write(sequence),
    state(next) {
      state = stateText(next);
      stateName = next.name === 'waiting' ? 'offline' : next.name;
      const news = next.name === 'waiting' ? `${next.name} ${next.reason}` : state;
      if (next.name === 'online') said.clear();
      if (said.has(news)) return draw();
      said.add(news);
      stamped(next.name === 'online' ? style.green(state) : state);
    },
    command: (row) => stamped(commandText(row, style)),
    asked(question) {
      const detail = question.detail === '' ? '' : `: ${printable(question.detail)}`;
      stamped(style.bold(`? ${printable(question.title)}${detail}`));
    },
    answered: (question, answer) => stamped(`  ${printable(question.title)}: ${ANSWERS[answer]}`),
    message: (message, surface) => stamped(messageText(message, surface, style)),
    backlog: (count) => stamped(style.dim(`${count === 1 ? 'One message' : `${count} messages`} had waited.`)),
    replied: ({ text }) => stamped(style.dim(`The relay has your reply: ${printable(text).slice(0, 60)}`)),
    subscribed: (isSubscribed) => stamped(isSubscribed ? 'Messages come here now.' : 'No messages come here now.'),
    settings: () => draw(),
    refresh: draw,
    notice: (text) => stamped(style.yellow(`! ${printable(text)}`)),
    close() {
      if (closed) return;
      cancelTick();
      if (live) stdout.write(ERASE);
      closed = true;
    },
  };
}
