import { agentRoot, type Config } from '../config.ts';
import type { Host, HostFiles } from '../host/index.ts';
import { mapLimit } from '../kit/semaphore.ts';
import { byCodePoint } from '../kit/text.ts';
import { parseMapping } from '../kit/yaml.ts';
import { createConfigReader, type ParseMemory } from './config-file.ts';
import { defaultHome, namedHome, type ProfilePlace } from './home.ts';
import { isGatewayRunning } from './liveness.ts';
import { type ProfileRow, readRow } from './row.ts';
import { createTurns } from './turns.ts';

export type DiscoveryConfig = Pick<Config, 'agentConfig' | 'webapiUrl'>;

export interface Discovery {
  rows: ProfileRow[];
  /** One sentence per profile that is left out, and per marker that is not followed. */
  warnings: string[];
}

/** Profiles that are read at the same time. */
const READERS = 4;
/** Gateways that are looked for at the same time: a host that does not answer costs a quarter of a second. */
const PROBES = 64;
/** A row is sent to every client, with its whole soul. */
const MOST_PROFILES = 1000;

/**
 * Reads every profile: `default` first, then the directories below `profiles/` by code point (contract 07 §1.2).
 * Throws when `profiles/` cannot be listed, so that a passing trouble does not look like profiles that are gone.
 */
export async function discoverProfiles(host: Host, config: DiscoveryConfig, memory: ParseMemory): Promise<Discovery> {
  const warnings: string[] = [];
  const warn = (warning: string) => void warnings.push(warning);
  const places = [await defaultHome(host.files, config, warn), ...(await namedPlaces(host.files, config, warn))];
  const turn = createTurns();
  if (memory.isNew()) {
    // The first parse of a process pays for all the code it is the first to run; a small text splits the bill.
    await turn();
    parseMapping('a: yes # b\nc:\n  - d\n  - {e: "f"}\n');
  }
  memory.round();
  const readConfig = createConfigReader(host.files, turn, memory);
  const results = await mapLimit(READERS, places, (place) => readRow(host, config, place, readConfig));
  for (const [index, result] of results.entries()) {
    if (!result.ok) warn(`profile ${places[index]?.name} is left out: ${result.problem}`);
  }
  const readings = results.filter((result) => result.ok);
  const rows = await mapLimit(PROBES, readings, async ({ row, pidFile }) => ({
    ...row,
    gateway_running: await isGatewayRunning(host, pidFile, row.api_server_url),
  }));
  return { rows, warnings };
}

async function namedPlaces(
  files: HostFiles,
  config: DiscoveryConfig,
  warn: (message: string) => void,
): Promise<ProfilePlace[]> {
  const profiles = `${agentRoot(config)}/profiles`;
  const names: string[] = [];
  for (const { name, kind } of (await files.list(profiles)) ?? []) {
    if (name.startsWith('.') || (kind !== 'directory' && kind !== 'link')) continue;
    if (kind === 'link' && !(await namedHome(files, config, name))) continue;
    if (name === 'default') warn('profile directory default is left out: the name stands for the default profile');
    else names.push(name);
  }
  names.sort(byCodePoint);
  if (names.length > MOST_PROFILES) warn(`only the first ${MOST_PROFILES} of ${names.length} profiles are listed`);
  return names.slice(0, MOST_PROFILES).map((name) => {
    const home = `${profiles}/${name}`;
    return { name, home, config: `${home}/config.yaml` };
  });
}
