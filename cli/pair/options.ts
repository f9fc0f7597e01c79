import { RelayError } from '../../lib/errors.ts';
import { splitUrl } from '../../lib/kit/addresses.ts';
import { isPairingCode } from '../../lib/pairing/code.ts';
import { checkGrantName, parseDuration, parseGrantNames, parseGrants } from '../../lib/pairing/duration.ts';
import { NOT_FOR_BROWSERS } from '../../lib/pairing/web-link.ts';
import { GRANTS } from '../../lib/sessions/grants.ts';
import {
  asChoice,
  asHost,
  asHttpUrl,
  asName,
  asPort,
  asText,
  flag,
  negated,
  type Options,
  option,
} from '../options.ts';
import { UsageError } from '../output.ts';

/** The validated options of `svc pair`. */
export type PairOptions = ReturnType<typeof parse>;

/** @throws UsageError naming the option. */
export function readPairOptions(options: Options): PairOptions {
  const read = parse(options);
  checkCombinations(read, options);
  return read;
}

function parse(options: Options) {
  const only = option(options, '--only', parseGrantNames);
  const grants = option(options, '--grants', asGrants);
  const web = flag(options, '--web');
  const without = option(options, '--without', parseGrantNames);
  const withheld = web ? NOT_FOR_BROWSERS.filter((name) => !Object.hasOwn(grants ?? {}, name)) : [];
  const reduced = [...new Set([...(without ?? []), ...withheld])];
  // The older name of --api-only.
  const apiOnly = flag(options, '--api-only') || negated(options, '--relay');
  if (apiOnly && typeof options.relay === 'string') throw new UsageError('--relay and --api-only exclude each other');
  const picture: 'auto' | 'file' | 'none' = flag(options, '--png')
    ? 'file'
    : negated(options, '--qr')
      ? 'none'
      : 'auto';
  return {
    /** Seconds; 0 means never expires, undefined the relay's default. */
    ttl: option(options, '--ttl', parseDuration),
    grants,
    /** The only grants that the session gets. */
    only,
    /** Grants that the session does not get, by either option. */
    without: only ? GRANTS.filter((name) => !only.includes(name)) : reduced.length > 0 ? reduced : undefined,
    host: option(options, '--host', asHost),
    port: option(options, '--port', asPort),
    dashboardUrl: option(options, '--dashboard-url', asHttpUrl),
    mode: option(options, '--mode', asChoice('auto', 'lan', 'tailscale', 'public')) ?? 'auto',
    publicUrl: option(options, '--public-url', asPublicUrl),
    prefer: option(options, '--prefer', asText),
    relay: !apiOnly,
    /** `auto` draws the QR code on a terminal or writes the file, `file` only writes it, `none` does neither. */
    picture,
    /** The code that a phone shows, to be registered. */
    code: option(options, '--register-code', asCode),
    hint: option(options, '--transport-hint', asChoice('ws', 'wss')),
    showKey: flag(options, '--show-key'),
    /** Pair a host tool and print its session token. */
    token: flag(options, '--token'),
    /** Device name of the tool. */
    name: option(options, '--name', asName),
    /** On a terminal, stay until a device has used the code. */
    wait: !negated(options, '--wait'),
    json: flag(options, '--json'),
    /** Check every step of a pairing instead. */
    check: flag(options, '--check'),
    /** Show the address of the app for browsers. */
    web,
    /** The only side of the mirror at which the code is valid. */
    via: option(options, '--via', asChoice('home', 'edge')),
  };
}

function checkCombinations(read: PairOptions, options: Options): void {
  const { token, check, web, picture } = read;
  const isRelayOff = !read.relay;
  const hasCode = read.code !== undefined;
  const isSpecial = hasCode || isRelayOff;
  const isMintImpossible = isSpecial || picture === 'file';
  if (read.mode === 'public' && read.publicUrl === undefined) throw new UsageError('--mode public needs --public-url');
  if (hasCode && isRelayOff) throw new UsageError('--register-code and --api-only exclude each other');
  if (web && (token || isSpecial || check)) {
    throw new UsageError('--web excludes --token, --register-code, --api-only and --check');
  }
  checkGrants(read, options);
  if (typeof options.relay === 'string') checkRemote(options);
  if (token && isMintImpossible) {
    throw new UsageError('--token excludes --register-code, --api-only and --png');
  }
  if (check && (token || isMintImpossible)) {
    throw new UsageError('--check excludes --token, --register-code, --api-only and --png');
  }
  if (read.via !== undefined && (token || isRelayOff || check)) {
    throw new UsageError('--via excludes --token, --api-only and --check');
  }
  checkPrinting(read, options);
}

function checkPrinting({ json, token, picture, name }: PairOptions, options: Options): void {
  if (flag(options, '--png') && negated(options, '--qr')) {
    throw new UsageError('--png and --no-qr exclude each other');
  }
  if (name !== undefined && !token) throw new UsageError('--name needs --token');
  if (json && token) throw new UsageError('--json and --token exclude each other: the token is printed alone');
  if (json && picture === 'none') throw new UsageError('--json and --no-qr exclude each other');
}

/**
 * Refuses the options that a remote relay cannot use, including one chosen by `svc use`.
 * @throws UsageError naming the option.
 */
export function checkRemote(options: Options): void {
  const local = (['--mode', '--public-url', '--prefer'] as const).find((name) => option(options, name, asText));
  if (local) throw new UsageError(`${local} and --relay exclude each other: the relay at the edge has one address`);
  if (options.port !== undefined && options.host === undefined) {
    throw new UsageError('with --relay, --port needs --host');
  }
}

function checkGrants({ grants = {}, only, without, relay }: PairOptions, options: Options): void {
  if (!without) return;
  const flag = only ? '--only' : '--without';
  if (only && options.without !== undefined) throw new UsageError('--only and --without exclude each other');
  if (!relay) throw new UsageError(`${flag} and --api-only exclude each other`);
  const contradicted = Object.keys(grants).find((name) => (only ? !only.includes(name) : without.includes(name)));
  if (contradicted) throw new UsageError(`--grants names ${contradicted}, which ${flag} takes away`);
}

/** The relay stores any name, so a typing error would create a useless grant. */
function asGrants(text: string): Record<string, number> {
  const grants = parseGrants(text);
  for (const name of Object.keys(grants)) checkGrantName(name);
  return grants;
}

function asCode(text: string): string {
  const code = text.trim().toUpperCase();
  if (!isPairingCode(code)) throw new RelayError('invalid', 'must be the 6 letters and digits that the phone shows');
  return code;
}

function asPublicUrl(text: string): string {
  const url = asHttpUrl(text);
  if (/[?#]/.test(url)) throw new RelayError('invalid', 'must not contain a query or a fragment');
  if (!splitUrl(url)) throw new RelayError('invalid', 'must be an http(s):// URL');
  return url;
}
