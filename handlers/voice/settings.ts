import { RelayError } from '../../lib/errors.ts';
import type { JsonObject } from '../../lib/kit/json.ts';
import type { Relay } from '../../lib/relay.ts';
import type { Changed, Effective, VoiceConfig } from '../../lib/voice/config.ts';
import { MAX_ID } from '../../lib/voice/limits.ts';
import { checkSelection, type FoundOptions, type OptionsMode } from '../../lib/voice/options.ts';
import { isOwners, type StreamingProvider, streamingProviders } from '../../lib/voice/registry.ts';
import { textIn } from '../../lib/voice/section.ts';
import { isConfigured, withOwn } from '../../lib/voice/servers.ts';
import type { StreamingSettings } from '../../lib/voice/settings.ts';
import { json } from '../../lib/web/json.ts';
import { type Handler, pathParam, type RelayRequest } from '../request.ts';
import { profileOf, readVoiceBody } from './request.ts';

/** The differences between the settings of voice output, of the lab, and of the realtime agent. */
export interface SettingsKind<S extends StreamingSettings> {
  mode: OptionsMode;
  /** Base of the names in answers; `.v0`, `.options.v0` or `.validate.v0` follows it. */
  protocol: 'svc.voice.output' | 'svc.voice.realtime' | 'svc.voice.realtime_agent';
  read(config: VoiceConfig, profile: string | null): Promise<Effective<S>>;
  change(config: VoiceConfig, profile: string | null, body: JsonObject): Promise<Changed<S>>;
  /** Members of the configuration beyond the common ones. */
  config(relay: Relay, effective: Effective<S>): Promise<JsonObject>;
  /** @throws RelayError `invalid` unless the provider in a path is for this use. */
  providerOf(id: string): StreamingProvider;
  /** True if `sample_rate` may be decimal text. */
  takesText?: true;
  /** The choices that a provider offers, as clients see them. */
  shown(found: FoundOptions, provider: StreamingProvider): { provider: JsonObject; dynamic: JsonObject };
  /** Further members of the options. */
  options?: JsonObject;
}

/** The routes of one kind of settings (contract 05 §10, §11, §14, 06 §3.1, §3.2). Only voice output has a language. */
export function settingsRoutes<S extends StreamingSettings & { language?: string }>(kind: SettingsKind<S>) {
  const { mode, protocol, read, change, config, shown } = kind;

  const configBody = async (relay: Relay, effective: Effective<S>): Promise<JsonObject> => ({
    success: true,
    protocol: `${protocol}.v0`,
    enabled: effective.settings.enabled,
    ...defaultsOf(effective.settings),
    ...(await config(relay, effective)),
    ...scopeOf(effective),
  });

  const providerOf = (request: RelayRequest) => kind.providerOf(pathParam(request, 'provider'));

  const optionsOf = ({ voice }: Relay, provider: StreamingProvider, { oauthPath, servers }: Effective<S>) =>
    voice.options.of(mode, provider, oauthPath, servers);

  const get: Handler = async (request, relay) =>
    json(await configBody(relay, await read(relay.voice.config, profileOf(request))));

  const patch: Handler = async (request, relay) => {
    const body = await readVoiceBody(request, { optional: true });
    const { effective, updated, configPath } = await change(relay.voice.config, profileOf(request, body), body);
    return json({ ...(await configBody(relay, effective)), updated, config_path: configPath });
  };

  const options: Handler = async (request, relay) => {
    const provider = providerOf(request);
    const effective = await read(relay.voice.config, profileOf(request));
    return json({
      success: true,
      mode,
      protocol: `${protocol}.options.v0`,
      schema_version: 1,
      provider_id: provider.info.id,
      ...shown(await optionsOf(relay, provider, effective), provider),
      ...defaultsOf(effective.settings),
      language: effective.settings.language,
      ...scopeOf(effective),
      ...kind.options,
    });
  };

  const validate: Handler = async (request, relay) => {
    const provider = providerOf(request);
    const body = await readVoiceBody(request, { optional: true });
    const effective = await read(relay.voice.config, profileOf(request, body));
    const settings = settingsWith(effective, provider);
    const selection = {
      model: selected(body, 'model', settings.model),
      voice: selected(body, 'voice', settings.voice),
      sampleRate: rateIn(body, kind.takesText) ?? settings.sampleRate,
      language: settings.language === undefined ? undefined : (textIn(body, 'language', MAX_ID) ?? settings.language),
    };
    const found = await optionsOf(relay, provider, effective);
    const checks = checkSelection(found.provider, selection);
    const valid = checks.every(({ status }) => status !== 'error');
    return json({
      success: true,
      mode,
      protocol: `${protocol}.validate.v0`,
      provider_id: provider.info.id,
      model: selection.model,
      voice: selection.voice,
      sample_rate: selection.sampleRate,
      language: selection.language,
      dynamic: shown(found, provider).dynamic,
      valid,
      checks,
      summary: valid ? 'ok' : 'invalid',
    });
  };

  return { get, patch, options, validate };
}

const defaultsOf = ({ provider, model, voice, sampleRate }: StreamingSettings): JsonObject => ({
  default_provider: provider,
  default_model: model,
  default_voice: voice,
  sample_rate: sampleRate,
});

const scopeOf = ({ profile, configScope, fallbackToGlobal }: Effective<StreamingSettings>): JsonObject => ({
  profile,
  config_scope: configScope,
  fallback_to_global: fallbackToGlobal,
});

/** The providers that a client can choose; the owner's own only once it is configured. */
export const listed = ({ servers, settings }: Effective<StreamingSettings>): StreamingProvider[] =>
  streamingProviders
    .filter((provider) => {
      const { id } = provider.info;
      return !isOwners(provider) || id === settings.provider || isConfigured(id, servers);
    })
    .map((provider) => withOwn(provider, servers));

/** The settings with another provider, including its own model and voice. */
const settingsWith = <S extends StreamingSettings>(
  { settings, defaultsFor }: Effective<S>,
  provider: StreamingProvider,
): S =>
  provider.info.id === settings.provider
    ? settings
    : { ...settings, provider: provider.info.id, ...defaultsFor(provider) };

/**
 * A model or voice to check. A missing one comes from the settings, an empty one stays empty.
 * @throws RelayError `invalid`
 */
const selected = (body: JsonObject, name: string, fallback: string): string =>
  body[name] === undefined || body[name] === null ? fallback : (textIn(body, name, MAX_ID) ?? '');

function rateIn({ sample_rate: given }: JsonObject, takesText = false): number | undefined {
  if (given === undefined || given === null) return undefined;
  const isNumeral = takesText && typeof given === 'string' && /^\s*\d{1,9}\s*$/.test(given);
  const rate = isNumeral ? Number(given) : given;
  if (Number.isSafeInteger(rate)) return rate as number;
  throw new RelayError('invalid', 'sample_rate must be an integer');
}
