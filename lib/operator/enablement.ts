import { agentRoot, type Config } from '../config.ts';
import type { Host } from '../host/index.ts';
import { byCodePoint } from '../kit/text.ts';
import { isMapping, type Mapping, parseMapping } from '../kit/yaml.ts';

/** How this product is called in the agent's lists of plugins. */
export const PLUGIN = 'svc-relay';
export const ROOT_PROFILE = '(default)';

const CONFIG_LIMIT = 1024 * 1024;
const MAX_PROFILES = 256;
const READERS = 8;

/** `enabled` when listed in `plugins.enabled`, else `disabled` when in `plugins.disabled`, else `absent`. */
export type RelayState = 'enabled' | 'disabled' | 'absent';

export interface Enablement {
  /** `(default)` for the root config, else the profile's directory name. */
  profile: string;
  /** Absolute path of its config. For the operator's own terminal, never for the network. */
  path: string;
  state: RelayState;
  /** Why the config cannot be understood; `state` is `absent` then. */
  error?: string;
}

/**
 * The configs of the agent home and whether each enables this plugin (contract 07 §5.5): the root first, then profiles
 * in code point order, at most 256. Without a config there is no row; one that cannot be read has an `error`.
 * @throws what `host.files.list` throws, when the profiles directory cannot be listed.
 */
export async function readEnablement(host: Host, config: Pick<Config, 'agentConfig'>): Promise<Enablement[]> {
  const root = agentRoot(config);
  const names = await profileNames(host, `${root}/profiles`);
  const configs = names.map((profile) => ({ profile, path: `${root}/profiles/${profile}/config.yaml` }));
  const rootConfig = { profile: ROOT_PROFILE, path: config.agentConfig };
  const rows = await eachOf([rootConfig, ...configs], READERS, (place) => readOne(host, place));
  return rows.filter((row) => row !== null);
}

/** The state that a parsed config gives this plugin. */
export function relayState(config: Mapping): RelayState {
  const plugins = isMapping(config.plugins) ? config.plugins : {};
  const lists = (list: unknown) => Array.isArray(list) && list.includes(PLUGIN);
  return lists(plugins.enabled) ? 'enabled' : lists(plugins.disabled) ? 'disabled' : 'absent';
}

/** Directories of `profiles/`, links only to places inside of it. */
async function profileNames(host: Host, directory: string): Promise<string[]> {
  const entries = (await host.files.list(directory)) ?? [];
  const home = await host.files.realPath(directory);
  const inside = await eachOf(entries, READERS, async ({ name, kind }) => {
    if (name.startsWith('.') || (kind !== 'directory' && kind !== 'link')) return false;
    if (kind === 'directory') return true;
    const real = await host.files.realPath(`${directory}/${name}`).catch(() => null);
    return real?.startsWith(`${home}/`) ?? false;
  });
  return entries
    .filter((_, index) => inside[index])
    .map(({ name }) => name)
    .sort(byCodePoint)
    .slice(0, MAX_PROFILES);
}

async function readOne(host: Host, { profile, path }: { profile: string; path: string }): Promise<Enablement | null> {
  const unclear = (error: string): Enablement => ({ profile, path, state: 'absent', error });
  try {
    const text = await host.files.readText(path, CONFIG_LIMIT + 1);
    if (text === null) return null;
    if (text.length > CONFIG_LIMIT) return unclear('larger than 1 MiB');
    const parsed = parseMapping(text);
    return parsed.ok ? { profile, path, state: relayState(parsed.mapping) } : unclear(parsed.problem);
  } catch {
    return unclear('cannot be read');
  }
}

/** `work` on every item, at most `limit` at a time, results in order. */
async function eachOf<T, R>(items: T[], limit: number, work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  const worker = async () => {
    while (next < items.length) {
      const at = next++;
      results[at] = await work(items[at] as T);
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  return results;
}
