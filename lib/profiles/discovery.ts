import type { Config } from '../config.ts';
import type { DirectoryEntry, Host } from '../host/index.ts';
import { unlessUnreadable } from './readable.ts';
import { type ProfilePlace, type ProfileRow, readRow } from './row.ts';

export type DiscoveryConfig = Pick<Config, 'agentHome' | 'agentConfig' | 'webapiUrl'>;

export interface Discovery {
  rows: ProfileRow[];
  /** One sentence per profile that is left out, and per marker that is not followed. */
  warnings: string[];
}

/** Profiles that are read at the same time. */
const AT_ONCE = 4;
const MARKER = /^[a-z0-9][a-z0-9_-]{0,63}$/;
const MARKER_CAP = 4096;

/**
 * Reads every profile: `default` first, then the directories below `profiles/` by code point (contract 07 §1.2).
 * Throws when `profiles/` cannot be listed, so that a passing trouble does not look like profiles that are gone.
 */
export async function discoverProfiles(host: Host, config: DiscoveryConfig): Promise<Discovery> {
  const warnings: string[] = [];
  const places = [
    await defaultPlace(host, config, (warning) => warnings.push(warning)),
    ...(await namedPlaces(host, config, (warning) => warnings.push(warning))),
  ];
  const turn = createTurns();
  const results = await mapAtMost(AT_ONCE, places, (place) => readRow(host, config, place, turn));
  const rows: ProfileRow[] = [];
  for (const [index, result] of results.entries()) {
    if (result.ok) rows.push(result.row);
    else warnings.push(`profile ${places[index]?.name} is left out: ${result.problem}`);
  }
  return { rows, warnings };
}

/** Where `default` leads: the profile that the marker names, else the root (contract 07 §1.1). Read anew at each use. */
export async function defaultPlace(
  host: Host,
  { agentHome: root, agentConfig }: Pick<Config, 'agentHome' | 'agentConfig'>,
  warn: (message: string) => void,
): Promise<ProfilePlace> {
  const rootPlace = { name: 'default', home: root, config: agentConfig };
  const missing = (await unlessUnreadable(host.files.stat(`${root}/active_profile`))) === null;
  const text = missing ? '' : await unlessUnreadable(host.files.readText(`${root}/active_profile`, MARKER_CAP));
  const name = text?.trim();
  if (name === '' || name === 'default') return rootPlace;
  const home = `${root}/profiles/${name}`;
  const config = `${home}/config.yaml`;
  if (name !== undefined && MARKER.test(name)) {
    const facts = (await isWithinProfiles(host, root, name)) && (await unlessUnreadable(host.files.stat(config)));
    if (facts && facts.kind === 'file') return { name: 'default', home, config };
  }
  warn('active_profile does not name a profile with a config.yaml; the default is the root profile');
  return rootPlace;
}

async function namedPlaces(
  host: Host,
  { agentHome: root }: DiscoveryConfig,
  warn: (message: string) => void,
): Promise<ProfilePlace[]> {
  const entries = (await host.files.list(`${root}/profiles`)) ?? [];
  const names: string[] = [];
  for (const entry of entries) {
    if (entry.name.startsWith('.') || !(await isProfileDirectory(host, root, entry))) continue;
    if (entry.name === 'default')
      warn('profile directory default is left out: the name stands for the default profile');
    else names.push(entry.name);
  }
  return names.sort(byCodePoint).map((name) => {
    const home = `${root}/profiles/${name}`;
    return { name, home, config: `${home}/config.yaml` };
  });
}

async function isProfileDirectory(host: Host, root: string, { name, kind }: DirectoryEntry): Promise<boolean> {
  if (kind === 'directory') return true;
  if (kind !== 'link' || !(await isWithinProfiles(host, root, name))) return false;
  return (await unlessUnreadable(host.files.stat(`${root}/profiles/${name}`)))?.kind === 'directory';
}

/** Whether an entry of `profiles/` really lies there. */
async function isWithinProfiles(host: Host, root: string, name: string): Promise<boolean> {
  const [parent, real] = await Promise.all([
    unlessUnreadable(host.files.realPath(`${root}/profiles`)),
    unlessUnreadable(host.files.realPath(`${root}/profiles/${name}`)),
  ]);
  return parent !== null && real?.startsWith(`${parent}/`) === true;
}

/** Order of code points. Plain `<` compares UTF-16 units, which puts U+1F600 before U+FF5E. */
export function byCodePoint(a: string, b: string): number {
  const left = Array.from(a, (symbol) => symbol.codePointAt(0) ?? 0);
  const right = Array.from(b, (symbol) => symbol.codePointAt(0) ?? 0);
  for (const [index, point] of left.entries()) {
    const other = right[index];
    if (other === undefined) return 1;
    if (point !== other) return point - other;
  }
  return left.length - right.length;
}

/** Results in the order of `items`, with at most `most` of them under way. Stops beginning new ones after a failure. */
async function mapAtMost<T, R>(most: number, items: T[], run: (item: T) => Promise<R>): Promise<R[]> {
  const results = new Array<R>(items.length);
  const queue = items.entries();
  let failed = false;
  const lane = async () => {
    for (const [index, item] of queue) {
      try {
        results[index] = await run(item);
      } catch (error) {
        failed = true;
        throw error;
      }
      if (failed) return;
    }
  };
  await Promise.all(Array.from({ length: most }, lane));
  return results;
}

/**
 * A queue for work that holds the thread: after `await turn()` the caller has a turn of the event loop, and nobody else
 * of the queue has the same one. Not the relay's clock: this is no measure of time.
 */
function createTurns(): () => Promise<void> {
  let last = Promise.resolve();
  return () => {
    last = last.then(() => new Promise((resolve) => setTimeout(resolve, 0)));
    return last;
  };
}
