import { parseBoolean } from '../config.ts';
import { RelayError } from '../errors.ts';
import type { JsonObject } from '../kit/json.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';

/** A member of a mapping that is a mapping itself, or an empty one. */
export function mappingOf(mapping: Mapping, name: string): Mapping {
  const member = Object.hasOwn(mapping, name) ? mapping[name] : undefined;
  return isMapping(member) ? member : {};
}

/**
 * The settings of a section for its own provider: those nested under the provider's name, overlaid with every scalar of
 * the section itself that is not blank (contract 05 §4). `canonical` turns a provider's aliases into one name.
 */
export function readSection(section: Mapping, canonical?: (provider: string) => string): Mapping {
  return Object.fromEntries(levelsOf(section, canonical).toReversed().flatMap(Object.entries));
}

/** Like `readSection`, for the named provider: settings that the section has for its own provider do not apply to others. */
export function readSectionFor(section: Mapping, provider: string): Mapping {
  const own = textOf(section.provider)?.toLowerCase();
  return own === provider ? { ...mappingOf(section, provider), ...readSection(section) } : mappingOf(section, provider);
}

/** True if a name means the owner's own server or program: `local`, or its alias (contract 05 §18). */
export const isLocalName = (name: string): boolean =>
  /^(?:local|openai[_-]compatible)$/.test(name.trim().toLowerCase());

/** The provider meant by a name in `tts:` or `stt:`: lower case, `openai` for `nous`, and `local` for its alias. */
export function basicProvider(name: string): string {
  const word = name.trim().toLowerCase();
  return word === 'nous' ? 'openai' : isLocalName(word) ? 'local' : word;
}

/** A `tts:` or `stt:` section with those names in place of their aliases. */
export function basicSection(section: Mapping): Mapping {
  const provider = textOf(section.provider);
  const local = nestedIn(section, 'local', basicProvider);
  return {
    ...section,
    provider: provider === undefined ? undefined : basicProvider(provider),
    ...(Object.keys(local).length > 0 && { local }),
  };
}

/** The members of a section below the name of a provider, by any of its aliases. */
export const nestedIn = (section: Mapping, provider: string, canonical: (provider: string) => string): Mapping =>
  Object.fromEntries(
    Object.keys(section)
      .filter((name) => canonical(name) === provider)
      .flatMap((name) => Object.entries(mappingOf(section, name))),
  );

/** The levels of a section, by descending precedence: its own scalars, then those nested for its provider. */
function levelsOf(section: Mapping, canonical = (provider: string) => provider): Mapping[] {
  const scalars = Object.fromEntries(Object.entries(section).filter(([, value]) => isScalar(value)));
  const provider = textOf(section.provider);
  if (provider === undefined) return [scalars];
  const names = Object.keys(section).filter((name) => canonical(name) === canonical(provider));
  const exactFirst = [provider, ...names.filter((name) => name !== provider)];
  return [scalars, ...exactFirst.map((name) => mappingOf(section, name))];
}

/** The value of the first of these names that a section has for its provider; its own scalars come first. */
export function memberOf(
  section: Mapping,
  names: readonly string[],
  canonical?: (provider: string) => string,
): unknown {
  for (const level of levelsOf(section, canonical)) {
    for (const name of names) if (Object.hasOwn(level, name) && isScalar(level[name])) return level[name];
  }
  return undefined;
}

/** Neither blank, nor a mapping or a list. */
export const isScalar = (value: unknown): boolean =>
  value !== null && value !== undefined && typeof value !== 'object' && !(typeof value === 'string' && !value.trim());

/** Trimmed text; undefined if it is blank or not text. */
export const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value.trim()) || undefined;

/**
 * Trimmed text of a body; undefined when it is absent or blank.
 * @throws RelayError `invalid` for another type, and for more than `max` characters
 */
export function textIn(body: JsonObject, name: string, max: number): string | undefined {
  const value = body[name] ?? '';
  if (typeof value !== 'string') throw new RelayError('invalid', `${name} must be a string`);
  const text = value.trim();
  if (text.length > max) throw new RelayError('invalid', `${name} must have at most ${max} characters`);
  return text === '' ? undefined : text;
}

/** A number, also one written as text; undefined for anything else. */
export function numberOf(value: unknown): number | undefined {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  return typeof number === 'number' && Number.isFinite(number) ? number : undefined;
}

/** A switch, also one written as text; undefined for anything else. */
export function booleanOf(value: unknown): boolean | undefined {
  if (typeof value === 'boolean') return value;
  // `String` throws for an object with a `toString` of its own, and overflows the stack on a deep list.
  const text = typeof value === 'object' ? undefined : textOf(String(value));
  return text === undefined ? undefined : (parseBoolean(text) ?? undefined);
}
