import { cp, mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { unlessMissing } from '../lib/host/errors.ts';
import { listRelayLocks } from '../lib/host/node/relay-lock.ts';
import { attempt } from '../lib/kit/attempt.ts';
import { parseObject } from '../lib/kit/json.ts';
import { COPIED_FROM, type OwnPackage } from './own-package.ts';

/** Copies that stay although no relay runs from them: the newest ones. */
const KEPT_COPIES = 2;
/** Milliseconds in which a copy is finished, and its relay in the list of those that run, unless the command was killed. */
const ABANDONED_AFTER = 3_600_000;

/**
 * Copies an installed package, with the native packages that it needs, below `folder`, and returns the URL of a program of
 * the copy. `npm install -g` removes the files of the old version at once, and a running relay loads many only when they
 * are first asked for: pages, the YAML thread, terminals (contract 11 §1). Null for a checkout, which keeps its builds.
 */
export async function copyOfInstallation(
  { directory, build, isCopy }: OwnPackage,
  folder: string,
  program: string,
  relayHome: string,
): Promise<string | null> {
  if (isCopy || directory === null || !build || !directory.includes('/node_modules/')) return null;
  const copies = join(folder, 'program');
  const target = join(copies, build.id);
  if (!(await exists(target))) await write(directory, build.id, target);
  await utimes(target, new Date(), new Date());
  await prune(copies, relayHome);
  return pathToFileURL(join(target, 'dist', build.id, program)).href;
}

async function write(directory: string, id: string, target: string): Promise<void> {
  const made = `${target}.new-${process.pid}`;
  try {
    await mkdir(made, { recursive: true, mode: 0o700 });
    await cp(join(directory, 'package.json'), join(made, 'package.json'));
    await cp(join(directory, 'dist', id), join(made, 'dist', id), { recursive: true });
    for (const [name, path] of await dependencies(directory)) {
      await cp(path, join(made, 'node_modules', name), { recursive: true, dereference: true });
    }
    await writeFile(join(made, COPIED_FROM), directory);
    await rename(made, target);
  } catch (error) {
    await rm(made, { recursive: true, force: true });
    // Another relay was faster.
    if (!(await exists(target))) throw error;
  }
}

/** The packages that one needs at run time, with their own, by name: those that are installed. */
async function dependencies(directory: string, found = new Map<string, string>()): Promise<Map<string, string>> {
  const manifest = parseObject(await readFile(join(directory, 'package.json'), 'utf8'));
  const names = [manifest?.dependencies, manifest?.optionalDependencies].flatMap((list) => Object.keys(list ?? {}));
  for (const name of names) {
    if (found.has(name)) continue;
    const path = await resolve(name, directory);
    if (path === null) continue;
    found.set(name, path);
    await dependencies(path, found);
  }
  return found;
}

/** Where a package finds another: in its own `node_modules`, or in those of the folders above. */
async function resolve(name: string, from: string): Promise<string | null> {
  for (let folder = from; ; folder = dirname(folder)) {
    const path = join(folder, 'node_modules', name);
    if (await exists(path)) return path;
    if (folder === dirname(folder)) return null;
  }
}

async function prune(copies: string, relayHome: string): Promise<void> {
  const relays = attempt(() => listRelayLocks(relayHome));
  // Any copy may be in use.
  if (!relays) return;
  const names = await readdir(copies);
  const aged = await Promise.all(
    names.map(async (name) => ({ name, used: (await stat(join(copies, name)).catch(() => null))?.mtimeMs ?? 0 })),
  );
  const unfinished = aged.filter(({ name }) => /\.new-\d+$/.test(name));
  const finished = aged.filter((copy) => !unfinished.includes(copy)).sort((a, b) => b.used - a.used);
  const running = relays.map(({ build }) => build?.id);
  for (const { name, used } of [...finished.slice(KEPT_COPIES), ...unfinished]) {
    if (used > Date.now() - ABANDONED_AFTER || running.includes(name)) continue;
    await rm(join(copies, name), { recursive: true, force: true });
  }
}

const exists = async (path: string): Promise<boolean> => (await unlessMissing(stat(path))) !== null;
