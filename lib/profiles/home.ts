import { agentRoot, type Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { HostFiles } from '../host/index.ts';

/** Paths of a profile. `config` is separate because the root's file may have another name. */
export interface ProfilePlace {
  name: string;
  home: string;
  config: string;
}

type RootConfig = Pick<Config, 'agentConfig'>;

const MARKER = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const MAX_MARKER = 4096;
// biome-ignore lint/suspicious/noControlCharactersInRegex: names must not contain control characters
const NAME = /^(?!\.)[^/\\\u0000-\u001f\u007f-\u009f\ud800-\udfff]{1,128}$/u;

/** True for a name that clients can use: neither hidden, nor with control characters such as a line end. */
export const isProfileName = (name: string): boolean => NAME.test(name);

/**
 * Home of the profile that a bare agent run uses: the one named by `active_profile`, else the root, with a warning if the
 * marker is dangling (contract 07 §1.1). Read on each use. Its `name` is `default`.
 */
export async function defaultHome(
  files: HostFiles,
  config: RootConfig,
  warn: (message: string) => void = () => {},
): Promise<ProfilePlace> {
  const root = agentRoot(config);
  const rootPlace = { name: 'default', home: root, config: config.agentConfig };
  const marker = `${root}/active_profile`;
  const missing = (await unlessUnreadable(files.stat(marker))) === null;
  const name = missing ? '' : (await unlessUnreadable(files.readText(marker, MAX_MARKER)))?.trim();
  if (name === '' || name === 'default') return rootPlace;
  const place = name !== undefined && MARKER.test(name) ? await namedHome(files, config, name) : null;
  if (place && (await unlessUnreadable(files.stat(place.config)))?.kind === 'file')
    return { ...place, name: 'default' };
  warn('active_profile does not name a profile with a config.yaml; the default is the root profile');
  return rootPlace;
}

/**
 * Home of a profile by the name that a client gives, percent-decoded: `default` is the default home, others are
 * directories whose real path is directly in `profiles/`, with or without a configuration. Null for every other name
 * (contract 07 §1.5).
 */
export async function profileHome(
  files: HostFiles,
  config: RootConfig,
  name: string,
  warn?: (message: string) => void,
): Promise<ProfilePlace | null> {
  if (name === 'default') return defaultHome(files, config, warn);
  return isProfileName(name) ? namedHome(files, config, name) : null;
}

/** Like `profileHome`. @throws RelayError `not-found` for every other name. */
export async function knownProfile(files: HostFiles, config: RootConfig, name: string): Promise<ProfilePlace> {
  const place = await profileHome(files, config, name);
  if (!place) throw new RelayError('not-found', 'profile_not_found', { extra: { profile: name } });
  return place;
}

/** Home of an entry of `profiles/`; null unless it is a directory whose real path is directly there. */
export async function namedHome(files: HostFiles, config: RootConfig, name: string): Promise<ProfilePlace | null> {
  const profiles = `${agentRoot(config)}/profiles`;
  const home = `${profiles}/${name}`;
  const [parent, real, facts] = await Promise.all([
    unlessUnreadable(files.realPath(profiles)),
    unlessUnreadable(files.realPath(home)),
    unlessUnreadable(files.stat(home)),
  ]);
  if (parent === null || real === null || facts?.kind !== 'directory') return null;
  const isDirectlyBelow = real.slice(0, real.lastIndexOf('/')) === parent;
  return isDirectlyBelow ? { name, home, config: `${home}/config.yaml` } : null;
}
