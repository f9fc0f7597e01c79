import { parseBoolean } from '../config.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';

export interface ApiServerSettings {
  enabled: boolean;
  /** The explicit switch; null if it is not set, so that the key decides. */
  explicitlyEnabled: boolean | null;
  host: string;
  port: number;
  keyPresent: boolean;
  /** Bearer of the API server, or `''`. For pairing payloads only: never for rows or logs. */
  key: string;
}

const DEFAULT_HOST = '127.0.0.1';
const DEFAULT_PORT = 8642;
const LOCAL_HOSTS = new Set(['127.0.0.1', 'localhost', '0.0.0.0', '::1', '::']);

/**
 * API server settings of one profile, from its parsed configuration and its own `.env` values. `extra` overrides the root
 * `api_server`, which overrides `platforms.api_server`; absent or unusable values come from `.env` (contract 07 §1.2). The
 * key is `extra.key`, then `key`, then `api_key`, then `.env` (contract 01 §5.3).
 */
export function apiServerSettings(config: Mapping, env: Record<string, string>): ApiServerSettings {
  const platforms = isMapping(config.platforms) ? config.platforms : {};
  const sections = [config.api_server, platforms.api_server, platforms['api-server']].filter(isMapping);
  const layers = [...sections.map((section) => section.extra).filter(isMapping), ...sections];
  const pick = <T>(field: string, read: (value: unknown) => T | null): T | null => {
    for (const layer of layers) {
      const value = read(layer[field]);
      if (value !== null) return value;
    }
    return null;
  };
  const key = pick('key', readKey) ?? pick('api_key', readKey) ?? readKey(env.API_SERVER_KEY) ?? '';
  const explicitlyEnabled = pick('enabled', readSwitch) ?? readSwitch(env.API_SERVER_ENABLED);
  return {
    enabled: explicitlyEnabled ?? key !== '',
    explicitlyEnabled,
    host: pick('host', readHost) ?? readHost(env.API_SERVER_HOST) ?? DEFAULT_HOST,
    port: pick('port', readPort) ?? readPort(env.API_SERVER_PORT) ?? DEFAULT_PORT,
    keyPresent: key !== '',
    key,
  };
}

/**
 * URL at which clients reach an API server. A local bind address is useless to them, so the scheme and host name of
 * `webapiUrl` replace it (contract 07 §1.2). Null for an invalid host.
 */
export function apiServerUrl({ host, port }: { host: string; port: number }, webapiUrl: string): string | null {
  const bare = host.replace(/^\[(.*)\]$/, '$1');
  if (LOCAL_HOSTS.has(bare.toLowerCase())) {
    const { protocol, hostname } = new URL(webapiUrl);
    return `${protocol}//${hostname}:${port}`;
  }
  const url = `http://${bare.includes(':') ? `[${bare}]` : bare}:${port}`;
  return /^[^\s/?#@\\]+$/.test(bare) && URL.canParse(url) ? url : null;
}

const text = (value: unknown): string | null =>
  typeof value === 'string' || typeof value === 'number' ? String(value).trim() || null : null;

const readKey = text;

const readHost = (value: unknown): string | null => (typeof value === 'string' ? text(value) : null);

function readPort(value: unknown): number | null {
  const digits = text(value);
  const port = digits !== null && /^\d{1,5}$/.test(digits) ? Number(digits) : 0;
  return port >= 1 && port <= 65535 ? port : null;
}

function readSwitch(value: unknown): boolean | null {
  if (typeof value === 'boolean') return value;
  const word = text(value);
  return word === null ? null : parseBoolean(word);
}
