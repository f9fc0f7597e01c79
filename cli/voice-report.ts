import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { Command } from 'cac';
import { readConfig } from '../lib/config.ts';
import { describeError, RelayError } from '../lib/errors.ts';
import { createLogReport, type LogReport, totalOf, validatorFallbacks } from '../lib/voice/agent/report.ts';
import { createVoiceConfig } from '../lib/voice/config.ts';
import { createVoiceScopes } from '../lib/voice/scope.ts';
import { loadEnvironment } from './environment.ts';
import { asText, flag, type Options, option } from './options.ts';
import { aligned, type CommandContext, CommandError, columns, line, printable, printJson } from './output.ts';

const DAY = 24 * 60 * 60 * 1000;
const LOG = /^realtime-agent-\d{8}-\d{6}-\w+\.jsonl$/;

/** `svc relay voice-report`: what became of the results of the realtime agent, from its event logs (contract 06 §10). */
export function define(command: Command): void {
  command
    .option('--run-dir <folder>', 'the folder of the event logs (default as configured)')
    .option('--days <days>', 'only logs that were written to in these last days')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} voice-report`)
    .example((name) => `${name} voice-report --days 7 --json`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const given = option(options, '--run-dir', asText);
  const days = option(options, '--days', asDays);
  const folder = resolve(given ?? (await configuredFolder(context)));
  const logs = await readLogs(folder, days);
  const total = totalOf(logs);
  if (flag(options, '--json')) {
    printJson(context.stdout, { schema_version: 1, run_dir: folder, days: days ?? null, total, logs }, 2);
    return;
  }
  if (logs.length === 0) {
    line(context.stdout, `No conversations with the realtime agent are logged in ${printable(folder)}.`);
    return;
  }
  line(
    context.stdout,
    `${logs.length} ${logs.length === 1 ? 'conversation' : 'conversations'} in ${printable(folder)}`,
  );
  const { provider_spoken_rate: rate, validator_fallback: reasons } = total;
  const why = Object.entries(reasons).map(([reason, count]) => `${printable(reason)} ${count}`);
  const rows: [string, string][] = [
    ['background tasks', `${total.background_runs}, of which ${total.background_failed} failed`],
    ['spoken by the provider', `${total.early_commit} at once, ${total.end_validated} after a check of the whole`],
    ['read aloud by the relay', `${validatorFallbacks(total)}${why.length > 0 ? ` (${why.join(', ')})` : ''}`],
    ['  provider lost, or refused', `${total.provider_death_fallback}, ${total.other_fallback}`],
    ['shown as text', `${total.alarms} in vain, ${total.preempted} because the user spoke`],
    ['held for the phone', `${total.deferred}, of which ${total.pushed_to_phone} became messages`],
    ['spoken share', rate === null ? '-' : `${Math.round(rate * 100)} %`],
  ];
  for (const text of aligned(rows)) line(context.stdout, text);
  line(context.stdout);
  const table = logs.map((log) => [
    log.unix_ms === null ? '-' : new Date(log.unix_ms).toISOString().slice(0, 16),
    printable(log.provider ?? '-'),
    printable(log.model ?? '-'),
    `${log.background_runs} background`,
    log.provider_spoken_rate === null ? '-' : `${Math.round(log.provider_spoken_rate * 100)} % spoken`,
  ]);
  for (const text of columns(table)) line(context.stdout, text);
  if (total.malformed_lines > 0)
    line(context.stderr, `${total.malformed_lines} lines cannot be read, and were skipped.`);
}

/** Where a relay of this configuration writes. */
async function configuredFolder(context: CommandContext): Promise<string> {
  const { env, places } = loadEnvironment(context.env);
  const { config } = readConfig(env, places);
  const host = await context.createHost(places.agentHome);
  try {
    const scopes = createVoiceScopes(host, config);
    return (await createVoiceConfig({ host, config, scopes, log: { warn() {} } }).agent(null)).runDir;
  } finally {
    host.yaml.close();
  }
}

async function readLogs(folder: string, days: number | undefined): Promise<LogReport[]> {
  const names = await readdir(folder).catch((error) => {
    if (error.code === 'ENOENT') return [];
    throw new CommandError(`${printable(folder)} cannot be read: ${describeError(error)}`, 'Choose another --run-dir.');
  });
  const logs: LogReport[] = [];
  for (const name of names.filter((candidate) => LOG.test(candidate)).sort()) {
    const path = join(folder, name);
    const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Number.NEGATIVE_INFINITY }));
    if (days !== undefined && Date.now() - mtimeMs > days * DAY) continue;
    logs.push(await readLog(path, name));
  }
  return logs;
}

async function readLog(path: string, name: string): Promise<LogReport> {
  const report = createLogReport(name);
  try {
    for await (const text of createInterface({ input: createReadStream(path), crlfDelay: Number.POSITIVE_INFINITY })) {
      report.line(text);
    }
  } catch (error) {
    throw new CommandError(
      `${printable(path)} cannot be read: ${describeError(error)}`,
      'Run it as the user of the relay.',
    );
  }
  return report.end();
}

function asDays(text: string): number {
  const days = Number(text);
  if (/^\d{1,4}$/.test(text) && days >= 1) return days;
  throw new RelayError('invalid', 'must be a whole number of days from 1 on');
}
