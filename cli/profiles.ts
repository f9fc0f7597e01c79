import type { Command } from 'cac';
import { variables } from '../lib/config.ts';
import { describeError } from '../lib/errors.ts';
import type { Host } from '../lib/host/index.ts';
import { type Enabled, enableProfiles } from '../lib/operator/enable-profiles.ts';
import { type Enablement, readEnablement } from '../lib/operator/enablement.ts';
import { ACTIONS } from './actions.ts';
import { loadEnvironment, readVariable } from './environment.ts';
import { actionOf, flag, type Options } from './options.ts';
import {
  type CommandContext,
  CommandError,
  columns,
  createStyle,
  line,
  printable,
  printJson,
  type Style,
  sentence,
  UsageError,
} from './output.ts';

/** `svc relay profiles [list|enable]` (contract 07 §5.5). Does not affect pairing. */
export function define(command: Command): void {
  command
    .option('--all', 'with enable: every profile (the same as naming none)')
    .option('--dry-run', 'with enable: show what would change, and change nothing')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} profiles`)
    .example((name) => `${name} profiles enable work default`)
    .example((name) => `${name} profiles enable --all --dry-run`)
    .action(run);
}

async function run(word: string | undefined, names: string[], options: Options, context: CommandContext) {
  const action = actionOf(word, ...ACTIONS.profiles);
  const all = flag(options, '--all');
  const dryRun = flag(options, '--dry-run');
  const json = flag(options, '--json');
  if (action === 'list') {
    if (names.length > 0) throw new UsageError(`unexpected argument '${names[0]}'`);
    if (all || dryRun) throw new UsageError(`${all ? '--all' : '--dry-run'} is of use with enable only`);
  }
  const environment = loadEnvironment(context.env);
  const agentConfig = readVariable(variables.agentConfig, environment);
  const host = await context.createHost(environment.directories.agentHome);
  try {
    return action === 'list'
      ? list(await readEnablement(host, { agentConfig }), { agentConfig, json }, context)
      : await enable(host, { agentConfig, names: all ? [] : names, dryRun, json }, context);
  } catch (error) {
    if (!json) throw new CommandError(describeError(error), `See what there is with: ${context.program} profiles`);
    printJson(context.stdout, { ok: false, error: describeError(error) });
    return 1;
  }
}

interface Listing {
  agentConfig: string;
  json: boolean;
}

function list(rows: Enablement[], { agentConfig, json }: Listing, context: CommandContext): number {
  if (json) {
    printJson(context.stdout, { profiles: rows }, 2);
    return 0;
  }
  if (rows.length === 0) return none(agentConfig, context);
  const style = createStyle(context.stdout, context.env);
  const table = rows.map((row) => [printable(row.profile), coloured(row, style), printable(row.error ?? row.path)]);
  for (const text of columns([['PROFILE', 'STATE', 'CONFIG'].map(style.dim), ...table])) line(context.stdout, text);
  const off = rows.filter(({ state, error }) => state !== 'enabled' && error === undefined);
  if (off.length > 0)
    sentence(context.stdout, `Next: ${style.bold(`${context.program} profiles enable`)} enables all.`);
  if (rows.some(({ error }) => error !== undefined)) {
    sentence(context.stdout, 'Correct the configs with an error by hand; this command does not edit them.');
  }
  return 0;
}

const coloured = ({ state, error }: Enablement, { green, yellow, red, dim }: Style): string =>
  error === undefined ? { enabled: green, disabled: yellow, absent: dim }[state](state) : red('unclear');

async function enable(
  host: Host,
  { agentConfig, names, dryRun, json }: Listing & { names: string[]; dryRun: boolean },
  context: CommandContext,
): Promise<number> {
  const results = await enableProfiles(host, { agentConfig }, { names, dryRun });
  const failed = results.some(({ error }) => error !== undefined);
  if (json) {
    printJson(context.stdout, { action: 'enable', dry_run: dryRun, results }, 2);
    return failed ? 1 : 0;
  }
  if (results.length === 0) return none(agentConfig, context);
  const style = createStyle(context.stdout, context.env);
  const table = results.map((row) => [printable(row.profile), verdict(row, dryRun, style), printable(row.path)]);
  for (const text of columns(table)) line(context.stdout, text);
  const changed = results.filter((row) => row.changed).length;
  if (changed > 0 && !dryRun) {
    sentence(context.stdout, 'The previous version of each changed config is next to it as config.yaml.bak.');
    sentence(context.stdout, "Next: restart the agent's gateway, which reads its plugins when it starts.");
  }
  if (failed) sentence(context.stderr, 'Correct the configs named above by hand, then run this again.');
  return failed ? 1 : 0;
}

function verdict({ was, changed, error }: Enabled, dryRun: boolean, { green, red, dim }: Style): string {
  if (error !== undefined) return red(`left alone: ${printable(error)}`);
  if (!changed) return dim('already enabled');
  return green(`${dryRun ? 'would be enabled' : 'enabled'} (was ${was})`);
}

function none(agentConfig: string, context: CommandContext): number {
  sentence(context.stdout, `No agent configuration found: neither ${printable(agentConfig)} nor one in a profile.`);
  return 0;
}
