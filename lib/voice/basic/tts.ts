import { RelayError } from '../../errors.ts';
import { pathSegment } from '../../kit/addresses.ts';
import { fromBase64, hexToBytes } from '../../kit/bytes.ts';
import { nextTurn } from '../../kit/clock.ts';
import { asObject, isObject } from '../../kit/json.ts';
import type { Mapping } from '../../kit/yaml.ts';
import type { Credential } from '../credentials.ts';
import { MAX_TEXT } from '../limits.ts';
import { isTextType } from '../provider-error.ts';
import { booleanOf, numberOf, textOf } from '../section.ts';
import { decodeSamples, formatOf } from '../streaming/decode.ts';
import { latencyOf, withSpeechTags } from '../streaming/xai-tts.ts';
import { authHeaders, bearer, jsonReply, type ProviderReply, type ProviderRequest, providerFailure } from './call.ts';
import { encodeMp3, isMp3, isMp3Rate, isUnknown } from './mp3.ts';

/** A text to speak, and its settings. */
export interface Speech {
  text: string;
  /** The provider's settings, with the overrides of the request. */
  settings: Mapping;
  /** The whole section. */
  section: Mapping;
  /** Unspoken direction, for Gemini. */
  persona?: string;
}

interface TtsProvider {
  /** Maximum code points of one request. */
  maxText?: number;
  /** Appended to the base URL. */
  path: string | ((speech: Speech) => string);
  /** The headers that carry the secret; a bearer unless given. */
  headers?(secret: string): Record<string, string>;
  body(speech: Speech): Record<string, unknown>;
  /** Extracts the MP3 from a reply, which by default is audio itself. */
  audio?(reply: ProviderReply, signal: AbortSignal): Promise<Uint8Array>;
}

const modelOf = (settings: Mapping, fallback: string): string =>
  textOf(settings.model) ?? textOf(settings.model_id) ?? fallback;
const voiceOf = (settings: Mapping): string | undefined => textOf(settings.voice) ?? textOf(settings.voice_id);

/** Relative speed within a provider's range; undefined for the normal one. */
function speedOf(
  { settings, section }: Pick<Speech, 'settings' | 'section'>,
  min: number,
  max: number,
): number | undefined {
  const speed = Math.min(Math.max(numberOf(settings.speed) ?? numberOf(section.speed) ?? 1, min), max);
  return speed === 1 ? undefined : speed;
}

const OPENAI: TtsProvider = {
  maxText: 4096,
  path: '/audio/speech',
  body: (speech) => ({
    model: modelOf(speech.settings, 'gpt-4o-mini-tts'),
    voice: voiceOf(speech.settings) ?? 'alloy',
    input: speech.text,
    response_format: 'mp3',
    speed: speedOf(speech, 0.25, 4),
  }),
};

/** Names of a model and a voice that the owner's own server most likely has. */
const LOCAL = { model: 'tts-1', voice: 'alloy' };

/** Gemini's models that speak, as listed in its SDK (`@google/genai` 2.32); the first is the default. */
export const GEMINI_MODELS = [
  'gemini-3.1-flash-tts-preview',
  'gemini-3.8-flash-tts',
  'gemini-3.8-flash-lite-tts',
] as const;

/** THE table of providers that speak (contract 05 §8). */
const PROVIDERS: Readonly<Record<string, TtsProvider>> = {
  openai: OPENAI,
  deepinfra: { ...OPENAI, maxText: MAX_TEXT },
  local: {
    ...OPENAI,
    body(speech) {
      const { settings } = speech;
      const body = OPENAI.body({ ...speech, settings: { ...LOCAL, ...settings } });
      return { ...body, response_format: textOf(settings.response_format)?.toLowerCase() ?? body.response_format };
    },
  },
  elevenlabs: {
    path: ({ settings }) =>
      `/v1/text-to-speech/${segment(voiceOf(settings) ?? 'pNInz6obpgDQGcFmaJgB')}?output_format=mp3_44100_128`,
    headers: (secret) => ({ 'xi-api-key': secret }),
    body: ({ text, settings }) => ({ text, model_id: modelOf(settings, 'eleven_multilingual_v2') }),
  },
  xai: { path: '/tts', body: xaiBody },
  gemini: {
    path: ({ settings }) => `/models/${segment(modelOf(settings, GEMINI_MODELS[0]))}:generateContent`,
    headers: (secret) => ({ 'x-goog-api-key': secret }),
    body: ({ text, settings, persona }) => ({
      contents: [{ parts: [{ text: persona === undefined ? text : directed(text, persona) }] }],
      generationConfig: {
        responseModalities: ['AUDIO'],
        speechConfig: { voiceConfig: { prebuiltVoiceConfig: { voiceName: voiceOf(settings) ?? 'Kore' } } },
      },
    }),
    audio: geminiAudio,
  },
  mistral: {
    maxText: 4000,
    path: '/v1/audio/speech',
    body: ({ text, settings }) => ({
      model: modelOf(settings, 'voxtral-mini-tts-2603'),
      input: text,
      // The provider has a voice of its own.
      voice_id: voiceOf(settings),
      response_format: 'mp3',
    }),
    audio: async (reply) => {
      const { audio_data: audio } = await jsonReply('mistral', reply);
      return decoded('mistral', typeof audio === 'string' ? fromBase64(audio) : null);
    },
  },
  minimax: {
    path: '',
    body: ({ text, settings }) => ({
      model: modelOf(settings, 'speech-2.8-hd'),
      text,
      voice_setting: {
        voice_id: voiceOf(settings) ?? 'English_Graceful_Lady',
        speed: numberOf(settings.speed),
        vol: numberOf(settings.vol),
        pitch: numberOf(settings.pitch),
      },
      audio_setting: { format: 'mp3' },
    }),
    audio: minimaxAudio,
  },
};

/** Providers that are tried if the configuration names none (contract 05 §7). */
export const TTS_ORDER = ['openai', 'elevenlabs', 'xai', 'gemini', 'mistral'] as const;

/** True if a provider of that name speaks. */
export const isTtsProvider = (name: string): boolean => Object.hasOwn(PROVIDERS, name);

/** Maximum code points per request of a provider. */
export const maxTextOf = (provider: string): number => PROVIDERS[provider]?.maxText ?? MAX_TEXT;

/** The request that speaks a text. @throws RelayError for an invalid id of a voice or a model. */
export function ttsRequest(provider: string, speech: Speech, key: Credential): ProviderRequest {
  const { path, headers = bearer, body } = PROVIDERS[provider] as TtsProvider;
  return {
    url: key.baseUrl + (typeof path === 'string' ? path : path(speech)),
    headers: { ...authHeaders(headers, key), 'content-type': 'application/json' },
    body: JSON.stringify(body(speech)),
  };
}

/**
 * The MP3 in a reply; WAV and raw PCM are converted, regardless of their label (contract 05 §18).
 * @throws RelayError for a reply that is not audio, or is empty.
 */
export async function audioIn(
  provider: string,
  reply: ProviderReply,
  { settings }: Pick<Speech, 'settings'>,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const { audio } = PROVIDERS[provider] as TtsProvider;
  if (!audio && isTextType(reply.contentType)) {
    throw providerFailure(`${provider} sent ${reply.contentType} instead of audio`);
  }
  const bytes = audio ? await audio(reply, signal) : reply.bytes;
  if (bytes.length === 0) throw providerFailure(`${provider} returned no audio`);
  const { contentType } = reply;
  const isLabelled =
    !audio && (RAW_LABEL.test(contentType) || textOf(settings.response_format)?.toLowerCase() === 'pcm');
  if (isMp3(bytes) || !(isWav(bytes) || isLabelled || isUnknown(bytes))) return bytes;
  const assumedRate = numberOf(settings.sample_rate) ?? MP3_RATE;
  const decoding = { contentType: audio ? '' : contentType, assumedRate, rate: MP3_RATE, name: provider };
  const pcm: Uint8Array[] = [];
  let size = 0;
  for await (const samples of decodeSamples(slices(bytes), decoding)) {
    size += samples.length;
    if (size > MAX_DECODED) throw providerFailure(`${provider} sent too much audio`);
    pcm.push(samples);
  }
  return encodeMp3(pcm, MP3_RATE, signal);
}

/**
 * The model and the voice in a request, if the provider gets them in its body.
 * @throws RelayError for an invalid id of a voice or a model.
 */
export function spokenWith(provider: string, speech: Speech): { model?: string; voice?: string } {
  const { path, body: bodyOf } = PROVIDERS[provider] as TtsProvider;
  if (typeof path !== 'string') path(speech);
  const body = bodyOf(speech);
  return {
    model: textOf(body.model) ?? textOf(body.model_id) ?? textOf(speech.settings.model),
    voice: textOf(body.voice) ?? textOf(body.voice_id) ?? voiceOf(speech.settings),
  };
}

/** Relative speed for a program, within an intelligible range. */
export const programSpeed = (speech: Pick<Speech, 'settings' | 'section'>): number => speedOf(speech, 0.25, 4) ?? 1;

/** Hertz of what is converted to MP3. */
const MP3_RATE = 24_000;
/** Maximum bytes of samples: more than twenty minutes. */
const MAX_DECODED = 64 * 1024 * 1024;
const SLICE = 256 * 1024;
/** Labels of raw samples. */
const RAW_LABEL = /^audio\/(?:pcm|l16|raw|x-raw|x-pcm)\b|;\s*rate=\d/i;

const isWav = (bytes: Uint8Array): boolean => formatOf(bytes, '') === 'WAV';

/** Bytes in turns of the event loop. */
async function* slices(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += SLICE) {
    yield bytes.subarray(at, at + SLICE);
    await nextTurn();
  }
}

/** An id as one segment of a path. @throws RelayError for one that a URL would resolve. */
function segment(id: string): string {
  const encoded = pathSegment(id);
  if (encoded === null) throw new RelayError('invalid', `${id} is not the id of a voice or a model`);
  return encoded;
}

const XAI_DEFAULTS = { sample_rate: 24_000, bit_rate: 128_000 };

/** The codec is always MP3, like the relay's response. */
function xaiBody(speech: Speech): Record<string, unknown> {
  const { text, settings } = speech;
  const sampleRate = numberOf(settings.sample_rate) ?? XAI_DEFAULTS.sample_rate;
  const bitRate = numberOf(settings.bit_rate) ?? XAI_DEFAULTS.bit_rate;
  const isDefault = sampleRate === XAI_DEFAULTS.sample_rate && bitRate === XAI_DEFAULTS.bit_rate;
  const latency = latencyOf(numberOf(settings.optimize_streaming_latency) ?? 0);
  const hasTags = booleanOf(settings.auto_speech_tags) ?? booleanOf(settings.speech_tags) ?? false;
  return {
    text: hasTags ? withSpeechTags(text) : text,
    voice_id: voiceOf(settings) ?? 'eve',
    language: textOf(settings.language) ?? 'en',
    output_format: isDefault ? undefined : { codec: 'mp3', sample_rate: sampleRate, bit_rate: bitRate },
    speed: speedOf(speech, 0.7, 1.5),
    optimize_streaming_latency: latency === 0 ? undefined : latency,
    text_normalization: booleanOf(settings.text_normalization) || undefined,
  };
}

/** The text with its direction before it, or at the direction's placeholder. */
function directed(text: string, persona: string): string {
  if (persona.includes('{transcript}')) return persona.replaceAll('{transcript}', () => text);
  return (
    'Read only the transcript aloud, in the manner of the direction. The direction itself must not be spoken.\n\n' +
    `Direction:\n${persona}\n\nTranscript:\n${text}`
  );
}

/** Digits of base64 decoded per step; a multiple of four. */
const DIGITS = 64 * 1024;

async function geminiAudio(reply: ProviderReply, signal: AbortSignal): Promise<Uint8Array> {
  const { candidates } = await jsonReply('gemini', reply);
  const candidate = asObject(Array.isArray(candidates) ? candidates[0] : undefined);
  const parts = asObject(candidate?.content)?.parts;
  const blobs = (Array.isArray(parts) ? parts : []).flatMap((part) => {
    const blob = isObject(part) && isObject(part.inlineData) ? part.inlineData : {};
    return typeof blob.data === 'string' && blob.data !== '' ? [{ data: blob.data, type: textOf(blob.mimeType) }] : [];
  });
  if (blobs.length === 0) throw providerFailure('gemini returned no audio');
  const named = Number(/rate=(\d+)/.exec(blobs[0]?.type ?? '')?.[1] ?? 24_000);
  if (!isMp3Rate(named)) throw providerFailure(`gemini sent audio of ${named} Hz`);
  return encodeMp3(pcmOf(blobs.map(({ data }) => data)), named, signal);
}

function* pcmOf(texts: readonly string[]): Generator<Uint8Array> {
  for (const text of texts) {
    for (let at = 0; at < text.length; at += DIGITS) yield decoded('gemini', fromBase64(text.slice(at, at + DIGITS)));
  }
}

async function minimaxAudio(reply: ProviderReply): Promise<Uint8Array> {
  const { base_resp: outcome, data } = await jsonReply('minimax', reply);
  const { status_code: code, status_msg: message } = asObject(outcome) ?? {};
  if (code !== 0) throw providerFailure(`minimax failed with ${String(code ?? 'no status')}: ${textOf(message) ?? ''}`);
  const audio = textOf(asObject(data)?.audio) ?? '';
  const isHex = audio.length % 2 === 0 && !/[^0-9a-f]/i.test(audio);
  return decoded('minimax', isHex ? hexToBytes(audio) : null);
}

function decoded(provider: string, bytes: Uint8Array | null): Uint8Array {
  if (bytes === null) throw providerFailure(`${provider} sent audio that cannot be decoded`);
  return bytes;
}
