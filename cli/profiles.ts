import type { CAC } from 'cac';
import type { Options } from './options.ts';
import type { CommandContext } from './output.ts';

/** `svc relay profiles [list|enable]` (contract 07 §5.5). Pairing is not affected by it. */
export function registerProfiles(program: CAC): void {
  program
    .command('profiles [action] [...profiles]', "list the agent's profiles, or enable the relay's plugin in them")
    .option('--all', 'with enable: every profile (the same as naming none)')
    .option('--dry-run', 'with enable: say what would change, and change nothing')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} profiles`)
    .example((name) => `${name} profiles enable work default`)
    .example((name) => `${name} profiles enable --all --dry-run`)
    .action(async (word: string | undefined, names: string[], options: Options, context: CommandContext) =>
      (await import('./profiles-run.ts')).run(word, names, options, context),
    );
}
