import type { Command } from 'cac';
import { inPreference, lastEndpoint, routeKind, routesOf } from '../../lib/companion/link/endpoints.ts';
import { areActive } from '../../lib/companion/triggers.ts';
import { flag, type Options } from '../options.ts';
import { aligned, type CommandContext, createStyle, line, printable, printJson } from '../output.ts';
import { bridgeText, CAPABILITIES, expiryText, grantText, timeText } from './grants.ts';
import { routeFacts, routeText } from './routes.ts';
import { lockHolder, openCompanion, SETTINGS_OPTION } from './settings.ts';

/**
 * `svc companion status`: shows what is stored, without connecting. A running companion stores its route when it is
 * online. Prints no credential.
 */
export function define(command: Command): void {
  command
    .option(...SETTINGS_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} status`)
    .example((name) => `${name} status --json`)
    .action(status);
}

async function status(options: Options, context: CommandContext): Promise<void> {
  const companion = await openCompanion(options, context);
  const { settings, path, clock } = companion;
  const pairing = settings.pairing();
  const routes = pairing ? routesOf(pairing) : [];
  const current = lastEndpoint(routes, pairing?.last_good);
  const offSince = current?.mailbox ? pairing?.home_off_since : undefined;
  const running = await lockHolder(companion);
  const safety = settings.get();
  if (flag(options, '--json')) {
    return printJson(context.stdout, {
      paired: pairing !== null,
      device_id: settings.deviceId,
      running: running !== null,
      url: current?.url ?? null,
      route: current ? routeKind(current) : null,
      routes: routes.map(routeFacts),
      home_off_since: offSince ?? null,
      server_version: pairing?.server_version ?? null,
      expires_at: pairing?.expires_at ?? null,
      channels: pairing?.grants ?? {},
      pins: pairing?.tofu_pins ?? {},
      master: safety.masterEnabled,
      policy: safety.policy,
      grants: safety.capabilities,
      bridge_trusted_destructive_verbs: safety.trustedVerbs,
      blocklist: safety.blocklist,
      notification_triggers_enabled: safety.triggers.notification_triggers_enabled,
      notification_triggers_kill_switch: safety.triggers.notification_triggers_kill_switch,
      settings: path,
    });
  }
  const { bold } = createStyle(context.stdout, context.env);
  const granted = CAPABILITIES.filter((id) => grantText(safety, id, clock.now()) !== 'off');
  const rows: [string, string][] = pairing
    ? [
        ['Relay', `${printable(current?.url ?? '')} (version ${printable(pairing.server_version)})`],
        ['Route', current ? `${routeText(current)} (${running === null ? 'last used' : 'in use'})` : 'none used yet'],
        ...(offSince === undefined ? [] : [['Home', `off since ${timeText(offSince)}`] as [string, string]]),
        ['Session', expiryText(pairing.expires_at)],
        ['Bridge', bridgeText(pairing.grants)],
        ['Routes', inPreference(routes).map(routeText).join(', ')],
      ]
    : [];
  rows.push(
    ['Device', settings.deviceId],
    ['Master', safety.masterEnabled ? 'on' : 'off'],
    ['Grants', granted.map((id) => `${id} ${grantText(safety, id, clock.now())}`).join(', ') || 'none'],
    ['Trusted', safety.trustedVerbs.map(printable).join(', ') || 'nothing: the phone asks'],
    ['Blocked', `${safety.blocklist.length} ${safety.blocklist.length === 1 ? 'app' : 'apps'}`],
    ['Triggers', areActive(safety.triggers) ? 'on' : 'off'],
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
