import { join, resolve } from 'node:path';
import type { Command } from 'cac';
import { variables } from '../lib/config.ts';
import { createFiles } from '../lib/host/node/files.ts';
import { DAY, MINUTE } from '../lib/kit/units.ts';
import { fallbacksIn, type Report, reportOf, type SessionReport, totalOf } from '../lib/voice/agent/report.ts';
import { loadEnvironment, readVariable } from './environment.ts';
import { asText, flag, type Options, option } from './options.ts';
import {
  aligned,
  type CommandContext,
  CommandError,
  columns,
  line,
  printable,
  printJson,
  UsageError,
} from './output.ts';

const LOG = /^realtime-agent-(\d{8}-\d{6})-[A-Za-z0-9]+\.jsonl$/;
const MAX_LOG = 32 * 1024 * 1024;

interface NamedReport extends SessionReport {
  log: string;
}

/** `svc relay voice-report` (contract 06 §10): deliveries and costs of conversations, from their event logs. */
export function define(command: Command): void {
  command
    .option('--run-dir <path>', "folder of the event logs (default: that of the relay's variables)")
    .option('--days <n>', 'only conversations of the last so many days')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} voice-report`)
    .example((name) => `${name} voice-report --days 7 --json`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const days = option(options, '--days', asDays);
  const directory = option(options, '--run-dir', asText) ?? usualDirectory(context);
  const reports = await readReports(resolve(directory), days);
  const total = totalOf(reports);
  if (flag(options, '--json')) return printJson(context.stdout, { run_dir: directory, logs: reports, total }, 2);
  if (reports.length === 0) return line(context.stdout, `No conversations in ${printable(directory)}.`);
  const rows = reports.map(({ log, model, duration_ms, usage, ...report }) => [
    log.replace(LOG, '$1'),
    printable(model) || '-',
    minutes(duration_ms),
    tokens(usage.input_audio_tokens + usage.output_audio_tokens),
    tokens(usage.input_tokens + usage.output_tokens),
    String(report.background_runs),
  ]);
  for (const row of columns([['STARTED', 'MODEL', 'LENGTH', 'AUDIO TOKENS', 'ALL TOKENS', 'RUNS'], ...rows], ''))
    line(context.stdout, row);
  line(context.stdout);
  for (const row of aligned(facts(reports, total))) line(context.stdout, row);
}

function facts(reports: readonly NamedReport[], total: Report): [string, string][] {
  const { deliveries, usage, provider_spoken_rate: rate } = total;
  const length = reports.reduce((sum, { duration_ms }) => sum + duration_ms, 0);
  const spoken = deliveries.early_commit + deliveries.validated;
  const reasons = Object.entries(deliveries.fallback).map(([reason, times]) => `${printable(reason)} ${times}`);
  const share = rate === null ? '' : ` (${Math.round(rate * 100)} %)`;
  return [
    ['Conversations', `${reports.length}, ${minutes(length)}`],
    ['Audio tokens', `${tokens(usage.input_audio_tokens)} in, ${tokens(usage.output_audio_tokens)} out`],
    [
      'All tokens',
      `${tokens(usage.input_tokens)} in (${tokens(usage.cached_tokens)} cached), ${tokens(usage.output_tokens)} out`,
    ],
    ['Background runs', String(total.background_runs)],
    ['Spoken results', `${spoken}${share}`],
    ['Read aloud', `${fallbacksIn(total)}${reasons.length > 0 ? `: ${reasons.join(', ')}` : ''}`],
    ['Interrupted', `${total.preempted} preempted, ${total.alarms} unconfirmed, ${total.deferred} deferred`],
    ['Reconnected', String(total.reconnected)],
  ];
}

/** The folder that a relay with these variables uses, unless its file sets another. */
function usualDirectory(context: CommandContext): string {
  const environment = loadEnvironment(context.env);
  const relayHome = readVariable(variables.relayHome, environment);
  const chosen = readVariable(variables.realtimeVoiceRunDir, environment);
  return chosen === join(relayHome, 'realtime-voice-runs') ? join(relayHome, 'realtime-agent-runs') : chosen;
}

/** Oldest first; empty for a missing folder. */
async function readReports(directory: string, days: number | undefined): Promise<NamedReport[]> {
  const files = createFiles();
  const oldest = days === undefined ? Number.NEGATIVE_INFINITY : Date.now() - days * DAY;
  const reports: NamedReport[] = [];
  try {
    const names = ((await files.list(directory)) ?? []).map(({ name }) => name).filter((name) => LOG.test(name));
    for (const log of names.sort()) {
      const path = join(directory, log);
      const modified = (await files.stat(path))?.modified ?? Number.NEGATIVE_INFINITY;
      if (modified < oldest) continue;
      const text = await files.readText(path, MAX_LOG);
      if (text !== null) reports.push({ log, ...reportOf(text.split('\n')) });
    }
  } catch (error) {
    throw new CommandError(`the event logs cannot be read: ${printable(String((error as Error).message))}`);
  }
  return reports;
}

function asDays(text: string): number {
  const days = Number(text);
  if (/^\d{1,4}$/.test(text) && days >= 1) return days;
  throw new UsageError('must be a number of days, 1 to 9999');
}

const minutes = (ms: number): string => `${Math.max(1, Math.round(ms / MINUTE))} min`;
const tokens = (count: number): string => (count >= 10_000 ? `${Math.round(count / 1000)}k` : String(count));
