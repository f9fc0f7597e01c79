import type { Command } from 'cac';
import { ACTIONS } from './actions.ts';
import { loadEnvironment } from './environment.ts';
import { install } from './mcp/install.ts';
import { list, pair, revoke } from './mcp/pair.ts';
import { openPairings } from './mcp/pairings.ts';
import { PROGRAMS } from './mcp/programs.ts';
import { actionOf, asText, checkOwners, type Options, option } from './options.ts';
import { type CommandContext, sentence, UsageError } from './output.ts';
import { RELAY_OPTION } from './remote-relay.ts';

/** The actions that an option belongs to. */
const OWNERS = {
  '--only': ['pair'],
  '--relay': ['pair'],
  '--yes': ['pair', 'revoke'],
  '--write': ['install'],
  '--name': ['serve', 'pair', 'install'],
  '--json': ['pair', 'install', 'list', 'revoke'],
};

/**
 * `svc mcp [serve|pair|install|list|revoke]`: lets other agents, such as coding agents, reach the phone (contract 09 §7).
 */
export function define(command: Command): void {
  command
    .option('--only <list>', 'pair: the only grants (default phone,bridge,desktop,files,devices)')
    .option('--name <name>', 'which session, where there are several; pair makes one more')
    .option('--yes', 'pair, revoke: do not ask')
    .option('--write', 'install: add the lines to the configuration, and the skill where the program takes one')
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} mcp pair --only phone          # once; the token stays in a file of yours`)
    .example((name) => `${name} mcp install claude --write     # or ${Object.keys(PROGRAMS).slice(1).join(', ')}`)
    .example((name) => `${name} mcp                            # what those programs start: MCP on stdin and stdout`)
    .example((name) => `${name} mcp list`)
    .example((name) => `${name} mcp revoke --yes`)
    .action(run);
}

async function run(
  word: string | undefined,
  name: string | undefined,
  options: Options,
  context: CommandContext,
): Promise<number | void> {
  const action = actionOf(word, ...ACTIONS.mcp);
  checkOwners(options, action, OWNERS);
  if (name !== undefined && action !== 'install' && action !== 'revoke') {
    throw new UsageError(`unexpected argument '${name}'`);
  }
  if (action === 'pair') return pair(options, context);
  if (action === 'install') return install(name, options, context);
  if (action === 'list') return list(options, context);
  if (action === 'revoke') return revoke(name, options, context);
  const pairings = await openPairings(loadEnvironment(context.env).directories.agentHome, context);
  const pairing = pairings.require(option(options, '--name', asText));
  if (context.stdin.isTTY)
    sentence(context.stderr, 'Programs start this command, and speak MCP on its stdin. Stop it with Ctrl-C.');
  const { pipe } = await import('./mcp/pipe.ts');
  return pipe(pairing, context);
}
