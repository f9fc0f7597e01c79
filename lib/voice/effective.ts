import { RelayError } from '../errors.ts';
import type { Mapping } from '../kit/yaml.ts';
import { chooseStt, chooseTts } from './basic/choice.ts';
import { sectionOf, settingsFor } from './basic/section-of.ts';
import { sttModel } from './basic/stt.ts';
import { spokenWith } from './basic/tts.ts';
import type { Effective, VoiceConfig } from './config.ts';
import { type Credential, isOnOwnersNetwork, listsUrl, type VoiceCredentials } from './credentials.ts';
import { findProvider, isRealtime } from './registry.ts';
import { textOf } from './section.ts';
import { commandOf, PROGRAM_VOICE } from './servers.ts';
import type { StreamingSettings } from './settings.ts';

/** The effective provider, server and model of one voice path (contract 05 §18). For the owner only: clients see no URLs. */
export interface EffectivePath {
  provider: string | null;
  /** The HTTP base URL, even of a realtime provider; null for a program, for the stub, and without a usable provider. */
  baseUrl: string | null;
  /** A program and its arguments, with placeholders. */
  command: readonly string[] | null;
  model: string | null;
  voice: string | null;
  /** True for a program, or a server at a loopback or private address, so that a call costs nothing. */
  isOwn: boolean;
  /** Never shown. */
  secret: string;
  /** Why it cannot be used. */
  problem: string | null;
}

export type VoicePath = 'speech' | 'transcription' | 'output' | 'realtime';

export interface EffectiveDeps {
  config: Pick<VoiceConfig, 'basic' | 'output' | 'realtime'>;
  credentials: VoiceCredentials;
}

const NOTHING: EffectivePath = {
  provider: null,
  baseUrl: null,
  command: null,
  model: null,
  voice: null,
  isOwn: false,
  secret: '',
  problem: null,
};

/** Determines the effective provider of each path, on a host. Makes no call. */
export async function effectivePaths(
  { config, credentials }: EffectiveDeps,
  profile: string | null,
): Promise<Record<VoicePath, EffectivePath>> {
  /** A path, or the problem with its configuration. */
  async function unlessWrong(path: () => Promise<EffectivePath>): Promise<EffectivePath> {
    try {
      return await path();
    } catch (error) {
      if (!(error instanceof RelayError)) throw error;
      const { provider } = error.extra ?? {};
      return { ...NOTHING, provider: textOf(provider) ?? null, problem: credentials.redact(error.message) };
    }
  }

  async function speech(): Promise<EffectivePath> {
    const { section } = await sectionOf(config, 'tts', profile);
    const choice = await chooseTts(credentials, section, true);
    const { provider } = choice;
    const settings = settingsFor(section, provider);
    if ('command' in choice) return programPath(choice.command, provider, settings);
    const { model = null, voice = null } = spokenWith(provider, { text: '', settings, section });
    return { ...serverPath(choice.key), provider, model, voice };
  }

  async function transcription(): Promise<EffectivePath> {
    const { section } = await sectionOf(config, 'stt', profile);
    const choice = await chooseStt(credentials, section, true);
    const { provider } = choice;
    const settings = settingsFor(section, provider);
    if ('command' in choice) return { ...programPath(choice.command, provider, settings), voice: null };
    const model = sttModel(provider, { settings, section, language: undefined }, choice.key) ?? null;
    return { ...serverPath(choice.key), provider, model };
  }

  async function streaming({ settings, servers, oauthPath }: Effective<StreamingSettings>): Promise<EffectivePath> {
    const { provider, model, voice } = settings;
    const program = provider === 'local_tts' ? commandOf('tts', servers.tts ?? {}) : undefined;
    if (program) return { ...programPath(program, provider, {}), model, voice };
    const known = findProvider(provider);
    const key = await credentials.streaming(provider, oauthPath, servers);
    const server = key ? serverPath(key) : NOTHING;
    const isSocket = known !== undefined && isRealtime(known);
    const baseUrl = server.baseUrl !== null && isSocket ? listsUrl(server.baseUrl) : server.baseUrl;
    return { ...server, provider, baseUrl, model, voice };
  }

  const [spoken, written, output, realtime] = await Promise.all([
    unlessWrong(speech),
    unlessWrong(transcription),
    unlessWrong(async () => streaming(await config.output(profile))),
    unlessWrong(async () => streaming(await config.realtime(profile))),
  ]);
  return { speech: spoken, transcription: written, output, realtime };
}

const serverPath = ({ baseUrl, secret }: Credential): EffectivePath => ({
  ...NOTHING,
  baseUrl,
  secret,
  isOwn: isOnOwnersNetwork(baseUrl),
});

const programPath = (command: readonly string[], provider: string, settings: Mapping): EffectivePath => ({
  ...NOTHING,
  provider,
  command,
  model: textOf(settings.model) ?? null,
  voice: textOf(settings.voice) ?? PROGRAM_VOICE,
  isOwn: true,
});
