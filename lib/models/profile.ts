import type { Host } from '../host/index.ts';
import { decodeUtf8 } from '../kit/text.ts';
import { isMapping, type Mapping, parseMapping } from '../kit/yaml.ts';
import type { ProfilePlace } from '../profiles/home.ts';
import { type ProfileSecrets, readSecrets, readWhole } from '../profiles/secrets.ts';

const CONFIG_LIMIT = 256 * 1024;

/** What a profile says about its providers. Full of secrets: not for answers, not for logs. */
export interface ProfileSettings extends ProfileSecrets {
  config: Mapping;
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
  const [configBytes, secrets] = await Promise.all([
    readWhole(files, config, CONFIG_LIMIT),
    readSecrets(files, home, root),
  ]);
  return { ...secrets, config: configBytes ? mappingOf(configBytes) : {} };
}

function mappingOf(bytes: Uint8Array): Mapping {
  const parsed = parseMapping(decodeUtf8(bytes));
  return parsed.ok ? parsed.mapping : {};
}

/** The member of a mapping, if that is a mapping itself. */
export const sectionOf = (mapping: Mapping, name: string): Mapping => {
  const section = mapping[name];
  return isMapping(section) ? section : {};
};
