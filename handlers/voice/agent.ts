import type { Relay } from '../../lib/relay.ts';
import type { AgentSettings } from '../../lib/voice/agent/settings.ts';
import { TOOL_SURFACE } from '../../lib/voice/agent/text/tools.ts';
import type { Effective } from '../../lib/voice/config.ts';
import { authStatus } from '../../lib/voice/credentials.ts';
import { agentInfo, isAgentProvider, requireProvider } from '../../lib/voice/registry.ts';
import { listed, settingsRoutes } from './settings.ts';

const LIMITS = [
  'The agent owns tools, memory and side effects; the voice provider may only hand tasks to it.',
  'The voice provider receives the microphone, the conversation, and the short results that it speaks.',
  'When this voice does not work, the client falls back to svc_voice_output.',
];

/** `/voice/realtime-agent/config` and `.../providers/{id}/*` (contract 06 §3). Clients accept no null members. */
export const agentSettings = settingsRoutes<AgentSettings>({
  mode: 'realtime_agent',
  protocol: 'svc.voice.realtime_agent',
  read: (config, profile) => config.agent(profile),
  change: (config, profile, body) => config.changeAgent(profile, body),
  config: async (relay, effective) => {
    const { settings, configPath } = effective;
    return {
      available: settings.enabled,
      experimental: true,
      mode: 'realtime_agent',
      stable_engine: 'svc_voice_output',
      // At the edge there is no file.
      config_path: configPath ?? '',
      providers: listed(effective).map(agentInfo),
      auth: await authOf(relay, effective),
      tool_surface: TOOL_SURFACE,
      promotion: {
        enabled: settings.promotionEnabled,
        promote_after_ms: settings.promoteAfterMs,
        background_default_mode: settings.backgroundDefaultMode,
        spoken_handoff: settings.spokenHandoff,
        progress_spoken_after_ms: settings.progressSpokenAfterMs,
        progress_repeat_ms: settings.progressRepeatMs,
        result_delivery: settings.resultDelivery,
        max_background_runs: settings.maxBackgroundRuns,
      },
      limits: LIMITS,
    };
  },
  // A realtime one, or the stub.
  providerOf(id) {
    const provider = requireProvider(id, 'any');
    return isAgentProvider(provider) ? provider : requireProvider(id, 'realtime');
  },
  takesText: true,
  shown(found, provider) {
    const { supports_speech_to_speech, supports_tool_use, supports_realtime_agent_native } = agentInfo(provider);
    const { auth_source: source, ...dynamic } = found.dynamic;
    return {
      provider: { ...found.provider, supports_speech_to_speech, supports_tool_use, supports_realtime_agent_native },
      dynamic: { ...dynamic, ...(source !== null && { auth_source: source }) },
    };
  },
  options: { tool_surface: TOOL_SURFACE },
});

async function authOf({ voice: { credentials } }: Relay, { oauthPath }: Effective<AgentSettings>) {
  const { xai_oauth_source: source, ...auth } = await authStatus(credentials, 'realtime', oauthPath);
  const [path = ''] = await credentials.oauthPaths(oauthPath);
  return {
    ...auth,
    xai_oauth_configured: await credentials.isOauthConfigured(oauthPath),
    xai_oauth_path: path,
    ...(source !== null && { xai_oauth_source: source }),
  };
}
