import type { App } from '../context.ts';

/** `spoken`: answers that are read out. `live`: the agent in a live conversation. */
export type VoiceUse = 'spoken' | 'live';

/** Settings of the relay (contract 05 §10, 06 §3.1), as far as they are used. */
interface VoiceConfig {
  default_provider: string;
  default_model: string;
  default_voice: string;
  sample_rate: number;
}

/** Choices of a provider (contract 05 §11, 06 §3.2), as far as they are used. */
interface VoiceOptions {
  provider: {
    voices: string[];
    languages: string[];
    voice_labels: Record<string, string>;
    model_voice_compatibility: Record<string, string[]>;
  };
}

/** The voices that a person can choose from. */
export interface Voices {
  provider: string;
  model: string;
  /** The relay's configured voice. */
  usual: string;
  rate: number;
  voices: readonly { id: string; label: string }[];
  languages: readonly string[];
}

const PATHS: Readonly<Record<VoiceUse, string>> = { spoken: 'voice/output', live: 'voice/realtime-agent' };
const SETTINGS = { spoken: 'voice_spoken_voice', live: 'voice_live_voice' } as const;

/** Requests the voices of the relay's configured provider. @throws ApiError */
export async function loadVoices({ api }: App, use: VoiceUse, signal: AbortSignal): Promise<Voices> {
  const config = await api.call<VoiceConfig>(`${PATHS[use]}/config`, { signal });
  const { default_provider: provider, default_model: model, default_voice: usual, sample_rate: rate } = config;
  const path = `${PATHS[use]}/providers/${encodeURIComponent(provider)}/options`;
  const { provider: options } = await api.call<VoiceOptions>(path, { signal });
  const ids = options.model_voice_compatibility[model] ?? options.voices;
  const voices = [...new Set([usual, ...ids])].map((id) => ({ id, label: options.voice_labels[id] ?? id }));
  return { provider, model, usual, rate, voices, languages: options.languages };
}

/** The voice chosen for this provider; undefined for the configured one. */
export function chosenVoice({ settings }: Pick<App, 'settings'>, use: VoiceUse, provider: string): string | undefined {
  const [of, ...voice] = settings.values[SETTINGS[use]].value.split(' ');
  return of === provider && voice.length > 0 ? voice.join(' ') : undefined;
}

/** Stores the choice for this provider only. Without a voice, the configured one is used. */
export function chooseVoice({ settings }: Pick<App, 'settings'>, use: VoiceUse, provider: string, voice: string): void {
  settings.set(SETTINGS[use], voice === '' ? '' : `${provider} ${voice}`);
}
