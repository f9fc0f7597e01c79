import { describeError, RelayError } from '../errors.ts';
import type { DirectoryEntry, Host } from '../host/index.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { byCodePoint } from '../kit/text.ts';

const MAX_FILE = 64 * 1024;
const MAX_FILES = 256;
const MAX_PROFILES = 256;
/** Path of the compat entry in an installation of this plugin. */
const ENTRY = 'dist/cli/compat/index.js';

export interface CompatDeps {
  host: Host;
  /** Directory of this installation; null when unknown. */
  pluginDirectory: string | null;
  /** Directory of the agent's configuration, which contains the profiles. */
  root: string;
  /** Directory that the operator names instead of the default one. */
  hookDirectory?: string;
  /** Imports a module by its URL, as the hook will. */
  load(url: string): Promise<unknown>;
}

export interface CompatPackage {
  importable: boolean;
  path: string | null;
}

export interface HookFile extends HookContent {
  path: string;
}

export type CompatStatus = Awaited<ReturnType<typeof compatStatus>>;
export type CompatInstalled = Awaited<ReturnType<typeof installHook>>;
export type CompatRemoved = Awaited<ReturnType<typeof removeHook>>;

export interface CompatOptions {
  dryRun: boolean;
  /** Also replace or remove files that these commands did not write. */
  force: boolean;
}

export const compatEntry = ({ pluginDirectory }: Pick<CompatDeps, 'pluginDirectory'>): string | null =>
  pluginDirectory === null ? null : `${pluginDirectory}/${ENTRY}`;

/** Installed hooks, as `svc relay compat status --json` shows them. Unreadable directories count as empty. */
export async function compatStatus(deps: CompatDeps) {
  const [profiles, own] = await Promise.all([listProfiles(deps).catch(() => null), compatPackage(deps)]);
  const directories = hookDirectories(deps, profiles);
  const files = (await Promise.all(directories.map((directory) => hookFiles(deps, directory)))).flat();
  const installed = files.some(({ references_bootstrap }) => references_bootstrap);
  return {
    schema_version: 1,
    hook: 'legacy-bootstrap',
    package: own,
    installed,
    hook_files: files,
    hook_dirs: directories,
    default_hook_dir: defaultDirectory(deps),
    standard_path_requires_compat: false,
    recommendation: recommendation(files, own, installed),
  };
}

function recommendation(files: HookFile[], own: CompatPackage, installed: boolean): string | null {
  if (!installed) return null;
  if (!own.importable) return 'The hook does nothing, because its module does not load: svc relay compat remove --all';
  if (files.some((file) => file.managed_content && !file.plugin_owned_content)) {
    return 'A hook is of another installation or version. Write it again: svc relay compat install';
  }
  return 'A current agent has these routes itself. If yours does: svc relay compat remove --all';
}

/**
 * Writes the hook atomically (contract 07 §5.4). Returns the file `before` and `after`, null if it does not exist.
 * @throws RelayError `unavailable` without a working compat entry, `conflict` over an unmanaged file.
 */
export async function installHook(deps: CompatDeps, { dryRun, force }: CompatOptions) {
  const own = await compatPackage(deps);
  if (own.path === null || !own.importable) {
    throw new RelayError('unavailable', 'the compat module of this installation does not load');
  }
  const target = `${targetDirectory(deps)}/${HOOK_FILE}`;
  const before = await readHook(deps, target);
  if (before && !before.managed_content && !force) throw notManaged(target);
  const text = hookText(own.path);
  const changed = before?.plugin_owned_content !== true;
  if (changed && !dryRun) await deps.host.files.writeAtomic(target, utf8ToBytes(text), 0o644);
  const after: HookFile = { path: target, ...judgeHook(text, own.path) };
  return { ok: true, action: 'install', changed, dry_run: dryRun, target, before, after, package: own };
}

/**
 * Removes the hook from one directory, or from every known one, after checking all of them.
 * @throws RelayError `conflict` if one of the files is unmanaged, `forbidden` if the profiles cannot be listed. Nothing is
 * removed then.
 */
export async function removeHook(deps: CompatDeps, options: CompatOptions & { all: boolean }) {
  const directories = options.all
    ? hookDirectories(deps, await listProfiles(deps).catch((error) => Promise.reject(notListed(error))))
    : [targetDirectory(deps)];
  const targets = directories.map((directory) => `${directory}/${HOOK_FILE}`);
  const files = await Promise.all(targets.map((target) => readHook(deps, target)));
  const foreign = files.find((file) => file && !file.managed_content);
  if (foreign && !options.force) throw notManaged(foreign.path);
  const removed = files.filter((file) => file !== null).map(({ path }) => path);
  if (!options.dryRun) for (const path of removed) await deps.host.files.remove(path);
  return {
    ok: true,
    action: 'remove',
    changed: removed.length > 0,
    dry_run: options.dryRun,
    removed,
    skipped: targets.filter((_, index) => files[index] === null).map((path) => ({ path, reason: 'not_found' })),
  };
}

const notManaged = (path: string) => new RelayError('conflict', `${path} was not written by svc relay compat`);

const notListed = (cause: unknown) =>
  new RelayError('forbidden', `the profiles cannot be listed, and no hook was removed: ${describeError(cause)}`, {
    cause,
  });

const defaultDirectory = ({ host }: CompatDeps): string => `${host.agentHome}/startup.d`;

const targetDirectory = (deps: CompatDeps): string => deps.hookDirectory ?? defaultDirectory(deps);

/** Null without profiles. */
const listProfiles = ({ host, root }: CompatDeps): Promise<DirectoryEntry[] | null> =>
  host.files.list(`${root}/profiles`);

/** The named directory, the agent's own, and those of its profiles. */
function hookDirectories(deps: CompatDeps, profiles: DirectoryEntry[] | null): string[] {
  const own = (profiles ?? [])
    .filter(({ name, kind }) => kind === 'directory' && !name.startsWith('.'))
    .map(({ name }) => `${deps.root}/profiles/${name}/startup.d`)
    .sort(byCodePoint)
    .slice(0, MAX_PROFILES);
  return [...new Set([targetDirectory(deps), defaultDirectory(deps), ...own])];
}

/** The hook of a directory, and every other script in it that imports the compat entry. */
async function hookFiles(deps: CompatDeps, directory: string): Promise<HookFile[]> {
  const entries = (await deps.host.files.list(directory).catch(() => null)) ?? [];
  const scripts = entries
    .map(({ name }) => name)
    .filter((name) => /\.[cm]?js$/.test(name))
    .sort(byCodePoint)
    .slice(0, MAX_FILES);
  const files = await Promise.all(scripts.map((name) => readHook(deps, `${directory}/${name}`).catch(() => null)));
  return files
    .filter((file) => file !== null)
    .filter(({ path, references_bootstrap }) => references_bootstrap || path === `${directory}/${HOOK_FILE}`);
}

async function readHook(deps: CompatDeps, path: string): Promise<HookFile | null> {
  const text = await deps.host.files.readText(path, MAX_FILE);
  return text === null ? null : { path, ...judgeHook(text, compatEntry(deps)) };
}

/** Checks that the compat entry exists and loads. */
async function compatPackage(deps: CompatDeps): Promise<CompatPackage> {
  const path = compatEntry(deps);
  if (path === null || (await deps.host.files.stat(path).catch(() => null)) === null)
    return { importable: false, path };
  const module = await deps.load(fileUrl(path)).catch(() => null);
  const register = (module as { register?: unknown } | null)?.register;
  return { importable: typeof register === 'function', path };
}

/** The hook's only file. */
const HOOK_FILE = 'svc-relay-compat.mjs';
const MARKER = '// managed-by: svc-relay compat v1';
const ANY_MARKER = /^\/\/ managed-by: svc-relay compat v\d+\s*$/;

/** An import of the compat entry of this version or 1.0.0, in any directory. */
const ENTRY_IMPORT = /\bimport\s*\(\s*["'][^"'\n]*svc-relay[^"'\n]*compat|\/(?:cli|plugin)\/compat\/index\.js["']/;

/** Classification of a file in a hook directory (contract 07 §5.4). */
export interface HookContent {
  /** True if it imports the compat entry of any installation of this plugin. */
  references_bootstrap: boolean;
  /** True if its first line marks it as managed by these commands. */
  managed_content: boolean;
  /** True if it equals what this installation writes, byte for byte. */
  plugin_owned_content: boolean;
}

/**
 * The hook's text: one guarded import of the compat entry at an absolute path. A missing or broken plugin must not keep
 * the host's server from starting.
 */
function hookText(entry: string): string {
  return `${MARKER}
// Lets an older agent API server gain routes it lacks. Remove with: svc relay compat remove
export async function register(app) {
  try {
    const compat = await import(${JSON.stringify(fileUrl(entry))});
    await compat.register(app);
  } catch (error) {
    console.warn(\`svc-relay compat is not loaded: \${error?.message ?? error}\`);
  }
}
`;
}

/** Classifies a hook file's text; `entry` is the compat entry of this installation, if known. */
function judgeHook(text: string, entry: string | null): HookContent {
  return {
    references_bootstrap: ENTRY_IMPORT.test(text),
    managed_content: ANY_MARKER.test(text.split('\n', 1)[0] as string),
    plugin_owned_content: entry !== null && text === hookText(entry),
  };
}

/** The `file:` URL of an absolute path. */
const fileUrl = (path: string): string => `file://${path.split('/').map(encodeURIComponent).join('/')}`;
