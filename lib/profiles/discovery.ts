import { agentRoot, type Config } from '../config.ts';
import type { Host, HostFiles } from '../host/index.ts';
import { mapLimit } from '../kit/semaphore.ts';
import { byCodePoint, visibleLine } from '../kit/text.ts';
import { createConfigReader, type ParseCache } from './config-file.ts';
import { defaultHome, isProfileName, namedHome, type ProfilePlace } from './home.ts';
import { isGatewayRunning } from './liveness.ts';
import { type ProfileRow, readRow } from './row.ts';

export type DiscoveryConfig = Pick<Config, 'agentConfig' | 'webapiUrl'>;

export interface Discovery {
  rows: ProfileRow[];
  /** One sentence per omitted profile and per marker not followed. */
  warnings: string[];
  /** Likewise, for things that a newcomer has not set up yet and that need no warning (contract 11 §5). */
  notes: string[];
}

/** Profiles that are read concurrently. */
const MAX_READERS = 4;
/** Gateways that are probed concurrently: a host that does not respond costs a quarter of a second. */
const MAX_PROBES = 64;
/** Every client gets every row, each with a complete soul. */
const MAX_PROFILES = 1000;

/**
 * Reads every profile: `default` first, then the directories below `profiles/` by code point (contract 07 §1.2). Throws if
 * `profiles/` cannot be listed, so that a transient failure does not look like removed profiles.
 */
export async function discoverProfiles(host: Host, config: DiscoveryConfig, cache: ParseCache): Promise<Discovery> {
  const warnings: string[] = [];
  const warn = (warning: string) => void warnings.push(warning);
  const homes = [await defaultHome(host.files, config, warn), ...(await namedHomes(host.files, config, warn))];
  cache.round();
  const readConfig = createConfigReader(host, cache);
  const results = await mapLimit(MAX_READERS, homes, (place) => readRow(host, config, place, readConfig));
  const notes: string[] = [];
  for (const [index, result] of results.entries()) {
    if (result.ok) continue;
    const name = homes[index]?.name;
    const isNew = name === 'default' && result.missing === true;
    (isNew ? notes : warnings).push(`profile ${name} is left out: ${result.problem}`);
  }
  const readings = results.filter((result) => result.ok);
  const rows = await mapLimit(MAX_PROBES, readings, async ({ row, pidFile }) => ({
    ...row,
    gateway_running: await isGatewayRunning(host, pidFile, row.api_server_url),
  }));
  return { rows, warnings, notes };
}

async function namedHomes(
  files: HostFiles,
  config: DiscoveryConfig,
  warn: (message: string) => void,
): Promise<ProfilePlace[]> {
  const profiles = `${agentRoot(config)}/profiles`;
  const names: string[] = [];
  for (const { name, kind } of (await files.list(profiles)) ?? []) {
    if (name.startsWith('.') || (kind !== 'directory' && kind !== 'link')) continue;
    if (!isProfileName(name)) {
      warn(`profile directory ${visibleLine(name)} is left out: no client can name it so`);
      continue;
    }
    if (kind === 'link' && !(await namedHome(files, config, name))) continue;
    if (name === 'default') warn('profile directory default is left out: the name stands for the default profile');
    else names.push(name);
  }
  names.sort(byCodePoint);
  if (names.length > MAX_PROFILES) warn(`only the first ${MAX_PROFILES} of ${names.length} profiles are listed`);
  return names.slice(0, MAX_PROFILES).map((name) => {
    const home = `${profiles}/${name}`;
    return { name, home, config: `${home}/config.yaml` };
  });
}
