import { agentRoot, type Config } from '../config.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { mapLimit } from '../kit/semaphore.ts';
import { byCodePoint } from '../kit/text.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';

/** This product's name in the agent's plugin lists. */
export const PLUGIN = 'svc-relay';
export const ROOT_PROFILE = '(default)';

const MAX_CONFIG = 1024 * 1024;
const MAX_PROFILES = 256;
const MAX_READERS = 8;

/** `enabled` when listed in `plugins.enabled`, else `disabled` when in `plugins.disabled`, else `absent`. */
export type RelayState = 'enabled' | 'disabled' | 'absent';

export interface Enablement {
  /** `(default)` for the root config, else the profile's directory name. */
  profile: string;
  /** Absolute path of its config: for the operator's terminal, never for the network. */
  path: string;
  state: RelayState;
  /** Why the config cannot be read or parsed, in which case `state` is `absent`. */
  error?: string;
}

/**
 * Reads for each config of the agent home whether it enables this plugin (contract 07 §5.5): the root first, then at most
 * 256 profiles in code point order. A missing config has no row, an unreadable one has an `error`.
 * @throws any error of `host.files.list` for the profiles directory.
 */
export async function readEnablement(host: Host, config: Pick<Config, 'agentConfig'>): Promise<Enablement[]> {
  const root = agentRoot(config);
  const names = await profileNames(host, `${root}/profiles`);
  const configs = names.map((profile) => ({ profile, path: `${root}/profiles/${profile}/config.yaml` }));
  const rootConfig = { profile: ROOT_PROFILE, path: config.agentConfig };
  const rows = await mapLimit(MAX_READERS, [rootConfig, ...configs], (place) => readOne(host, place));
  return rows.filter((row) => row !== null);
}

/** State of this plugin in a parsed config. */
function relayState(config: Mapping): RelayState {
  const plugins = isMapping(config.plugins) ? config.plugins : {};
  const lists = (list: unknown) => Array.isArray(list) && list.includes(PLUGIN);
  return lists(plugins.enabled) ? 'enabled' : lists(plugins.disabled) ? 'disabled' : 'absent';
}

/** Directories of `profiles/`, and links that stay inside it. */
async function profileNames(host: Host, directory: string): Promise<string[]> {
  const entries = (await host.files.list(directory)) ?? [];
  const home = await host.files.realPath(directory);
  const inside = await mapLimit(MAX_READERS, entries, async ({ name, kind }) => {
    if (name.startsWith('.') || (kind !== 'directory' && kind !== 'link')) return false;
    if (kind === 'directory') return true;
    const real = await unlessUnreadable(host.files.realPath(`${directory}/${name}`));
    return real?.startsWith(`${home}/`) ?? false;
  });
  return entries
    .filter((_, index) => inside[index])
    .map(({ name }) => name)
    .sort(byCodePoint)
    .slice(0, MAX_PROFILES);
}

async function readOne(host: Host, { profile, path }: { profile: string; path: string }): Promise<Enablement | null> {
  const failed = (error: string): Enablement => ({ profile, path, state: 'absent', error });
  try {
    const text = await host.files.readText(path, MAX_CONFIG + 1);
    if (text === null) return null;
    if (text.length > MAX_CONFIG) return failed('larger than 1 MiB');
    const parsed = await host.yaml.parseMapping(text);
    return parsed.ok ? { profile, path, state: relayState(parsed.mapping) } : failed(parsed.problem);
  } catch {
    return failed('cannot be read');
  }
}
