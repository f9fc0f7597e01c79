import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import type { Host, HostNetwork } from '../host/index.ts';
import { isHost, isLoopbackName, isWildcard, splitUrl, unbracket } from '../kit/addresses.ts';
import { isPrintable } from '../kit/text.ts';
import type { Log } from '../log.ts';
import { readApiServer } from './api-server.ts';
import type { ApiTarget } from './payload.ts';

/** The API server as given in a mint request. Absent members come from the configuration. */
export interface ApiOverrides {
  host?: string;
  port?: number;
  tls?: boolean;
  /** Empty means open access. */
  key?: string;
}

const HTTP_PORT = 8642;

const invalid = (message: string) => new RelayError('invalid', message);

function readPort(value: unknown): number {
  const port = typeof value === 'string' && /^\d{1,5}$/.test(value) ? Number(value) : value;
  if (typeof port === 'number' && Number.isInteger(port) && port >= 1 && port <= 65535) return port;
  throw invalid('port must be an integer from 1 to 65535');
}

function readHost(value: unknown): string {
  const host = typeof value === 'string' ? value.trim() : '';
  if (isHost(host)) return unbracket(host);
  throw invalid('host must be a host name or an address, without scheme or port');
}

/**
 * Reads `host`, `port`, `tls` and `api_key` of a mint request. `null` counts as absent, but a null `api_key` means open
 * access (contract 01 §5.3).
 * @throws RelayError `invalid` naming the field.
 */
export function readApiOverrides(body: Record<string, unknown>): ApiOverrides {
  const overrides: ApiOverrides = {};
  const { host, port, tls, api_key: key } = body;
  if (host != null) overrides.host = readHost(host);
  if (port != null) overrides.port = readPort(port);
  if (tls != null) {
    if (typeof tls !== 'boolean') throw invalid('tls must be a boolean');
    overrides.tls = tls;
  }
  if (key !== undefined) {
    if (key !== null && !(typeof key === 'string' && isPrintable(key))) {
      throw invalid('api_key must be null or one line of printable ASCII');
    }
    overrides.key = key ?? '';
  }
  return overrides;
}

export interface ApiTargetDeps {
  config: Config;
  /** Absent at the edge. */
  host?: Host;
  log: Log;
}

/** True if the API server speaks TLS, even when it is disabled. */
export const speaksTls = (overrides: ApiOverrides, config: Config): boolean =>
  overrides.tls ?? splitUrl(config.webapiUrl)?.scheme === 'https';

/**
 * The API server as a phone reaches it; null when it is disabled and the request overrides neither host, port nor key.
 * At the edge, which cannot know the address of a home host, also null when neither the request nor the configuration
 * names a host other than loopback (contract 01 §5.3, §5.4).
 * @throws RelayError `invalid` naming `host` when the only known host is a wildcard.
 */
export async function resolveApiTarget(overrides: ApiOverrides, deps: ApiTargetDeps): Promise<ApiTarget | null> {
  const { config, host: machine, log } = deps;
  const url = splitUrl(config.webapiUrl);
  const named = overrides.host ?? url?.host ?? '';
  if (!machine && overrides.host === undefined && (isLoopbackName(named) || isWildcard(named))) return null;

  const overridden = overrides.host !== undefined || overrides.port !== undefined || overrides.key !== undefined;
  // With a key in the request, the configuration need not be read.
  const server =
    overrides.key === undefined ? await readApiServer(config, machine, log) : { key: overrides.key, disabled: false };
  if (server.disabled && !overridden) return null;

  const wildcard = 'host is a wildcard address: name the host that devices reach the API server at';
  if (overrides.host === undefined && (named === '' || isWildcard(named))) throw invalid(wildcard);
  const host = await lanForm(named, machine?.network);
  if (isWildcard(host)) throw invalid(wildcard);
  return {
    host,
    port: overrides.port ?? url?.port ?? (url?.scheme === 'https' ? 443 : HTTP_PORT),
    tls: speaksTls(overrides, config),
    key: server.key,
  };
}

/**
 * A host as other machines on this network reach it: loopback and wildcard names become the LAN address, if there is
 * one (contract 01 §5.3). Returned without brackets.
 */
export async function lanForm(host: string, network: HostNetwork | undefined): Promise<string> {
  const plain = unbracket(host);
  if (!isLoopbackName(plain) && !isWildcard(plain)) return plain;
  return (await network?.lanAddress()) ?? plain;
}
