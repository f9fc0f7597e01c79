import { type Config, parseBoolean } from '../config.ts';
import { RelayError } from '../errors.ts';
import type { JsonObject } from '../kit/json.ts';
import { visible, visibleName } from '../kit/text.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';
import { MAX_RATE, MIN_RATE } from './limits.ts';
import { findProvider, isRenderer, requireProvider, type StreamingProvider } from './registry.ts';
import { isScalar, memberOf } from './section.ts';

/** Settings that voice output and realtime voice have in common. */
export interface StreamingSettings {
  enabled: boolean;
  provider: string;
  model: string;
  voice: string;
  sampleRate: number;
}

/** `voice_output:` (contract 05 §4). */
export interface OutputSettings extends StreamingSettings {
  language: string;
  codec: string;
  optimizeStreamingLatency: number;
  textNormalization: boolean;
  autoSpeechTags: boolean;
  fallbackEnabled: boolean;
}

/** `realtime_voice:` (contract 05 §4), without the keys of the realtime agent. */
export type RealtimeSettings = StreamingSettings;

/** Default model and voice of a provider. */
export type DefaultsFor = (provider: StreamingProvider) => Pick<StreamingSettings, 'model' | 'voice'>;

/** One setting: its name in files, and how its value is read there and checked in a `PATCH`. */
export interface Field {
  /** The first one is also its name in a `PATCH`. */
  names: readonly [string, ...string[]];
  kind: Kind;
}

/** `read` is lenient, for files: undefined for an ignored value. `check` throws `invalid`. */
export interface Kind {
  read(value: unknown): unknown;
  check(value: unknown, name: string): unknown;
}

export type Fields<S> = Readonly<Record<keyof S, Field>>;

/** A section of a configuration file that holds settings of the streaming path. */
export interface SectionKind<S extends StreamingSettings> {
  readonly name: 'voice_output' | 'realtime_voice';
  readonly defaults: Readonly<S>;
  readonly fields: Fields<S>;
  /** Turns a provider's aliases into its id (contract 05 §4). */
  canonical(provider: string): string;
  /** Before the names of fields that there are not. */
  unsupported?: string;
  /** True if a profile without a file uses the section of the agent's root configuration (contract 06 §2.1). */
  fallsBackToRoot?: true;
  /** Overrides by variables. */
  environment(config: Config): { readonly [Key in keyof S]?: unknown };
}

const isText = (value: unknown, max: number): value is string =>
  typeof value === 'string' && value.trim().length > 0 && value.trim().length <= max && visible(value) === value;

export const flag: Kind = {
  read: (value) => (typeof value === 'boolean' ? value : (parseBoolean(String(value)) ?? undefined)),
  check(value, name) {
    if (typeof value === 'boolean') return value;
    const parsed = isText(value, 8) ? parseBoolean(value) : null;
    if (parsed === null) throw new RelayError('invalid', `${name} must be a boolean`);
    return parsed;
  },
};

export const text = (max: number): Kind => ({
  read: (value) => (isText(String(value).trim(), max) ? String(value).trim() : undefined),
  check(value, name) {
    if (isText(value, max)) return value.trim();
    throw new RelayError('invalid', `${name} must be text of 1 to ${max} characters`);
  },
});

const integer = (min: number, max: number): Kind => {
  const isInRange = (value: unknown): value is number => Number.isInteger(value) && isBetween(value as number);
  const isBetween = (value: number) => value >= min && value <= max;
  return {
    read(value) {
      const number = typeof value === 'string' && /^\d{1,9}$/.test(value.trim()) ? Number(value) : value;
      return isInRange(number) ? number : undefined;
    },
    check(value, name) {
      if (isInRange(value)) return value;
      throw new RelayError('invalid', `${name} must be an integer from ${min} to ${max}`);
    },
  };
};

export function oneOf(words: readonly string[]): Kind {
  const wordOf = (value: unknown) => (typeof value === 'string' ? value.trim().toLowerCase() : '');
  return {
    read: (value) => (words.includes(wordOf(value)) ? wordOf(value) : undefined),
    check(value, name) {
      if (words.includes(wordOf(value))) return wordOf(value);
      throw new RelayError('invalid', `${name} must be one of ${words.join(', ')}`);
    },
  };
}

/** Only `pcm` can be rendered; the others are accepted, and fail a session when it renders. */
const codec: Kind = {
  ...oneOf(['pcm', 'wav', 'mp3', 'mulaw', 'ulaw', 'alaw']),
  read: (value) => String(value).trim().toLowerCase() || undefined,
};

const providerOf = (use: 'output' | 'any', canonical: (provider: string) => string): Kind => ({
  read: (value) => canonical(String(value).trim()) || undefined,
  check(value, name) {
    return requireProvider(text(80).check(value, name) as string, use).info.id;
  },
});

/** `xai` and `grok`, `openai`, `elevenlabs`, `local` in any case, with `-` for `_`; others stay as they are (contract 05 §4). */
const aliases = (streaming: 'tts' | 'realtime') => {
  const ids: Readonly<Record<string, string>> = {
    xai: `xai_${streaming}`,
    grok: `xai_${streaming}`,
    openai: `openai_${streaming}`,
    elevenlabs: 'elevenlabs_tts',
    local: `local_${streaming}`,
    openai_compatible: `local_${streaming}`,
  };
  return (provider: string): string => {
    const word = provider.trim().toLowerCase().replaceAll('-', '_');
    if (Object.hasOwn(ids, word)) return ids[word] as string;
    return findProvider(word) ? word : provider;
  };
};

const rate = integer(MIN_RATE, MAX_RATE);

const common = (use: 'output' | 'any', canonical: (provider: string) => string): Fields<StreamingSettings> => ({
  enabled: { names: ['enabled'], kind: flag },
  provider: { names: ['provider'], kind: providerOf(use, canonical) },
  model: { names: ['model', 'model_id'], kind: text(160) },
  voice: { names: ['voice', 'voice_id'], kind: text(160) },
  sampleRate: { names: ['sample_rate'], kind: rate },
});

const outputAlias = aliases('tts');
export const realtimeAlias = aliases('realtime');

export const voiceOutput: SectionKind<OutputSettings> = {
  name: 'voice_output',
  defaults: {
    enabled: true,
    provider: 'xai_tts',
    model: 'xai-tts',
    voice: 'eve',
    sampleRate: 24_000,
    language: 'en',
    codec: 'pcm',
    optimizeStreamingLatency: 1,
    textNormalization: false,
    autoSpeechTags: false,
    fallbackEnabled: true,
  },
  fields: {
    ...common('output', outputAlias),
    language: { names: ['language'], kind: text(24) },
    codec: { names: ['codec'], kind: codec },
    optimizeStreamingLatency: { names: ['optimize_streaming_latency', 'optimize_latency'], kind: integer(0, 1) },
    textNormalization: { names: ['text_normalization'], kind: flag },
    autoSpeechTags: { names: ['auto_speech_tags'], kind: flag },
    fallbackEnabled: { names: ['fallback_enabled'], kind: flag },
  },
  canonical: outputAlias,
  environment: (config) => ({
    enabled: config.voiceOutputEnabled,
    provider: config.voiceOutputProvider,
    model: config.voiceOutputModel,
    voice: config.voiceOutputVoice,
    sampleRate: config.voiceOutputSampleRate,
    language: config.voiceOutputLanguage,
    codec: config.voiceOutputCodec,
    optimizeStreamingLatency: config.voiceOutputOptimizeLatency,
    textNormalization: config.voiceOutputTextNormalization,
    autoSpeechTags: config.voiceOutputAutoSpeechTags,
    fallbackEnabled: config.voiceOutputFallbackEnabled,
  }),
};

export const realtimeVoice: SectionKind<RealtimeSettings> = {
  name: 'realtime_voice',
  defaults: {
    enabled: true,
    provider: 'xai_realtime',
    model: 'grok-voice-latest',
    voice: 'eve',
    sampleRate: 24_000,
  },
  fields: common('any', realtimeAlias),
  canonical: realtimeAlias,
  environment: (config) => ({
    enabled: config.realtimeVoiceEnabled,
    provider: config.realtimeVoiceProvider,
    model: config.realtimeVoiceModel,
    voice: config.realtimeVoiceVoice,
    sampleRate: config.realtimeVoiceSampleRate,
  }),
};

/**
 * Settings overlaid with others, of which absent ones are skipped. A layer with another provider and without model or voice
 * uses that provider's defaults, since the lower values belong to the former one.
 */
export function overlay<S extends StreamingSettings>(below: S, layer: Partial<S>): S {
  const given = Object.fromEntries(Object.entries(layer).filter(([, value]) => value !== undefined)) as Partial<S>;
  const other = given.provider !== undefined && given.provider !== below.provider;
  const provider = other ? findProvider(given.provider as string) : undefined;
  return { ...below, ...(provider && { model: provider.defaultModel, voice: provider.defaultVoice }), ...given };
}

/**
 * Settings whose model and voice come from `defaultsFor` unless a layer sets them for the provider in use (contract 05 §18).
 * Later layers take precedence.
 */
export function withDefaults<S extends StreamingSettings>(
  settings: S,
  defaults: Readonly<S>,
  layers: readonly Partial<S>[],
  defaultsFor: DefaultsFor,
): S {
  let { provider }: StreamingSettings = defaults;
  let named: Partial<Pick<StreamingSettings, 'model' | 'voice'>> = {};
  for (const layer of layers) {
    if (layer.provider !== undefined && layer.provider !== provider) named = {};
    provider = layer.provider ?? provider;
    if (layer.model !== undefined) named.model = layer.model;
    if (layer.voice !== undefined) named.voice = layer.voice;
  }
  const known = findProvider(settings.provider);
  if (!known) return settings;
  const { model, voice } = defaultsFor(known);
  return { ...settings, ...(named.model === undefined && { model }), ...(named.voice === undefined && { voice }) };
}

/**
 * Settings from a section of a file. Invalid values are ignored and reported by name to `onInvalid`, and so are the model
 * and the voice of an invalid provider.
 */
export function readSettings<S extends StreamingSettings>(
  kind: SectionKind<S>,
  section: unknown,
  onInvalid: (name: string) => void = () => {},
): Partial<S> {
  const settings: Partial<S> = {};
  if (!isMapping(section)) return settings;
  for (const [key, { names, kind: value }] of entriesOf(kind.fields)) {
    const found = memberOf(section, names, kind.canonical);
    const read = found === undefined ? undefined : value.read(found);
    if (read !== undefined) settings[key] = read as S[typeof key];
    else if (found !== undefined) onInvalid(names[0]);
  }
  const isUnusable = settings.provider === undefined && memberOf(section, kind.fields.provider.names) !== undefined;
  if (isUnusable) {
    delete settings.model;
    delete settings.voice;
  }
  return settings;
}

/** Settings from variables. Invalid values are ignored. */
export function readEnvironment<S extends StreamingSettings>(kind: SectionKind<S>, config: Config): Partial<S> {
  const values = kind.environment(config);
  const settings: Partial<S> = {};
  for (const [key, { kind: value }] of entriesOf(kind.fields)) {
    const read = values[key] === undefined ? undefined : value.read(values[key]);
    if (read !== undefined) settings[key] = read as S[typeof key];
  }
  return settings;
}

/**
 * Settings from the `tts:` section of a profile without `voice_output:`: provider, model, voice and sample rate, or nothing
 * if its provider is not a streaming renderer, with which every session would fail.
 */
export function readTtsSettings(section: unknown): Partial<OutputSettings> {
  const { provider, model, voice, sampleRate } = readSettings(voiceOutput, section);
  const known = provider === undefined ? undefined : findProvider(provider);
  if (provider !== undefined && !(known && isRenderer(known))) return {};
  return Object.fromEntries(
    Object.entries({ provider, model, voice, sampleRate }).filter(([, value]) => value !== undefined),
  );
}

/** A checked `PATCH`: the settings by their names in the file. */
export type Changes = ReadonlyMap<string, unknown>;

/**
 * Checks the body of a `PATCH` (contract 05 §10, 06 §3.1). `profile` is not a setting.
 * @throws RelayError `invalid`
 */
export function checkChanges<S extends StreamingSettings>(kind: SectionKind<S>, body: JsonObject): Changes {
  const fields = new Map(entriesOf(kind.fields).map(([, field]) => [field.names[0], field.kind]));
  const names = Object.keys(body).filter((name) => name !== 'profile');
  const unsupported = names.filter((name) => !fields.has(name));
  if (unsupported.length > 0) {
    const shown = unsupported.slice(0, 8).map((name) => visibleName(name.slice(0, 64)));
    if (kind.unsupported) shown.sort();
    throw new RelayError('invalid', `${kind.unsupported ?? 'unsupported'}: ${shown.join(', ')}`);
  }
  if (names.length === 0) throw new RelayError('invalid', 'nothing to change: no setting was given');
  return new Map(names.map((name) => [name, fields.get(name)?.check(body[name], name)]));
}

/** The settings that a `PATCH` decides: with a provider, also its model and its voice. */
export const keysOf = <S extends StreamingSettings>({ fields }: SectionKind<S>, changes: Changes): string[] =>
  entriesOf(fields)
    .filter(([, { names }]) => changes.has(names[0]) || (changes.has('provider') && /^(?:model|voice)$/.test(names[0])))
    .map(([key]) => key as string);

/**
 * The keys to write into a section for a `PATCH`. A setting that exists under another name is changed under that name. A
 * provider other than `present` replaces the written model and voice of the former one by its own.
 */
export function keysToWrite<S extends StreamingSettings>(
  kind: SectionKind<S>,
  changes: Changes,
  section: Mapping,
  { settings: present, defaultsFor }: Present,
): Mapping {
  const all = new Map(changes);
  const provider = changes.get('provider');
  const other = provider !== present.provider ? findProvider(String(provider)) : undefined;
  if (other) {
    const nested = readSettings(kind, { ...mappingsIn(section), provider });
    const { model, voice } = { ...defaultsFor(other), ...nested };
    for (const [name, value] of [['model', model] as const, ['voice', voice] as const]) {
      if (!all.has(name) && namesOf(kind, name).some((known) => isScalar(section[known]))) all.set(name, value);
    }
  }
  return Object.fromEntries(
    [...all].map(([name, value]) => [
      namesOf(kind, name).find((known) => Object.hasOwn(section, known)) ?? name,
      value,
    ]),
  );
}

const mappingsIn = (section: Mapping): Mapping =>
  Object.fromEntries(Object.entries(section).filter(([, value]) => isMapping(value)));

/** The present settings, and the defaults of a provider. */
interface Present {
  settings: StreamingSettings;
  defaultsFor: DefaultsFor;
}

/** The spellings of a setting in files. */
const namesOf = <S extends StreamingSettings>({ fields }: SectionKind<S>, name: string): readonly string[] =>
  entriesOf(fields).find(([, field]) => field.names[0] === name)?.[1].names ?? [name];

const entriesOf = <S>(fields: Fields<S>) => Object.entries(fields) as [keyof S, Field][];
