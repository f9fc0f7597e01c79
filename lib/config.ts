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

/** Absolute paths between colons. */
const paths = (name: string, meaning: string): Variable<string[]> => ({
  name,
  type: 'paths',
  fallback: 'unset',
  meaning,
  read(reading) {
    const entries = (reading.env[name] ?? '').split(':').map((entry) => expand(entry.trim(), reading.places));
    return entries.filter((entry) => {
      if (entry !== '' && !entry.startsWith('/')) reading.warn(`${name} has a relative path, which is ignored`);
      return entry.startsWith('/');
    });
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
  mediaMaxSizeMb: integer('RELAY_MEDIA_MAX_SIZE_MB', 100, 'largest file that is served or taken, in MiB', 1),
  mediaTtlSeconds: integer('RELAY_MEDIA_TTL_SECONDS', 86_400, 'how long a media token is good', 1),
  mediaLruCap: integer(
    'RELAY_MEDIA_LRU_CAP',
    500,
    'most media tokens at a time; the least recently used goes first',
    1,
  ),
  mediaStrictSandbox: bool(
    'RELAY_MEDIA_STRICT_SANDBOX',
    false,
    'serve files by path only from where they could be registered too',
  ),
  mediaAllowedRoots: paths(
    'RELAY_MEDIA_ALLOWED_ROOTS',
    'directories whose files may be registered, beside the temporary one and the workspace',
  ),
  workspace: path('SVC_WORKSPACE', "the agent's workspace", '<agent_home>/workspace') as Variable<string>,
  relayHome: path(
    'SVC_RELAY_HOME',
    "the relay's own home; its configuration is never served",
    '~/.svc-relay',
  ) as Variable<string>,
  secureLinkKey: path(
    'RELAY_SECURE_LINK_KEY',
    'TLS private key of the secure link (PEM); never served',
    undefined,
    'RELAY_SECURE_PROXY_KEY',
  ),
  secureLinkHostIdFile: path(
    'RELAY_SECURE_LINK_BROKER_HOST_ID_FILE',
    'identity of this host at the broker; never served',
    '<agent_home>/relay-secure-link/host-id',
  ),
  terminalEnv: optional('TERMINAL_ENV', '`docker`: media paths of the agent are those of its container'),
  dockerVolumes: optional(
    'TERMINAL_DOCKER_VOLUMES',
    'volumes of the container: a JSON array of `host:container`',
    'JSON',
  ),
  containerPersistent: bool(
    'TERMINAL_CONTAINER_PERSISTENT',
    true,
    'the container keeps `/workspace` and `/root` on the host',
  ),
  dockerMountsCwd: bool('TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE', false, '`/workspace` is TERMINAL_CWD'),
  dockerCwd: path('TERMINAL_CWD', 'directory that the container has as `/workspace`'),
  sandboxDir: path(
    'TERMINAL_SANDBOX_DIR',
    'where the host keeps what is in containers',
    '<agent_home>/sandboxes',
  ) as Variable<string>,
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
