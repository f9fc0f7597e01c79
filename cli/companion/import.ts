import { resolve } from 'node:path';
import type { Command } from 'cac';
import { type Backup, MAX_BACKUP, openBackup, readSealed } from '../../lib/companion/backup.ts';
import { authority, lastEndpoint } from '../../lib/companion/link/endpoints.ts';
import { describeError, RelayError } from '../../lib/errors.ts';
import { confirm } from '../confirm.ts';
import { flag, type Options } from '../options.ts';
import {
  aligned,
  type CommandContext,
  CommandError,
  createStyle,
  line,
  printable,
  printJson,
  sentence,
} from '../output.ts';
import { PASSPHRASE_OPTIONS, readPassphrase } from '../passphrase.ts';
import { type Companion, lockSettings, openCompanion, SETTINGS_OPTION } from './settings.ts';

/** `svc companion import <file>`: takes over a backup of a companion or of the web app (specification 2.1). */
export function define(command: Command): void {
  for (const option of PASSPHRASE_OPTIONS) command.option(...option);
  command
    .option('--yes', 'replace the pairing of this companion without asking')
    .option(...SETTINGS_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} import svc-backup.json`)
    .example((name) => `${name} import svc-backup.json --passphrase-file ~/.backup-passphrase --yes`)
    .action(run);
}

async function run(file: string, options: Options, context: CommandContext): Promise<void> {
  const companion = await openCompanion(options, context);
  const { settings } = companion;
  const release = await lockSettings(companion);
  try {
    const backup = await read(resolve(file), options, context, companion);
    if (backup.pairing && settings.pairing() && !flag(options, '--yes')) {
      const question = `Replace the pairing with ${relayOf(companion)}? Its credentials are deleted here.`;
      const isSure = await confirm(context, question, 'import asks before it replaces a pairing: confirm with --yes');
      if (!isSure) throw new CommandError('nothing was changed', `To keep both, import with --settings another.json`);
    }
    const restored = await settings.restore(backup).catch((error) => {
      throw new CommandError(
        `this backup cannot be used here: ${describeError(error)}; nothing was changed`,
        'Export it again with the companion or app that it is from.',
      );
    });
    if (flag(options, '--json')) {
      const { deviceId } = settings;
      printJson(context.stdout, {
        imported: true,
        paired: settings.pairing() !== null,
        device_id: deviceId,
        ...restored,
      });
      return;
    }
    const { bold } = createStyle(context.stdout, context.env);
    const rows: [string, string][] = [
      [
        'Pairing',
        restored.pairing ? relayOf(companion) : `none in the backup${settings.pairing() ? '; the one here stays' : ''}`,
      ],
      ['Settings', restored.settings.join(', ') || 'none'],
    ];
    if (restored.ignored.length > 0)
      rows.push(['Left out', `${restored.ignored.map(printable).join(', ')} (not of a companion)`]);
    if (restored.pairing) rows.push(['Grants', 'none: a backup holds no grants']);
    line(context.stdout, bold('Imported'));
    for (const text of aligned(rows, '  ', context.stdout.isTTY ? context.stdout.columns : undefined)) {
      line(context.stdout, text);
    }
    sentence(context.stdout, `Next: start the phone with ${bold(`${context.program} run`)}`);
  } finally {
    await release();
  }
}

function relayOf({ settings }: Companion): string {
  const pairing = settings.pairing();
  const endpoint = pairing && (lastEndpoint(pairing.endpoints, pairing.last_good) ?? pairing.endpoints[0]);
  return printable(authority(endpoint?.url ?? ''));
}

/** @throws CommandError when the file is missing, is no backup, or has another passphrase. */
async function read(path: string, options: Options, context: CommandContext, { host }: Companion): Promise<Backup> {
  const file = printable(path);
  const makeOne = `Make a backup with: ${context.program} export <file>`;
  // One byte more, to detect a longer file.
  const text = await host.files.readText(path, MAX_BACKUP + 1).catch((error: NodeJS.ErrnoException) => error);
  if (typeof text !== 'string') {
    throw new CommandError(`${file} ${text === null ? 'does not exist' : `cannot be read: ${text.code}`}`, makeOne);
  }
  try {
    // Checked before anybody types a passphrase for a file that is no backup.
    readSealed(text);
    return await openBackup(text, await readPassphrase(options, context, { host, isNew: false }));
  } catch (error) {
    if (!(error instanceof RelayError)) throw error;
    if (error.kind === 'too-large') throw new CommandError(`${file} is larger than any backup`, makeOne);
    if (error.kind === 'unsupported-media') throw new CommandError(`${file} is not a backup of svc`, makeOne);
    throw new CommandError(
      'the passphrase is not that of this backup, or the file was changed; nothing was imported',
      'Try again with the passphrase that it was made with, or with another copy of the file.',
    );
  }
}
