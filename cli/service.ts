import type { CAC } from 'cac';
import type { Options } from './options.ts';
import type { CommandContext } from './output.ts';

/** `svc relay service [status|install|remove]`: the relay as a systemd user unit. Never needs root. */
export function registerService(program: CAC): void {
  program
    .command('service [action]', "keep the relay running with this user's systemd: status, install or remove")
    .option('--no-start', 'with install: start it at the next sign-in only')
    .option('--dry-run', 'with install and remove: say what would change, and change nothing')
    .option('--force', 'with install and remove: also a unit that this command did not write')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} service install`)
    .example((name) => `${name} service                    # status`)
    .example((name) => `${name} service remove`)
    .action(async (word: string | undefined, options: Options, context: CommandContext) =>
      (await import('./service-run.ts')).run(word, options, context),
    );
}
