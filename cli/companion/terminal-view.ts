import { authority, type Endpoint, isSecure, routeName } from '../../lib/companion/link/endpoints.ts';
import type { LinkState } from '../../lib/companion/link/state.ts';
import type { ReceivedMessage, Surface } from '../../lib/companion/messages.ts';
import type { SafetySettings } from '../../lib/companion/safety-settings.ts';
import { areActive } from '../../lib/companion/triggers.ts';
import type { Question } from '../../lib/companion/types.ts';
import type { Clock } from '../../lib/kit/clock.ts';
import type { FreezeState } from '../../lib/operations/freeze-state.ts';
import { freezeText } from '../freeze-text.ts';
import {
  type CommandContext,
  clean,
  createStyle,
  hangingIndent,
  printable,
  type Style,
  visibleWidth,
  type Writer,
} from '../output.ts';
import { CAPABILITIES, liveGrants } from './grants.ts';
import type { CommandRow } from './phone.ts';
import type { OpenQuestion, QuestionOutcome } from './questions.ts';
import { routeText } from './routes.ts';
import { triggerText } from './trigger-lines.ts';
import type { View } from './view.ts';

/** True if the terminal continues long lines in the next row. */
const NO_WRAP = '\u001b[?7l';
const WRAP = '\u001b[?7h';
/** Below this many columns, commands are shown without the columns of a table. */
const NARROW = 72;

export interface TerminalViewDeps {
  context: CommandContext;
  clock: Clock;
  /** Draws a status line at the bottom, on a terminal that reads keys. */
  live: boolean;
  /** Open questions, oldest first. */
  open(): readonly OpenQuestion[];
  settings(): SafetySettings;
  /** The reply being written, or null. */
  prompt?(): string | null;
  /** The agent's open question, whose answers the number keys choose. */
  question?(): ReceivedMessage | undefined;
}

export interface TerminalView extends View {
  print(...lines: string[]): void;
  /** Writes an escape sequence to the terminal. */
  control(sequence: string): void;
  /** Redraws the status line. */
  refresh(): void;
}

/** The view for people: events as scrolling lines, and on a terminal a status line below them. */
export function createTerminalView(deps: TerminalViewDeps): TerminalView {
  const { context, clock, live, open, settings, prompt, question: agentQuestion } = deps;
  const { stdout } = context;
  const style = createStyle(stdout, context.env);
  let link: LinkState | null = null;
  /** When the link tries again, monotonic ms. */
  let retryAt = 0;
  let closed = false;
  let frozen: FreezeState | null = null;
  /** Link states printed since it was last online, so that a relay that is down is not reported every half minute. */
  const printed = new Set<string>();

  /** Lengths of the lines at the bottom above the one with the cursor. */
  let above: number[] = [];
  /** Erases the lines at the bottom, however many rows the terminal has made of them since. */
  const erase = (): string => {
    const up = above.reduce((sum, length) => sum + Math.max(1, Math.ceil(length / (stdout.columns || 80))), 0);
    above = [];
    return `\r${up > 0 ? `\u001b[${up}A` : ''}\u001b[J`;
  };
  const put = (...texts: string[]) => {
    const rows = texts.flatMap((text) => wrapped(clean(text), stdout));
    stdout.write(`${live ? erase() : ''}${rows.join('\n')}\n`);
    draw();
  };
  const stamped = (text: string, ...more: string[]) => put(`${style.dim(timeOfDay(clock.now()))}  ${text}`, ...more);
  const room = () => Math.max(10, (stdout.columns || 80) - 1);
  const isNarrow = () => live && room() < NARROW;

  /** Forms of the line that waits for a key, longest first; none while nothing is asked and no reply is written. */
  function promptLine(): string[] {
    const [question] = open();
    if (question) {
      const left = Math.max(0, Math.ceil((question.deadline - clock.monotonic()) / 1000));
      const more = open().length > 1 ? `  (${open().length - 1} more)` : '';
      const isRule = question.subject !== undefined && 'rule' in question.subject;
      const keys = `y allow  n deny${isRule ? '' : '  a always'}  ${left} s`;
      const subject = question.subject ? `  ${printable(question.subject.app).replace(/ \(.*/, '')}: ` : '  ';
      const title = printable(question.title);
      return [
        `? ${title}${subject}${printable(question.detail)}  ${keys}${more}`,
        `? ${title}  ${keys}${more}`,
        `? ${keys}`,
      ];
    }
    const reply = prompt?.() ?? null;
    // Show the end of a long reply, where it is being written.
    if (reply !== null) return [reply, `…${reply.slice(1 - room())}`];
    const asked = agentQuestion?.();
    if (!asked) return [];
    const keys = `${answerKeys(asked)}  x later`;
    return [`? ${printable(asked.text)}  ${keys}`, `? ${keys}`];
  }

  /** Forms of the status line, longest first. Each names the route. */
  function statusLine(): string[] {
    const { masterEnabled, messagesEnabled, triggers } = settings();
    const count = `${liveGrants(settings(), clock.now())}/${CAPABILITIES.length}`;
    const master = `master ${masterEnabled ? 'ON' : 'off'}`;
    const messages = messagesEnabled ? ' | messages ON' : '';
    const asking = areActive(triggers) ? ' | triggers ON' : '';
    const safety = `${master} | grants ${count}${messages}${asking}`;
    const left = Math.max(0, retryAt - clock.monotonic());
    const state = link ? stateText(link, left) : 'starting';
    const shortState = link ? shortStateText(link, left) : state;
    return [
      `${state} | ${safety} | m master  g grants  v screen  ? help  q quit`,
      `${state} | ${safety} | ? help  q quit`,
      `${shortState} | ${safety} | m master  g grants  ? help  q quit`,
      `${shortState} | ${safety} | ? help  q quit`,
      `${shortState} | ${safety}`,
      `${shortState} | ${master} | ${count}`,
    ];
  }

  /** Forms of the line above all others while the relay is frozen. */
  function freezeLine(): string[] {
    if (!frozen) return [];
    const text = freezeText(frozen, clock.now() / 1000);
    return [`${text} | f ends it`, `${text.slice(0, Math.max(6, room() - 12))} | f ends it`];
  }

  const fitting = (forms: string[]): string =>
    (forms.find((form) => form.length <= room()) ?? forms.at(-1) ?? '').slice(0, room());

  /**
   * Draws the lines at the bottom, cut to the width. The cursor then stands on the first character of the last one, where
   * it still is after the terminal has wrapped that line for another width.
   */
  function draw(): void {
    if (!live || closed) return;
    const asks = promptLine();
    const paint = open().length > 0 || agentQuestion?.() ? style.bold : (text: string) => text;
    const prompts = asks.length > 0 ? [fitting(asks)] : [];
    const banner = frozen ? [fitting(freezeLine())] : [];
    const rows = [...banner.map(style.red), ...prompts.map(paint), style.dim(fitting(statusLine()))];
    stdout.write(`${erase()}${NO_WRAP}${rows.join('\r\n')}${WRAP}\r`);
    above = [...banner, ...prompts].map((text) => text.length);
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
      put(...lines);
    },
    control: (sequence) => void stdout.write(sequence),
    state(next) {
      link = next;
      if (next.name === 'waiting') retryAt = clock.monotonic() + next.wait;
      const state = stateText(next);
      // A change in the time of the next attempt is not printed.
      const news = next.name === 'waiting' ? `${next.name} ${next.reason}` : state;
      if (next.name === 'online') printed.clear();
      if (printed.has(news)) return draw();
      printed.add(news);
      stamped(next.name === 'online' ? style.green(state) : state);
    },
    command: (row) => stamped(commandText(row, style, isNarrow())),
    asked(question) {
      const rows = questionRows(question).map(([label, value]) => `  ${label.padEnd(8)} ${value}`);
      stamped(style.bold(`? ${printable(question.title)}`), ...rows);
    },
    answered: (question, outcome) => stamped(`  ${printable(question.title)}: ${outcomeText(question, outcome)}`),
    message(message, surface) {
      stamped(messageText(message, surface, style));
      // Output to a file or another program does not count as seen.
      return live && !closed;
    },
    backlog: (count) =>
      stamped(style.dim(`${count === 1 ? '1 queued message' : `${count} queued messages`} received.`)),
    replied: ({ text }, lateReason) =>
      lateReason === null
        ? stamped(style.dim(`The relay received your reply: ${printable(text).slice(0, 60)}`))
        : stamped(
            style.yellow(
              `! ${printable(text).slice(0, 60)}: too late. ${LATE_REASONS[lateReason] ?? 'It does not count.'}`,
            ),
          ),
    closed: ({ text }, reason) =>
      stamped(style.dim(`${reason === 'expired' ? 'Expired' : 'Withdrawn'}: ${printable(text).slice(0, 60)}`)),
    triggered: (row) => stamped(triggerText(row)),
    subscribed: (isSubscribed) => stamped(`Messages are ${isSubscribed ? 'now' : 'no longer'} delivered here.`),
    frozen(freeze) {
      frozen = freeze;
      const now = clock.now() / 1000;
      stamped(freeze ? style.red(`${freezeText(freeze, now)}.`) : 'The relay is no longer frozen.');
    },
    settings: () => draw(),
    refresh: draw,
    notice: (text) => stamped(style.yellow(`! ${printable(text)}`)),
    close() {
      if (closed) return;
      cancelTick();
      if (live) stdout.write(erase());
      closed = true;
    },
  };
}

/** A text in lines that end between words; the lines after the first are indented. Without a terminal, one line. */
function wrapped(text: string, { isTTY, columns }: Writer): string[] {
  if (!isTTY || !columns || visibleWidth(text) < columns) return [text];
  const indent = columns <= NARROW ? 4 : 11;
  const [first = '', ...rest] = hangingIndent(text, { indent: 0, columns: columns - 1 - indent });
  return [first, ...rest.map((row) => ' '.repeat(indent) + row.trimStart())];
}

/** The content of a question, the app and the command that it is about, and its effect. */
function questionRows({ detail, subject, verb }: OpenQuestion): [label: string, value: string][] {
  const what: [string, string][] = detail === '' ? [] : [['What', printable(detail)]];
  if (!subject) return what;
  const isRule = 'rule' in subject;
  const always = isRule ? '' : `; "always" stops asking about ${printable(verb)}`;
  return [
    ...what,
    ['App', printable(subject.app)],
    isRule ? ['Rule', printable(subject.rule)] : ['Command', printable(subject.command)],
    ['Allowed', `it ${printable(subject.effect)}${always}`],
  ];
}

const twoDigits = (value: number) => String(value).padStart(2, '0');

/** `14:03:59`, local time. */
function timeOfDay(epoch: number): string {
  const date = new Date(epoch);
  return `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}:${twoDigits(date.getSeconds())}`;
}

/** The state of the link in one short line. `left` counts down to the next attempt, ms, where a key cuts it short. */
function stateText(state: LinkState, left?: number): string {
  switch (state.name) {
    case 'unpaired':
      return `not paired${state.reason === undefined ? '' : `: the relay says "${printable(state.reason)}"`}`;
    case 'connecting':
      return `connecting to ${authority(state.endpoint.url)} (${routeWords(state.endpoint)})`;
    case 'authenticating':
      return `connected to ${authority(state.endpoint.url)}, authenticating`;
    case 'online': {
      const { url, pinned } = state.endpoint;
      const security = pinned ? 'pinned TLS' : isSecure(url) ? 'TLS' : 'no TLS';
      return `online: ${authority(url)} (${routeWords(state.endpoint)}, ${security})`;
    }
    case 'waiting':
      return `offline: ${printable(state.reason)}; retrying in ${waitText(left ?? state.wait)}${left === undefined ? '' : ', r now'}`;
    case 'stopped':
      return 'stopped';
  }
}

const waitText = (wait: number): string =>
  wait >= 60_000 ? `${Math.round(wait / 60_000)} min` : `${Math.ceil(wait / 1000)} s`;

/** `lan`, `Secure Link`, `offline, 12 s`. */
const shortStateText = (state: LinkState, left: number): string =>
  state.name === 'online'
    ? printable(routeName(state.endpoint))
    : state.name === 'waiting'
      ? `offline, r retries (${waitText(left)})`
      : state.name;

const routeWords = (endpoint: Endpoint): string =>
  endpoint.broker ? routeText(endpoint) : printable(routeName(endpoint));

/** `POST /tap_text           403  user-denied   12 ms  tap_text "Buy"`. */
function commandText(row: CommandRow, style: Style, isNarrow: boolean): string {
  const { method, path, decision, status, durationMs, summary } = row;
  const call = `${printable(method).slice(0, 8).padEnd(4)} ${printable(path).slice(0, 40).padEnd(20)}`;
  const paint = status < 400 ? style.green : status === 403 || status === 423 ? style.yellow : style.red;
  if (isNarrow) {
    const short = `${printable(method).slice(0, 8)} ${printable(path).slice(0, 40)}`;
    return `${short} ${paint(`${status} ${printable(decision)}`)} ${style.dim(printable(summary))}`.trimEnd();
  }
  const outcome = paint(`${status}  ${printable(decision).padEnd(10)}`);
  return `${call} ${outcome} ${`${Math.round(durationMs)} ms`.padStart(8)}  ${style.dim(printable(summary))}`.trimEnd();
}

const OUTCOMES: Record<QuestionOutcome, string> = {
  allowed: 'allowed',
  denied: 'denied',
  timeout: 'denied: no answer in time',
  gone: 'dropped: the connection was lost, so the command has failed',
  frozen: 'dropped: the relay is frozen, so the command has failed',
  nobody: 'denied: no terminal to ask on (--approve always allows without asking; with --json, a script can answer)',
};

const outcomeText = ({ subject }: Question, outcome: QuestionOutcome): string =>
  outcome === 'gone' && subject && 'rule' in subject ? 'dropped: the trigger was stopped' : OUTCOMES[outcome];

/** Why an answer no longer counts. */
const LATE_REASONS: Readonly<Record<string, string>> = {
  answered: 'Another answer came first.',
  withdrawn: 'The question was withdrawn.',
  expired: 'The question has expired.',
};

/** `1 yes  2 no`. */
const answerKeys = ({ answers }: ReceivedMessage): string =>
  answers.map((answer, at) => `${at + 1} ${printable(answer)}`).join('  ');

/** `Message from Kitchen: Dinner is ready`; dimmed if it only goes to the inbox. */
function messageText(message: ReceivedMessage, surface: Surface, style: Style): string {
  const from = message.title ? ` from ${printable(message.title)}` : '';
  const queued = message.queued ? ' (queued)' : '';
  const answers = message.answers.length > 0 ? `  [${answerKeys(message)}]` : '';
  const unsealed = message.unsealed ? ' (not sealed: the edge may have written it)' : '';
  const text = `Message${from}${queued}${unsealed}: ${printable(message.text)}${answers}`;
  return surface === 'silent' ? style.dim(text) : style.bold(text);
}
