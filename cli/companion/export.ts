import { resolve } from 'node:path';
import type { Command } from 'cac';
import { sealBackup } from '../../lib/companion/backup.ts';
import { describeError } from '../../lib/errors.ts';
import { utf8ToBytes } from '../../lib/kit/bytes.ts';
import { existsAlready } from '../new-file.ts';
import { flag, type Options } from '../options.ts';
import { type CommandContext, CommandError, createStyle, printable, printJson, sentence } from '../output.ts';
import { PASSPHRASE_OPTIONS, readPassphrase } from '../passphrase.ts';
import { openCompanion, SETTINGS_OPTION } from './settings.ts';

const MODE = 0o600;

/** `svc companion export <file>`: a backup behind a passphrase, in the format of the web app (specification 2.1). */
export function define(command: Command): void {
  for (const option of PASSPHRASE_OPTIONS) command.option(...option);
  command
    .option('--force', 'replace the file if there is one')
    .option(...SETTINGS_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} export svc-backup.json`)
    .example((name) => `${name} export svc-backup.json --passphrase-file ~/.backup-passphrase`)
    .example((name) => `pass show svc-backup | ${name} export svc-backup.json --passphrase-stdin`)
    .action(run);
}

async function run(file: string, options: Options, context: CommandContext): Promise<void> {
  const companion = await openCompanion(options, context);
  const { settings, host } = companion;
  const path = resolve(file);
  const force = flag(options, '--force');
  // An early check, before anybody types a passphrase; the write below is what counts.
  if (!force && (await host.files.stat(path))) throw existsAlready(path);
  const backup = settings.backup();
  const text = await sealBackup(backup, await readPassphrase(options, context, { host, isNew: true }));
  const bytes = utf8ToBytes(`${text}\n`);
  try {
    if (force) await host.files.writeAtomic(path, bytes, MODE);
    else await host.files.createExclusive(path, bytes, MODE);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw existsAlready(path);
    throw new CommandError(`cannot write ${printable(path)}: ${describeError(error)}`, 'Choose another place for it.');
  }
  const paired = backup.pairing !== null;
  if (flag(options, '--json')) {
    printJson(context.stdout, { exported: true, file: path, paired, settings: Object.keys(backup.settings) });
    return;
  }
  const { bold } = createStyle(context.stdout, context.env);
  const content = paired ? 'Settings and pairing' : 'Settings (there is no pairing)';
  sentence(context.stdout, `${content} are in ${printable(path)}.`);
  if (paired) sentence(context.stdout, 'Whoever has the file and its passphrase is this device. Grants are not in it.');
  sentence(context.stdout, `Next, on the other machine: ${bold(`${context.program} import <file>`)}`);
}
