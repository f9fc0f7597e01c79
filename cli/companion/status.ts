import type { Command } from 'cac';
import { authority } from '../../lib/companion/link/endpoints.ts';
import { flag, type Options } from '../options.ts';
import { aligned, type CommandContext, createStyle, line, printable, printJson } from '../output.ts';
import { CAPABILITIES, expiryText, grantText } from './grants.ts';
import { openCompanion, SETTINGS_OPTION } from './settings.ts';

/** `svc companion status`: shows what is stored, without connecting. Prints no credential. */
export function define(command: Command): void {
  command
    .option(...SETTINGS_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} status`)
    .example((name) => `${name} status --json`)
    .action(status);
}

async function status(options: Options, context: CommandContext): Promise<void> {
  const { settings, path, clock } = await openCompanion(options, context);
  const pairing = settings.pairing();
  const safety = settings.get();
  if (flag(options, '--json')) {
    return printJson(context.stdout, {
      paired: pairing !== null,
      device_id: settings.deviceId,
      url: pairing?.last_good ?? null,
      server_version: pairing?.server_version ?? null,
      expires_at: pairing?.expires_at ?? null,
      channels: pairing?.grants ?? {},
      pins: pairing?.tofu_pins ?? {},
      master: safety.masterEnabled,
      policy: safety.policy,
      grants: safety.capabilities,
      settings: path,
    });
  }
  const { bold } = createStyle(context.stdout, context.env);
  const granted = CAPABILITIES.filter((id) => grantText(safety, id, clock.now()) !== 'off');
  const rows: [string, string][] = pairing
    ? [
        ['Relay', `${printable(pairing.last_good ?? '')} (version ${printable(pairing.server_version)})`],
        ['Session', expiryText(pairing.expires_at)],
        ['Bridge', pairing.grants.bridge === undefined ? 'not granted' : expiryText(pairing.grants.bridge)],
        ['Routes', pairing.endpoints.map(({ role, url }) => `${printable(role)} ${authority(url)}`).join(', ')],
      ]
    : [];
  rows.push(
    ['Device', settings.deviceId],
    ['Master', safety.masterEnabled ? 'on' : 'off'],
    ['Grants', granted.map((id) => `${id} ${grantText(safety, id, clock.now())}`).join(', ') || 'none'],
    ['Settings', path],
  );
  line(context.stdout, bold(pairing ? 'Paired' : 'Not paired'));
  for (const text of aligned(rows)) line(context.stdout, text);
  line(
    context.stdout,
    pairing
      ? `Next: start the phone with ${bold(`${context.program} run`)}`
      : `Next: pair with ${bold(`svc pair | ${context.program} pair -`)}`,
  );
}
