import { RelayError } from '../errors.ts';
import { visibleName } from '../kit/text.ts';
import { isLocalName } from './section.ts';

const ABILITIES = ['tts', 'stt', 'speech_to_speech', 'tool_use', 'realtime', 'interruption', 'expression'] as const;
type Ability = (typeof ABILITIES)[number];

/** Metadata of a streaming provider as clients see it (contract 05 §9). A type, so that it is a JSON value. */
export type ProviderInfo = {
  id: string;
  name: string;
  status: 'available';
  description: string;
  models: string[];
  voices: string[];
  languages: string[];
  sample_rates: number[];
} & Record<`supports_${Ability}`, boolean>;

/** A row of the registry, and its default model and voice. */
export interface StreamingProvider {
  readonly info: Readonly<ProviderInfo>;
  readonly defaultModel: string;
  readonly defaultVoice: string;
  readonly defaultSampleRate: number;
}

interface Row {
  name: string;
  description: string;
  /** The first is the default. */
  models: string[];
  voices: string[];
  /** The first voice unless given. */
  defaultVoice?: string;
  rates?: number[];
  languages?: string[];
  abilities: Ability[];
}

const OPENAI_REALTIME_VOICES = 'alloy ash ballad coral echo sage shimmer verse marin cedar'.split(' ');
const OPENAI_TTS_VOICES = 'alloy ash ballad coral echo fable onyx nova sage shimmer verse marin cedar'.split(' ');
const XAI_VOICES = 'eve ara rex sal leo'.split(' ');
const DEFAULT_RATE = 24_000;

const rows: Readonly<Record<string, Row>> = {
  elevenlabs_tts: {
    name: 'ElevenLabs TTS',
    description: 'Streams speech from ElevenLabs voices, also those of your account.',
    models: ['eleven_flash_v2_5', 'eleven_multilingual_v2', 'eleven_v3'],
    voices: ['JBFqnCBsd6RMkjVDRZzb'],
    rates: [16_000, 22_050, 24_000, 44_100, 48_000],
    languages: ['en'],
    abilities: ['tts', 'expression'],
  },
  local_realtime: {
    name: 'Local Realtime',
    description: 'Speaks through a realtime server of your own that takes the requests of OpenAI.',
    models: ['gpt-realtime'],
    voices: ['alloy'],
    abilities: ['tts', 'realtime', 'expression'],
  },
  local_tts: {
    name: 'Local TTS',
    description: 'Speaks with a server or a program of your own, such as Kokoro, piper or espeak-ng.',
    models: ['tts-1'],
    voices: ['alloy'],
    abilities: ['tts', 'expression'],
  },
  openai_realtime: {
    name: 'OpenAI Realtime',
    description: 'Speaks through the OpenAI Realtime API.',
    models: ['gpt-realtime-2.1', 'gpt-realtime-2.1-mini', 'gpt-realtime-2'],
    voices: OPENAI_REALTIME_VOICES,
    defaultVoice: 'marin',
    abilities: ['tts', 'realtime', 'expression'],
  },
  openai_tts: {
    name: 'OpenAI TTS',
    description: 'Streams speech from the OpenAI speech API.',
    models: ['gpt-4o-mini-tts', 'tts-1', 'tts-1-hd'],
    voices: OPENAI_TTS_VOICES,
    defaultVoice: 'coral',
    languages: ['en'],
    abilities: ['tts', 'expression'],
  },
  stub: {
    name: 'Stub Tone',
    description: 'Plays a tone that the relay makes by itself, to try audio without a provider.',
    models: ['stub-tone'],
    voices: ['sine'],
    rates: [16_000, 24_000, 48_000],
    languages: ['en'],
    abilities: ['tts', 'stt', 'speech_to_speech', 'expression'],
  },
  xai_realtime: {
    name: 'xAI Grok Realtime',
    description: 'Speaks through the xAI Grok voice agent API.',
    models: ['grok-voice-latest', 'grok-voice-think-fast-1.0'],
    voices: XAI_VOICES,
    abilities: ['tts', 'tool_use', 'realtime', 'interruption', 'expression'],
  },
  xai_tts: {
    name: 'xAI Grok TTS',
    description: 'Streams speech from xAI Grok voices.',
    models: ['xai-tts'],
    voices: XAI_VOICES,
    languages: ['en'],
    abilities: ['tts', 'expression'],
  },
};

/** The streaming providers, sorted by id (contract 05 §9). */
export const streamingProviders: readonly StreamingProvider[] = Object.entries(rows).map(providerOf);

function providerOf([id, row]: [string, Row]): StreamingProvider {
  const { name, description, models, voices, rates = [DEFAULT_RATE], languages = [], abilities } = row;
  const supports = Object.fromEntries(
    ABILITIES.map((ability) => [`supports_${ability}`, abilities.includes(ability)]),
  ) as Record<`supports_${Ability}`, boolean>;
  return {
    info: { id, name, status: 'available', description, models, voices, languages, sample_rates: rates, ...supports },
    defaultModel: models[0] as string,
    defaultVoice: row.defaultVoice ?? (voices[0] as string),
    defaultSampleRate: DEFAULT_RATE,
  };
}

/** The provider of that exact id. */
export const findProvider = (id: string): StreamingProvider | undefined =>
  streamingProviders.find(({ info }) => info.id === id);

/** True if voice output may use a provider: it speaks, and is not a realtime one (contract 05 §9). */
export const isRenderer = ({ info }: StreamingProvider): boolean => info.supports_tts && !info.supports_realtime;

/** True if a provider supports conversations. */
export const isRealtime = ({ info }: StreamingProvider): boolean => info.supports_realtime;

/** True for the owner's own provider (contract 05 §18), which is inactive until it is configured. */
export const isOwners = ({ info }: StreamingProvider): boolean => info.id.startsWith('local_');

/** Metadata of a provider as clients of the realtime agent see it (contract 06 §3.1). */
export type AgentProviderInfo = ProviderInfo & { supports_realtime_agent_native: boolean };

/** Through the realtime agent, the native providers hear and call functions too. */
export function agentInfo(provider: StreamingProvider): AgentProviderInfo {
  const { info } = provider;
  const isNative = isRealtime(provider);
  return {
    ...info,
    supports_speech_to_speech: info.supports_speech_to_speech || isNative,
    supports_tool_use: info.supports_tool_use || isNative,
    supports_realtime_agent_native: isNative,
  };
}

/**
 * The use of a provider: voice output, realtime voice, the realtime agent, which also accepts the stub, or the lab, which
 * accepts all of them.
 */
export type ProviderUse = 'output' | 'realtime' | 'agent' | 'any';

/** True if the realtime agent may use a provider (contract 06 §2.1). */
export const isAgentProvider = (provider: StreamingProvider): boolean =>
  isRealtime(provider) || provider.info.id === 'stub';

/**
 * The provider for a client's name (contract 05 §9, §11, 06 §2.1). `local` and its alias mean the one for this use (§18).
 * @throws RelayError `invalid` if there is none with that id, or it is not for this use.
 */
export function requireProvider(named: string, use: ProviderUse): StreamingProvider {
  const id = isLocalName(named) ? `local_${use === 'output' ? 'tts' : 'realtime'}` : named;
  const provider = findProvider(id);
  if (!provider) throw new RelayError('invalid', `unknown voice provider ${JSON.stringify(visibleName(id))}`);
  if (use === 'output' && !isRenderer(provider)) {
    throw new RelayError('invalid', `${id} is not a streaming TTS renderer`);
  }
  if (use === 'realtime' && !isRealtime(provider)) {
    throw new RelayError('invalid', `${id} is not a realtime voice provider`);
  }
  if (use === 'agent' && !isAgentProvider(provider)) {
    throw new RelayError('invalid', `${id} is not a native realtime-agent provider`);
  }
  return provider;
}
