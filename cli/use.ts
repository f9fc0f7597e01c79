import type { Command } from 'cac';
import { RelayError } from '../lib/errors.ts';
import { loadEnvironment } from './environment.ts';
import { flag, type Options } from './options.ts';
import { type CommandContext, printJson, sentence, UsageError } from './output.ts';
import { asRelayUrl, defaultRelay, writeUsed } from './remote-relay.ts';

/** `svc use [url]`: sets the default relay of this user's commands (contract 11 §1). */
export function define(command: Command): void {
  command
    .option('--here', 'go back to the relay of this machine')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} use https://relay.example.com`)
    .example((name) => `${name} use             # which one it is`)
    .example((name) => `${name} use --here`)
    .action(run);
}

async function run(url: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const environment = loadEnvironment(context.env);
  const here = flag(options, '--here');
  if (here && url !== undefined) throw new UsageError('give either a URL or --here');
  if (here) await writeUsed(null, environment);
  else if (url !== undefined) await writeUsed(asGivenUrl(url), environment);
  const used = defaultRelay(environment);
  const origin = used?.url.origin ?? null;
  if (flag(options, '--json')) return printJson(context.stdout, { relay: origin });
  sentence(context.stdout, `Commands without --relay mean ${origin ?? 'the relay of this machine'}.`);
  if (environment.env.SVC_RELAY?.trim()) {
    sentence(context.stdout, 'SVC_RELAY of this shell says so, before anything that svc use chose.');
  } else if (origin !== null) sentence(context.stdout, 'To go back to the relay of this machine: svc use --here');
}

function asGivenUrl(text: string): URL {
  try {
    return asRelayUrl(text);
  } catch (error) {
    if (error instanceof RelayError) throw new UsageError(`the relay ${error.message}`);
    throw error;
  }
}
