import type { Mapping } from '../../kit/yaml.ts';
import type { VoiceConfig } from '../config.ts';
import { basicSection, readSectionFor, textOf } from '../section.ts';

/** One section of the basic path for a request. */
export interface BasicSection {
  /** As returned by `basicSection`. */
  section: Mapping;
  /** The profile's file; null if the root's section applies. */
  file: string | null;
}

/** The section of a profile, else of the root (contract 05 §4, §5). */
export async function sectionOf(
  config: Pick<VoiceConfig, 'basic'>,
  name: 'tts' | 'stt',
  profile: string | null,
): Promise<BasicSection> {
  const { [name]: section, configPath } = await config.basic(profile);
  return { section: basicSection(section), file: configPath };
}

/**
 * The settings of a provider in a section. Flat keys belong to the provider named in the section; without one, they apply to
 * the chosen provider.
 */
export const settingsFor = (section: Mapping, provider: string): Mapping =>
  readSectionFor(textOf(section.provider) === undefined ? { ...section, provider } : section, provider);
