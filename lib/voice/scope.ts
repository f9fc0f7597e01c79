import { agentRoot, type Config } from '../config.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import type { Mapping } from '../kit/yaml.ts';
import { createConfigReader } from '../profiles/config-file.ts';
import { type ProfilePlace, profileHome } from '../profiles/home.ts';

/** The file whose sections apply to a request (contract 05 §4). */
export interface VoiceScope {
  /** The profile's configuration file; null when the root's applies because no profile was named or found. */
  file: string | null;
  /** Content of the profile's file, else of the root's. Never change it. */
  content: Mapping;
}

const EMPTY: Mapping = Object.freeze({});

export type VoiceScopes = ReturnType<typeof createVoiceScopes>;

/** Without a host (edge) there are no files: every scope is empty, and profiles are unknown. */
export function createVoiceScopes(host: Host | undefined, config: Pick<Config, 'agentConfig'>) {
  const readConfig = host && createConfigReader(host);

  /** A file's mapping; empty if it is missing, unreadable or invalid. Never change it. */
  async function read(path: string): Promise<Mapping> {
    const parsed = await readConfig?.(path);
    return parsed?.ok ? parsed.mapping : EMPTY;
  }

  /** The root configuration. */
  const root = () => read(config.agentConfig);

  return {
    read,
    root,

    /** Throws only when the machine is short of file handles or memory. */
    async resolve(profile: string | null): Promise<VoiceScope> {
      const file = profile === null ? null : await profileConfig(host, config, profile);
      return { file, content: file === null ? await root() : await read(file) };
    },
  };
}

/**
 * Configuration file of a profile by the name that a client gives; `default` is the root's, which need not exist. Null
 * unless the real path is below the real `profiles/` (contract 05 §4).
 */
async function profileConfig(
  host: Host | undefined,
  config: Pick<Config, 'agentConfig'>,
  name: string,
): Promise<string | null> {
  if (!host) return null;
  if (name === 'default') return config.agentConfig;
  const place = await profileHome(host.files, config, name);
  return place && (await isOwnFile(host, config, place)) ? place.config : null;
}

/** True if a profile has a configuration file whose real path is inside `profiles/`. */
async function isOwnFile({ files }: Host, config: Pick<Config, 'agentConfig'>, place: ProfilePlace): Promise<boolean> {
  const [parent, real, facts] = await Promise.all([
    unlessUnreadable(files.realPath(`${agentRoot(config)}/profiles`)),
    unlessUnreadable(files.realPath(place.config)),
    unlessUnreadable(files.stat(place.config)),
  ]);
  return facts?.kind === 'file' && parent !== null && real?.startsWith(`${parent}/`) === true;
}
