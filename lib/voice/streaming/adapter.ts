import { RelayError } from '../../errors.ts';
import { asObject, isObject } from '../../kit/json.ts';
import { MAX_ID, MAX_LANGUAGE, MAX_RATE, MIN_RATE } from '../limits.ts';
import { booleanOf, numberOf } from '../section.ts';
import type { ServerSections } from '../servers.ts';

/** The settings of a session that a render starts from. */
export interface RenderSettings {
  model: string;
  voice: string;
  /** Hertz; an adapter may render at another rate and says so in its chunks. */
  sampleRate: number;
  language: string;
  codec: string;
  optimizeStreamingLatency: number;
  textNormalization: boolean;
  autoSpeechTags: boolean;
  /** The token store of xAI that the profile sets, in place of the configured one. */
  oauthPath?: string;
  /** The sections with keys, base URLs and further settings (contract 05 §18). */
  servers?: ServerSections;
  /** Further headers of a realtime provider's handshake, from the host's configuration. */
  headers?: Readonly<Record<string, string>>;
}

export interface RenderRequest extends RenderSettings {
  text: string;
  renderMode: string;
  expression: Expression;
  options: ProviderOptions;
  toolScaffold: boolean;
  /** Aborts the render and its upstream call. */
  signal: AbortSignal;
}

export interface AudioChunk {
  /** Whole samples, signed 16-bit little-endian mono: about 4096 bytes, at most 64 KiB. */
  pcm: Uint8Array;
  /** Hertz of these bytes. */
  sampleRate: number;
  label: string;
}

/** Report of a finished render. */
export interface Rendered {
  provider: string;
  model: string;
  voice: string;
  metadata: Record<string, unknown>;
  transcript?: string;
}

/**
 * Renders a text as audio, on demand: the provider is read no faster than chunks are consumed, and leaving the loop early
 * aborts the upstream call. Throws a `RelayError` whose message may be shown to a client, or the reason of the signal.
 */
export type Adapter = (request: RenderRequest) => AsyncGenerator<AudioChunk, Rendered>;

const MAX_WORD = 80;
const MAX_INSTRUCTIONS = 4000;
const MAX_HINTS = 32;
const MAX_HINT = 200;

const EXPRESSION_DEFAULTS = {
  emotion: 'neutral',
  tone: 'natural',
  /** 0 to 1. */
  intensity: 0.45,
  pace: 'normal',
  style: 'natural',
  pronunciationHints: [] as string[],
  interruptionBehavior: 'allow',
  personaInstructions: '',
};

/** Style in which a text is spoken (contract 05 §12, `expression`). */
export type Expression = typeof EXPRESSION_DEFAULTS;

const textOf = (value: unknown, limit: number): string | undefined =>
  typeof value === 'string' ? value.trim().slice(0, limit).toWellFormed() || undefined : undefined;

/** An option clamped to the provider's range; undefined if absent. */
export const clamped = (value: number | undefined, min: number, max: number): number | undefined =>
  value === undefined ? undefined : Math.min(max, Math.max(min, value));

/**
 * `expression` of a `response.create`: absent and blank members take their defaults, long ones are cut. Throws `invalid`
 * for an intensity outside 0 to 1, and for anything but an object.
 */
export function parseExpression(value: unknown): Expression {
  if (value === undefined || value === null) return { ...EXPRESSION_DEFAULTS, pronunciationHints: [] };
  if (!isObject(value)) throw new RelayError('invalid', 'expression must be an object');
  const intensity = value.intensity ?? EXPRESSION_DEFAULTS.intensity;
  if (typeof intensity !== 'number' || !(intensity >= 0 && intensity <= 1)) {
    throw new RelayError('invalid', 'expression.intensity must be a number from 0 to 1');
  }
  const word = (name: string, fallback: string) => textOf(value[name], MAX_WORD) ?? fallback;
  const hints = Array.isArray(value.pronunciation_hints) ? value.pronunciation_hints.slice(0, MAX_HINTS) : [];
  return {
    emotion: word('emotion', EXPRESSION_DEFAULTS.emotion),
    tone: word('tone', EXPRESSION_DEFAULTS.tone),
    intensity,
    pace: word('pace', EXPRESSION_DEFAULTS.pace),
    style: word('style', EXPRESSION_DEFAULTS.style),
    pronunciationHints: hints.flatMap((hint) => textOf(hint, MAX_HINT) ?? []),
    interruptionBehavior: word('interruption_behavior', EXPRESSION_DEFAULTS.interruptionBehavior),
    personaInstructions: textOf(value.persona_instructions, MAX_INSTRUCTIONS) ?? '',
  };
}

/**
 * The delivery that an expression requests, as one line of text, without defaults. Empty for the default expression. The
 * intensity only matters together with another member.
 */
export function describeExpression(expression: Expression): string {
  const { intensity, pronunciationHints, personaInstructions } = expression;
  const words = (['emotion', 'tone', 'pace', 'style'] as const)
    .filter((name) => expression[name].toLowerCase() !== EXPRESSION_DEFAULTS[name])
    .map((name) => `${name}: ${expression[name]}`);
  if (words.length > 0 || intensity !== EXPRESSION_DEFAULTS.intensity) words.push(`intensity: ${intensity} of 1`);
  if (pronunciationHints.length > 0) words.push(`pronunciation: ${pronunciationHints.join('; ')}`);
  if (personaInstructions !== '') words.push(`persona: ${personaInstructions}`);
  return words.join('. ').replace(/\s+/g, ' ');
}

/** The options of a provider that a client may set. */
export type ProviderOptions = Partial<ReturnType<typeof parseProviderOptions>>;

/**
 * `provider_options` of a `response.create` (contract 05 §12). Members of another name or type are dropped, since a URL, a
 * key or a header from a client could send the host's credentials to a server of the client's choice.
 */
export function parseProviderOptions(given: unknown) {
  const value = asObject(given) ?? {};
  return {
    model: textOf(value.model, MAX_ID),
    voice: textOf(value.voice, MAX_ID) ?? textOf(value.voice_id, MAX_ID),
    language: textOf(value.language, MAX_LANGUAGE),
    instructions: textOf(value.instructions, MAX_INSTRUCTIONS),
    speed: numberOf(value.speed),
    stability: numberOf(value.stability),
    similarityBoost: numberOf(value.similarity_boost),
    style: numberOf(value.style),
    useSpeakerBoost: booleanOf(value.use_speaker_boost),
    outputFormat: textOf(value.output_format, MAX_LANGUAGE)?.toLowerCase(),
    textNormalization: booleanOf(value.text_normalization),
    optimizeStreamingLatency: numberOf(value.optimize_streaming_latency),
    autoSpeechTags: booleanOf(value.auto_speech_tags),
  };
}

/** A text to render, and the client's wishes for it, which are not checked yet. */
interface RenderMessage extends Pick<RenderRequest, 'text' | 'renderMode' | 'signal'> {
  expression?: unknown;
  providerOptions?: unknown;
  toolScaffold?: boolean;
}

/**
 * The request of one render: the session's settings, overridden by the options of the message. `output_format` is a codec,
 * with or without a rate (`pcm_22050`). Throws `invalid` as `parseExpression` does, and for a rate outside 8000 to 96000.
 */
export function renderRequest(
  settings: RenderSettings,
  { text, renderMode, expression, providerOptions, toolScaffold = false, signal }: RenderMessage,
): RenderRequest {
  const options = parseProviderOptions(providerOptions);
  const format = /^([a-z]+)(?:_(\d+))?$/.exec(options.outputFormat ?? '');
  const sampleRate = Number(format?.[2] ?? settings.sampleRate);
  if (!(sampleRate >= MIN_RATE && sampleRate <= MAX_RATE)) {
    throw new RelayError('invalid', `the sample rate of output_format must be from ${MIN_RATE} to ${MAX_RATE}`);
  }
  return {
    ...settings,
    text,
    renderMode,
    model: options.model ?? settings.model,
    voice: options.voice ?? settings.voice,
    sampleRate,
    language: options.language ?? settings.language,
    codec: options.outputFormat === undefined ? settings.codec : (format?.[1] ?? options.outputFormat),
    optimizeStreamingLatency: options.optimizeStreamingLatency ?? settings.optimizeStreamingLatency,
    textNormalization: options.textNormalization ?? settings.textNormalization,
    autoSpeechTags: options.autoSpeechTags ?? settings.autoSpeechTags,
    expression: parseExpression(expression),
    options,
    toolScaffold,
    signal,
  };
}
