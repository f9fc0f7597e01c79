import { urlHost } from '../../lib/kit/addresses.ts';
import { asObject } from '../../lib/kit/json.ts';
import { describeDuration } from '../../lib/pairing/duration.ts';
import { aligned, type CommandContext, createStyle, line, printable, printWarning } from '../output.ts';
import type { PairOptions } from './options.ts';
import { terminalQr, writeQrPng } from './qr.ts';

const DEFAULT_LIFETIME = '30 days (default; the app suggests one for the transport)';
const DEFAULT_GRANTS = 'defaults of the relay';

/** `abcd...xyz`. Of a key of up to 8 characters nothing shows, not even its length. */
export const maskKey = (key: string): string =>
  key.length <= 8 ? '********' : `${key.slice(0, 4)}...${key.slice(-3)}`;

export const lifetimeInWords = (ttl: number | undefined): string =>
  ttl === undefined ? DEFAULT_LIFETIME : describeDuration(ttl);

export function grantsInWords({ grants, only, without }: Pick<PairOptions, 'grants' | 'only' | 'without'>): string {
  const durations = Object.entries(grants ?? {}).map(([name, seconds]) => `${name} ${describeDuration(seconds)}`);
  const parts = durations.length > 0 ? [durations.join(', ')] : [];
  if (only) parts.unshift(`only ${only.join(', ')}`);
  else if (parts.length === 0) parts.push(DEFAULT_GRANTS);
  if (without && !only) parts.push(`without ${without.join(', ')}`);
  return parts.join('; ');
}

export interface Pairing {
  /** The JSON text in the QR code. */
  payload: string;
  pairingUrl: string;
}

/** Prints a payload for people: sections, link, warning, and the QR code as `options.picture` says. */
export async function printPairing(pairing: Pairing, options: PairOptions, directory: string, context: CommandContext) {
  const payload = asObject(JSON.parse(pairing.payload)) ?? {};
  const { bold, yellow } = createStyle(context.stdout, context.env);
  const sections: [title: string, rows: string[]][] = [
    ['API server', aligned(apiRows(payload, options))],
    ['Relay', aligned(relayRows(payload, options))],
    ['Link', [`  ${printable(pairing.pairingUrl)}`]],
  ];
  for (const [title, rows] of sections) {
    if (rows.length === 0) continue;
    line(context.stdout, bold(title));
    for (const row of rows) line(context.stdout, row);
    line(context.stdout);
  }
  await printPicture(pairing.payload, options, directory, context);
  const relay = asObject(payload.relay) !== null;
  line(
    context.stdout,
    `${yellow('Warning:')} the link and the QR code hold credentials. Show them only to your own device.`,
  );
  line(
    context.stdout,
    `Next: scan the code in the app, or open the link on the device${relay ? ', within 10 minutes' : ''}.`,
  );
}

function apiRows(payload: Record<string, unknown>, { showKey }: PairOptions): [string, string][] {
  const { host, port, tls, key, dashboard_url: dashboard } = payload;
  const dashboardRow: [string, string] = [
    'Dashboard',
    typeof dashboard === 'string' ? printable(dashboard) : 'not set',
  ];
  if (typeof host !== 'string') return [['Server', 'disabled: the device reaches the relay only'], dashboardRow];
  const text = typeof key === 'string' ? key : '';
  const shown = showKey ? printable(text) : `${maskKey(text)} (--show-key prints it in full)`;
  return [
    ['Server', printable(`${tls ? 'https' : 'http'}://${urlHost(host)}:${port}`)],
    dashboardRow,
    ['API key', text === '' ? 'none' : shown],
    ['Auth', text === '' ? 'open access: the API server has no key' : 'API key required'],
  ];
}

function relayRows(payload: Record<string, unknown>, options: PairOptions): [string, string][] {
  const relay = asObject(payload.relay);
  if (!relay) return [];
  const endpoints = Array.isArray(payload.endpoints) ? payload.endpoints.map(asObject) : [];
  const routes = endpoints.map((endpoint, index): [string, string] => [
    index === 0 ? 'Routes' : '',
    printable(`${endpoint?.role} ${asObject(endpoint?.relay)?.url ?? ''}`),
  ]);
  return [
    ['URL', printable(String(relay.url))],
    ['Code', `${printable(String(relay.code))} (expires in 10 min, one-shot)`],
    ['Lifetime', lifetimeInWords(options.ttl)],
    ['Grants', grantsInWords(options)],
    ...routes,
  ];
}

async function printPicture(payload: string, options: PairOptions, directory: string, context: CommandContext) {
  const terminal = context.stdout.isTTY === true;
  if (options.picture === 'none' || (options.picture === 'auto' && !terminal)) return;
  const path = await writeQrPng(payload, directory).catch((error) => {
    printWarning(context, `cannot write the PNG (${error.code ?? 'failed'}); use the link`);
    return undefined;
  });
  if (path === undefined) return;
  const drawn = options.picture === 'auto' ? terminalQr(payload, { colour: !context.env.NO_COLOR }) : [];
  if (path === null || drawn === null) {
    return printWarning(context, 'the payload is too much for a QR code; use the link, or fewer routes (--mode)');
  }
  for (const row of drawn) line(context.stdout, row);
  if (drawn.length > 0) line(context.stdout);
  line(context.stdout, `QR code as PNG: ${path}`);
  line(context.stdout, 'Delete the file after use.');
  line(context.stdout);
}
