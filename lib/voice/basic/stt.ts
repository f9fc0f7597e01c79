import { parseObject } from '../../kit/json.ts';
import type { Mapping } from '../../kit/yaml.ts';
import { formData } from '../../web/form-data.ts';
import { type Credential, isOfficialBase, isOnOwnersNetwork } from '../credentials.ts';
import { booleanOf, textOf } from '../section.ts';
import { timeoutOf } from '../servers.ts';
import { authHeaders, bearer, type ProviderReply, type ProviderRequest, providerFailure, textReply } from './call.ts';
import type { Clip } from './clips.ts';

/** Maximum characters of a prompt, taken from its end. */
const MAX_PROMPT = 896;

/** Configuration of one transcription. */
export interface SttSettings {
  /** The provider's settings. */
  settings: Mapping;
  /** The whole section. */
  section: Mapping;
  /** The language hint. */
  language: string | undefined;
}

/** The settings, and whether they go to the provider itself: the owner's server always gets the configured model. */
interface FieldSettings extends SttSettings {
  isOfficial: boolean;
}

type Fields = readonly (readonly [name: string, value: string | undefined])[];

interface SttProvider {
  path: string;
  /** Milliseconds. */
  timeout: number;
  /** Milliseconds for a server on the owner's network, which may lack a graphics card (contract 05 §8). */
  ownTimeout?: number;
  /** The headers that carry the secret; a bearer unless given. */
  headers?(secret: string): Record<string, string>;
  fields(settings: FieldSettings): Fields;
  /** True if a reply other than JSON is the transcript. */
  mayBePlain?: boolean;
}

/** The path of whisper.cpp's server, unless started with another one. */
const WHISPER_CPP = '/inference';

const OPENAI_MODELS = ['whisper-1', 'gpt-4o-transcribe', 'gpt-4o-mini-transcribe', 'gpt-4o-transcribe-diarize'];
/** Accepts no prompt, and needs a chunking strategy for more than 30 seconds. */
const DIARIZING = 'gpt-4o-transcribe-diarize';
const DIARIZATION: Fields = [['chunking_strategy', 'auto']];
/**
 * Names unknown to OpenAI. Groq has dropped the last of them (`groq-sdk` 1.6), but configurations still contain it, and it
 * would fail at OpenAI like the others.
 */
const GROQ_MODELS = ['whisper-large-v3', 'whisper-large-v3-turbo', 'distil-whisper-large-v3-en'];

/** The configured model, unless it belongs to another provider and would go to the provider itself. */
function modelOf({ settings, isOfficial }: FieldSettings, fallback: string, foreign: readonly string[] = []): string {
  const model = textOf(settings.model) ?? textOf(settings.model_id) ?? fallback;
  return isOfficial && foreign.includes(model) ? fallback : model;
}

const promptOf = ({ settings, section }: SttSettings): string | undefined =>
  (textOf(section.prompt) ?? textOf(settings.prompt))?.slice(-MAX_PROMPT).toWellFormed();

const flag = (value: unknown): string | undefined => booleanOf(value)?.toString();

const openaiFields = (settings: FieldSettings, foreign: readonly string[]): Fields => {
  const model = modelOf(settings, 'whisper-1', foreign);
  return [
    ['model', model],
    ['response_format', model === 'whisper-1' ? 'text' : 'json'],
    ['language', settings.language],
    ...(model === DIARIZING ? DIARIZATION : ([['prompt', promptOf(settings)]] as const)),
  ];
};

const OPENAI: SttProvider = {
  path: '/audio/transcriptions',
  timeout: 30_000,
  ownTimeout: 300_000,
  fields: (settings) => openaiFields(settings, GROQ_MODELS),
  mayBePlain: true,
};

/** THE table of providers that transcribe (contract 05 §8). */
const PROVIDERS: Readonly<Record<string, SttProvider>> = {
  openai: OPENAI,
  local: {
    ...OPENAI,
    fields: (settings) => [
      ['model', modelOf(settings, 'whisper-1')],
      ['response_format', textOf(settings.settings.response_format) ?? 'json'],
      ['language', settings.language],
      ['prompt', promptOf(settings)],
    ],
  },
  deepinfra: { ...OPENAI, fields: (settings) => openaiFields(settings, []) },
  groq: {
    ...OPENAI,
    fields: (settings) => [
      ['model', modelOf(settings, 'whisper-large-v3-turbo', OPENAI_MODELS)],
      ['response_format', 'text'],
      ['language', settings.language],
      ['prompt', promptOf(settings)],
    ],
  },
  mistral: {
    path: '/v1/audio/transcriptions',
    timeout: 60_000,
    fields: (settings) => [
      ['model', modelOf(settings, 'voxtral-mini-latest')],
      ['language', settings.language],
    ],
  },
  xai: {
    path: '/stt',
    timeout: 120_000,
    fields: ({ settings, language }) => [
      // Formatting depends on the language: xAI refuses it without one.
      ['format', booleanOf(settings.format) === false || language === undefined ? undefined : 'true'],
      ['diarize', flag(settings.diarize)],
      ['language', language],
    ],
  },
  elevenlabs: {
    path: '/speech-to-text',
    timeout: 120_000,
    headers: (secret) => ({ 'xi-api-key': secret }),
    fields: (settings) => [
      ['model_id', modelOf(settings, 'scribe_v2')],
      ['tag_audio_events', flag(settings.settings.tag_audio_events) ?? 'false'],
      ['diarize', flag(settings.settings.diarize) ?? 'false'],
      ['language_code', settings.language],
    ],
  },
};

/** Providers that are tried if the configuration names none, after a local command (contract 05 §6). */
export const STT_ORDER = ['groq', 'openai', 'mistral', 'xai', 'elevenlabs', 'deepinfra'] as const;

/** True if a provider of that name transcribes. */
export const isSttProvider = (name: string): boolean => Object.hasOwn(PROVIDERS, name);

/** Milliseconds for a call of the provider (contract 05 §8). */
export function sttTimeout(provider: string, { settings }: Pick<SttSettings, 'settings'>, { baseUrl }: Credential) {
  const { timeout, ownTimeout = timeout } = PROVIDERS[provider] as SttProvider;
  return timeoutOf(settings) ?? (isOnOwnersNetwork(baseUrl) ? ownTimeout : timeout);
}

function fieldsOf(provider: string, settings: SttSettings, { baseUrl }: Credential): (readonly [string, string])[] {
  const row = PROVIDERS[provider] as SttProvider;
  const fields = row.fields({ ...settings, isOfficial: isOfficialBase('stt', provider, baseUrl) });
  return fields.flatMap(([name, value]) => (value === undefined ? [] : [[name, value] as const]));
}

/** The model in a request; undefined for a provider that gets none. */
export const sttModel = (provider: string, settings: SttSettings, key: Credential): string | undefined =>
  fieldsOf(provider, settings, key).find(([name]) => name === 'model' || name === 'model_id')?.[1];

/** The request that transcribes a clip, which is streamed. */
export function sttRequest(provider: string, clip: Clip, settings: SttSettings, key: Credential): ProviderRequest {
  const row = PROVIDERS[provider] as SttProvider;
  const fields = fieldsOf(provider, settings, key);
  const { fileName, contentType, size } = clip;
  const form = formData(fields, { name: 'file', filename: fileName, contentType, size, content: clip.read() });
  return {
    url: isWholePath(provider, key) ? key.baseUrl : key.baseUrl + row.path,
    headers: {
      ...authHeaders(row.headers ?? bearer, key),
      'content-type': form.contentType,
      'content-length': String(form.length),
    },
    body: form.body,
  };
}

/** True for a base URL of whisper.cpp, to which nothing is appended. */
const isWholePath = (provider: string, { baseUrl }: Credential): boolean =>
  provider === 'local' && baseUrl.endsWith(WHISPER_CPP);

/** The base URL to try if the owner's server does not support OpenAI's path. */
export const otherBase = (provider: string, key: Credential): Credential | undefined =>
  provider === 'local' && !isWholePath(provider, key)
    ? { ...key, baseUrl: new URL(key.baseUrl).origin + WHISPER_CPP }
    : undefined;

/** The transcript in a reply: plain text, or `text` of a JSON object. */
export async function transcriptIn(provider: string, reply: ProviderReply): Promise<string> {
  const text = await textReply(reply);
  if (text === null || /^text\/html/i.test(reply.contentType)) {
    throw providerFailure(`${provider} sent a reply that is no transcript`);
  }
  const json = parseObject(text);
  if (PROVIDERS[provider]?.mayBePlain && !json) return text.trim();
  const transcript = json?.text;
  if (typeof transcript !== 'string') throw providerFailure(`${provider} sent a reply without a transcript`);
  return transcript.trim();
}
