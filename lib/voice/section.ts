import { isMapping, type Mapping } from '../kit/yaml.ts';

/** Sections of a configuration file that are about voice. */
export type SectionName = 'tts' | 'stt' | 'voice_output' | 'realtime_voice';

/** A member of a mapping that is a mapping itself, or an empty one. */
export function mappingOf(mapping: Mapping, name: string): Mapping {
  const member = Object.hasOwn(mapping, name) ? mapping[name] : undefined;
  return isMapping(member) ? member : {};
}

/**
 * The settings of a section for its own provider: those nested under the provider's name, overlaid with every scalar of
 * the section itself that is not blank (contract 05 §4).
 */
export function readSection(section: Mapping): Mapping {
  const provider = textOf(section.provider);
  const nested = provider === undefined ? {} : mappingOf(section, provider);
  const scalars = Object.entries(section).filter(([, value]) => isScalar(value));
  return { ...nested, ...Object.fromEntries(scalars) };
}

/** Like `readSection`, for the named provider: what the section says of its own provider does not apply to others. */
export function readSectionFor(section: Mapping, provider: string): Mapping {
  const own = textOf(section.provider)?.toLowerCase();
  return own === provider ? { ...mappingOf(section, provider), ...readSection(section) } : mappingOf(section, provider);
}

const isScalar = (value: unknown): boolean =>
  value !== null && value !== undefined && value !== '' && typeof value !== 'object';

/** Trimmed text, undefined when it is blank or something else. */
export const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value.trim()) || undefined;
