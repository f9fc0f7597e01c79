import type { JsonObject } from '../../lib/kit/json.ts';
import { describeBasic } from '../../lib/voice/basic/describe.ts';
import type { Effective } from '../../lib/voice/config.ts';
import { authStatus } from '../../lib/voice/credentials.ts';
import { findProvider, isRenderer, requireProvider } from '../../lib/voice/registry.ts';
import { withOwn } from '../../lib/voice/servers.ts';
import type { OutputSettings, RealtimeSettings, StreamingSettings } from '../../lib/voice/settings.ts';
import { json } from '../../lib/web/json.ts';
import type { Handler } from '../request.ts';
import { profileOf } from './request.ts';
import { listed, settingsRoutes } from './settings.ts';

/** `GET /voice/config` (contract 05 §5). */
export const getVoiceConfig: Handler = async (request, relay) => {
  const { config, credentials } = relay.voice;
  const deps = { config, credentials, hasHost: relay.host !== undefined };
  const { tts, stt, missing, ...scope } = await describeBasic(deps, profileOf(request));
  return json({
    success: true,
    profile: scope.profile,
    config_scope: scope.configScope,
    config_path: scope.configPath,
    fallback_to_global: scope.fallbackToGlobal,
    tts: {
      provider: tts.provider,
      voice_id: tts.voiceId,
      voice: tts.voice,
      model: tts.model,
      enabled: tts.enabled,
      available: tts.available,
      enhanced: tts.enhanced,
    },
    stt: { provider: stt.provider, model: stt.model, enabled: stt.enabled, available: stt.available },
    requirements: {
      available: tts.available && stt.available,
      stt_available: stt.available,
      tts_available: tts.available,
      missing,
      details: missing.length === 0 ? 'speech and transcription can be used' : missing.join('; '),
    },
  });
};

/** `/voice/output/config` and `.../providers/{id}/*` (contract 05 §10, §11). */
export const outputSettings = settingsRoutes<OutputSettings>({
  mode: 'voice_output',
  protocol: 'svc.voice.output',
  read: (config, profile) => config.output(profile),
  change: (config, profile, body) => config.changeOutput(profile, body),
  config: async (relay, effective) => {
    const { settings } = effective;
    return {
      ...choicesOf(effective),
      language: settings.language,
      codec: settings.codec,
      optimize_streaming_latency: settings.optimizeStreamingLatency,
      text_normalization: settings.textNormalization,
      fallback_enabled: settings.fallbackEnabled,
      auto_speech_tags: settings.autoSpeechTags,
      fallback_provider: 'legacy_svc_tts',
      providers: listed(effective)
        .filter(isRenderer)
        .map(({ info }) => info),
      auth: await authStatus(relay.voice.credentials, 'output', effective.oauthPath),
    };
  },
  providerOf: (id) => requireProvider(id, 'output'),
  shown: ({ provider, dynamic }) => ({ provider, dynamic }),
});

/** `/voice/realtime/config` and `.../providers/{id}/*` (contract 05 §11, §14). */
export const labSettings = settingsRoutes<RealtimeSettings>({
  mode: 'realtime_voice',
  protocol: 'svc.voice.realtime',
  read: (config, profile) => config.realtime(profile),
  change: (config, profile, body) => config.changeRealtime(profile, body),
  config: async ({ voice: { credentials } }, effective) => {
    const paths = await credentials.oauthPaths(effective.oauthPath);
    return {
      ...choicesOf(effective),
      providers: listed(effective).map(({ info }) => info),
      auth: {
        ...(await authStatus(credentials, 'realtime', effective.oauthPath)),
        xai_oauth_path: paths[0] ?? null,
        xai_oauth_paths: paths,
      },
    };
  },
  providerOf: (id) => requireProvider(id, 'realtime'),
  shown: ({ provider, dynamic }) => ({ provider, dynamic }),
});

/** The provider in use, and what it offers. */
function choicesOf({ settings, configPath, servers }: Effective<StreamingSettings>): JsonObject {
  const { provider, model, voice } = settings;
  const known = findProvider(provider);
  const info = known && withOwn(known, servers).info;
  return {
    config_path: configPath,
    provider,
    model,
    voice,
    models: info?.models ?? [],
    voices: info?.voices ?? [],
    languages: info?.languages ?? [],
    sample_rates: info?.sample_rates ?? [],
  };
}
