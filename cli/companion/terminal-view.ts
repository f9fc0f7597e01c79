import { authority, isSecure } from '../../lib/companion/link/endpoints.ts';
import type { LinkState } from '../../lib/companion/link/state.ts';
import type { ReceivedMessage, Surface } from '../../lib/companion/messages.ts';
import type { SafetySettings } from '../../lib/companion/safety-settings.ts';
import type { Clock } from '../../lib/kit/clock.ts';
import { type CommandContext, clean, createStyle, printable, type Style } from '../output.ts';
import { CAPABILITIES, liveGrants } from './grants.ts';
import type { OpenQuestion, QuestionOutcome } from './questions.ts';
import type { CommandRow, View } from './view.ts';

const ERASE_LINE = '\r\u001b[2K';
/** How much of the end of a long reply stays visible. */
const PROMPT_TAIL = 70;

export interface TerminalViewParts {
  context: CommandContext;
  clock: Clock;
  /** Whether to draw a status line at the bottom, on a terminal that reads keys. */
  live: boolean;
  /** Open questions, oldest first. */
  open(): readonly OpenQuestion[];
  settings(): SafetySettings;
  /** The reply being written; null if there is none. */
  prompt?(): string | null;
}

export interface TerminalView extends View {
  print(...lines: string[]): void;
  /** Writes an escape sequence to the terminal. */
  control(sequence: string): void;
  /** Redraws the status line. */
  refresh(): void;
}

/** The view for people: events as scrolling lines, and on a terminal a status line below them. */
export function createTerminalView(parts: TerminalViewParts): TerminalView {
  const { context, clock, live, open, settings, prompt } = parts;
  const { stdout } = context;
  const style = createStyle(stdout, context.env);
  let state = 'starting';
  let stateName = state;
  let closed = false;
  /** Link states printed since it was last online, so that a relay that is down is not reported every half minute. */
  const printed = new Set<string>();

  const put = (text: string) => {
    stdout.write(`${live ? ERASE_LINE : ''}${clean(text)}\n`);
    draw();
  };
  const stamped = (text: string) => put(`${style.dim(timeOfDay(clock.now()))}  ${text}`);

  /** Forms of the status line, longest first. */
  function statusLine(): string[] {
    const [question] = open();
    if (question) {
      const left = Math.max(0, Math.ceil((question.deadline - clock.monotonic()) / 1000));
      const more = open().length > 1 ? `  (${open().length - 1} more)` : '';
      const keys = `y allow  n deny  a always  ${left} s`;
      return [`? ${printable(question.title)}  ${keys}${more}`, `? ${keys}${more}`, `? ${keys}`];
    }
    const reply = prompt?.() ?? null;
    // Show the end of a long reply, where it is being written.
    if (reply !== null) return [reply, `…${reply.slice(-PROMPT_TAIL)}`];
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

  /** Draws the status line, cut to the width of the terminal, because a wrapped line could not be erased. */
  function draw(): void {
    if (!live || closed) return;
    const room = Math.max(10, (stdout.columns || 80) - 1);
    const forms = statusLine();
    const text = (forms.find((form) => form.length <= room) ?? forms.at(-1) ?? '').slice(0, room);
    stdout.write(`${ERASE_LINE}${open().length > 0 ? style.bold(text) : style.dim(text)}`);
  }

  // Counts down questions and leases.
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
      // The time of the next attempt is not news.
      const news = next.name === 'waiting' ? `${next.name} ${next.reason}` : state;
      if (next.name === 'online') printed.clear();
      if (printed.has(news)) return draw();
      printed.add(news);
      stamped(next.name === 'online' ? style.green(state) : state);
    },
    command: (row) => stamped(commandText(row, style)),
    asked(question) {
      const detail = question.detail === '' ? '' : `: ${printable(question.detail)}`;
      stamped(style.bold(`? ${printable(question.title)}${detail}`));
    },
    answered: (question, outcome) => stamped(`  ${printable(question.title)}: ${OUTCOMES[outcome]}`),
    message: (message, surface) => stamped(messageText(message, surface, style)),
    backlog: (count) =>
      stamped(style.dim(`${count === 1 ? '1 queued message' : `${count} queued messages`} received.`)),
    replied: ({ text }) => stamped(style.dim(`The relay received your reply: ${printable(text).slice(0, 60)}`)),
    subscribed: (isSubscribed) => stamped(`Messages are ${isSubscribed ? 'now' : 'no longer'} delivered here.`),
    settings: () => draw(),
    refresh: draw,
    notice: (text) => stamped(style.yellow(`! ${printable(text)}`)),
    close() {
      if (closed) return;
      cancelTick();
      if (live) stdout.write(ERASE_LINE);
      closed = true;
    },
  };
}

const twoDigits = (value: number) => String(value).padStart(2, '0');

/** `14:03:59`, local time. */
function timeOfDay(epoch: number): string {
  const date = new Date(epoch);
  return `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}:${twoDigits(date.getSeconds())}`;
}

/** The state of the link in one short line. */
function stateText(state: LinkState): string {
  switch (state.name) {
    case 'unpaired':
      return `not paired${state.reason === undefined ? '' : `: the relay says "${printable(state.reason)}"`}`;
    case 'connecting':
      return `connecting to ${authority(state.endpoint.url)} (${printable(state.endpoint.role)})`;
    case 'authenticating':
      return `connected to ${authority(state.endpoint.url)}, authenticating`;
    case 'online': {
      const security = isSecure(state.endpoint.url) ? 'TLS' : 'no TLS';
      return `online: ${authority(state.endpoint.url)} (${printable(state.endpoint.role)}, ${security})`;
    }
    case 'waiting': {
      const time =
        state.wait >= 60_000 ? `${Math.round(state.wait / 60_000)} min` : `${Math.ceil(state.wait / 1000)} s`;
      return `offline: ${printable(state.reason)}; retrying in ${time}`;
    }
    case 'stopped':
      return 'stopped';
  }
}

/** `POST /tap_text           403  user-denied   12 ms  tap_text "Buy"`. */
function commandText({ method, path, decision, status, durationMs, summary }: CommandRow, style: Style): string {
  const call = `${printable(method).slice(0, 8).padEnd(4)} ${printable(path).slice(0, 40).padEnd(20)}`;
  const paint = status < 400 ? style.green : status === 403 || status === 423 ? style.yellow : style.red;
  const outcome = paint(`${status}  ${printable(decision).padEnd(10)}`);
  return `${call} ${outcome} ${`${Math.round(durationMs)} ms`.padStart(8)}  ${style.dim(printable(summary))}`.trimEnd();
}

const OUTCOMES: Record<QuestionOutcome, string> = {
  allowed: 'allowed',
  denied: 'denied',
  timeout: 'denied: no answer in time',
  gone: 'dropped: the connection was lost, so the command has failed',
  nobody: 'denied: no terminal to ask on (--approve always allows without asking; with --json, a script can answer)',
};

/** `Message from Kitchen: Dinner is ready`; dimmed if it only goes to the inbox. */
function messageText(message: ReceivedMessage, surface: Surface, style: Style): string {
  const from = message.title ? ` from ${printable(message.title)}` : '';
  const queued = message.queued ? ' (queued)' : '';
  const text = `Message${from}${queued}: ${printable(message.text)}`;
  return surface === 'silent' ? style.dim(text) : style.bold(text);
}
