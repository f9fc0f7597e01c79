import { authority, isSecure, preferRole } from '../lib/companion/link/endpoints.ts';
import { type PairingOffer, parsePairing } from '../lib/companion/link/pairing-url.ts';
import type { Pairing } from '../lib/companion/link/settings.ts';
import { RelayError } from '../lib/errors.ts';
import { createLog } from '../lib/log.ts';
import { deviceFacts } from './companion-device.ts';
import { lockSettings, openCompanion } from './companion-settings.ts';
import { connectOnce } from './connect-once.ts';
import { asText, flag, type Options, option } from './options.ts';
import {
  aligned,
  type CommandContext,
  CommandError,
  createStyle,
  line,
  printable,
  printWarning,
  UsageError,
} from './output.ts';
import { readAll } from './stdin.ts';

/** `svc companion pair`. */
export async function pair(link: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const prefer = option(options, '--prefer', asText);
  const device = deviceFacts(options);
  const offer = read(await textOf(link, context));
  const preferred = prefer === undefined ? offer.endpoints : preferRole(offer.endpoints, prefer);
  if (!preferred) printWarning(context, `--prefer: there is no route '${prefer}'; the order is unchanged`);

  const companion = await openCompanion(options, context);
  const release = await lockSettings(companion);
  try {
    const { dial } = await import('../lib/host/node/dial.ts');
    const log = createLog('ERROR', (text) => line(context.stderr, text));
    const attempt = { ...offer, endpoints: preferred ?? offer.endpoints };
    const parts = { dial, store: companion.settings, clock: companion.clock, log, device, offer: attempt };
    await connectOnce(parts);
  } finally {
    await release();
  }
  const { settings, path } = companion;
  report(settings.pairing() as Pairing, { deviceId: settings.deviceId, name: device.name, path }, options, context);
}

async function textOf(link: string | undefined, { stdin }: CommandContext): Promise<string> {
  if (link !== undefined && link !== '-') return link;
  if (link === undefined && stdin.isTTY) {
    throw new UsageError("missing <link>: give the link of 'svc pair', or - to paste it on stdin");
  }
  const text = await readAll(stdin, 'there is more on stdin than a pairing link');
  // What `svc pair` prints has more in it than the link.
  return /svc-relay:\/\/pair\?\S+/i.exec(text)?.[0] ?? text;
}

function read(text: string): PairingOffer {
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

interface Paired {
  deviceId: string;
  name: string;
  path: string;
}

function report(pairing: Pairing, { deviceId, name, path }: Paired, options: Options, context: CommandContext): void {
  const url = pairing.last_good ?? '';
  const pin = pairing.tofu_pins[authority(url)];
  if (flag(options, '--json')) {
    const { server_version, expires_at, grants } = pairing;
    const facts = { paired: true, url, device_id: deviceId, device_name: name, server_version, expires_at, grants };
    line(context.stdout, JSON.stringify({ ...facts, pin: pin ?? null, settings: path }));
    return;
  }
  const { bold } = createStyle(context.stdout, context.env);
  const rows = aligned([
    ['Relay', `${printable(url)} (version ${printable(pairing.server_version)})`],
    ['Device', `${name} (${deviceId})`],
    ['Session', untilText(pairing.expires_at)],
    ['Bridge', pairing.grants.bridge === undefined ? 'not granted' : untilText(pairing.grants.bridge)],
    ['Security', isSecure(url) ? `TLS, key pinned: sha256 ${pin}` : 'no TLS: for a trusted network only'],
    ['Settings', path],
  ]);
  for (const text of [bold('Paired'), ...rows]) line(context.stdout, text);
  line(context.stdout, `Next: be the phone with ${bold(`${context.program} run`)}`);
}

/** An expiry in epoch seconds, in words. */
export const untilText = (expiry: number | null): string =>
  expiry === null ? 'never expires' : `until ${new Date(expiry * 1000).toISOString().replace(/:\d\d\.\d+Z$/, 'Z')}`;
