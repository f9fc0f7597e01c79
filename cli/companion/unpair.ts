import type { Command } from 'cac';
import { authority } from '../../lib/companion/link/endpoints.ts';
import { flag, type Options } from '../options.ts';
import { type CommandContext, line, printable, printJson } from '../output.ts';
import { lockSettings, openCompanion, SETTINGS_OPTION } from './settings.ts';

/**
 * `svc companion unpair`: forgets the relay. The session stays on the relay until it is revoked there, but nobody has
 * its token any more.
 */
export function define(command: Command): void {
  command
    .option(...SETTINGS_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} unpair`)
    .action(unpair);
}

async function unpair(options: Options, context: CommandContext): Promise<void> {
  const companion = await openCompanion(options, context);
  const release = await lockSettings(companion);
  const pairing = companion.settings.pairing();
  try {
    if (pairing) await companion.settings.removePairing();
  } finally {
    await release();
  }
  const prefix = pairing?.session_token.slice(0, 8);
  if (flag(options, '--json')) {
    return printJson(context.stdout, { unpaired: pairing !== null, session: prefix ?? null });
  }
  if (!pairing) return line(context.stdout, 'There was no pairing.');
  const { last_good: url = '' } = pairing;
  line(context.stdout, `Unpaired from ${printable(authority(url))}. Its credentials, pins and grants are deleted.`);
  line(context.stdout, "To revoke the session on the relay too, run on the relay's machine:");
  line(context.stdout, `  svc devices revoke ${prefix}`);
}
