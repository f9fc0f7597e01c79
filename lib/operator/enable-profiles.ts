import type { Config } from '../config.ts';
import { describeError, RelayError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { decodeUtf8Strict } from '../kit/text.ts';
import type { YamlChange } from '../kit/yaml.ts';
import { type Enablement, PLUGIN, type RelayState, ROOT_PROFILE, readEnablement } from './enablement.ts';

const MAX_CONFIG = 1024 * 1024;

/** Enables this plugin in a config. A list that cannot be changed alone, such as one shared by an anchor, is a problem. */
export const ENABLING: YamlChange[] = [
  { path: ['plugins', 'disabled'], item: PLUGIN, isListed: false },
  { path: ['plugins', 'enabled'], item: PLUGIN, isListed: true },
];

/** One row of `svc relay profiles enable --json` (contract 07 §5.5). */
export interface Enabled {
  profile: string;
  path: string;
  was: RelayState;
  changed: boolean;
  /** Why this config was left unchanged. */
  error?: string;
}

export interface EnableOptions {
  /** Names in any case, `default` for the root; empty for all. */
  names: string[];
  dryRun: boolean;
}

/**
 * Enables this plugin in configs of the agent home (contract 07 §5.5). A changed config is first copied to `<config>.bak`,
 * then replaced atomically. An unparseable one is reported and left unchanged.
 * @throws RelayError `not-found` naming the unknown profiles, in which case nothing is edited.
 */
export async function enableProfiles(
  host: Host,
  config: Pick<Config, 'agentConfig'>,
  { names, dryRun }: EnableOptions,
): Promise<Enabled[]> {
  const chosen = choose(await readEnablement(host, config), names);
  const results: Enabled[] = [];
  for (const row of chosen) results.push(await enableOne(host, row, dryRun));
  return results;
}

function choose(rows: Enablement[], names: string[]): Enablement[] {
  if (names.length === 0) return rows;
  const wanted = new Set(names.map((name) => (name.toLowerCase() === 'default' ? ROOT_PROFILE : name.toLowerCase())));
  const known = new Set(rows.map(({ profile }) => profile.toLowerCase()));
  const unknown = [...wanted].filter((name) => !known.has(name));
  if (unknown.length > 0) throw new RelayError('not-found', `no profile is called ${unknown.join(', ')}`);
  return rows.filter(({ profile }) => wanted.has(profile.toLowerCase()));
}

async function enableOne(host: Host, row: Enablement, dryRun: boolean): Promise<Enabled> {
  const { profile, path, state: was } = row;
  const unchanged = (error: string): Enabled => ({ profile, path, was, changed: false, error });
  if (row.error !== undefined) return unchanged(row.error);
  try {
    const bytes = await host.files.read(path, MAX_CONFIG + 1);
    if (bytes === null) return unchanged('is gone');
    if (bytes.length > MAX_CONFIG) return unchanged('larger than 1 MiB');
    // YAML allows a byte-order mark, so it stays.
    const text = decodeUtf8Strict(bytes, { keepBom: true });
    if (text === null) return unchanged('not UTF-8 text');
    const edited = await host.yaml.edit(text, ENABLING);
    if (!edited.ok) return unchanged(edited.problem);
    if (edited.text === text) return { profile, path, was, changed: false };
    return dryRun || (await replace(host, path, bytes, edited.text))
      ? { profile, path, was, changed: true }
      : unchanged('was changed by another program in the meantime');
  } catch (error) {
    return unchanged(`cannot be written: ${describeError(error)}`);
  }
}

/** Backs up and replaces a config; false when it has changed since it was read. For a link, the target is replaced. */
async function replace(host: Host, path: string, before: Uint8Array, text: string): Promise<boolean> {
  const [target, facts] = await Promise.all([host.files.realPath(path), host.files.stat(path)]);
  if (target === null || facts === null) return false;
  await host.files.writeAtomic(`${path}.bak`, before, facts.mode);
  const now = await host.files.read(target, MAX_CONFIG + 1);
  if (now === null || !equal(now, before)) return false;
  await host.files.writeAtomic(target, utf8ToBytes(text), facts.mode);
  return true;
}

const equal = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && a.every((byte, index) => byte === b[index]);
