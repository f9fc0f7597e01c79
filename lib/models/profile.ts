import { decodeEnvFile, parseEnvFile } from '../env-file.ts';
import type { Host, HostFiles } from '../host/index.ts';
import type { ProfilePlace } from '../profiles/home.ts';
import { unlessUnreadable } from '../profiles/readable.ts';
import { isMapping, type Mapping, parseMapping } from '../profiles/yaml.ts';
import { isObject } from '../socket/envelope.ts';

const CONFIG_LIMIT = 256 * 1024;
const ENV_LIMIT = 64 * 1024;
const AUTH_LIMIT = 1024 * 1024;

/** What a profile says about its providers. Full of secrets: not for answers, not for logs. */
export interface ProfileSettings {
  env: Readonly<Record<string, string | undefined>>;
  config: Mapping;
  /** `auth.json`: the profile's, then the root's. */
  auths: readonly Record<string, unknown>[];
}

/**
 * Reads a profile's configuration, `.env` and `auth.json`. What is missing, too large or malformed counts as empty.
 * Throws only when the machine is short of file handles or memory.
 */
export async function readProfileSettings(
  { files }: Host,
  { home, config }: ProfilePlace,
  root: string,
): Promise<ProfileSettings> {
  const homes = home === root ? [root] : [home, root];
  const [configBytes, envBytes, ...authBytes] = await Promise.all([
    readWhole(files, config, CONFIG_LIMIT),
    readWhole(files, `${home}/.env`, ENV_LIMIT),
    ...homes.map((directory) => readWhole(files, `${directory}/auth.json`, AUTH_LIMIT)),
  ]);
  return {
    env: envBytes ? parseEnvFile(decodeEnvFile(envBytes), { oneLine: true }) : {},
    config: configBytes ? mappingOf(configBytes) : {},
    auths: authBytes.map((bytes) => (bytes ? jsonObjectOf(bytes) : {})),
  };
}

/** A file, or null when it cannot be had whole. */
export async function readWhole(files: HostFiles, path: string, limit: number): Promise<Uint8Array | null> {
  const bytes = await unlessUnreadable(files.read(path, limit + 1));
  return bytes && bytes.length <= limit ? bytes : null;
}

function mappingOf(bytes: Uint8Array): Mapping {
  const parsed = parseMapping(new TextDecoder().decode(bytes));
  return parsed.ok ? parsed.mapping : {};
}

/** The JSON object of a file; an empty one for anything else. */
export function jsonObjectOf(bytes: Uint8Array): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

/** The member of a mapping, if that is a mapping itself. */
export const sectionOf = (mapping: Mapping, name: string): Mapping => {
  const section = mapping[name];
  return isMapping(section) ? section : {};
};
