import type { Config } from '../config.ts';
import { canonicalAddress, isWildcard, unbracket } from '../kit/addresses.ts';

/** Validated settings of Secure Link (contract 08 §1). */
export interface SecureLinkSettings {
  /** IP address or lower-case name to listen on. */
  bindHost: string;
  port: number;
  /** PEM files named by the operator; undefined for the relay's own. */
  files?: { cert: string; key: string };
  api: URL;
  dashboard: URL;
}

type SettingsConfig = Pick<
  Config,
  'secureLinkHost' | 'secureLinkPort' | 'secureLinkCert' | 'secureLinkKey' | 'secureLinkDashboardUrl' | 'webapiUrl'
>;

/** The settings, or a sentence that names the invalid variable. */
export function readSettings(config: SettingsConfig): SecureLinkSettings | string {
  const { secureLinkCert: cert, secureLinkKey: key } = config;
  const bindHost = isWildcard(config.secureLinkHost)
    ? unbracket(config.secureLinkHost)
    : parseHost(config.secureLinkHost);
  if (bindHost === null) return 'RELAY_SECURE_LINK_HOST must be an IP address or a host name';
  const port = parsePort(config.secureLinkPort);
  if (port === null) return 'RELAY_SECURE_LINK_PORT must be a whole number from 1 to 65535';
  if ((cert === undefined) !== (key === undefined)) {
    return 'RELAY_SECURE_LINK_CERT and RELAY_SECURE_LINK_KEY must be set together';
  }
  const api = readUpstream(config.webapiUrl);
  if (!api) return upstreamRule('RELAY_WEBAPI_URL');
  const dashboard = readUpstream(config.secureLinkDashboardUrl);
  if (!dashboard) return upstreamRule('RELAY_SECURE_LINK_DASHBOARD_URL');
  return { bindHost, port, files: namedFiles(config), api, dashboard };
}

export const DEFAULT_PORT = 9443;

/** The files named by the operator; undefined for the relay's own. */
export const namedFiles = ({
  secureLinkCert: cert,
  secureLinkKey: key,
}: Pick<Config, 'secureLinkCert' | 'secureLinkKey'>): SecureLinkSettings['files'] =>
  cert !== undefined && key !== undefined ? { cert, key } : undefined;

const upstreamRule = (name: string) =>
  `${name} must be an http:// URL of this host (127.0.0.1, localhost or ::1) without credentials, query and fragment`;

/**
 * Validates a host: an IP address in its canonical spelling, or a DNS name in lower case. Null for anything else, such as
 * `127.1`, `fe80::1%eth0`, `a..example`, and unspecified or multicast addresses (contract 08 §5).
 */
export function parseHost(text: string): string | null {
  const host = text.trim().replace(/^\[([0-9a-f:.]+)\]$/i, '$1');
  if (host === '' || host.length > 253 || host.includes('%')) return null;
  const address = canonicalAddress(host);
  if (address !== null) return isWildcard(address) || isMulticast(address) ? null : address;
  if (!host.split('.').every((label) => LABEL.test(label))) return null;
  // URLs treat names that end in a number, such as `127.1` and `0x7f.1`, as IPv4 addresses.
  const name = host.toLowerCase();
  return URL.canParse(`http://${name}/`) && new URL(`http://${name}/`).hostname === name ? name : null;
}

const LABEL = /^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$/;

/** 224.0.0.0/4 and ff00::/8. */
const isMulticast = (address: string): boolean => /^(?:22[4-9]|23\d)\.|^ff[\da-f]{2}:/.test(address);

/** A port in decimal digits, 1 to 65535; null for anything else. */
export function parsePort(text: string): number | null {
  const port = Number(text);
  return /^\d{1,5}$/.test(text) && port >= 1 && port <= 65535 ? port : null;
}

/** An upstream of Secure Link: plain http to this host. Null for any other URL. */
export function readUpstream(text: string): URL | null {
  if (!URL.canParse(text) || /[?#@]/.test(text)) return null;
  const url = new URL(text);
  if (url.protocol !== 'http:' || !['127.0.0.1', 'localhost', '[::1]'].includes(url.hostname)) return null;
  url.pathname = url.pathname.replace(/\/+$/, '');
  return url;
}
