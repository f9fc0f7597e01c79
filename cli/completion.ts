import type { Command } from 'cac';
import { ACTIONS } from './actions.ts';
import { bashScript } from './completion/bash.ts';
import { fishScript } from './completion/fish.ts';
import { liveValues } from './completion/live.ts';
import { completionNodes } from './completion/nodes.ts';
import { LIVE } from './completion/values.ts';
import { zshScript } from './completion/zsh.ts';
import { actionOf, asChoice, type Options, option } from './options.ts';
import type { CommandContext } from './output.ts';

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript };

/**
 * `svc completion bash|zsh|fish`: prints a script for the shell (contract 11 §4). It is complete as printed; for devices,
 * messages, profiles and MCP sessions it calls `svc` with `--values`.
 */
export function define(command: Command): void {
  command
    .option('--values <kind>', `print the ${LIVE.join(', ')} of now, one a line; the scripts call this`)
    .example('# Load it in every new shell; this needs a svc that is in your PATH.')
    .example((name) => `source <(${name} completion bash)    # in ~/.bashrc`)
    .example((name) => `source <(${name} completion zsh)     # in ~/.zshrc, after compinit`)
    .example((name) => `${name} completion fish | source     # in ~/.config/fish/config.fish`)
    .action(run);
}

async function run(word: string, options: Options, context: CommandContext): Promise<void> {
  const shell = actionOf(word, ...ACTIONS.completion);
  const kind = option(options, '--values', asChoice(...LIVE));
  if (kind === undefined) context.stdout.write(SCRIPTS[shell](await completionNodes()));
  else context.stdout.write((await liveValues(kind, context)).map((value) => `${value}\n`).join(''));
}
