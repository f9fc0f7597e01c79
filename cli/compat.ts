import type { CAC } from 'cac';
import type { Options } from './options.ts';
import type { CommandContext } from './output.ts';

/** `svc relay compat [status|install|remove]` (contract 07 §5.4). */
export function registerCompat(program: CAC): void {
  program
    .command('compat [action]', 'the startup hook that gives an older agent API server routes it lacks')
    .option('--hook-dir <directory>', 'where the hook is (default <agent home>/startup.d)')
    .option('--all', 'with remove: from every known hook directory')
    .option('--dry-run', 'with install and remove: say what would change, and change nothing')
    .option('--force', 'with install and remove: also what this command did not write')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} compat                     # status`)
    .example((name) => `${name} compat install --dry-run`)
    .example((name) => `${name} compat remove --all`)
    .action(async (word: string | undefined, options: Options, context: CommandContext) =>
      (await import('./compat-run.ts')).run(word, options, context),
    );
}
