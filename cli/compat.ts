import { resolve } from 'node:path';
import type { Command } from 'cac';
import { agentRoot, variables } from '../lib/config.ts';
import { describeError, RelayError } from '../lib/errors.ts';
import {
  type CompatDeps,
  type CompatInstalled,
  type CompatRemoved,
  type CompatStatus,
  compatStatus,
  installHook,
  removeHook,
} from '../lib/operator/compat.ts';
import { ACTIONS } from './actions.ts';
import { type Environment, loadEnvironment, readVariable } from './environment.ts';
import { actionOf, asText, flag, type Options, option } from './options.ts';
import {
  aligned,
  type CommandContext,
  CommandError,
  columns,
  createStyle,
  line,
  printable,
  printJson,
  sentence,
  UsageError,
  withNextStep,
} from './output.ts';

/** `svc relay compat [status|install|remove]` (contract 07 §5.4). */
export function define(command: Command): void {
  command
    .option('--hook-dir <directory>', 'directory of the hook (default <agent home>/startup.d)')
    .option('--all', 'with remove: from every known hook directory')
    .option('--dry-run', 'with install and remove: show what would change, and change nothing')
    .option('--force', 'with install and remove: include files that this command did not write')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} compat                     # status`)
    .example((name) => `${name} compat install --dry-run`)
    .example((name) => `${name} compat remove --all`)
    .action(run);
}

async function run(word: string | undefined, options: Options, context: CommandContext): Promise<number> {
  const action = actionOf(word, ...ACTIONS.compat);
  const json = flag(options, '--json');
  const all = flag(options, '--all');
  const change = { dryRun: flag(options, '--dry-run'), force: flag(options, '--force') };
  const hookDirectory = option(options, '--hook-dir', asText);
  if (all && action !== 'remove') throw new UsageError('--all is of use with remove only');
  if (action === 'status' && (change.dryRun || change.force)) {
    throw new UsageError(`${change.force ? '--force' : '--dry-run'} is of use with install and remove only`);
  }
  const deps = await compatDeps(loadEnvironment(context.env), context, hookDirectory);
  const print = <T>(result: T, text: (result: T, context: CommandContext) => void) =>
    json ? printJson(context.stdout, result, 2) : text(result, context);
  try {
    if (action === 'status') print(await compatStatus(deps), printStatus);
    else if (action === 'install') print(await installHook(deps, change), printInstalled);
    else print(await removeHook(deps, { ...change, all }), printRemoved);
    return 0;
  } catch (error) {
    const explained = withNextStep(error);
    if (!json) throw explained === error ? new CommandError(describeError(error), nextStep(error)) : explained;
    printJson(context.stdout, { ok: false, error: describeError(error) });
    return 1;
  }
}

/** Parts that the compat actions and the doctor share. */
export async function compatDeps(
  environment: Environment,
  context: Pick<CommandContext, 'createHost' | 'ownPackage'>,
  hookDirectory?: string,
): Promise<CompatDeps> {
  return {
    host: await context.createHost(environment.directories.agentHome),
    pluginDirectory: context.ownPackage.directory,
    root: agentRoot({ agentConfig: readVariable(variables.agentConfig, environment) }),
    hookDirectory: hookDirectory === undefined ? undefined : resolve(hookDirectory),
    load: (url) => import(url),
  };
}

function nextStep(error: unknown): string | undefined {
  const kind = error instanceof RelayError ? error.kind : undefined;
  if (kind === 'conflict') return 'Inspect it and move it away, or go on anyway with --force.';
  if (kind === 'forbidden')
    return 'Make that folder readable, or name one directory: svc relay compat remove --hook-dir <directory>';
  if (kind === 'unavailable') return 'Reinstall svc-relay, or run in a source tree: npm run build';
  return undefined;
}

function printStatus(status: CompatStatus, context: CommandContext): void {
  const { green, yellow, dim } = createStyle(context.stdout, context.env);
  const module = printable(status.package.path ?? 'not found');
  const rows: [string, string][] = [
    ['Hook', status.installed ? yellow('installed') : green('not installed: current agents do not need it')],
    ['Module', status.package.importable ? module : `${module} ${yellow('(does not load)')}`],
    ...status.hook_dirs.map((path, at): [string, string] => [at === 0 ? 'Directories' : '', printable(path)]),
  ];
  for (const text of aligned(rows)) line(context.stdout, text);
  const files = status.hook_files.map((file) => [printable(file.path), dim(describe(file))]);
  for (const text of columns(files)) line(context.stdout, text);
  if (status.recommendation) sentence(context.stdout, `Next: ${status.recommendation}`);
}

function describe(file: CompatStatus['hook_files'][number]): string {
  if (file.plugin_owned_content) return 'written by this installation';
  if (file.managed_content) return 'written by another installation or version';
  return 'not written by this command';
}

function printInstalled(result: CompatInstalled, context: CommandContext): void {
  const target = printable(result.target);
  if (!result.changed) sentence(context.stdout, `The hook is in place: ${target}`);
  else if (result.dry_run) sentence(context.stdout, `Would write ${target}`);
  else {
    sentence(context.stdout, `Wrote ${target}`);
    sentence(context.stdout, "Next: restart the agent's API server, which runs its hooks when it starts.");
  }
}

function printRemoved(result: CompatRemoved, context: CommandContext): void {
  for (const path of result.removed)
    line(context.stdout, `${result.dry_run ? 'Would remove' : 'Removed'} ${printable(path)}`);
  // With --all most directories have no hook, which matters only when none of them has one.
  if (!result.changed) for (const { path } of result.skipped) sentence(context.stdout, `Not there: ${printable(path)}`);
  if (result.changed && !result.dry_run) sentence(context.stdout, "Next: restart the agent's API server.");
}
