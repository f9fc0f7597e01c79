import { describeError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { sha256 } from '../kit/sha256.ts';
import { withDeadline } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import type { CommandHost } from './command.ts';
import type { Credential, VoiceCredentials } from './credentials.ts';
import {
  type Discovered,
  discoverElevenlabs,
  discoverLocal,
  discoverXai,
  type Listed,
  voiceLabel,
} from './discovery.ts';
import { programVoices } from './program-voices.ts';
import type { ProviderInfo, StreamingProvider } from './registry.ts';
import { commandOf, type ServerSections, withOwn } from './servers.ts';

/** Milliseconds that a failed or partial discovery is cached at most. */
const MAX_ERROR_AGE = 30_000;
/** Milliseconds for a program that lists its voices. */
const PROGRAM_TIMEOUT = 5000;
const MAX_ENTRIES = 64;
const XAI_VOICES =
  'carina zagan helix orion luna iris altair zenith perseus helios lux kepler rigel cosmo celeste ursa sirius lumen castor naksh atlas ara eve leo rex sal'.split(
    ' ',
  );
const XAI_MODELS = ['xai-tts', 'grok-voice-latest', 'grok-voice-think-fast-1.0'];
const XAI_RECOMMENDED = ['eve', 'ara', 'sal'];
const OPENAI_RECOMMENDED = ['marin', 'cedar', 'coral'];
const OPENAI_OLD_VOICES = 'alloy ash coral echo fable onyx nova sage shimmer'.split(' ');

export type OptionsMode = 'voice_output' | 'realtime_voice' | 'realtime_agent';

export type VoiceGroup = {
  id: string;
  label: string;
  values: string[];
  source: string;
  recommended?: string[];
  custom?: boolean;
};

export type VoiceMetadata = {
  source: string;
  custom: boolean;
  recommended: boolean;
  experimental: false;
  requires_manual_id: false;
  label?: string;
};

/** A provider's metadata with everything that can be chosen (contract 05 §11). A type, so that it is a JSON value. */
export type ProviderOptions = ProviderInfo & {
  model_labels: Record<string, string>;
  voice_labels: Record<string, string>;
  language_labels: Record<string, string>;
  voice_metadata: Record<string, VoiceMetadata>;
  voice_groups: VoiceGroup[];
  recommended_voices: string[];
  model_voice_compatibility: Record<string, string[]>;
  requires_manual_id: boolean;
};

/** The origin of the options (contract 05 §11). */
export type Dynamic = {
  attempted: boolean;
  status: 'static' | 'auth_missing' | 'ok' | 'error';
  source: string;
  message?: string;
  voice_count: number;
  custom_voice_count: number;
  model_count: number;
  /** Where the credential came from, never its value. */
  auth_source: string | null;
  cache: 'miss' | 'hit';
  cache_ttl_seconds: number;
};

export interface FoundOptions {
  provider: ProviderOptions;
  dynamic: Dynamic;
}

export interface VoiceOptionsDeps {
  /** Starts programs that list their voices. Absent at the edge. */
  host?: CommandHost;
  credentials: VoiceCredentials;
  upstream: Upstream;
  clock: Clock;
  log: Log;
  /** Seconds; 0 disables the cache. */
  cacheSeconds: number;
}

interface Entry {
  found: FoundOptions;
  /** Monotonic milliseconds. */
  until: number;
}

/** Options of streaming providers, cached by mode, provider and credential (contract 05 §11). */
export function createVoiceOptions({ host, credentials, upstream, clock, log, cacheSeconds }: VoiceOptionsDeps) {
  /** Oldest first. */
  const cache = new Map<string, Entry>();
  const running = new Map<string, Promise<FoundOptions>>();
  const stopping = new AbortController();

  /** Discovers the options of one provider. Never rejects. */
  async function find(provider: StreamingProvider, auth: Auth): Promise<FoundOptions> {
    const found = (fields: OptionFields, source: string, facts: Partial<Dynamic> = {}): FoundOptions => ({
      provider: optionsOf(provider, fields),
      dynamic: { ...STATIC, source, ...facts },
    });
    if ('program' in auth) {
      const voices = await voicesOf(auth.program);
      const facts = voices.length > 0 && ({ attempted: true, status: 'ok', voice_count: voices.length } as const);
      return found(ownVoices(LOCAL, voices), 'local_program', { ...facts });
    }
    const discovery = discoveries[provider.info.id];
    if (!discovery) return found({}, 'provider_info');
    const { source, discover } = discovery;
    const known = (facts: Partial<Dynamic>) => found(discovery.fields(provider), source, facts);
    if (!discover) return known({ auth_source: ('credential' in auth && auth.credential?.source) || null });
    if ('problem' in auth) return known({ status: 'error', message: auth.problem });
    if (auth.credential === null) return known({ status: 'auth_missing' });
    const discovered = await discover({ upstream, clock, signal: stopping.signal }, auth.credential);
    const message = credentials.redact(discovered.problems.join('; '));
    if (message) log.debug(`options of ${provider.info.id}: ${message}`);
    return found(discovery.fields(provider, discovered), source, {
      attempted: true,
      status: discovered.isOk ? 'ok' : 'error',
      ...(message && { message }),
      voice_count: discovered.voices.length + discovered.customVoices.length,
      custom_voice_count: discovered.customVoices.length,
      model_count: discovered.models.length,
      auth_source: auth.credential.source,
    });
  }

  /** The voices of a program, if it can list them. */
  async function voicesOf(program: readonly string[]): Promise<Listed[]> {
    const limits = { clock, timeout: PROGRAM_TIMEOUT, signal: stopping.signal };
    return host ? withDeadline(limits, (signal) => programVoices(host, program, signal)) : [];
  }

  function remember(key: string, found: FoundOptions): void {
    const isWhole = found.dynamic.message === undefined;
    const age = isWhole ? cacheSeconds * 1000 : Math.min(cacheSeconds * 1000, MAX_ERROR_AGE);
    found.dynamic.cache_ttl_seconds = age / 1000;
    if (age === 0) return;
    cache.delete(key);
    const [oldest] = cache.keys();
    if (oldest !== undefined && cache.size >= MAX_ENTRIES) cache.delete(oldest);
    cache.set(key, { found, until: clock.monotonic() + age });
  }

  /** The credential for discovery, or the problem with its configuration. */
  async function authOf({ info }: StreamingProvider, oauthPath?: string, servers: ServerSections = {}): Promise<Auth> {
    try {
      const program = info.id === 'local_tts' ? commandOf('tts', servers.tts ?? {}) : undefined;
      if (program) return { program };
      return { credential: await credentials.discovery(info.id, oauthPath, servers) };
    } catch (error) {
      return { problem: credentials.redact(describeError(error)) };
    }
  }

  return {
    /**
     * The options of a provider, discovered if it can list them, else the static ones. A failed discovery is reported in
     * `dynamic`. The caller owns the result.
     */
    async of(
      mode: OptionsMode,
      named: StreamingProvider,
      oauthPath?: string,
      servers: ServerSections = {},
    ): Promise<FoundOptions> {
      const provider = withOwn(named, servers);
      const auth = await authOf(provider, oauthPath, servers);
      // Only a hash of the secret is stored.
      const key = sha256(JSON.stringify([mode, provider.info, auth]));
      const cached = cache.get(key);
      if (cached && cached.until > clock.monotonic()) {
        const copy = structuredClone(cached.found);
        copy.dynamic.cache = 'hit';
        return copy;
      }
      const search =
        running.get(key) ??
        find(provider, auth)
          .then((found) => {
            remember(key, found);
            return found;
          })
          .finally(() => running.delete(key));
      running.set(key, search);
      return structuredClone(await search);
    },

    /** Aborts running calls. */
    stop: () => stopping.abort(),
  };
}

type Auth = { credential: Credential | null } | { problem: string } | { program: readonly string[] };

const STATIC: Omit<Dynamic, 'source'> = {
  attempted: false,
  status: 'static',
  voice_count: 0,
  custom_voice_count: 0,
  model_count: 0,
  auth_source: null,
  cache: 'miss',
  cache_ttl_seconds: 0,
};

/** Facts beside the static lists. */
interface OptionFields {
  models?: Listed[];
  languages?: Listed[];
  groups?: VoiceGroup[];
  labels?: Record<string, string>;
  recommended?: string[];
  compatibility?: Record<string, string[]>;
}

interface Discovery {
  source: string;
  /** Absent if the provider lists nothing. */
  discover?: typeof discoverXai;
  fields(provider: StreamingProvider, discovered?: Discovered): OptionFields;
}

const openai = (id: string, label: string): Discovery => ({
  source: 'openai_docs',
  fields: ({ info: { voices, models } }) => ({
    groups: [{ id, label, values: voices, source: 'openai_docs', recommended: OPENAI_RECOMMENDED }],
    labels: labelsOf(voices.map((voice) => ({ id: voice }))),
    recommended: OPENAI_RECOMMENDED,
    compatibility: Object.fromEntries(
      models.map((model) => [model, model.startsWith('tts-1') ? OPENAI_OLD_VOICES : voices]),
    ),
  }),
});

const xai: Discovery = {
  source: 'xai_api',
  discover: discoverXai,
  fields(_, discovered) {
    const listed = discovered?.voices ?? [];
    const builtin = listed.length > 0 ? listed : XAI_VOICES.map((id): Listed => ({ id }));
    const custom = discovered?.customVoices ?? [];
    const ids = idsOf(builtin);
    const recommended = XAI_RECOMMENDED.filter((id) => ids.includes(id));
    const source = listed.length > 0 ? 'xai_api' : 'xai_docs';
    const own = ownVoices({ id: 'xai_custom', label: 'Your voices', source: 'xai_api' }, custom);
    const all = [...new Set([...ids, ...idsOf(custom)])];
    return {
      groups: [{ id: 'xai_builtin', label: 'xAI voices', values: ids, source, recommended }, ...own.groups],
      labels: labelsOf([...builtin, ...custom]),
      recommended,
      compatibility: Object.fromEntries(XAI_MODELS.map((model) => [model, all])),
    };
  },
};

const LOCAL = { id: 'local', label: 'Your own voices', source: 'local' };

const local: Discovery = {
  source: 'local_server',
  discover: discoverLocal,
  fields: (_, discovered) => ({ models: discovered?.models, ...ownVoices(LOCAL, discovered?.voices) }),
};

const ELEVENLABS = { id: 'elevenlabs_account', label: 'Your ElevenLabs voices', source: 'elevenlabs_api' };

const elevenlabs: Discovery = {
  source: 'elevenlabs_api',
  discover: discoverElevenlabs,
  fields: (_, discovered) => ({
    models: discovered?.models,
    languages: discovered?.languages,
    ...ownVoices(ELEVENLABS, discovered?.customVoices),
  }),
};

/** The voices of an account, or of the owner's own server or program, as a group if there are any. */
const ownVoices = (group: Pick<VoiceGroup, 'id' | 'label' | 'source'>, voices: readonly Listed[] = []) => ({
  groups: voices.length > 0 ? [{ ...group, values: idsOf(voices), custom: true }] : [],
  labels: labelsOf(voices),
});

/** Sources of further options, by provider; the others have only their static lists. */
const discoveries: Readonly<Record<string, Discovery | undefined>> = {
  elevenlabs_tts: elevenlabs,
  local_realtime: local,
  local_tts: local,
  openai_realtime: openai('openai_realtime_builtin', 'OpenAI Realtime voices'),
  openai_tts: openai('openai_builtin', 'OpenAI voices'),
  xai_realtime: xai,
  xai_tts: xai,
};

const idsOf = (items: readonly Listed[]): string[] => [...new Set(items.map(({ id }) => id))];

const labelsOf = (items: readonly Listed[]): Record<string, string> =>
  Object.fromEntries(items.map((voice) => [voice.id, voiceLabel(voice)]));

/** Named entries of `items` that have a label. */
const givenLabels = (items: readonly Listed[] = []): Record<string, string> =>
  Object.fromEntries(items.flatMap(({ id, label }) => (label === undefined ? [] : [[id, label]])));

/** The static lists, each followed by what is new, and the maps beside them. */
function optionsOf({ info }: StreamingProvider, fields: OptionFields): ProviderOptions {
  const { groups = [], labels = {}, recommended = [], compatibility = {} } = fields;
  const metadata = groups.flatMap(({ values, source, custom = false }) =>
    values.map((id): [string, VoiceMetadata] => [
      id,
      {
        source,
        custom,
        recommended: recommended.includes(id),
        experimental: false,
        requires_manual_id: false,
        ...(Object.hasOwn(labels, id) && { label: labels[id] }),
      },
    ]),
  );
  return {
    ...info,
    models: merged(info.models, idsOf(fields.models ?? [])),
    voices: merged(
      info.voices,
      groups.flatMap(({ values }) => values),
    ),
    languages: merged(info.languages, idsOf(fields.languages ?? [])),
    model_labels: givenLabels(fields.models),
    voice_labels: labels,
    language_labels: givenLabels(fields.languages),
    voice_metadata: Object.fromEntries(metadata),
    voice_groups: groups,
    recommended_voices: recommended,
    model_voice_compatibility: compatibility,
    requires_manual_id: false,
  };
}

const merged = (fixed: readonly string[], found: readonly string[]): string[] => [...new Set([...fixed, ...found])];

/** One finding about a selection. */
export type Check = { id: string; status: 'ok' | 'warning' | 'error'; message: string };

/** A selection to check, without a language if there is no choice. */
export interface Selection {
  model: string;
  voice: string;
  sampleRate: number;
  language?: string;
}

/** Checks a selection against the lists that the provider advertises (contract 05 §11). */
export function checkSelection(options: ProviderOptions, { model, voice, sampleRate, language }: Selection): Check[] {
  const checks: Check[] = [];
  const add = (id: string, status: Check['status'], message: string) => checks.push({ id, status, message });

  if (options.models.length > 0) {
    if (model === '') add('model_present', 'error', 'choose a model');
    else if (options.models.includes(model)) add('model_known', 'ok', 'the provider lists this model');
    else add('model_known', 'warning', 'the provider does not list this model');
  }
  if (options.voices.length > 0) {
    const fitting = Object.hasOwn(options.model_voice_compatibility, model)
      ? options.model_voice_compatibility[model]
      : undefined;
    if (voice === '') add('voice_present', 'error', 'choose a voice');
    else if (fitting && !fitting.includes(voice))
      add('voice_compatible', 'error', 'the model does not have this voice');
    else if (options.voices.includes(voice)) add('voice_known', 'ok', 'the provider lists this voice');
    else add('voice_known', 'warning', 'the provider does not list this voice');
  }
  if (options.sample_rates.length > 0) {
    if (options.sample_rates.includes(sampleRate)) add('sample_rate_known', 'ok', 'the provider has this sample rate');
    else add('sample_rate_known', 'error', `choose one of ${options.sample_rates.join(', ')}`);
  }
  if (language !== undefined && options.languages.length > 0) {
    if (options.languages.includes(language)) add('language_known', 'ok', 'the provider lists this language');
    else add('language_known', 'warning', 'the provider does not list this language');
  }
  return checks;
}
