import type { CAC } from 'cac';
import type { Options } from './options.ts';
import type { CommandContext } from './output.ts';

/** `svc relay update-check` (contract 07 §5.3): exit 0, whatever the feed says. */
export function registerUpdateCheck(program: CAC): void {
  program
    .command('update-check', 'ask the release feed whether there is a newer release')
    .option('--timeout <seconds>', 'how long the feed may take (default 4)')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} update-check`)
    .example((name) => `${name} update-check --json --timeout 10`)
    .action(async (options: Options, context: CommandContext) =>
      (await import('./update-check-run.ts')).run(options, context),
    );
}
