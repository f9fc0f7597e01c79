import type { Mapping, YamlChange } from '../kit/yaml.ts';
import { sectionIn } from './config-edit.ts';
import { basicProvider, isScalar, mappingOf, nestedIn, textOf } from './section.ts';

/** Keys of `local` that a new choice replaces together, since those of a server do not fit a program. */
const REPLACED = ['base_url', 'command', 'model', 'voice', 'api_key', 'response_format', 'sample_rate'] as const;
/** Keys of the section itself that are meant for its provider, and would override those of `local`. */
const FLAT = [...REPLACED, 'model_id', 'voice_id', 'timeout', 'speed', 'language'] as const;

/** The choice of a server or a program: members of `local`, as in contract 05 §18. */
export type LocalChoice = Mapping & ({ base_url: string } | { command: string[] });

/**
 * The changes that make `local` the provider of `tts:` or `stt:` (contract 05 §18). Moves the settings of the former
 * provider below its name, so that switching back changes one line.
 * @throws RelayError `internal` for a file whose section is no mapping.
 */
export function localChanges(content: Mapping, kind: 'tts' | 'stt', choice: LocalChoice): YamlChange[] {
  const section = sectionIn(content, kind);
  const former = basicProvider(textOf(section.provider) ?? 'openai');
  const isLocal = former === 'local';
  const nested = isLocal ? nestedIn(section, 'local', basicProvider) : mappingOf(section, former);
  const alias = Object.keys(section).find((name) => name !== 'local' && basicProvider(name) === 'local');
  const at = (...path: string[]) => [kind, ...path];
  const moved = FLAT.filter((key) => isScalar(section[key])).flatMap((key): YamlChange[] => [
    ...(isLocal || Object.hasOwn(nested, key) ? [] : [{ path: at(former, key), value: section[key] }]),
    { path: at(key), value: undefined },
  ]);
  const stale = REPLACED.filter((key) => !Object.hasOwn(choice, key)).map((key) => ({
    path: at('local', key),
    value: undefined,
  }));
  return [
    ...moved,
    { path: at('provider'), value: 'local' },
    ...(alias === undefined ? [] : [{ path: at(alias), value: undefined }]),
    ...(section.enabled === undefined || section.enabled === true ? [] : [{ path: at('enabled'), value: true }]),
    ...Object.entries(choice).map(([key, value]) => ({ path: at('local', key), value })),
    ...stale,
  ];
}

/** The changes that name a realtime server in the file that has `realtime_voice:`. */
export const realtimeChanges = (content: Mapping, choice: LocalChoice): YamlChange[] => {
  sectionIn(content, 'realtime');
  const stale = REPLACED.filter((key) => !Object.hasOwn(choice, key));
  return [
    ...Object.entries(choice).map(([key, value]) => ({ path: ['realtime', 'local', key], value })),
    ...stale.map((key) => ({ path: ['realtime', 'local', key], value: undefined })),
  ];
};
