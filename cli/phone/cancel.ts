import type { Command } from 'cac';
import { openOperatorRelay } from '../operator-relay.ts';
import { flag, type Options } from '../options.ts';
import { type CommandContext, CommandError, printable, printJson, sentence, UsageError } from '../output.ts';
import { RELAY_OPTION } from '../remote-relay.ts';

/** `svc phone cancel`: removes messages from the queue before a phone receives them, and withdraws open questions. */
export function define(command: Command): void {
  command
    .option('--all', 'every queued message')
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} cancel 3f9a1c0d77e2       # the id that send and list show`)
    .example((name) => `${name} cancel --all`)
    .action(run);
}

async function run(id: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const all = flag(options, '--all');
  if ((id === undefined) !== all) {
    throw new UsageError(all ? 'give an id or --all, not both' : 'missing <id>: give the id of a message, or --all');
  }
  const query = id === undefined ? '' : `?message_id=${encodeURIComponent(id)}`;
  const answer = await (await openOperatorRelay(options, context)).call({
    method: 'DELETE',
    path: `/phone/outbound${query}`,
  });
  const cancelled = typeof answer.cancelled === 'number' ? answer.cancelled : 0;
  if (flag(options, '--json')) printJson(context.stdout, { cancelled });
  else if (cancelled > 0) sentence(context.stdout, `Cancelled ${cancelled} message${cancelled === 1 ? '' : 's'}.`);
  else if (all) sentence(context.stdout, 'Nothing was waiting.');
  if (id !== undefined && cancelled === 0) {
    throw new CommandError(
      `no message '${printable(id)}' waits; of those delivered, only a question without an answer can be withdrawn`,
      `List the queue with: ${context.program} list`,
    );
  }
}
