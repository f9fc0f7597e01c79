import { urlHost } from '../../lib/kit/addresses.ts';
import { asObject } from '../../lib/kit/json.ts';
import { describeDuration } from '../../lib/pairing/duration.ts';
import {
  aligned,
  type CommandContext,
  createStyle,
  line,
  printable,
  printJson,
  printWarning,
  quote,
  sentence,
  wrapped,
} from '../output.ts';
import { timeOfDay } from '../times.ts';
import { type ApiState, apiOf } from './api-state.ts';
import type { PairOptions } from './options.ts';
import { terminalQr, writeQrPng } from './qr.ts';

const DEFAULT_LIFETIME = '30 days (default; the app suggests one for the transport)';
const DEFAULT_GRANTS = 'defaults of the relay';

/** `abcd...xyz`. A key of up to 8 characters is hidden completely, even its length. */
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
  /** The address of the app for browsers with the code, shown in place of the payload. */
  page?: string;
  /** The one-time code, and its expiry (epoch seconds). */
  code?: { text: string; expiresAt: number };
  /** The address on which the relay listens, as reported by itself. */
  listenerHost?: string;
}

/** A problem that the user has to know about, printed after everything else. */
export interface Notice {
  text: string;
  next: string;
  /** Print it before everything else instead. */
  isFirst?: boolean;
}

export interface PrintDeps {
  options: PairOptions;
  /** Agent home, where a PNG is written. */
  directory: string;
  api: ApiState;
  notices: readonly Notice[];
  /** True if the command stays until the code is used or expires. */
  waits: boolean;
  context: CommandContext;
}

/** Characters of a shortened link. */
const FOLDED = 48;
/** Lifetime of a code in seconds. */
const CODE_LIFETIME = 600;

/**
 * Prints a payload for people: sections, link, warning, the QR code per `options.picture`, and the problems. On a terminal
 * the code is last, so that it can be scanned without scrolling. Returns the path of the PNG, if one was written.
 */
export async function printPairing(pairing: Pairing, deps: PrintDeps): Promise<string | undefined> {
  const { options, api, notices, waits, context } = deps;
  const payload = asObject(JSON.parse(pairing.payload)) ?? {};
  const { bold, yellow } = createStyle(context.stdout, context.env);
  const { page, pairingUrl } = pairing;
  const drawing = draw(page ?? pairing.payload, deps);
  // A link of a thousand characters would push everything else off the screen.
  const columns = context.stdout.isTTY ? context.stdout.columns : undefined;
  const folds = waits && drawing.rows !== null;
  const sections: [title: string, rows: string[]][] = [
    ['API server', page ? [] : aligned(apiRows(payload, options, api), undefined, columns)],
    ['Relay', aligned(relayRows(payload, options), undefined, columns)],
    ['Link', [`  ${printable(page ?? (folds ? fold(pairingUrl) : pairingUrl))}`]],
  ];
  for (const { text, next } of notices.filter(({ isFirst }) => isFirst)) {
    sentence(context.stdout, yellow(text.charAt(0).toUpperCase() + text.slice(1)));
    sentence(context.stdout, next);
    line(context.stdout);
  }
  for (const [title, rows] of sections) {
    if (rows.length === 0) continue;
    line(context.stdout, bold(title));
    for (const row of rows) line(context.stdout, row);
    line(context.stdout);
  }
  const relay = asObject(payload.relay) !== null;
  sentence(
    context.stdout,
    `${yellow('Warning:')} the link and the QR code hold credentials. Show them only to your own device.`,
  );
  sentence(
    context.stdout,
    page
      ? 'Next: scan the code with the camera of the phone, or open the link in a browser, within 10 minutes.'
      : `Next: scan the code in the app, or open the link on the device${relay ? ', within 10 minutes' : ''}.`,
  );
  const png = await printPicture(pairing, drawing, deps);
  for (const { text, next } of notices.filter(({ isFirst }) => !isFirst)) {
    printWarning(context, text);
    sentence(context.stderr, next);
  }
  return png;
}

const fold = (link: string): string =>
  link.length <= FOLDED ? link : `${link.slice(0, FOLDED - 1)}… (press l for all of it)`;

function authText(key: string, api: ApiState): string {
  if (key !== '') return api === 'silent' ? 'API key required (the server does not answer)' : 'API key required';
  if (api === 'open') return 'open access: the API server has no key';
  if (api === 'keyed') return 'API key required, and none was found on this machine';
  return 'not known: no key was found, and the API server does not answer';
}

function apiRows(payload: Record<string, unknown>, { showKey }: PairOptions, api: ApiState): [string, string][] {
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
    ['Auth', authText(text, api)],
  ];
}

function relayRows(payload: Record<string, unknown>, options: PairOptions): [string, string][] {
  const relay = asObject(payload.relay);
  if (!relay) return [];
  const endpoints = Array.isArray(payload.endpoints) ? payload.endpoints.map(asObject) : [];
  const routes = endpoints.map((endpoint, index): [string, string] => [
    index === 0 ? 'Routes' : '',
    printable(`${endpoint?.role} ${addressOf(endpoint)}`),
  ]);
  return [
    ['URL', printable(String(relay.url))],
    ['Code', `${printable(String(relay.code))} (expires in 10 min, one-shot)`],
    ['Lifetime', lifetimeInWords(options.ttl)],
    ['Grants', grantsInWords(options)],
    ...routes,
  ];
}

/** Destination of a route: the relay itself, the pinned origin in front of it, or the broker. */
const addressOf = (endpoint: Record<string, unknown> | null | undefined) =>
  asObject(endpoint?.relay)?.url ?? asObject(endpoint?.broker)?.url ?? asObject(endpoint?.proxy)?.url ?? '';

interface Drawing {
  /** The QR code in half blocks; null if it is not printed. */
  rows: string[] | null;
  /** Why it is in a file instead. */
  reason?: string;
  file: boolean;
}

/** Decides how to show a code: drawn if it fits and a camera can read it, else as a file (contract 09 §2). */
function draw(payload: string, { options, notices, waits, context }: PrintDeps): Drawing {
  const terminal = context.stdout.isTTY === true;
  if (options.picture === 'file') return { rows: null, file: true };
  if (options.picture === 'none' || !terminal) return { rows: null, file: false };
  const rows = terminalQr(payload, { colour: false });
  if (rows === null) {
    return { rows, file: true, reason: 'The code is too large to scan off a terminal: open the picture instead.' };
  }
  const { columns = 80, rows: height = 24 } = context.stdout;
  const width = rows[0]?.length ?? 0;
  // Below the code: each problem with its next step, and the status line or prompt.
  const below = notices.filter(({ isFirst }) => !isFirst).flatMap(({ text, next }) => [`warning: ${text}`, next]);
  const needed = rows.length + below.flatMap((text) => wrapped(context.stdout, text)).length + 1;
  if (width <= columns && needed <= height) {
    return { rows: terminalQr(payload, { colour: !context.env.NO_COLOR }), file: false };
  }
  const larger = `Enlarge the window to ${width} columns and ${needed} rows`;
  return {
    rows: null,
    file: true,
    reason:
      `The QR code does not fit into ${columns} columns and ${height} rows. ` +
      `${larger}${waits ? ' and press r' : ''} to see it here.`,
  };
}

/** Prints the drawing, or writes the PNG and says how long that stays. */
async function printPicture(
  { payload, page, code }: Pairing,
  { rows, file, reason }: Drawing,
  { directory, waits, context }: PrintDeps,
): Promise<string | undefined> {
  if (rows) for (const row of rows) quote(context.stdout, row);
  if (!file) return undefined;
  const path = await writeQrPng(page ?? payload, directory).catch((error) => {
    printWarning(context, `cannot write the PNG (${error.code ?? 'failed'}); use the link`);
    return undefined;
  });
  if (path === undefined) return undefined;
  if (path === null) {
    printWarning(context, 'the payload is too much for a QR code; use the link, or fewer routes (--mode)');
    return undefined;
  }
  line(context.stdout);
  if (reason !== undefined) sentence(context.stdout, reason);
  sentence(context.stdout, `QR code as PNG: ${path}`);
  sentence(context.stdout, waits ? 'The file is removed when this command ends.' : removalText(code));
  return path;
}

function removalText(code: Pairing['code']): string {
  const until = timeOfDay(code?.expiresAt ?? Date.now() / 1000 + CODE_LIFETIME);
  return `Delete the file after use. The next 'svc pair' after ${until} removes it.`;
}

/** `svc pair --json`: everything printed by `printPairing`, with the complete link. Returns the path of the PNG, if any. */
export async function printPairingJson(pairing: Pairing, deps: PrintDeps): Promise<string | undefined> {
  const { options, directory, api, notices, context } = deps;
  const payload = asObject(JSON.parse(pairing.payload)) ?? {};
  const png = options.picture === 'file' ? await writeQrPng(pairing.page ?? pairing.payload, directory) : undefined;
  const relay = asObject(payload.relay);
  const endpoints = Array.isArray(payload.endpoints) ? payload.endpoints.map(asObject) : [];
  printJson(context.stdout, {
    ok: true,
    code: pairing.code?.text ?? (typeof relay?.code === 'string' ? relay.code : null),
    expires_at: pairing.code?.expiresAt ?? null,
    relay_url: relay?.url ?? null,
    api_url: apiOf(payload)?.url ?? null,
    api_state: api,
    routes: endpoints.map((one) => ({
      role: one?.role,
      url: addressOf(one),
    })),
    pairing_url: pairing.pairingUrl,
    ...(pairing.page !== undefined && { page_url: pairing.page }),
    ...(options.showKey && { qr_payload: pairing.payload }),
    // The link contains the key of the API server, if it has one.
    contains_api_key: typeof payload.key === 'string' && payload.key !== '',
    png: png ?? null,
    problems: notices.map(({ text, next }) => ({ text, next })),
  });
  return png ?? undefined;
}
