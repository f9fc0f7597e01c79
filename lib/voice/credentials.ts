import { RelayError } from '../errors.ts';
import { canonicalAddress, cleanBase, isLoopbackName, isPublicAddress, unbracket } from '../kit/addresses.ts';
import { isPrintable, visibleLine } from '../kit/text.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';
import type { OauthStore, OauthToken } from './oauth-store.ts';
import { basicProvider, basicSection, nestedIn, readSectionFor, textOf } from './section.ts';
import type { ServerSections } from './servers.ts';

/** A key for one provider and its only permitted destination. Never for responses or logs. */
export interface Credential {
  /** Empty for a server on the owner's network that needs none (contract 05 §18). */
  secret: string;
  /** Without a trailing slash. `ws://` or `wss://` for a realtime provider, with the query of its variable. */
  baseUrl: string;
  /** Name of the variable, `config`, `oauth`, or `none` without a secret. */
  source: string;
}

export interface VoiceCredentialsDeps {
  env: Readonly<Record<string, string | undefined>>;
  /** Absent at the edge. */
  oauth?: OauthStore;
  /** Directories whose paths `redact` hides, besides the usual ones. */
  directories?: readonly string[];
}

/** A base URL: variables with the path to append, then the default. */
interface Base {
  variables: readonly (readonly [name: string, path: string])[];
  fallback: string;
}

const base = (fallback: string, ...names: string[]): Base => ({ variables: names.map((name) => [name, '']), fallback });

const XAI_KEYS = ['VOICE_TOOLS_XAI_KEY', 'XAI_API_KEY', 'GROK_API_KEY'] as const;
const OPENAI_KEYS = ['VOICE_TOOLS_OPENAI_KEY', 'OPENAI_API_KEY'] as const;
const OPENAI_REALTIME_KEYS = ['OPENAI_REALTIME_API_KEY', 'OPENAI_API_KEY', 'VOICE_TOOLS_OPENAI_KEY'] as const;
const XAI_REALTIME_KEYS = [...XAI_KEYS, 'XAI_REALTIME_CLIENT_SECRET', 'XAI_EPHEMERAL_TOKEN'] as const;
const ELEVENLABS_KEYS = ['ELEVENLABS_API_KEY', 'VOICE_TOOLS_ELEVENLABS_KEY'] as const;

const OPENAI_TTS = ['TTS_OPENAI_BASE_URL', 'OPENAI_BASE_URL'] as const;
const OPENAI_STT = ['STT_OPENAI_BASE_URL', 'OPENAI_BASE_URL'] as const;
const OPENAI_REALTIME = ['REALTIME_OPENAI_BASE_URL', 'OPENAI_BASE_URL'] as const;
const OPENAI = 'https://api.openai.com/v1';
const XAI = 'https://api.x.ai/v1';
const ELEVENLABS = 'https://api.elevenlabs.io';
const XAI_BASE = base(XAI, 'XAI_BASE_URL');
const DEEPINFRA = base('https://api.deepinfra.com/v1/openai', 'DEEPINFRA_BASE_URL');
const MISTRAL = base('https://api.mistral.ai', 'MISTRAL_BASE_URL');

interface BasicProvider {
  keys: readonly string[];
  tts?: Base;
  stt?: Base;
}

/** Keys and base URLs of the basic path (contract 05 §8). */
const BASIC: Readonly<Record<string, BasicProvider>> = {
  openai: {
    keys: OPENAI_KEYS,
    tts: base(OPENAI, ...OPENAI_TTS),
    stt: base(OPENAI, ...OPENAI_STT),
  },
  // The owner's own server has no default, and gets none of the keys that belong to others.
  local: { keys: [], tts: base('', OPENAI_TTS[0]), stt: base('', OPENAI_STT[0]) },
  groq: { keys: ['GROQ_API_KEY'], stt: base('https://api.groq.com/openai/v1', 'GROQ_BASE_URL') },
  xai: { keys: XAI_KEYS, tts: XAI_BASE, stt: base(XAI, 'XAI_STT_BASE_URL', 'XAI_BASE_URL') },
  elevenlabs: {
    keys: ELEVENLABS_KEYS,
    tts: base(ELEVENLABS, 'ELEVENLABS_BASE_URL'),
    stt: {
      variables: [
        ['ELEVENLABS_STT_BASE_URL', ''],
        ['ELEVENLABS_BASE_URL', '/v1'],
      ],
      fallback: `${ELEVENLABS}/v1`,
    },
  },
  gemini: {
    keys: ['GEMINI_API_KEY', 'GOOGLE_API_KEY'],
    tts: base('https://generativelanguage.googleapis.com/v1beta', 'GEMINI_BASE_URL'),
  },
  mistral: { keys: ['MISTRAL_API_KEY'], tts: MISTRAL, stt: MISTRAL },
  deepinfra: { keys: ['DEEPINFRA_API_KEY'], tts: DEEPINFRA, stt: DEEPINFRA },
  minimax: { keys: ['MINIMAX_API_KEY'], tts: base('https://api.minimax.io/v1/t2a_v2') },
};

interface StreamingProvider {
  keys: readonly string[];
  base: Base;
  /** Variable with the URL of the socket itself, and perhaps a query. */
  socket?: string;
}

/** Keys and base URLs of streaming providers (contract 05 §8). */
const STREAMING: Readonly<Record<string, StreamingProvider>> = {
  elevenlabs_tts: { keys: ELEVENLABS_KEYS, base: base(ELEVENLABS, 'ELEVENLABS_BASE_URL') },
  local_realtime: { keys: [], base: base('', OPENAI_REALTIME[0]) },
  local_tts: { keys: [], base: base('', OPENAI_TTS[0]) },
  openai_realtime: {
    keys: OPENAI_REALTIME_KEYS,
    base: base(OPENAI, ...OPENAI_REALTIME),
    socket: 'OPENAI_REALTIME_URL',
  },
  openai_tts: { keys: OPENAI_KEYS, base: base(OPENAI, ...OPENAI_TTS) },
  xai_realtime: { keys: XAI_REALTIME_KEYS, base: XAI_BASE, socket: 'XAI_REALTIME_URL' },
  xai_tts: { keys: XAI_KEYS, base: XAI_BASE },
};

const streamingProvider = (id: string): StreamingProvider | undefined =>
  Object.hasOwn(STREAMING, id) ? STREAMING[id] : undefined;

/** Variables that may hold the key of a streaming provider, in order; none for one that needs no key. */
export const keyNames = (provider: string): readonly string[] => streamingProvider(provider)?.keys ?? [];

const SECRET_VARIABLE = /(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$/i;
const SECRET_MEMBER = /(?:key|token|secret|password|authorization)$/i;
/** Shorter values are placeholders such as `x`, and hiding them would garble every message. */
const MIN_SECRET = 4;
const MIN_CUT_SECRET = 8;
const MAX_REMEMBERED = 256;
const MAX_MESSAGE = 300;
/** Characters of a message to examine. */
const MAX_LOOKED_AT = 64 * 1024;
const DIRECTORIES =
  '/home /root /tmp /var /etc /usr /opt /mnt /media /srv /run /proc /dev /private /Users /Volumes /workspace /data'.split(
    ' ',
  );
const WINDOWS_PATH = String.raw`\b[A-Za-z]:\\[^\s"'<>|]+`;

export type VoiceCredentials = ReturnType<typeof createVoiceCredentials>;

/** Keys and URLs of voice providers, looked up on each use (contract 05 §8). */
export function createVoiceCredentials({ env, oauth, directories = [] }: VoiceCredentialsDeps) {
  const environment = Object.entries(env)
    .filter(([name]) => SECRET_VARIABLE.test(name))
    .map(([, value]) => value?.trim() ?? '');
  /** Secrets from files, the latest last. */
  const remembered = new Set<string>();
  const hostPaths = pathPattern(directories);

  function remember(secret: string): void {
    remembered.delete(secret);
    remembered.add(secret);
    const [oldest] = remembered;
    if (oldest !== undefined && remembered.size > MAX_REMEMBERED) remembered.delete(oldest);
  }

  /** A variable of the environment; undefined when it is blank. */
  const variable = (name: string): string | undefined => env[name]?.trim() || undefined;

  function keyOf(names: readonly string[]): { secret: string; source: string } | null {
    for (const name of names) {
      const secret = variable(name);
      if (secret !== undefined && isPrintable(secret)) return { secret, source: name };
    }
    return null;
  }

  /** The base URL of the first variable that is set, else the default. */
  function baseOf({ variables, fallback }: Base): string {
    for (const [name, path] of variables) {
      const value = variable(name);
      if (value !== undefined) return urlOf(value, name) + path;
    }
    return fallback;
  }

  /** The token that xAI's streaming providers would use; null without one. */
  async function tokenOf(path?: string): Promise<OauthToken | null> {
    const token = (await oauth?.find(path)) ?? null;
    if (token) remember(token.secret);
    return token;
  }

  async function credentialOf(
    provider: string,
    oauthPath: string | undefined,
    urlFor: (tokenBase?: string) => string,
  ): Promise<Credential | null> {
    const known = streamingProvider(provider);
    if (!known) return null;
    const token = isXai(provider) ? await tokenOf(oauthPath) : null;
    if (token) return { secret: token.secret, baseUrl: urlFor(token.baseUrl), source: 'oauth' };
    const key = keyOf(known.keys);
    return key && { ...key, baseUrl: urlFor() };
  }

  /** The provider's part of the `realtime:` section (contract 05 §18), with the base URL in the form that is wanted. */
  async function realtimeOf(
    provider: string,
    section: Mapping,
    otherwise: () => Promise<Credential | null>,
    isSocket: boolean,
  ): Promise<Credential | null> {
    const name = provider.replace('_realtime', '');
    for (const secret of secretsIn(section)) remember(secret);
    const own = nestedIn(section, name, basicProvider);
    const configured = textOf(own.base_url);
    const secret = textOf(own.api_key);
    if (configured === undefined && secret === undefined) {
      const found = await otherwise();
      if (found) return found;
    }
    const key = secret !== undefined && isPrintable(secret) ? { secret, source: 'config' } : keyOf(keyNames(provider));
    const url = configured === undefined ? undefined : urlOf(configured, `realtime.${name}.base_url`);
    const baseUrl = url === undefined ? streamingUrl(provider) : realtimeUrl(url);
    if (baseUrl === '' || !(key || isOnOwnersNetwork(baseUrl))) return null;
    return { ...(key ?? { secret: '', source: 'none' }), baseUrl: isSocket ? baseUrl : listsUrl(baseUrl) };
  }

  /** URL of a known streaming provider; a token's own base URL comes before every variable. */
  function streamingUrl(provider: string, tokenBase?: string): string {
    const { base, socket } = STREAMING[provider] as StreamingProvider;
    const explicit = socket === undefined || tokenBase !== undefined ? undefined : variable(socket);
    if (socket !== undefined && explicit !== undefined) return webSocket(urlOf(explicit, socket, true));
    const url = isXai(provider) ? xaiBase(tokenBase) : baseOf(base);
    return isRealtimeId(provider) && url !== '' ? realtimeUrl(url) : url;
  }

  /** xAI's HTTP base, ending in `/v1`, from any of its URLs (contract 05 §11). */
  function xaiBase(tokenBase?: string): string {
    const url = (tokenBase ?? baseOf(XAI_BASE)).replace(/\/(?:realtime|tts)$/, '');
    return url.endsWith('/v1') ? url : `${url}/v1`;
  }

  /**
   * Key and URL of a basic provider; `section` is the whole `tts:` or `stt:` mapping (contract 05 §8). Null without a key
   * unless the base URL is configured and local (§18), and for a provider that has no keys or is unknown.
   * @throws RelayError `internal` naming the key or variable that is not a URL.
   */
  async function basicOf(kind: 'tts' | 'stt', name: string, section: Mapping): Promise<Credential | null> {
    const provider = basicProvider(name);
    const row = Object.hasOwn(BASIC, provider) ? BASIC[provider] : undefined;
    const known = row?.[kind];
    if (!row || !known) return null;
    for (const secret of secretsIn(section)) remember(secret);
    const own = readSectionFor(section, provider);
    const configured = textOf(own.api_key);
    const key =
      configured !== undefined && isPrintable(configured) ? { secret: configured, source: 'config' } : keyOf(row.keys);
    const configuredBase = textOf(own.base_url);
    const url = () =>
      configuredBase === undefined
        ? baseOf(known)
        : urlOf(configuredBase, `${kind}.${provider}.base_url`, provider === 'minimax');
    if (key) return url() === '' ? null : { ...key, baseUrl: url() };
    const token = provider === 'xai' ? await tokenOf() : null;
    if (token) return { secret: token.secret, baseUrl: token.baseUrl ?? baseOf(known), source: 'oauth' };
    const baseUrl = url();
    return baseUrl !== '' && isOnOwnersNetwork(baseUrl) ? { secret: '', baseUrl, source: 'none' } : null;
  }

  /** The renderer's part of the `tts:` section, else the result of `otherwise`, else a local server without a key. */
  async function configuredOr(
    provider: string,
    tts: Mapping | undefined,
    otherwise: () => Promise<Credential | null>,
  ): Promise<Credential | null> {
    const name = /^(.+)_tts$/.exec(provider)?.[1];
    if (tts === undefined || name === undefined) return otherwise();
    const section = basicSection(tts);
    const { base_url: url, api_key: key } = readSectionFor(section, name);
    const isConfigured = textOf(url) !== undefined || textOf(key) !== undefined;
    const found = isConfigured ? await basicOf('tts', name, section) : null;
    return found ?? (await otherwise()) ?? basicOf('tts', name, section);
  }

  /** Key and URL of a streaming provider: the one that speaks, or the HTTP base that lists its voices. */
  function find(
    provider: string,
    oauthPath: string | undefined,
    { tts, realtime = {} }: ServerSections = {},
    isSpeaking: boolean,
  ): Promise<Credential | null> {
    const urlFor = (tokenBase?: string) =>
      isXai(provider) && !isSpeaking ? xaiBase(tokenBase) : streamingUrl(provider, tokenBase);
    const found = () => credentialOf(provider, oauthPath, urlFor);
    return isRealtimeId(provider)
      ? realtimeOf(provider, realtime, found, isSpeaking)
      : configuredOr(provider, tts, found);
  }

  return {
    variable,
    oauth: tokenOf,

    /** True if a token exists, even an expired one. */
    isOauthConfigured: async (path?: string): Promise<boolean> => (await oauth?.isConfigured(path)) ?? false,

    /** Files that may contain that token, in order; empty without a host. */
    oauthPaths: async (path?: string): Promise<string[]> => (await oauth?.paths(path)) ?? [],

    /**
     * Key and URL of a streaming provider, by its id, from the environment and the xAI OAuth store (contract 05 §8).
     * `oauthPath` replaces the configured store. xAI's HTTP base always ends in `/v1`. Key and base URL of the section take
     * precedence: `tts:` for a renderer, `realtime:` for a realtime provider (§18). Null without a key, unless the base URL
     * is configured and local, and for `local` without a base URL.
     * @throws RelayError `internal` naming the key or variable that is not a URL.
     */
    streaming: (provider: string, oauthPath?: string, sections?: ServerSections) =>
      find(provider, oauthPath, sections, true),

    /** Like `streaming`, with the HTTP base URL that lists the provider's models and voices (contract 05 §11). */
    discovery: (provider: string, oauthPath?: string, sections?: ServerSections) =>
      find(provider, oauthPath, sections, false),

    basic: basicOf,

    /**
     * A provider's message as one line of at most 300 characters, without any secret of the environment, of sections seen by
     * `basic`, or of tokens seen by `streaming`, without `further` secrets, and without host paths (contract 05 §8).
     */
    redact(text: string, further: readonly string[] = []): string {
      const secrets = [...new Set([...environment, ...remembered, ...further])].filter(
        ({ length }) => length >= MIN_SECRET,
      );
      const whole = withoutCutSecret(text.slice(0, MAX_LOOKED_AT), secrets);
      const hidden = secrets.length === 0 ? whole : whole.replace(patternOf(secrets), '<redacted>');
      const line = visibleLine(hidden.replace(hostPaths, '<path>')).replace(/\s+/g, ' ').trim();
      return line.slice(0, MAX_MESSAGE).toWellFormed();
    },
  };
}

/**
 * The available credentials for voice output, or for realtime voice, which has more of them, by name and never by value
 * (contract 05 §10, §14).
 */
export async function authStatus(credentials: VoiceCredentials, use: 'output' | 'realtime', oauthPath?: string) {
  const set = (names: readonly string[]) => names.filter((name) => credentials.variable(name) !== undefined);
  const xai = set(use === 'realtime' ? XAI_REALTIME_KEYS : XAI_KEYS);
  const openai = set(use === 'realtime' ? OPENAI_REALTIME_KEYS : OPENAI_KEYS);
  const token = await credentials.oauth(oauthPath);
  return {
    xai_env: xai.length > 0,
    xai_env_names: xai,
    xai_oauth: token !== null,
    xai_oauth_source: token?.path ?? null,
    openai_env: openai.length > 0,
    openai_env_names: openai,
  };
}

/** Matches any of the secrets, also in their URL or JSON encoding; the longest first. */
function patternOf(secrets: readonly string[]): RegExp {
  const spellings = new Set(secrets.flatMap(spellingsOf));
  const longestFirst = [...spellings].sort((a, b) => b.length - a.length);
  return new RegExp(longestFirst.map(escaped).join('|'), 'g');
}

function spellingsOf(secret: string): string[] {
  const json = JSON.stringify(secret).slice(1, -1);
  return [secret, encodeURIComponent(secret.toWellFormed()), json, json.replaceAll('/', '\\/')];
}

/** The text without a secret that is cut off at its end, since error bodies are read up to a limit. */
function withoutCutSecret(text: string, secrets: readonly string[]): string {
  for (const secret of secrets) {
    for (let length = secret.length - 1; length >= MIN_CUT_SECRET; length--) {
      if (text.endsWith(secret.slice(0, length))) return text.slice(0, -length);
    }
  }
  return text;
}

/** Matches absolute paths in these directories, up to a character that ends a path in prose. */
function pathPattern(directories: readonly string[]): RegExp {
  const roots = [...new Set([...directories.filter((directory) => directory.length > 1), ...DIRECTORIES])];
  roots.sort((a, b) => b.length - a.length);
  const below = String.raw`(?<![\w.:/-])(?:file://)?(?:${roots.map(escaped).join('|')})/[^\s"'<>|:;,)\]}]*`;
  return new RegExp(`${below}|${WINDOWS_PATH}`, 'g');
}

const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&');

/** The texts of members that are named like a secret, on any level. */
function secretsIn(section: Mapping): string[] {
  return Object.entries(section).flatMap(([name, value]) => {
    if (isMapping(value)) return secretsIn(value);
    const text = textOf(value);
    return text !== undefined && SECRET_MEMBER.test(name) ? [text] : [];
  });
}

/**
 * An http(s) or ws(s) URL without a trailing slash. Its user, password and query might be secrets, so the first two are
 * refused, and the query is dropped unless the caller needs it.
 */
function urlOf(text: string, name: string, keepQuery = false): string {
  const url = cleanBase(text.replace(/^ws/i, 'http'));
  if (url === null) {
    throw new RelayError('internal', `${name} is not an http:// or https:// URL without user and password`);
  }
  return keepQuery ? url + new URL(text).search : url;
}

/** True if a base URL is at a loopback or private address: a server there may need no key (contract 05 §18). */
export function isOnOwnersNetwork(baseUrl: string): boolean {
  const host = unbracket(new URL(baseUrl).hostname);
  return isLoopbackName(host) || (canonicalAddress(host) !== null && !isPublicAddress(host));
}

/** True if a base URL of a basic provider is the provider's own, rather than one that the owner has configured. */
export const isOfficialBase = (kind: 'tts' | 'stt', provider: string, baseUrl: string): boolean =>
  Object.hasOwn(BASIC, provider) && BASIC[provider]?.[kind]?.fallback === baseUrl;

const isRealtimeId = (provider: string): boolean =>
  streamingProvider(provider) !== undefined && provider.endsWith('_realtime');

const isXai = (provider: string): boolean => provider.startsWith('xai_');

const webSocket = (url: string): string => url.replace(/^http/, 'ws');

/** The socket URL for a base URL, which may already be one. */
const realtimeUrl = (url: string): string => webSocket(url.endsWith('/realtime') ? url : `${url}/realtime`);

/** The HTTP base URL for a socket URL. */
export const listsUrl = (url: string): string => url.replace(/^ws/, 'http').replace(/\/realtime$/, '');
