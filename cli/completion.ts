import type { Command } from 'cac';
import { ACTIONS } from './actions.ts';
import { bashScript } from './completion/bash.ts';
import { fishScript } from './completion/fish.ts';
import { completionNodes } from './completion/nodes.ts';
import { zshScript } from './completion/zsh.ts';
import { actionOf, type Options } from './options.ts';
import type { CommandContext } from './output.ts';

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript };

/** `svc completion bash|zsh|fish`: prints a script for the shell. It is complete as printed, and starts no `svc`. */
export function define(command: Command): void {
  command
    .example('Load it in every new shell; this needs a svc that is in your PATH:')
    .example('')
    .example((name) => `bash: add to ~/.bashrc:  source <(${name} completion bash)`)
    .example((name) => `zsh:  add to ~/.zshrc, after compinit:  source <(${name} completion zsh)`)
    .example((name) => `fish: add to ~/.config/fish/config.fish:  ${name} completion fish | source`)
    .action(run);
}

async function run(word: string, _options: Options, context: CommandContext): Promise<void> {
  const shell = actionOf(word, ...ACTIONS.completion);
  context.stdout.write(SCRIPTS[shell](await completionNodes()));
}
