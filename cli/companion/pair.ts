import type { Command } from 'cac';
import { authority, isSecure, lastEndpoint, preferRole, routeKind } from '../../lib/companion/link/endpoints.ts';
import { type PairingOffer, parsePairing } from '../../lib/companion/link/pairing-url.ts';
import type { Pairing } from '../../lib/companion/link/settings.ts';
import { RelayError } from '../../lib/errors.ts';
import type { PinnedOrigin } from '../../lib/host/dial.ts';
import { createLog } from '../../lib/log.ts';
import { connectOnce } from '../connect-once.ts';
import { asName, asText, flag, type Options, option } from '../options.ts';
import {
  aligned,
  type CommandContext,
  CommandError,
  createStyle,
  line,
  printable,
  printJson,
  printWarning,
  sentence,
  UsageError,
} from '../output.ts';
import { readAll } from '../stdin.ts';
import { bridgeText, expiryText } from './grants.ts';
import { openNetwork } from './network.ts';
import { routeText } from './routes.ts';
import { type Companion, deviceFacts, lockSettings, openCompanion, SETTINGS_OPTION } from './settings.ts';

/** `svc companion pair`: pairs this machine with a relay as if it were a phone. */
export function define(command: Command): void {
  command
    .option('--name <name>', 'device name shown by the relay')
    .option('--prefer <role>', 'route to try first, such as lan, tailscale or public')
    .option(...SETTINGS_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `svc pair | ${name} pair -                # keeps the code out of the shell history`)
    .example((name) => `${name} pair 'svc-relay://pair?payload=...'`)
    .example((name) => `${name} pair - --name 'Test phone' < payload.json`)
    .action(pair);
}

async function pair(link: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const prefer = option(options, '--prefer', asText);
  const device = deviceFacts(options);
  const offer = readOffer(await pairingText(link, context));
  const preferred = prefer === undefined ? offer.endpoints : preferRole(offer.endpoints, prefer);
  if (!preferred) printWarning(context, `--prefer: no route has the role '${prefer}'; the order is unchanged`);
  for (const { role, problem } of offer.unusable ?? []) {
    printWarning(
      context,
      `the route '${printable(role)}' of this link is left out: its ${problem} is missing or invalid`,
    );
  }

  const companion = await openCompanion(options, context);
  const release = await lockSettings(companion);
  try {
    const { dial } = await openNetwork(context);
    const log = createLog('ERROR', (text) => line(context.stderr, text));
    const reordered = { ...offer, endpoints: preferred ?? offer.endpoints };
    const deps = { dial, store: companion.settings, clock: companion.clock, log, device, offer: reordered };
    await connectOnce(deps);
    await companion.settings.updatePairing({ device_name: option(options, '--name', asName) });
  } finally {
    await release();
  }
  report(companion, device.name, options, context);
}

async function pairingText(link: string | undefined, context: CommandContext): Promise<string> {
  if (link !== undefined && link !== '-') return link;
  if (link === undefined && context.stdin.isTTY) {
    throw new UsageError("missing <link>: give the link of 'svc pair', or - to paste it on stdin");
  }
  const text = await readAll(context, 'the pairing link', 'stdin contains more than a pairing link');
  // The output of `svc pair` has other text around the link.
  return /svc-relay:\/\/pair\?\S+/i.exec(text)?.[0] ?? text;
}

function readOffer(text: string): PairingOffer {
  try {
    return parsePairing(text);
  } catch (error) {
    if (!(error instanceof RelayError)) throw error;
    throw new CommandError(
      error.message,
      "Copy the whole link that 'svc pair' prints, or pipe it: svc pair | svc companion pair -",
    );
  }
}

function security(url: string, pinned: PinnedOrigin | undefined, pin: string | null | undefined): string {
  if (pinned) return `TLS, key pinned by the pairing link: ${pinned.pin}`;
  return isSecure(url) ? `TLS, key pinned: sha256 ${pin}` : 'no TLS: use only on a trusted network';
}

function report({ settings, path }: Companion, name: string, options: Options, context: CommandContext): void {
  const { deviceId } = settings;
  const pairing = settings.pairing() as Pairing;
  const endpoint = lastEndpoint(pairing.endpoints, pairing.last_good);
  const url = endpoint?.url ?? '';
  const pin = endpoint?.pinned ? null : pairing.tofu_pins[authority(url)];
  if (flag(options, '--json')) {
    const { server_version, expires_at, grants } = pairing;
    const route = endpoint ? routeKind(endpoint) : null;
    printJson(context.stdout, {
      paired: true,
      url,
      route,
      device_id: deviceId,
      device_name: name,
      server_version,
      expires_at,
      grants,
      pin: endpoint?.pinned?.pin ?? pin ?? null,
      settings: path,
    });
    return;
  }
  const { bold } = createStyle(context.stdout, context.env);
  const rows = aligned([
    ['Relay', `${printable(url)} (version ${printable(pairing.server_version)})`],
    ['Device', `${name} (${deviceId})`],
    ['Session', expiryText(pairing.expires_at)],
    ['Bridge', bridgeText(pairing.grants)],
    ['Route', endpoint ? routeText(endpoint) : ''],
    ['Security', security(url, endpoint?.pinned, pin)],
    ['Settings', path],
  ]);
  for (const text of [bold('Paired'), ...rows]) line(context.stdout, text);
  sentence(context.stdout, `Next: start the phone with ${bold(`${context.program} run`)}`);
}
