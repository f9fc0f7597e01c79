import type { Command } from 'cac';
import { openOperatorRelay } from './operator-relay.ts';
import { flag, type Options } from './options.ts';
import { type CommandContext, line, printJson } from './output.ts';
import { RELAY_OPTION } from './remote-relay.ts';

/** `svc unfreeze`: ends a freeze (contract 09 §3). */
export function define(command: Command): void {
  command
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} unfreeze`)
    .example((name) => `${name} unfreeze --relay https://relay.example.com`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const relay = await openOperatorRelay(options, context);
  const answer = await relay.call({ method: 'DELETE', path: '/relay/freeze' });
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  line(context.stdout, 'Not frozen: the agent may act on devices again.');
  line(context.stdout, `See which are connected with: ${context.program} devices`);
}
