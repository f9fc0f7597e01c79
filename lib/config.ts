import { RelayError } from './errors.ts';
import type { LogLevel } from './log.ts';

/** Where relative defaults hang: `home` for `~`, `agentHome` for the agent's own files. */
export interface Places {
  home: string;
  agentHome: string;
}

type Env = Record<string, string | undefined>;

interface Reading {
  places: Places;
  env: Env;
  warn(message: string): void;
}

/** One variable: how its text is read, what it is without one, and what it means (contract 07 §6.2). */
export interface Variable<T> {
  name: string;
  /** Shown in help and README. */
  type: string;
  fallback: string;
  meaning: string;
  read(reading: Reading): T;
}

const TRUE = new Set(['1', 'true', 'yes', 'on']);
const FALSE = new Set(['', '0', 'false', 'no', 'off']);

/** `1 true yes on` / `0 false no off` and empty, any case; `null` for every other text. */
export function parseBoolean(text: string): boolean | null {
  const word = text.trim().toLowerCase();
  return TRUE.has(word) ? true : FALSE.has(word) ? false : null;
}

const expand = (path: string, places: Places): string =>
  path === '~' || path.startsWith('~/') ? places.home + path.slice(1) : path;

const raw = (reading: Reading, name: string): string | undefined => reading.env[name]?.trim() || undefined;

const text = (name: string, fallback: string, meaning: string): Variable<string> => ({
  name,
  type: 'text',
  fallback,
  meaning,
  read: (reading) => raw(reading, name) ?? fallback,
});

const optional = (name: string, meaning: string, type = 'text'): Variable<string | undefined> => ({
  name,
  type,
  fallback: 'unset',
  meaning,
  read: (reading) => raw(reading, name),
});

const bool = (name: string, fallback: boolean, meaning: string, legacy?: string): Variable<boolean> => ({
  name,
  type: 'bool',
  fallback: fallback ? '1' : '0',
  meaning,
  read(reading) {
    const value = reading.env[name] ?? (legacy && reading.env[legacy]);
    if (value === undefined) return fallback;
    const parsed = parseBoolean(value);
    if (parsed !== null) return parsed;
    reading.warn(`${name} is neither a yes nor a no; using the default (${fallback ? 'on' : 'off'})`);
    return fallback;
  },
});

const integer = (name: string, fallback: number, meaning: string, least = 0): Variable<number> => ({
  name,
  type: 'int',
  fallback: String(fallback),
  meaning,
  read(reading) {
    const value = raw(reading, name);
    if (value === undefined) return fallback;
    const parsed = Number(value);
    if (/^[+-]?\d+$/.test(value) && Number.isSafeInteger(parsed) && parsed >= least) return parsed;
    reading.warn(`${name} is not an integer of at least ${least}; using the default (${fallback})`);
    return fallback;
  },
});

/** A listening port. A bad one stops the start instead of being replaced by a default. */
const port = (name: string, fallback: number, meaning: string, legacy?: string): Variable<number> => ({
  name,
  type: 'port',
  fallback: String(fallback),
  meaning,
  read(reading) {
    const value = raw(reading, name) ?? (legacy && raw(reading, legacy));
    if (value === undefined || value === '') return fallback;
    const parsed = Number(value);
    if (/^\d+$/.test(value) && parsed >= 1 && parsed <= 65535) return parsed;
    throw new RelayError('invalid', `Invalid ${name}: must be a whole number from 1 to 65535`);
  },
});

const path = (name: string, meaning: string, fallback?: string, legacy?: string): Variable<string | undefined> => ({
  name,
  type: 'path',
  fallback: fallback ?? 'unset',
  meaning,
  read(reading) {
    const value = raw(reading, name) ?? (legacy && raw(reading, legacy)) ?? fallback;
    return value && expand(value.replace('<agent_home>', reading.places.agentHome), reading.places);
  },
});

const LEVELS: LogLevel[] = ['DEBUG', 'INFO', 'WARNING', 'ERROR'];

/** Every variable the relay reads, by the name its value has in `Config`. */
export const variables = {
  host: text('RELAY_HOST', '0.0.0.0', 'address to listen on; `svc pair` probes it when it is a loopback address'),
  port: port('RELAY_PORT', 8767, 'port to listen on, and the one `svc pair` probes'),
  sslCert: path('RELAY_SSL_CERT', 'TLS certificate (PEM); set together with RELAY_SSL_KEY'),
  sslKey: path('RELAY_SSL_KEY', 'TLS private key (PEM)'),
  webapiUrl: {
    name: 'RELAY_WEBAPI_URL',
    type: 'URL',
    fallback: 'http://localhost:8642',
    meaning: "the agent's API server",
    read(reading) {
      const value = raw(reading, this.name) ?? this.fallback;
      if (URL.canParse(value) && /^https?:$/.test(new URL(value).protocol)) return value.replace(/\/+$/, '');
      throw new RelayError('invalid', `Invalid ${this.name}: must be an http:// or https:// URL`);
    },
  } as Variable<string>,
  agentConfig: path('RELAY_SVC_CONFIG', 'agent configuration file', '<agent_home>/config.yaml') as Variable<string>,
  logLevel: {
    name: 'RELAY_LOG_LEVEL',
    type: 'level',
    fallback: 'INFO',
    meaning: 'how much is logged to stderr',
    read(reading) {
      const value = raw(reading, this.name)?.toUpperCase() ?? this.fallback;
      if (LEVELS.includes(value as LogLevel)) return value as LogLevel;
      reading.warn(`${this.name} is none of ${LEVELS.join(', ')}; using the default (${this.fallback})`);
      return this.fallback as LogLevel;
    },
  } as Variable<LogLevel>,
  pairingCode: {
    name: 'RELAY_PAIRING_CODE',
    type: 'code',
    fallback: 'unset',
    meaning: 'a pairing code (6 of A-Z 0-9) registered at start',
    read(reading) {
      const value = raw(reading, this.name)?.toUpperCase();
      if (value === undefined || /^[A-Z0-9]{6}$/.test(value)) return value;
      throw new RelayError('invalid', `Invalid ${this.name}: a pairing code is 6 of A-Z and 0-9`);
    },
  } as Variable<string | undefined>,
  stateFile: {
    name: 'RELAY_STATE_FILE',
    type: 'path',
    fallback: '<agent_home>/svc-relay/state.db',
    meaning: 'state database; set but empty = keep state in memory only',
    read(reading) {
      const value = reading.env[this.name];
      if (value !== undefined && value.trim() === '') return null;
      return expand((value?.trim() ?? this.fallback).replace('<agent_home>', reading.places.agentHome), reading.places);
    },
  } as Variable<string | null>,
  trustProxyHeaders: bool(
    'RELAY_TRUST_PROXY_HEADERS',
    false,
    'from a loopback peer, take the client address and https from X-Forwarded-*',
  ),
  allowInsecureApiBearer: bool(
    'RELAY_ALLOW_INSECURE_API_BEARER',
    false,
    'accept the API key for voice over plain http (development only)',
  ),
  profileDiscovery: bool('RELAY_PROFILE_DISCOVERY_ENABLED', true, 'list agent profiles to paired devices'),
  agentContextEnabled: bool('RELAY_AGENT_CONTEXT_ENABLED', true, "add the relay's blocks to the agent's system prompt"),
  contextMediaSensitivity: bool(
    'RELAY_CONTEXT_MEDIA_SENSITIVITY',
    true,
    'among them: how to mark media that may be private',
  ),
  contextPhonePlatform: bool(
    'RELAY_CONTEXT_PHONE_PLATFORM',
    true,
    'among them: that the phone can be reached; needs PHONE_ENABLED',
  ),
  phoneEnabled: bool('PHONE_ENABLED', false, 'the agent may send messages to the phone'),
  providerUsageEnabled: bool(
    'RELAY_PROVIDER_USAGE_ENABLED',
    false,
    "show paired devices how much of the model providers' quotas is used",
  ),
  terminalShell: path('RELAY_TERMINAL_SHELL', 'absolute path of the shell for terminal sessions, before `$SHELL`'),
  terminalTmux: bool('RELAY_TERMINAL_TMUX', true, 'keep shells in tmux where the host has it'),
  terminalGraceSeconds: integer(
    'RELAY_TERMINAL_GRACE_SECONDS',
    600,
    'without tmux: how long a shell outlives its socket (0 = it does not)',
  ),
  tuiCommand: optional(
    'RELAY_TUI_COMMAND',
    'TUI gateway to start: a JSON array of strings, or a command line',
    'command',
  ),
  updateFeedUrl: optional('RELAY_UPDATE_FEED_URL', 'release feed for the update check', 'URL'),
  apiServerEnabled: optional('API_SERVER_ENABLED', '`0` leaves the API server out of pairing codes', 'bool'),
  apiServerKey: optional('API_SERVER_KEY', 'API key of the agent, last resort of the key look-up'),
  operatorPublicKey: optional(
    'RELAY_OPERATOR_PUBLIC_KEY',
    'edge only: the public key that operator tokens must be signed by',
  ),
} satisfies Record<string, Variable<unknown>>;

export type Config = { [K in keyof typeof variables]: ReturnType<(typeof variables)[K]['read']> } & Places;

/**
 * Reads the configuration. Flags are put over `env` by the caller (flag > `.env` > environment > default).
 * @throws RelayError `invalid` naming the variable, where a default would be a dangerous guess.
 */
export function readConfig(env: Env, places: Places): { config: Config; warnings: string[] } {
  const warnings: string[] = [];
  const reading: Reading = { env, places, warn: (message) => warnings.push(message) };
  const config: Record<string, unknown> = { ...places };
  for (const [key, variable] of Object.entries(variables)) config[key] = variable.read(reading);
  return { config: config as unknown as Config, warnings };
}

/** The directory of the agent's configuration file: where profiles and the agent's own files are (contract 07). */
export const agentRoot = ({ agentConfig }: Pick<Config, 'agentConfig'>): string => agentConfig.replace(/\/[^/]*$/, '');

/** Names of the variables whose value is not the default, for one line at start. Never their values (contract 07 §6.2). */
export function changedVariables(env: Env): string[] {
  return Object.values(variables)
    .filter(({ name, fallback }) => env[name] !== undefined && env[name] !== fallback)
    .map(({ name }) => name);
}
