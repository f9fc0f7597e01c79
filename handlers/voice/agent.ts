import { RelayError } from '../../lib/errors.ts';
import type { JsonObject } from '../../lib/kit/json.ts';
import type { Relay } from '../../lib/relay.ts';
import type { AgentSettings } from '../../lib/voice/agent/settings.ts';
import { TOOL_SURFACE } from '../../lib/voice/agent/text/tools.ts';
import type { Effective } from '../../lib/voice/config.ts';
import { authStatus } from '../../lib/voice/credentials.ts';
import { checkSelection } from '../../lib/voice/options.ts';
import { agentInfo, isAgentProvider, requireProvider, type StreamingProvider } from '../../lib/voice/registry.ts';
import { json } from '../../lib/web/json.ts';
import { type Handler, pathParam, type RelayRequest } from '../request.ts';
import { listed, scopeBody, settingsWith } from './config.ts';
import { profileOf, readVoiceBody, selected } from './request.ts';

const MODE = 'realtime_agent';

const LIMITS = [
  'The agent owns tools, memory and side effects; the voice provider may only hand tasks to it.',
  'The voice provider receives the microphone, the conversation, and the short results that it speaks.',
  'When this voice does not work, the client falls back to svc_voice_output.',
];

/** `GET /voice/realtime-agent/config` (contract 06 §3.1). */
export const getAgentConfig: Handler = async (request, relay) =>
  json(await configBody(relay, await relay.voice.config.agent(profileOf(request))));

/** `PATCH /voice/realtime-agent/config` (contract 06 §3.1). */
export const patchAgentConfig: Handler = async (request, relay) => {
  const body = await readVoiceBody(request, { optional: true });
  const { effective, updated, configPath } = await relay.voice.config.changeAgent(profileOf(request, body), body);
  return json({ ...(await configBody(relay, effective)), updated, config_path: configPath });
};

async function configBody(relay: Relay, effective: Effective<AgentSettings>): Promise<JsonObject> {
  const { settings, configPath } = effective;
  return {
    success: true,
    enabled: settings.enabled,
    available: settings.enabled,
    experimental: true,
    mode: MODE,
    stable_engine: 'svc_voice_output',
    protocol: 'svc.voice.realtime_agent.v0',
    // At the edge there is no file, and clients do not accept null here.
    config_path: configPath ?? '',
    default_provider: settings.provider,
    default_model: settings.model,
    default_voice: settings.voice,
    sample_rate: settings.sampleRate,
    providers: listed(effective).map(agentInfo),
    auth: await authBody(relay, effective),
    ...scopeBody(effective),
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
}

async function authBody({ voice: { credentials } }: Relay, { oauthPath }: Effective<AgentSettings>) {
  const { xai_oauth_source: source, ...auth } = await authStatus(credentials, 'realtime', oauthPath);
  const [path = ''] = await credentials.oauthPaths(oauthPath);
  return {
    ...auth,
    xai_oauth_configured: await credentials.isOauthConfigured(oauthPath),
    xai_oauth_path: path,
    ...(source !== null && { xai_oauth_source: source }),
  };
}

/** `GET /voice/realtime-agent/providers/{id}/options` (contract 06 §3.2). */
export const getAgentOptions: Handler = async (request, relay) => {
  const provider = providerOf(request);
  const effective = await relay.voice.config.agent(profileOf(request));
  const { settings } = effective;
  return json({
    success: true,
    mode: MODE,
    protocol: 'svc.voice.realtime_agent.options.v0',
    schema_version: 1,
    provider_id: provider.info.id,
    ...(await optionsOf(relay, provider, effective)),
    default_provider: settings.provider,
    default_model: settings.model,
    default_voice: settings.voice,
    sample_rate: settings.sampleRate,
    ...scopeBody(effective),
    tool_surface: TOOL_SURFACE,
  });
};

/** `POST /voice/realtime-agent/providers/{id}/validate` (contract 06 §3.2). */
export const validateAgent: Handler = async (request, relay) => {
  const provider = providerOf(request);
  const body = await readVoiceBody(request, { optional: true });
  const effective = await relay.voice.config.agent(profileOf(request, body));
  const settings = settingsWith(effective, provider);
  const selection = {
    model: selected(body, 'model', settings.model),
    voice: selected(body, 'voice', settings.voice),
    sampleRate: rateIn(body) ?? settings.sampleRate,
  };
  const { provider: options, dynamic } = await optionsOf(relay, provider, effective);
  const checks = checkSelection(options, selection);
  const valid = checks.every(({ status }) => status !== 'error');
  return json({
    success: true,
    mode: MODE,
    protocol: 'svc.voice.realtime_agent.validate.v0',
    provider_id: provider.info.id,
    model: selection.model,
    voice: selection.voice,
    sample_rate: selection.sampleRate,
    dynamic,
    valid,
    summary: valid ? 'ok' : 'invalid',
    checks,
  });
};

/** The provider in the path: a realtime one, or the stub. */
function providerOf(request: RelayRequest): StreamingProvider {
  const id = pathParam(request, 'provider');
  const provider = requireProvider(id, 'any');
  return isAgentProvider(provider) ? provider : requireProvider(id, 'realtime');
}

/** The choices that a provider offers, and how they were found; without null members. */
async function optionsOf(relay: Relay, provider: StreamingProvider, { oauthPath, servers }: Effective<AgentSettings>) {
  const found = await relay.voice.options.of(MODE, provider, oauthPath, servers);
  const { supports_speech_to_speech, supports_tool_use, supports_realtime_agent_native } = agentInfo(provider);
  const { auth_source: source, ...dynamic } = found.dynamic;
  return {
    provider: { ...found.provider, supports_speech_to_speech, supports_tool_use, supports_realtime_agent_native },
    dynamic: { ...dynamic, ...(source !== null && { auth_source: source }) },
  };
}

/** An integer, also written as decimal text. */
function rateIn({ sample_rate: given }: JsonObject): number | undefined {
  if (given === undefined || given === null) return undefined;
  const rate = typeof given === 'string' && /^\s*\d{1,9}\s*$/.test(given) ? Number(given) : given;
  if (Number.isSafeInteger(rate)) return rate as number;
  throw new RelayError('invalid', 'sample_rate must be an integer');
}
