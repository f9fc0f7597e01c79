import { RelayError } from '../../errors.ts';
import type { Host } from '../../host/index.ts';
import { utf8ToBytes } from '../../kit/bytes.ts';
import { byCodePoint } from '../../kit/text.ts';
import { fileUrl, HOOK_FILE, type HookContent, hookText, judgeHook } from './hook.ts';

const FILE_LIMIT = 64 * 1024;
const MOST_FILES = 256;
const MOST_PROFILES = 256;
/** Where the compat entry is in an installation of this plugin. */
const ENTRY = 'dist/cli/compat/index.js';

export interface CompatParts {
  host: Host;
  /** Directory of this installation; null when it is not known. */
  pluginDirectory: string | null;
  /** Directory of the agent's configuration, under which profiles are. */
  root: string;
  /** A directory the operator names instead of the default one. */
  hookDirectory?: string;
  /** Loads a module by its URL, as the hook will. */
  load(url: string): Promise<unknown>;
}

export interface CompatPackage {
  importable: boolean;
  path: string | null;
}

export interface HookFile extends HookContent {
  path: string;
}

/** `svc relay compat status --json` (contract 07 §5.4). */
export interface CompatStatus {
  schema_version: 1;
  hook: 'legacy-bootstrap';
  package: CompatPackage;
  installed: boolean;
  hook_files: HookFile[];
  hook_dirs: string[];
  default_hook_dir: string;
  standard_path_requires_compat: false;
  recommendation: string | null;
}

export interface CompatInstalled {
  ok: true;
  action: 'install';
  changed: boolean;
  dry_run: boolean;
  target: string;
  /** The file before and after; null when there is none. */
  before: HookFile | null;
  after: HookFile | null;
  package: CompatPackage;
}

export interface CompatRemoved {
  ok: true;
  action: 'remove';
  changed: boolean;
  dry_run: boolean;
  removed: string[];
  skipped: { path: string; reason: 'not_found' }[];
}

export interface CompatOptions {
  dryRun: boolean;
  /** Also replace or remove what these commands did not write. */
  force: boolean;
}

export const compatEntry = ({ pluginDirectory }: Pick<CompatParts, 'pluginDirectory'>): string | null =>
  pluginDirectory === null ? null : `${pluginDirectory}/${ENTRY}`;

/** What is installed where. Directories that cannot be read count as empty. */
export async function compatStatus(parts: CompatParts): Promise<CompatStatus> {
  const [directories, own] = await Promise.all([hookDirectories(parts), compatPackage(parts)]);
  const files = (await Promise.all(directories.map((directory) => hookFiles(parts, directory)))).flat();
  const installed = files.some(({ references_bootstrap }) => references_bootstrap);
  return {
    schema_version: 1,
    hook: 'legacy-bootstrap',
    package: own,
    installed,
    hook_files: files,
    hook_dirs: directories,
    default_hook_dir: defaultDirectory(parts),
    standard_path_requires_compat: false,
    recommendation: recommendation(files, own, installed),
  };
}

function recommendation(files: HookFile[], own: CompatPackage, installed: boolean): string | null {
  if (!installed) return null;
  if (!own.importable) return 'The hook does nothing, as its module does not load: svc relay compat remove --all';
  if (files.some((file) => file.managed_content && !file.plugin_owned_content)) {
    return 'A hook is of another installation or version. Write it again: svc relay compat install';
  }
  return 'A current agent has these routes itself. If yours has: svc relay compat remove --all';
}

/**
 * Writes the hook, whole or not at all (contract 07 §5.4).
 * @throws RelayError `unavailable` without a compat entry that loads, `conflict` over a file of somebody else.
 */
export async function installHook(parts: CompatParts, { dryRun, force }: CompatOptions): Promise<CompatInstalled> {
  const own = await compatPackage(parts);
  if (own.path === null || !own.importable) {
    throw new RelayError('unavailable', 'the compat module of this installation does not load');
  }
  const target = `${targetDirectory(parts)}/${HOOK_FILE}`;
  const before = await readHook(parts, target);
  if (before && !before.managed_content && !force) throw notOurs(target);
  const text = hookText(own.path);
  const changed = before?.plugin_owned_content !== true;
  if (changed && !dryRun) await parts.host.files.writeAtomic(target, utf8ToBytes(text), 0o644);
  const after: HookFile = { path: target, ...judgeHook(text, own.path) };
  return { ok: true, action: 'install', changed, dry_run: dryRun, target, before, after, package: own };
}

/**
 * Removes the hook from one directory, or from every known one. Looks at all files before it removes the first.
 * @throws RelayError `conflict` when one of them is somebody else's; nothing is removed then.
 */
export async function removeHook(
  parts: CompatParts,
  options: CompatOptions & { all: boolean },
): Promise<CompatRemoved> {
  const directories = options.all ? await hookDirectories(parts) : [targetDirectory(parts)];
  const targets = directories.map((directory) => `${directory}/${HOOK_FILE}`);
  const files = await Promise.all(targets.map((target) => readHook(parts, target)));
  const foreign = files.find((file) => file && !file.managed_content);
  if (foreign && !options.force) throw notOurs(foreign.path);
  const removed = files.filter((file) => file !== null).map(({ path }) => path);
  if (!options.dryRun) for (const path of removed) await parts.host.files.remove(path);
  return {
    ok: true,
    action: 'remove',
    changed: removed.length > 0,
    dry_run: options.dryRun,
    removed,
    skipped: targets.filter((_, index) => files[index] === null).map((path) => ({ path, reason: 'not_found' })),
  };
}

const notOurs = (path: string) => new RelayError('conflict', `${path} was not written by svc relay compat`);

const defaultDirectory = ({ host }: CompatParts): string => `${host.agentHome}/startup.d`;

const targetDirectory = (parts: CompatParts): string => parts.hookDirectory ?? defaultDirectory(parts);

/** The directory that was named, the agent's own, and those of its profiles. */
async function hookDirectories(parts: CompatParts): Promise<string[]> {
  const profiles = (await parts.host.files.list(`${parts.root}/profiles`).catch(() => null)) ?? [];
  const own = profiles
    .filter(({ name, kind }) => kind === 'directory' && !name.startsWith('.'))
    .map(({ name }) => `${parts.root}/profiles/${name}/startup.d`)
    .sort(byCodePoint)
    .slice(0, MOST_PROFILES);
  return [...new Set([targetDirectory(parts), defaultDirectory(parts), ...own])];
}

/** The hook of a directory, and every other script in it that loads the compat entry. */
async function hookFiles(parts: CompatParts, directory: string): Promise<HookFile[]> {
  const entries = (await parts.host.files.list(directory).catch(() => null)) ?? [];
  const scripts = entries
    .map(({ name }) => name)
    .filter((name) => /\.[cm]?js$/.test(name))
    .sort(byCodePoint)
    .slice(0, MOST_FILES);
  const files = await Promise.all(scripts.map((name) => readHook(parts, `${directory}/${name}`).catch(() => null)));
  return files
    .filter((file) => file !== null)
    .filter(({ path, references_bootstrap }) => references_bootstrap || path === `${directory}/${HOOK_FILE}`);
}

async function readHook(parts: CompatParts, path: string): Promise<HookFile | null> {
  const text = await parts.host.files.readText(path, FILE_LIMIT);
  return text === null ? null : { path, ...judgeHook(text, compatEntry(parts)) };
}

/** Whether the compat entry is there and loads. */
export async function compatPackage(parts: CompatParts): Promise<CompatPackage> {
  const path = compatEntry(parts);
  if (path === null || (await parts.host.files.stat(path).catch(() => null)) === null)
    return { importable: false, path };
  const module = await parts.load(fileUrl(path)).catch(() => null);
  const register = (module as { register?: unknown } | null)?.register;
  return { importable: typeof register === 'function', path };
}
