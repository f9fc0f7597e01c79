import { RelayError } from './errors.ts';
import { isLoopbackName } from './kit/addresses.ts';
import type { LogLevel } from './log-tail.ts';

/** Base directories of default paths: `home` for `~`, `agentHome` for the agent's files. */
export interface Directories {
  home: string;
  agentHome: string;
}

type Env = Record<string, string | undefined>;

interface Reading {
  directories: Directories;
  env: Env;
  warn(message: string): void;
}

/** One variable: its name, type, default, meaning and parser (contract 07 §6.2). */
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

/** Parses `1 true yes on`, `0 false no off` and the empty text, in any case; `null` for anything else. */
export function parseBoolean(text: string): boolean | null {
  const word = text.trim().toLowerCase();
  return TRUE.has(word) ? true : FALSE.has(word) ? false : null;
}

const expand = (path: string, directories: Directories): string =>
  path === '~' || path.startsWith('~/') ? directories.home + path.slice(1) : path;

const raw = (reading: Reading, name: string): string | undefined => reading.env[name]?.trim() || undefined;

const text = (
  name: string,
  fallback: string,
  meaning: string,
  { type = 'text', legacy }: { type?: string; legacy?: string } = {},
): Variable<string> => ({
  name,
  type,
  fallback,
  meaning,
  read: (reading) => raw(reading, name) ?? (legacy && raw(reading, legacy)) ?? fallback,
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
    reading.warn(`${name} is not a boolean; using the default (${fallback ? 'on' : 'off'})`);
    return fallback;
  },
});

/** An integer; undefined if it is unset, or invalid, which `instead` warns of. */
function readInteger(
  reading: Reading,
  { name, min, max = Number.MAX_SAFE_INTEGER, instead }: { name: string; min: number; max?: number; instead: string },
): number | undefined {
  const value = raw(reading, name);
  if (value === undefined) return undefined;
  const parsed = Number(value);
  if (/^[+-]?\d+$/.test(value) && Number.isSafeInteger(parsed) && parsed >= min && parsed <= max) return parsed;
  const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
  reading.warn(`${name} is not an integer ${range}${instead}`);
  return undefined;
}

const integer = (name: string, fallback: number, meaning: string, min = 0, max?: number): Variable<number> => ({
  name,
  type: 'int',
  fallback: String(fallback),
  meaning,
  read: (reading) => readInteger(reading, { name, min, max, instead: `; using the default (${fallback})` }) ?? fallback,
});

const positive = (name: string, fallback: number, meaning: string): Variable<number> =>
  integer(name, fallback, meaning, 1);

/** For a value with other sources: anything but a boolean counts as unset. */
const optionalBool = (name: string, meaning: string): Variable<boolean | undefined> => ({
  name,
  type: 'bool',
  fallback: 'unset',
  meaning,
  read(reading) {
    const value = raw(reading, name);
    if (value === undefined) return undefined;
    const parsed = parseBoolean(value);
    if (parsed === null) reading.warn(`${name} is not a boolean, and is ignored`);
    return parsed ?? undefined;
  },
});

/** Like `optionalBool`, for a whole number. */
const optionalInteger = (name: string, meaning: string, min = 0): Variable<number | undefined> => ({
  name,
  type: 'int',
  fallback: 'unset',
  meaning,
  read: (reading) => readInteger(reading, { name, min, instead: ', and is ignored' }),
});

/** A listening port. An invalid one stops the relay instead of falling back to the default. */
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
    const absolute = value
      ?.replace('<agent_home>', reading.directories.agentHome)
      .replace('<relay_home>', raw(reading, RELAY_HOME) ?? DEFAULT_RELAY_HOME);
    return absolute && expand(absolute, reading.directories);
  },
});

/** Absolute paths, separated by colons. */
const paths = (name: string, meaning: string): Variable<string[]> => ({
  name,
  type: 'paths',
  fallback: 'unset',
  meaning,
  read(reading) {
    const entries = (reading.env[name] ?? '').split(':').map((entry) => expand(entry.trim(), reading.directories));
    return entries.filter((entry) => {
      if (entry !== '' && !entry.startsWith('/')) reading.warn(`${name} contains a relative path, which is ignored`);
      return entry.startsWith('/');
    });
  },
});

/** The relay of each host name, or undefined when any host name is the relay's own. */
type RelayHosts = ReadonlyMap<string, string> | undefined;

/** `host` or `host=name`, separated by commas. A bad entry is omitted, so that its host is refused. */
function readRelayHosts(reading: Reading, name: string): RelayHosts {
  const value = raw(reading, name);
  if (value === undefined) return undefined;
  const hosts = new Map<string, string>();
  for (const entry of value.split(',').map((part) => part.trim())) {
    const match = /^([a-z0-9._-]{1,253}|\[[0-9a-f:.]+\])(?:\s*=\s*(\S{1,128}))?$/i.exec(entry);
    const host = match?.[1]?.toLowerCase();
    if (host !== undefined) hosts.set(host, match?.[2] ?? host);
    else if (entry !== '') reading.warn(`${name} contains an entry that is not host or host=name, which is ignored`);
  }
  return hosts;
}

/** Numbers of accounts, separated by commas. */
const uids = (name: string, meaning: string): Variable<number[]> => ({
  name,
  type: 'numbers',
  fallback: 'unset',
  meaning,
  read(reading) {
    const entries = (reading.env[name] ?? '').split(',').map((entry) => entry.trim());
    return entries
      .filter((entry) => {
        const isUid = /^\d{1,10}$/.test(entry);
        if (entry !== '' && !isUid)
          reading.warn(`${name} contains something that is not a user number, which is ignored`);
        return isUid;
      })
      .map(Number);
  },
});

/** Lower-case words, separated by commas. A variable that is set but empty yields an empty list. */
const words = (name: string, fallback: string, meaning: string): Variable<string[]> => ({
  name,
  type: 'words',
  fallback,
  meaning,
  read: ({ env }) =>
    (env[name] ?? fallback)
      .split(',')
      .map((word) => word.trim().toLowerCase())
      .filter((word) => word !== ''),
});

const RELAY_HOME = 'SVC_RELAY_HOME';
const DEFAULT_RELAY_HOME = '~/.svc-relay';

const LEVELS: LogLevel[] = ['DEBUG', 'INFO', 'WARNING', 'ERROR'];

/** THE table of variables, keyed by their names in `Config`. */
export const variables = {
  host: text(
    'RELAY_HOST',
    '0.0.0.0',
    'address to listen on; `svc pair` looks for the relay there when it is a loopback address',
  ),
  port: port('RELAY_PORT', 8767, 'port to listen on, and where commands look while no relay holds the state'),
  sslCert: path('RELAY_SSL_CERT', 'TLS certificate (PEM); requires RELAY_SSL_KEY'),
  sslKey: path('RELAY_SSL_KEY', 'TLS private key (PEM); requires RELAY_SSL_CERT'),
  webapiUrl: {
    name: 'RELAY_WEBAPI_URL',
    type: 'URL',
    fallback: 'http://127.0.0.1:8642',
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
    meaning: 'log level: DEBUG, INFO, WARNING or ERROR',
    read(reading) {
      const value = raw(reading, this.name)?.toUpperCase() ?? this.fallback;
      if (LEVELS.includes(value as LogLevel)) return value as LogLevel;
      reading.warn(`${this.name} is not one of ${LEVELS.join(', ')}; using the default (${this.fallback})`);
      return this.fallback as LogLevel;
    },
  } as Variable<LogLevel>,
  pairingCode: {
    name: 'RELAY_PAIRING_CODE',
    type: 'code',
    fallback: 'unset',
    meaning: 'pairing code (6 of A-Z 0-9) to register at start',
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
    meaning: 'state database; empty keeps state in memory only',
    read(reading) {
      const value = reading.env[this.name];
      if (value !== undefined && value.trim() === '') return null;
      return expand(
        (value?.trim() ?? this.fallback).replace('<agent_home>', reading.directories.agentHome),
        reading.directories,
      );
    },
  } as Variable<string | null>,
  trustProxyHeaders: bool(
    'RELAY_TRUST_PROXY_HEADERS',
    false,
    'trust X-Forwarded-For and X-Forwarded-Proto of a proxy on loopback',
  ),
  serviceWorker: bool(
    'RELAY_SERVICE_WORKER',
    true,
    'let the app for browsers start without a network; off removes its service worker from every browser that comes',
  ),
  requireOperatorKey: optionalBool(
    'RELAY_REQUIRE_OPERATOR_KEY',
    'whether every caller of an operator route needs the operator key, whatever user it is; unset, only while a published URL leads to a proxy on this machine',
  ),
  operatorUids: uids(
    'RELAY_OPERATOR_UIDS',
    'numbers of further users that are the operator like the one that runs the relay, separated by commas',
  ),
  allowInsecureApiBearer: bool(
    'RELAY_ALLOW_INSECURE_API_BEARER',
    false,
    'accept the API key for voice over plain http (development only)',
  ),
  trustVpnPeers: bool(
    'RELAY_TRUST_VPN_PEERS',
    false,
    'accept the API key for voice over plain http from addresses of a VPN (100.64.0.0/10)',
  ),
  voiceOutputConfig: path(
    'RELAY_VOICE_OUTPUT_CONFIG',
    'file with the relay-owned section `voice_output:`',
    '<relay_home>/config.yaml',
  ) as Variable<string>,
  voiceOutputRunDir: path(
    'RELAY_VOICE_OUTPUT_RUN_DIR',
    'directory of the event logs and recordings of voice output',
    '<relay_home>/voice-output-runs',
  ) as Variable<string>,
  voiceOutputEnabled: optionalBool('RELAY_VOICE_OUTPUT_ENABLED', 'overrides `voice_output.enabled`'),
  voiceOutputProvider: optional('RELAY_VOICE_OUTPUT_PROVIDER', 'overrides `voice_output.provider`'),
  voiceOutputModel: optional('RELAY_VOICE_OUTPUT_MODEL', 'overrides `voice_output.model`'),
  voiceOutputVoice: optional('RELAY_VOICE_OUTPUT_VOICE', 'overrides `voice_output.voice`'),
  voiceOutputSampleRate: optionalInteger('RELAY_VOICE_OUTPUT_SAMPLE_RATE', 'overrides `voice_output.sample_rate`', 1),
  voiceOutputLanguage: optional('RELAY_VOICE_OUTPUT_LANGUAGE', 'overrides `voice_output.language`'),
  voiceOutputCodec: optional('RELAY_VOICE_OUTPUT_CODEC', 'overrides `voice_output.codec`'),
  voiceOutputOptimizeLatency: optionalInteger(
    'RELAY_VOICE_OUTPUT_OPTIMIZE_LATENCY',
    'overrides `voice_output.optimize_streaming_latency`',
  ),
  voiceOutputTextNormalization: optionalBool(
    'RELAY_VOICE_OUTPUT_TEXT_NORMALIZATION',
    'overrides `voice_output.text_normalization`',
  ),
  voiceOutputAutoSpeechTags: optionalBool(
    'RELAY_VOICE_OUTPUT_AUTO_SPEECH_TAGS',
    'overrides `voice_output.auto_speech_tags`',
  ),
  voiceOutputFallbackEnabled: optionalBool(
    'RELAY_VOICE_OUTPUT_FALLBACK_ENABLED',
    'overrides `voice_output.fallback_enabled`',
  ),
  realtimeVoiceConfig: path(
    'RELAY_REALTIME_VOICE_CONFIG',
    'file with the relay-owned section `realtime_voice:`',
    '<relay_home>/config.yaml',
  ) as Variable<string>,
  realtimeVoiceRunDir: path(
    'RELAY_REALTIME_VOICE_RUN_DIR',
    'directory of the event logs and recordings of the realtime lab and the realtime agent, whose default is `realtime-agent-runs`',
    '<relay_home>/realtime-voice-runs',
  ) as Variable<string>,
  realtimeVoiceEnabled: optionalBool('RELAY_REALTIME_VOICE_ENABLED', 'overrides `realtime_voice.enabled`'),
  realtimeVoiceProvider: optional('RELAY_REALTIME_VOICE_PROVIDER', 'overrides `realtime_voice.provider`'),
  realtimeVoiceModel: optional('RELAY_REALTIME_VOICE_MODEL', 'overrides `realtime_voice.model`'),
  realtimeVoiceVoice: optional('RELAY_REALTIME_VOICE_VOICE', 'overrides `realtime_voice.voice`'),
  realtimeVoiceSampleRate: optionalInteger(
    'RELAY_REALTIME_VOICE_SAMPLE_RATE',
    'overrides `realtime_voice.sample_rate`',
    1,
  ),
  realtimeVoiceXaiOauthPath: path(
    'RELAY_REALTIME_VOICE_XAI_OAUTH_PATH',
    'file with the OAuth tokens of xAI, which is only read',
    '<relay_home>/auth/xai-oauth.json',
  ) as Variable<string>,
  voiceResumeTtlMs: positive(
    'RELAY_VOICE_RESUME_TTL_MS',
    30_000,
    'how long a voice session waits for its client to come back, in milliseconds',
  ),
  voiceUnattachedTtlMs: positive(
    'RELAY_VOICE_UNATTACHED_TTL_MS',
    120_000,
    'how long a session of the realtime agent waits for its first socket, in milliseconds',
  ),
  voiceBackgroundDetachedMaxMs: positive(
    'RELAY_VOICE_BACKGROUND_DETACHED_MAX_MS',
    360_000,
    'how long a realtime agent session waits for its client while a background run or its answer is pending',
  ),
  voiceBackgroundRunMaxMs: positive(
    'RELAY_VOICE_BACKGROUND_RUN_MAX_MS',
    300_000,
    'how long a background run of the realtime agent may take',
  ),
  voiceProgressIntervalMs: positive(
    'RELAY_VOICE_PROGRESS_INTERVAL_MS',
    5000,
    'time between reports of the progress of a run',
  ),
  voicePlaybackDrainMs: positive(
    'RELAY_VOICE_PLAYBACK_DRAIN_MS',
    2500,
    'how long the relay waits until the phone has played what it received',
  ),
  voiceRunLeadMs: positive('RELAY_VOICE_RUN_LEAD_MS', 750, 'pause between announcing a run and starting it'),
  voiceFloorWaitMs: positive(
    'RELAY_VOICE_FLOOR_WAIT_MS',
    12_000,
    'how long an answer waits for a pause in the conversation',
  ),
  voiceInputQuietMs: positive(
    'RELAY_VOICE_INPUT_QUIET_MS',
    1500,
    'how long the microphone has to be quiet before an answer',
  ),
  voiceDeliveryConfirmMs: positive(
    'RELAY_VOICE_DELIVERY_CONFIRM_MS',
    30_000,
    'how long the provider has for speaking an answer before it is sent as text',
  ),
  voiceLongToolQuickFinishMs: positive(
    'RELAY_VOICE_LONG_TOOL_QUICK_FINISH_MS',
    1500,
    'how long a run with a long tool has to finish before it goes on in the background',
  ),
  voiceTranscriptWaitMs: positive(
    'RELAY_VOICE_TRANSCRIPT_WAIT_MS',
    8000,
    'how long an utterance waits for its transcript before it is answered without',
  ),
  voiceLongToolHints: words(
    'RELAY_VOICE_LONG_TOOL_HINTS',
    'cron,desktop_,browser,execute_code,terminal,spawn',
    'parts of the names of tools that take long, separated by commas; empty for none',
  ),
  providerOptionsCacheSeconds: integer(
    'RELAY_PROVIDER_OPTIONS_CACHE_SECONDS',
    600,
    'how long the models and voices that a provider listed are kept (0 = not at all)',
  ),
  localSttCommand: optional(
    'SVC_LOCAL_STT_COMMAND',
    'command line that transcribes a recording on this host',
    'command',
  ),
  localSttLanguage: optional('SVC_LOCAL_STT_LANGUAGE', 'language of what is spoken, a hint for every provider'),
  nodeExtraCaCerts: path(
    'NODE_EXTRA_CA_CERTS',
    'authorities that calls to other servers accept beside those of Node (PEM), also from `.env`',
  ),
  caBundle: path('SVC_CA_BUNDLE', 'more of them; the first file that exists of this and the next three is taken'),
  sslCertFile: path('SSL_CERT_FILE', 'see `SVC_CA_BUNDLE`'),
  requestsCaBundle: path('REQUESTS_CA_BUNDLE', 'see `SVC_CA_BUNDLE`'),
  curlCaBundle: path('CURL_CA_BUNDLE', 'see `SVC_CA_BUNDLE`'),
  profileDiscovery: bool('RELAY_PROFILE_DISCOVERY_ENABLED', true, 'list agent profiles to paired devices'),
  agentContextEnabled: bool(
    'RELAY_AGENT_CONTEXT_ENABLED',
    true,
    "add the relay's context to the agent's system prompt",
  ),
  contextMediaSensitivity: bool('RELAY_CONTEXT_MEDIA_SENSITIVITY', true, 'include how to mark media as private'),
  contextPhonePlatform: bool(
    'RELAY_CONTEXT_PHONE_PLATFORM',
    true,
    'include that the phone can be reached; requires PHONE_ENABLED',
  ),
  phoneEnabled: bool('PHONE_ENABLED', false, 'let the agent send messages to the phone'),
  pushHosts: words(
    'RELAY_PUSH_HOSTS',
    '',
    'push services besides those of the browsers, separated by commas: `host` or `host:port`; an address that is not public, such as `192.168.1.5`, is reached only when it is listed too',
  ),
  pushContact: optional(
    'RELAY_PUSH_CONTACT',
    'mailto: or https: address at which push services reach the operator of this relay',
    'URL',
  ),
  phoneHomeChannelName: text('PHONE_HOME_CHANNEL_NAME', 'Phone', 'name of the phone among the channels of the agent'),
  providerUsageEnabled: bool(
    'RELAY_PROVIDER_USAGE_ENABLED',
    false,
    "show paired devices the usage of model providers' quotas",
  ),
  terminalShell: path('RELAY_TERMINAL_SHELL', 'absolute path of the shell for terminal sessions, instead of `$SHELL`'),
  terminalTmux: bool('RELAY_TERMINAL_TMUX', true, 'run shells in tmux where it is installed'),
  terminalGraceSeconds: integer(
    'RELAY_TERMINAL_GRACE_SECONDS',
    600,
    'how long a shell outlives its socket without tmux (0 = not at all)',
  ),
  tuiCommand: optional(
    'RELAY_TUI_COMMAND',
    'command that starts the TUI gateway: a JSON array of strings, or a command line',
    'command',
  ),
  maxSessions: integer(
    'RELAY_MAX_SESSIONS',
    4096,
    'paired devices beyond which no further one pairs, at most 20,000; none is removed for another',
    1,
    20_000,
  ),
  readBudgetMb: positive(
    'RELAY_READ_BUDGET_MB',
    256,
    'memory for messages and JSON bodies over 256 KiB while they are read, of all clients together, in MiB; what does not fit waits for its turn (at the edge: bodies only)',
  ),
  mediaMaxSizeMb: positive('RELAY_MEDIA_MAX_SIZE_MB', 100, 'largest file to serve or accept, in MiB'),
  mediaTtlSeconds: positive('RELAY_MEDIA_TTL_SECONDS', 86_400, 'lifetime of a media token'),
  mediaLruCap: positive(
    'RELAY_MEDIA_LRU_CAP',
    500,
    'maximum number of media tokens; the least recently used is dropped first',
  ),
  mediaStrictSandbox: bool(
    'RELAY_MEDIA_STRICT_SANDBOX',
    false,
    'serve files by path only from directories where they could be registered',
  ),
  mediaAllowedRoots: paths(
    'RELAY_MEDIA_ALLOWED_ROOTS',
    'directories whose files may be registered, besides the temporary directory and the workspace',
  ),
  workspace: path('SVC_WORKSPACE', "the agent's workspace", '<agent_home>/workspace') as Variable<string>,
  relayHome: path(
    RELAY_HOME,
    "the relay's own home; its configuration is never served as media",
    DEFAULT_RELAY_HOME,
  ) as Variable<string>,
  secureLinkEnabled: bool(
    'RELAY_SECURE_LINK_ENABLED',
    false,
    'serve relay, API server and dashboard at one pinned HTTPS origin',
    'RELAY_SECURE_PROXY_ENABLED',
  ),
  secureLinkHost: text(
    'RELAY_SECURE_LINK_HOST',
    '0.0.0.0',
    'address to listen on, and host of the origin; for 0.0.0.0 and :: an address of this host',
    { legacy: 'RELAY_SECURE_PROXY_HOST' },
  ),
  /** Unparsed: a bad value makes Secure Link unavailable but does not stop the relay (contract 08 §1). */
  secureLinkPort: text('RELAY_SECURE_LINK_PORT', '9443', 'port to listen on, and of the origin', {
    type: 'port',
    legacy: 'RELAY_SECURE_PROXY_PORT',
  }),
  secureLinkCert: path(
    'RELAY_SECURE_LINK_CERT',
    'TLS certificate of Secure Link (PEM) instead of its own; requires RELAY_SECURE_LINK_KEY',
    undefined,
    'RELAY_SECURE_PROXY_CERT',
  ),
  secureLinkKey: path(
    'RELAY_SECURE_LINK_KEY',
    'TLS private key of Secure Link (PEM); never served as media',
    undefined,
    'RELAY_SECURE_PROXY_KEY',
  ),
  secureLinkDashboardUrl: text(
    'RELAY_SECURE_LINK_DASHBOARD_URL',
    'http://127.0.0.1:9119',
    'dashboard behind Secure Link: http on this host only',
    { type: 'URL', legacy: 'RELAY_SECURE_PROXY_DASHBOARD_URL' },
  ),
  reachEnabled: bool(
    'RELAY_EXPERIMENTAL_REACH_ENABLED',
    false,
    'reach Secure Link through a broker, without an open port (experimental)',
  ),
  secureLinkBrokerUrl: optional('RELAY_SECURE_LINK_BROKER_URL', 'wss:// address of the broker', 'URL'),
  secureLinkBrokerHostToken: optional(
    'RELAY_SECURE_LINK_BROKER_HOST_TOKEN',
    'secret by which the broker knows this host: 32 to 512 characters',
    'secret',
  ),
  secureLinkHostIdFile: path(
    'RELAY_SECURE_LINK_BROKER_HOST_ID_FILE',
    'identity of this host at the broker; never served as media',
    '<agent_home>/relay-secure-link/host-id',
  ) as Variable<string>,
  terminalEnv: optional('TERMINAL_ENV', "`docker` when the agent's media paths are those of its container"),
  dockerVolumes: optional(
    'TERMINAL_DOCKER_VOLUMES',
    'volumes of the container, as a JSON array of `host:container`',
    'JSON',
  ),
  containerPersistent: bool(
    'TERMINAL_CONTAINER_PERSISTENT',
    true,
    'whether `/workspace` and `/root` of the container are kept on the host',
  ),
  dockerMountsCwd: bool(
    'TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE',
    false,
    'whether `/workspace` of the container is TERMINAL_CWD',
  ),
  dockerCwd: path('TERMINAL_CWD', 'host directory that is mounted as `/workspace`'),
  sandboxDir: path(
    'TERMINAL_SANDBOX_DIR',
    'host directory that holds the files of containers',
    '<agent_home>/sandboxes',
  ) as Variable<string>,
  updateFeedUrl: optional('RELAY_UPDATE_FEED_URL', 'release feed of the update check', 'URL'),
  dashboardPort: optionalInteger(
    'SVC_RELAY_PORT',
    'port where the dashboard plugin looks for the relay, instead of RELAY_PORT',
    1,
  ),
  dashboardProxySecret: optional(
    'SVC_RELAY_DASHBOARD_PROXY_SECRET',
    'secret by which the relay knows the dashboard, instead of one made from the QR secret; the same for both',
  ),
  apiServerEnabled: optional('API_SERVER_ENABLED', '`0` leaves the API server out of pairing codes', 'bool'),
  apiServerKey: optional('API_SERVER_KEY', 'API key of the agent, when its configuration has none'),
  operatorPublicKey: optional('RELAY_OPERATOR_PUBLIC_KEY', 'public key that verifies operator tokens (edge only)'),
  mirrorLease: integer(
    'RELAY_MIRROR_LEASE',
    7 * 86_400,
    'seconds for which the edge honours the sessions of home after home was last heard; a week at most (edge only)',
    60,
  ),
  relayName: text('RELAY_NAME', 'svc-relay', 'which relay answers, with its own state (edge only)'),
  relayHosts: {
    name: 'RELAY_HOSTS',
    type: 'list',
    fallback: 'unset',
    meaning:
      'further host names under which browsers may call the relay; at the edge, all that are answered, each by a relay of its own: `host` or `host=name`',
    read(reading) {
      return readRelayHosts(reading, this.name);
    },
  } as Variable<RelayHosts>,
  publicUrl: {
    name: 'RELAY_PUBLIC_URL',
    type: 'URL',
    fallback: 'unset',
    meaning: 'https:// address of the relay; at the edge without RELAY_HOSTS, no other host name is answered',
    read(reading) {
      const value = raw(reading, this.name);
      if (value === undefined) return undefined;
      const url = URL.canParse(value) ? new URL(value) : undefined;
      const isSecure = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopbackName(url.hostname));
      if (url && isSecure && url.href === `${url.origin}/`) return url.origin;
      throw new RelayError('invalid', `Invalid ${this.name}: must be an https:// URL without a path`);
    },
  } as Variable<string | undefined>,
} satisfies Record<string, Variable<unknown>>;

export type Config = { [K in keyof typeof variables]: ReturnType<(typeof variables)[K]['read']> } & Directories;

/**
 * Reads the configuration. The caller merges flags and `.env` into `env` (flag > `.env` > environment > default).
 * @throws RelayError `invalid` naming the variable, if falling back to a default would be dangerous.
 */
export function readConfig(env: Env, directories: Directories): { config: Config; warnings: string[] } {
  const warnings: string[] = [];
  const reading: Reading = { env, directories, warn: (message) => warnings.push(message) };
  const config: Record<string, unknown> = { ...directories };
  for (const [key, variable] of Object.entries(variables)) config[key] = variable.read(reading);
  return { config: config as unknown as Config, warnings };
}

/** The directory of the agent's configuration file, which holds profiles and the agent's own files (contract 07). */
export const agentRoot = ({ agentConfig }: Pick<Config, 'agentConfig'>): string => agentConfig.replace(/\/[^/]*$/, '');

/** Names of the variables that differ from their defaults, for the log. Never their values (contract 07 §6.2). */
export function changedVariables(env: Env): string[] {
  return Object.values(variables)
    .filter(({ name, fallback }) => env[name] !== undefined && env[name] !== fallback)
    .map(({ name }) => name);
}
