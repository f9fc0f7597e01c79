import type { App } from '../context.ts';

/** Speech features of the relay (contract 05 §5). */
export interface BasicConfig {
  stt: { provider: string | null; available: boolean };
  tts: { provider: string | null; available: boolean };
}

/** Settings of the realtime agent (contract 06 §3.1), as far as they are used. */
interface AgentConfig {
  enabled: boolean;
  default_provider: string;
  sample_rate: number;
  auth: { xai_env: boolean; xai_oauth: boolean; openai_env: boolean };
}

/** The voice features that this device may use. */
export interface VoiceOffer extends BasicConfig {
  /** Sample rate of the agent's voice and its provider, or why there is no live conversation, worded for people. */
  live: (LiveVoice & { why?: undefined }) | { why: string };
}

/** The provider of the agent's voice, and its sample rate. */
export interface LiveVoice {
  provider: string;
  rate: number;
}

const GRANT = 'voice:realtime';

/** Requests the features. @throws ApiError */
export async function loadOffer({ api, session }: App, signal: AbortSignal): Promise<VoiceOffer> {
  const isAllowed = session.may(GRANT);
  const [basic, agent] = await Promise.all([
    api.call<BasicConfig>('voice/config', { signal }),
    isAllowed ? api.call<AgentConfig>('voice/realtime-agent/config', { signal }).catch(() => null) : null,
  ]);
  return { ...basic, live: liveOf(isAllowed, agent) };
}

function liveOf(isAllowed: boolean, agent: AgentConfig | null): VoiceOffer['live'] {
  if (!isAllowed) {
    return { why: 'This device may not talk live: it has no grant voice:realtime. Pair it again to get one.' };
  }
  if (!agent?.enabled) return { why: 'The relay has turned live conversations off.' };
  const { default_provider: provider, auth, sample_rate: rate } = agent;
  const hasKey: Readonly<Record<string, boolean>> = {
    openai_realtime: auth.openai_env,
    xai_realtime: auth.xai_env || auth.xai_oauth,
    // An owner's server needs no key (contract 05 §18).
    local_realtime: true,
  };
  if (hasKey[provider]) return { rate, provider };
  return {
    why: 'The relay has no provider for live conversations: it needs a key of OpenAI or xAI, or a server of your own.',
  };
}
