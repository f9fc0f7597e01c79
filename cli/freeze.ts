import type { Command } from 'cac';
import { readFreeze } from '../lib/operations/freeze-state.ts';
import { freezeText } from './freeze-text.ts';
import { openOperatorRelay, Refused } from './operator-relay.ts';
import { flag, type Options } from './options.ts';
import { type CommandContext, CommandError, line, printJson, sentence } from './output.ts';
import { RELAY_OPTION } from './remote-relay.ts';

/** `svc freeze [reason]`: stops the agent on every device at once (contract 09 §3). */
export function define(command: Command): void {
  command
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} freeze`)
    .example((name) => `${name} freeze "lost my phone"`)
    .example((name) => `${name} freeze --relay https://relay.example.com`)
    .action(run);
}

async function run(words: string[], options: Options, context: CommandContext): Promise<void> {
  const relay = await openOperatorRelay(options, context);
  const call = { method: 'POST', path: '/relay/freeze', body: { reason: words.join(' ') } } as const;
  const answer = await relay.call(call).catch((error) => Promise.reject(explain(error, context)));
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  const freeze = readFreeze(answer);
  if (!freeze) throw new CommandError(`the relay on ${relay.name} did not say that it is frozen`);
  sentence(context.stdout, `${freezeText(freeze, Date.now() / 1000)}.`);
  sentence(
    context.stdout,
    'The agent cannot act on any device. Your own shells, chats and messages go on. It lasts over restarts.',
  );
  line(context.stdout, `${context.program} unfreeze ends it.`);
}

/** A freeze that the relay could not store is in effect all the same (contract 01 §6.7). */
const explain = (error: unknown, { program }: CommandContext): unknown =>
  error instanceof Refused && error.isApplied
    ? new CommandError(
        'the relay is frozen, but could not store that: a crash would end it; it is tried again until it is stored',
        `See why, and whether it is stored by now, with: ${program} status`,
      )
    : error;
