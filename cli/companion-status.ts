import { authority, isSecure } from '../lib/companion/link/endpoints.ts';
import { CAPABILITIES, grantText } from './companion-grants.ts';
import { untilText } from './companion-pair.ts';
import { lockSettings, openCompanion } from './companion-settings.ts';
import { flag, type Options } from './options.ts';
import { aligned, type CommandContext, createStyle, line, printable } from './output.ts';

/** `svc companion status`. Prints no credential. */
export async function status(options: Options, context: CommandContext): Promise<void> {
  const { settings, path, clock } = await openCompanion(options, context);
  const pairing = settings.pairing();
  const safety = settings.get();
  if (flag(options, '--json')) {
    return line(
      context.stdout,
      JSON.stringify({
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
      }),
    );
  }
  const { bold } = createStyle(context.stdout, context.env);
  const granted = CAPABILITIES.filter((id) => grantText(safety, id, clock.now()) !== 'off');
  const rows: [string, string][] = pairing
    ? [
        ['Relay', `${printable(pairing.last_good ?? '')} (version ${printable(pairing.server_version)})`],
        ['Session', untilText(pairing.expires_at)],
        ['Bridge', pairing.grants.bridge === undefined ? 'not granted' : untilText(pairing.grants.bridge)],
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
      ? `Next: be the phone with ${bold(`${context.program} run`)}`
      : `Next: pair with ${bold(`svc pair | ${context.program} pair -`)}`,
  );
}

/** `svc companion unpair`. The session stays on the relay until it is revoked there; nobody has its token any more. */
export async function unpair(options: Options, context: CommandContext): Promise<void> {
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
    return line(context.stdout, JSON.stringify({ unpaired: pairing !== null, session: prefix ?? null }));
  }
  if (!pairing) return line(context.stdout, 'There was no pairing.');
  line(context.stdout, `Unpaired from ${printable(authority(pairing.last_good ?? ''))}. Nothing of it is kept here.`);
  const { last_good: url = '' } = pairing;
  const relay = `${isSecure(url) ? 'https' : 'http'}://127.0.0.1:${authority(url).split(':').at(-1)}`;
  line(context.stdout, "To end its session on the relay too, run on the relay's machine:");
  line(context.stdout, `  curl -H 'X-Svc-Operator: 1' -X DELETE ${relay}/sessions/${prefix}`);
}
