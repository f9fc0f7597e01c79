import { RelayError } from '../../lib/errors.ts';
import type { JsonObject } from '../../lib/kit/json.ts';
import type { Relay } from '../../lib/relay.ts';
import { describeBasic } from '../../lib/voice/basic/describe.ts';
import type { Effective } from '../../lib/voice/config.ts';
import { authStatus } from '../../lib/voice/credentials.ts';
import { MAX_ID } from '../../lib/voice/limits.ts';
import { checkSelection, type OptionsMode } from '../../lib/voice/options.ts';
import {
  findProvider,
  isOwners,
  isRenderer,
  requireProvider,
  type StreamingProvider,
  streamingProviders,
} from '../../lib/voice/registry.ts';
import { textIn } from '../../lib/voice/section.ts';
import { isConfigured, withOwn } from '../../lib/voice/servers.ts';
import type { OutputSettings, RealtimeSettings, StreamingSettings } from '../../lib/voice/settings.ts';
import { json } from '../../lib/web/json.ts';
import { type Handler, pathParam, type RelayRequest } from '../request.ts';
import { profileOf, readVoiceBody, selected } from './request.ts';

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

/** `GET /voice/output/config` (contract 05 §10). */
export const getOutputConfig: Handler = async (request, relay) =>
  json(await outputBody(relay, await relay.voice.config.output(profileOf(request))));

/** `PATCH /voice/output/config` (contract 05 §10). */
export const patchOutputConfig: Handler = async (request, relay) => {
  const body = await readVoiceBody(request, { optional: true });
  const { effective, updated, configPath } = await relay.voice.config.changeOutput(profileOf(request, body), body);
  return json({ ...(await outputBody(relay, effective)), updated, config_path: configPath });
};

/** `GET /voice/realtime/config` (contract 05 §14). */
export const getRealtimeConfig: Handler = async (request, relay) =>
  json(await realtimeBody(relay, await relay.voice.config.realtime(profileOf(request))));

/** `PATCH /voice/realtime/config` (contract 05 §14). */
export const patchRealtimeConfig: Handler = async (request, relay) => {
  const body = await readVoiceBody(request, { optional: true });
  const { effective, updated, configPath } = await relay.voice.config.changeRealtime(profileOf(request, body), body);
  return json({ ...(await realtimeBody(relay, effective)), updated, config_path: configPath });
};

async function outputBody(relay: Relay, effective: Effective<OutputSettings>): Promise<JsonObject> {
  const { settings } = effective;
  return {
    ...commonBody('svc.voice.output.v0', effective),
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
    ...scopeBody(effective),
  };
}

async function realtimeBody(relay: Relay, effective: Effective<RealtimeSettings>): Promise<JsonObject> {
  const { credentials } = relay.voice;
  const paths = await credentials.oauthPaths(effective.oauthPath);
  return {
    ...commonBody('svc.voice.realtime.v0', effective),
    providers: listed(effective).map(({ info }) => info),
    auth: {
      ...(await authStatus(credentials, 'realtime', effective.oauthPath)),
      xai_oauth_path: paths[0] ?? null,
      xai_oauth_paths: paths,
    },
    ...scopeBody(effective),
  };
}

function commonBody(protocol: string, { settings, configPath, servers }: Effective<StreamingSettings>): JsonObject {
  const { enabled, provider, model, voice, sampleRate } = settings;
  const known = findProvider(provider);
  const info = known && withOwn(known, servers).info;
  return {
    success: true,
    enabled,
    protocol,
    config_path: configPath,
    default_provider: provider,
    default_model: model,
    default_voice: voice,
    provider,
    model,
    voice,
    models: info?.models ?? [],
    voices: info?.voices ?? [],
    languages: info?.languages ?? [],
    sample_rates: info?.sample_rates ?? [],
    sample_rate: sampleRate,
  };
}

/** The providers that a client can choose; the owner's own only once it is configured. */
export const listed = ({ servers, settings }: Effective<StreamingSettings>): StreamingProvider[] =>
  streamingProviders
    .filter((provider) => {
      const { id } = provider.info;
      return !isOwners(provider) || id === settings.provider || isConfigured(id, servers);
    })
    .map((provider) => withOwn(provider, servers));

/** The settings with another provider, including its own model and voice. */
export const settingsWith = <S extends StreamingSettings>(
  { settings, defaultsFor }: Effective<S>,
  provider: StreamingProvider,
): S =>
  provider.info.id === settings.provider
    ? settings
    : { ...settings, provider: provider.info.id, ...defaultsFor(provider) };

export const scopeBody = ({ profile, configScope, fallbackToGlobal }: Effective<StreamingSettings>): JsonObject => ({
  profile,
  config_scope: configScope,
  fallback_to_global: fallbackToGlobal,
});

/** `GET /voice/output/providers/{id}/options` (contract 05 §11). */
export const getOutputOptions: Handler = (request, relay) => optionsResponse(request, relay, 'voice_output');

/** `GET /voice/realtime/providers/{id}/options` (contract 05 §11). */
export const getRealtimeOptions: Handler = (request, relay) => optionsResponse(request, relay, 'realtime_voice');

/** `POST /voice/output/providers/{id}/validate` (contract 05 §11). */
export const validateOutput: Handler = (request, relay) => validation(request, relay, 'voice_output');

/** `POST /voice/realtime/providers/{id}/validate` (contract 05 §11). */
export const validateRealtime: Handler = (request, relay) => validation(request, relay, 'realtime_voice');

/** The provider in the path. */
const providerOf = (request: RelayRequest, mode: OptionsMode): StreamingProvider =>
  requireProvider(pathParam(request, 'provider'), mode === 'voice_output' ? 'output' : 'realtime');

/** The settings of a mode; only those of voice output have a language. */
async function effectiveOf(
  relay: Relay,
  mode: OptionsMode,
  profile: string | null,
): Promise<Effective<StreamingSettings & { language?: string }>> {
  const { config } = relay.voice;
  return mode === 'voice_output' ? config.output(profile) : config.realtime(profile);
}

async function optionsResponse(request: RelayRequest, relay: Relay, mode: OptionsMode): Promise<Response> {
  const provider = providerOf(request, mode);
  const effective = await effectiveOf(relay, mode, profileOf(request));
  const found = await relay.voice.options.of(mode, provider, effective.oauthPath, effective.servers);
  const { settings } = effective;
  return json({
    success: true,
    mode,
    protocol: mode === 'voice_output' ? 'svc.voice.output.options.v0' : 'svc.voice.realtime.options.v0',
    schema_version: 1,
    provider_id: provider.info.id,
    provider: found.provider,
    default_provider: settings.provider,
    default_model: settings.model,
    default_voice: settings.voice,
    sample_rate: settings.sampleRate,
    language: settings.language,
    ...scopeBody(effective),
    dynamic: found.dynamic,
  });
}

async function validation(request: RelayRequest, relay: Relay, mode: OptionsMode): Promise<Response> {
  const provider = providerOf(request, mode);
  const body = await readVoiceBody(request, { optional: true });
  const effective = await effectiveOf(relay, mode, profileOf(request, body));
  const settings = settingsWith(effective, provider);
  const selection = {
    model: selected(body, 'model', settings.model),
    voice: selected(body, 'voice', settings.voice),
    sampleRate: rateIn(body) ?? settings.sampleRate,
    language: settings.language === undefined ? undefined : (textIn(body, 'language', MAX_ID) ?? settings.language),
  };
  const { provider: options, dynamic } = await relay.voice.options.of(
    mode,
    provider,
    effective.oauthPath,
    effective.servers,
  );
  const checks = checkSelection(options, selection);
  const valid = checks.every(({ status }) => status !== 'error');
  return json({
    success: true,
    mode,
    protocol: mode === 'voice_output' ? 'svc.voice.output.validate.v0' : 'svc.voice.realtime.validate.v0',
    provider_id: provider.info.id,
    model: selection.model,
    voice: selection.voice,
    sample_rate: selection.sampleRate,
    language: selection.language,
    dynamic,
    valid,
    checks,
    summary: valid ? 'ok' : 'invalid',
  });
}

function rateIn({ sample_rate: rate }: JsonObject): number | undefined {
  if (rate === undefined || rate === null) return undefined;
  if (Number.isSafeInteger(rate)) return rate as number;
  throw new RelayError('invalid', 'sample_rate must be an integer');
}
