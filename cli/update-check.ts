import type { Command } from 'cac';
import { variables } from '../lib/config.ts';
import { checkForUpdate, type UpdateResult } from '../lib/operator/update-check.ts';
import { loadEnvironment, readVariable } from './environment.ts';
import { asTimeout, flag, type Options, option } from './options.ts';
import { type CommandContext, createStyle, line, printable, printJson, printWarning } from './output.ts';
import { updateCommandOf } from './update-command.ts';

/** `svc relay update-check` (contract 07 §5.3): exits 0 regardless of the feed. */
export function define(command: Command): void {
  command
    .option('--timeout <seconds>', 'limit for the answer of the feed (default 4)')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} update-check`)
    .example((name) => `${name} update-check --json --timeout 10`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const timeout = option(options, '--timeout', asTimeout);
  const environment = loadEnvironment(context.env);
  const updateFeedUrl = readVariable(variables.updateFeedUrl, environment);
  const checked = await checkForUpdate({
    config: { updateFeedUrl },
    updateCommand: (latest) => updateCommandOf(context.ownPackage, latest),
    version: context.ownPackage.version,
    timeout,
  });
  // Phones that ask the relay do not get this text, since only the operator can set a feed.
  const result = updateFeedUrl ? checked : { ...checked, error: 'no release feed is configured' };
  if (flag(options, '--json')) return printJson(context.stdout, result, 2);
  print(result, Boolean(updateFeedUrl), context);
}

function print(result: UpdateResult, hasFeed: boolean, context: CommandContext): void {
  const { bold, green } = createStyle(context.stdout, context.env);
  const current = printable(result.current);
  const latest = printable(result.latest ?? '');
  if (result.error !== undefined) {
    printWarning(context, `cannot tell whether svc-relay ${current} is current: ${printable(result.error)}`);
    const feed = 'RELAY_UPDATE_FEED_URL: the https address of the release feed.';
    line(context.stderr, hasFeed ? `Check the network, and ${feed}` : `Set ${feed}`);
    return;
  }
  if (result.update_available) {
    line(context.stdout, `${bold('Update available:')} svc-relay ${current} -> ${latest}`);
    const command = result.update_command;
    line(
      context.stdout,
      `Next: ${command ? bold(command) : 'install it as you installed this one, then run svc restart'}`,
    );
  } else {
    line(context.stdout, `${green('Up to date:')} svc-relay ${current} (latest release ${latest})`);
  }
}
