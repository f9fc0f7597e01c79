import type { Command } from 'cac';
import { asObject, parseJson } from '../lib/kit/json.ts';
import { UNIT } from '../lib/operator/service/unit.ts';
import { openOperatorRelay, Unreachable } from './operator-relay.ts';
import { asChoice, asWhole, flag, type Options, option } from './options.ts';
import { type CommandContext, createStyle, printable, printJson, printWarning, quote } from './output.ts';
import { START } from './relay-client.ts';
import { followEvents } from './relay-events.ts';
import { RELAY_OPTION } from './remote-relay.ts';
import { onSignals } from './signals.ts';

const DEFAULT_LINES = 100;
const MAX_LINES = 500;
const LEVELS = ['debug', 'info', 'warning', 'error'] as const;

interface LogLine {
  /** Epoch seconds. */
  ts: number;
  level: string;
  name: string;
  text: string;
}

/** `svc logs [-f]`: the last lines of the running relay's log, and those that follow (contract 09 §4). */
export function define(command: Command): void {
  command
    .option('-f, --follow', 'go on with new lines until Ctrl-C, over restarts of the relay')
    .option('-n, --lines <n>', `how many of the last lines (default ${DEFAULT_LINES}, at most ${MAX_LINES})`)
    .option('--level <level>', 'only lines of this level or worse: debug, info, warning or error')
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document; with --follow one per line')
    .example((name) => `${name} logs`)
    .example((name) => `${name} logs -f --level warning`)
    .example((name) => `${name} logs -n 20 --json`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const limit = option(options, '--lines', asWhole(1, MAX_LINES)) ?? DEFAULT_LINES;
  const worst = LEVELS.indexOf(option(options, '--level', asChoice(...LEVELS)) ?? 'debug');
  const relay = await openOperatorRelay(options, context);
  const isShown = ({ level }: LogLine) => LEVELS.indexOf(level.toLowerCase() as (typeof LEVELS)[number]) >= worst;
  // Filtered before it is cut: the relay knows no levels.
  const last = async (count: number): Promise<LogLine[]> => {
    const answer = await relay
      .call({ method: 'GET', path: `/relay/log?limit=${worst > 0 ? MAX_LINES : count}` })
      .catch((error) => Promise.reject(withJournal(error)));
    return linesOf(answer.lines).filter(isShown).slice(-count);
  };
  const isJson = flag(options, '--json');
  if (isJson && !flag(options, '--follow')) return printJson(context.stdout, { lines: await last(limit) });
  const print = isJson ? (entry: LogLine) => printJson(context.stdout, entry) : textPrinter(context);
  if (!flag(options, '--follow')) {
    for (const entry of await last(limit)) print(entry);
    return;
  }

  const over = new AbortController();
  const release = onSignals(() => over.abort(), context);
  /** Time of the last printed line, and the lines of that millisecond: after a gap, the log is read again from there. */
  let printed = 0;
  const ofThen = new Set<string>();
  const put = (entry: LogLine) => {
    if (entry.ts > printed) ofThen.clear();
    printed = Math.max(printed, entry.ts);
    ofThen.add(keyOf(entry));
    print(entry);
  };
  /** The lines of the last reading: an event may tell of them once more. */
  let read = new Set<string>();
  /** Lines that arrive while the log is being read wait until it is. */
  let reading = Promise.resolve();
  const inTurn = (work: () => Promise<void> | void) => {
    reading = reading.then(work).catch((error) => {
      if (!(error instanceof Unreachable)) failed = error;
      if (failed !== undefined) over.abort();
    });
  };
  let failed: unknown;
  try {
    for (const entry of await last(limit)) put(entry);
    await followEvents({
      relay,
      signal: over.signal,
      onEvent(event, data) {
        if (event === 'reset') {
          inTurn(async () => {
            const lines = await last(MAX_LINES);
            read = new Set(lines.map(keyOf));
            for (const entry of lines) {
              if (entry.ts > printed || (entry.ts === printed && !ofThen.has(keyOf(entry)))) put(entry);
            }
          });
        }
        if (event !== 'log') return;
        const entry = lineOf(parseJson(data));
        inTurn(() => {
          if (isShown(entry) && !read.delete(keyOf(entry))) put(entry);
        });
      },
      onLost: (reason) => printWarning(context, `${reason}; trying again`),
    });
    await reading;
    if (failed !== undefined) throw failed;
  } finally {
    over.abort();
    release();
  }
}

const keyOf = ({ ts, name, text }: LogLine): string => `${ts} ${name} ${text}`;

const linesOf = (lines: unknown): LogLine[] => (Array.isArray(lines) ? lines.map(lineOf) : []);

function lineOf(value: unknown): LogLine {
  const { ts, level, name, text } = asObject(value) ?? {};
  const word = (part: unknown) => (typeof part === 'string' ? part : '');
  return { ts: typeof ts === 'number' ? ts : 0, level: word(level), name: word(name), text: word(text) };
}

/** The format of the relay's own output (contract 07 §5.1). */
function textPrinter({ stdout, env }: CommandContext): (entry: LogLine) => void {
  const { red, yellow, dim } = createStyle(stdout, env);
  const plain = (text: string) => text;
  const paints: Record<string, (text: string) => string> = { ERROR: red, WARNING: yellow, DEBUG: dim };
  return ({ ts, level, name, text }) => {
    const time = new Date(ts * 1000).toLocaleString('sv');
    const paint = paints[level] ?? plain;
    quote(stdout, `${time} [${paint(printable(level))}] ${printable(name)}: ${printable(text)}`);
  };
}

/** Without a relay there is no log to read from it, but the service keeps one. */
const withJournal = (error: unknown): unknown =>
  error instanceof Unreachable
    ? new Unreachable(error.message, `${START} The log of a service: journalctl --user -u ${UNIT}`)
    : error;
