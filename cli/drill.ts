import type { Command } from 'cac';
import { RelayError } from '../lib/errors.ts';
import type { OpenBrowser } from './drill/browser.ts';
import type { DrillRelay } from './drill/process.ts';
import type { DrillResult, Progress } from './drill/run.ts';
import { keepAlive } from './keep-alive.ts';
import { flag, type Options, option } from './options.ts';
import {
  type CommandContext,
  CommandError,
  columns,
  createStyle,
  line,
  printable,
  printJson,
  printWarning,
  sentence,
  visibleWidth,
} from './output.ts';
import { onSignals } from './signals.ts';

const MAX_MINUTES = 24 * 60;

/** `svc relay drill`: contract 09 §8, 11 §6. */
export function define(command: Command): void {
  command
    .option('--minutes <n>', 'how long to work, such as 10 or 0.5 (default 1)')
    .option('--edge', 'against the local Workers runtime instead of Node; in a checkout with its packages')
    .option('--web', 'with the app in a browser as well; needs playwright-core and a Chromium')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} drill                  # one minute, with a relay and a home of its own`)
    .example((name) => `${name} drill --minutes 10 --json`)
    .example((name) => `${name} drill --edge --web`)
    .action(drill);
}

function asMinutes(text: string): number {
  const minutes = Number(text);
  if (/^\d{1,4}(?:\.\d{1,3})?$/.test(text) && minutes >= 0.1 && minutes <= MAX_MINUTES) return minutes;
  throw new RelayError('invalid', `must be a number of minutes from 0.1 to ${MAX_MINUTES}`);
}

async function drill(options: Options, context: CommandContext): Promise<number> {
  const minutes = option(options, '--minutes', asMinutes) ?? 1;
  const runtime = flag(options, '--edge') ? 'edge' : 'node';
  const createRelay = await relayOf(runtime, context);
  const openBrowser = flag(options, '--web') ? await browserOf(context) : undefined;
  const { runDrill } = await import('./drill/run.ts');
  const stop = new AbortController();
  const progress = createProgress(context, minutes);
  const release = onSignals(() => stop.abort(), context);
  let result: DrillResult | undefined;
  try {
    const { signal } = stop;
    result = await keepAlive(
      runDrill({ duration: minutes * 60_000, createRelay, openBrowser, signal, onProgress: progress.show }),
    );
  } finally {
    progress.clear();
    release();
  }
  if (!result) {
    throw new CommandError(
      'the drill was stopped before its end, so it says nothing; its relay and its state are gone',
      'Run it again, with --minutes for a shorter one.',
    );
  }
  const failures = failuresOf(result);
  if (flag(options, '--json')) {
    const { tallies, notes, ...rest } = result;
    printJson(context.stdout, {
      ok: failures.length === 0,
      runtime,
      minutes,
      ...rest,
      kinds: tallies,
      failures,
      notes,
    });
  } else print(result, failures, { runtime, minutes }, context);
  return failures.length === 0 ? 0 : 1;
}

async function relayOf(
  runtime: 'node' | 'edge',
  { env, ownPackage }: CommandContext,
): Promise<(folder: string) => Promise<DrillRelay>> {
  if (runtime === 'edge') {
    const { openEdge } = await import('./drill/edge-relay.ts');
    return openEdge(ownPackage.directory);
  }
  const { createNodeRelay } = await import('./drill/node-relay.ts');
  return (folder) => createNodeRelay(folder, env.PATH ?? '');
}

async function browserOf({ env, ownPackage }: CommandContext): Promise<OpenBrowser> {
  const { openBrowser } = await import('./drill/browser.ts');
  return openBrowser(ownPackage.directory, env.PATH ?? '');
}

/** Why the drill has failed, in sentences; empty when it has not. */
function failuresOf({ tallies }: DrillResult): string[] {
  return tallies.flatMap(({ kind, acknowledged, lost, doubled }) => [
    ...(lost > 0 ? [`${kind}: ${lost} were acknowledged, and lost`] : []),
    ...(doubled > 0 ? [`${kind}: ${doubled} took effect twice`] : []),
    // A drill in which nothing worked proves nothing.
    ...(acknowledged === 0 ? [`${kind}: none was acknowledged, so nothing is known`] : []),
  ]);
}

function print(
  { kills, faults, tallies, notes }: DrillResult,
  failures: string[],
  { runtime, minutes }: { runtime: string; minutes: number },
  context: CommandContext,
): void {
  const { bold, green, red } = createStyle(context.stdout, context.env);
  const where = runtime === 'edge' ? 'in the local Workers runtime' : 'on Node';
  const count = Object.values(faults).reduce((sum, number) => sum + number, 0);
  const kinds = Object.entries(faults).map(([kind, number]) => `${kind} ${number}`);
  sentence(context.stdout, `${bold('Drill')}: ${minutes} min ${where}, ${kills} kills, ${count} faults of the network`);
  if (kinds.length > 0) sentence(context.stdout, `Faults: ${kinds.sort().join(', ')}`);
  const rows = tallies.map(({ kind, ...numbers }) => [
    kind === 'shell' ? 'shell lines' : kind.replace('_', ' '),
    ...[numbers.sent, numbers.acknowledged, numbers.repeated, numbers.lost, numbers.doubled].map(String),
  ]);
  for (const row of columns([['', 'sent', 'acknowledged', 'repeated', 'lost', 'done twice'], ...rows])) {
    line(context.stdout, row);
  }
  for (const note of notes) printWarning(context, printable(note));
  if (failures.length === 0) {
    sentence(context.stdout, green('Nothing acknowledged was lost, and nothing was done twice.'));
    return;
  }
  for (const failure of failures) sentence(context.stdout, red(failure));
  sentence(context.stdout, 'Next: report these lines, with the archive that svc bugreport writes.');
}

/** One line on a terminal, which is written over; nothing elsewhere. */
function createProgress({ stderr }: CommandContext, minutes: number) {
  const width = Math.max((stderr.columns ?? 80) - 1, 20);
  let shown = 0;
  const clock = (ms: number) => `${Math.floor(ms / 60_000)}:${String(Math.floor(ms / 1000) % 60).padStart(2, '0')}`;
  const write = (text: string) => {
    const row = text.slice(0, width);
    stderr.write(`\r${row.padEnd(shown)}${row === '' ? '\r' : ''}`);
    shown = visibleWidth(row);
  };
  return {
    show({ elapsed, kills, faults, tallies, isSettling }: Progress): void {
      if (!stderr.isTTY) return;
      const when = isSettling ? 'settling' : `${clock(elapsed)} of ${clock(minutes * 60_000)}`;
      const counts = tallies.map(({ kind, acknowledged }) => `${kind} ${acknowledged}`).join(', ');
      write(`${when}: ${kills} kills, ${faults} faults; ${counts}`);
    },
    clear(): void {
      if (stderr.isTTY && shown > 0) write('');
    },
  };
}
