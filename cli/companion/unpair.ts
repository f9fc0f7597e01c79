import type { Command } from 'cac';
import { endSession } from '../../lib/companion/link/end-session.ts';
import { authority, lastEndpoint } from '../../lib/companion/link/endpoints.ts';
import { flag, type Options } from '../options.ts';
import { type CommandContext, line, printable, printJson, sentence } from '../output.ts';
import { openNetwork } from './network.ts';
import { lockSettings, openCompanion, SETTINGS_OPTION } from './settings.ts';

/**
 * `svc companion unpair`: ends the session on the relay if that can be reached, and forgets the relay in any case. A
 * session that stays there is of no use to anybody, because its token is gone.
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
  const { settings, clock } = companion;
  const release = await lockSettings(companion);
  const pairing = settings.pairing();
  try {
    const { callRelay } = await openNetwork(context);
    const end = pairing && (await endSession(pairing, callRelay, clock));
    if (pairing) await settings.removePairing();
    const prefix = pairing?.session_token.slice(0, 8) ?? null;
    if (flag(options, '--json')) {
      const revoked = end?.kind === 'ended';
      const error = end?.kind === 'kept' ? { error: end.reason } : {};
      return printJson(context.stdout, { unpaired: pairing !== null, session: prefix, revoked, ...error });
    }
    if (!pairing) return sentence(context.stdout, 'There was no pairing.');
    const place = printable(authority(lastEndpoint(pairing.endpoints, pairing.last_good)?.url ?? ''));
    sentence(context.stdout, `Unpaired from ${place}. Its credentials, pins and grants are deleted.`);
    if (end?.kind !== 'kept') return sentence(context.stdout, 'The relay has ended the session.');
    line(
      context.stdout,
      `The relay could not be told: ${printable(end.reason)}. Its session stays until it is revoked.`,
    );
    sentence(context.stdout, "Next, on the relay's machine:");
    line(context.stdout, `  svc devices revoke ${prefix}`);
  } finally {
    await release();
  }
}
