import { RelayError } from '../../errors.ts';
import type { Mapping } from '../../kit/yaml.ts';
import type { BasicSections, VoiceConfig } from '../config.ts';
import type { VoiceCredentials } from '../credentials.ts';
import { basicProvider, booleanOf, isLocalName, isScalar, mappingOf, memberOf, textOf } from '../section.ts';
import { chooseStt, chooseTts } from './choice.ts';
import { sectionOf, settingsFor } from './section-of.ts';
import { sttModel } from './stt.ts';
import { GEMINI_MODELS } from './tts.ts';

const GEMINI_VOICES =
  'Zephyr Puck Charon Kore Fenrir Leda Orus Aoede Callirrhoe Autonoe Enceladus Iapetus Umbriel Algieba Despina Erinome Algenib Rasalgethi Laomedeia Achernar Alnilam Schedar Gacrux Pulcherrima Achird Zubenelgenubi Vindemiatrix Sadachbia Sadaltager Sulafat'.split(
    ' ',
  );

/** The overrides that a client may send with each call of such a provider (contract 05 §5). */
type Enhanced = NonNullable<ReturnType<typeof enhancedOf>>;

interface Section {
  provider: string | null;
  model: string | null;
  enabled: boolean;
  available: boolean;
}

/** The basic path as shown to clients: without key and URL (contract 05 §5). */
export interface BasicDescription
  extends Pick<BasicSections, 'profile' | 'configScope' | 'configPath' | 'fallbackToGlobal'> {
  tts: Section & { voiceId: string | null; voice: string | null; enhanced: Enhanced | null };
  stt: Section;
  /** One line for each unusable part. */
  missing: string[];
}

export interface DescribeDeps {
  config: Pick<VoiceConfig, 'basic'>;
  credentials: VoiceCredentials;
  hasHost: boolean;
}

/** Describes the basic path of a profile. Makes no call. */
export async function describeBasic(
  { config, credentials, hasHost }: DescribeDeps,
  profile: string | null,
): Promise<BasicDescription> {
  const { tts, stt, ...scope } = await config.basic(profile);
  const missing: string[] = [];

  /** The provider that could be called now; else null, with its problem in `missing`. */
  async function available<C>(choice: Promise<C>): Promise<C | null> {
    try {
      return await choice;
    } catch (error) {
      if (!(error instanceof RelayError)) throw error;
      missing.push(credentials.redact(error.message));
      return null;
    }
  }

  const chosen = async (name: 'tts' | 'stt') => (await sectionOf(config, name, profile)).section;
  const speaker = await available(chosen('tts').then((section) => chooseTts(credentials, section, hasHost)));
  const section = await chosen('stt');
  const writer = await available(chooseStt(credentials, section, hasHost));
  const transcription = facts(stt, writer !== null);
  // The model that is really sent, which may replace the configured one; null if none is configured.
  if (writer && 'key' in writer && transcription.model !== null) {
    const { provider, key } = writer;
    const settings = { settings: settingsFor(section, provider), section, language: undefined };
    transcription.model = sttModel(provider, settings, key) ?? transcription.model;
  }
  return {
    ...scope,
    tts: {
      ...facts(tts, speaker !== null),
      voiceId: wordOf(tts, 'voice_id'),
      voice: wordOf(tts, 'voice'),
      enhanced: enhancedOf(tts),
    },
    stt: transcription,
    missing,
  };
}

function facts(section: Mapping, available: boolean): Section {
  const named = textOf(section.provider)?.toLowerCase() ?? null;
  const provider = named !== null && isLocalName(named) ? 'local' : named;
  const enabled = provider !== null && booleanOf(memberOf(section, ['enabled'], basicProvider)) !== false;
  return { provider, model: wordOf(section, 'model', 'model_id'), enabled, available };
}

function wordOf(section: Mapping, ...names: string[]): string | null {
  const value = memberOf(section, names, basicProvider);
  return value === undefined ? null : String(value).trim();
}

function enhancedOf(section: Mapping) {
  const provider = textOf(section.provider)?.toLowerCase();
  const own = provider === undefined ? {} : mappingOf(section, provider);
  if (provider === 'gemini') {
    const tags = own.audio_tags ?? section.audio_tags;
    const configured = wordOf(section, 'model', 'model_id') ?? undefined;
    return {
      provider,
      supported: true,
      voices: [...GEMINI_VOICES],
      // The configured one stays in the list, even if it is outdated.
      models: [...new Set([...GEMINI_MODELS, ...(configured === undefined ? [] : [configured])])],
      audio_tag_models: [GEMINI_MODELS[0]],
      audio_tags_enabled: booleanOf(isScalar(tags) ? tags : mappingOf({ tags }, 'tags').enabled) === true,
      audio_tags_label: 'Audio tags',
      supports_persona: true,
      supports_language: false,
      persona_prompt_file: wordOf(section, 'persona_prompt_file'),
      overrides: ['voice', 'model', 'audio_tags', 'persona_prompt'],
    };
  }
  if (provider === 'xai') {
    return {
      provider,
      supported: true,
      voices: [],
      models: [],
      audio_tag_models: [],
      audio_tags_enabled: booleanOf(memberOf(section, ['auto_speech_tags', 'speech_tags'])) === true,
      audio_tags_label: 'Speech tags',
      supports_persona: false,
      supports_language: true,
      persona_prompt_file: null,
      overrides: ['voice', 'audio_tags', 'language'],
    };
  }
  return null;
}
