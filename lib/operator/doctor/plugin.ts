import type { Host } from '../../host/index.ts';
import { byCodePoint } from '../../kit/text.ts';
import { PLUGIN } from '../enablement.ts';
import { type Check, fail, MORE_TIME, notKnown, ok, warn } from './check.ts';

const MAX_MANIFEST = 64 * 1024;
const MAX_PLUGINS = 256;

export type PluginFacts = ReturnType<typeof noPluginFacts>;

/** The facts that are known without reading any file; also the result if reading takes too long. */
export function noPluginFacts(host: Host, version: string, directory: string | null) {
  return {
    name: PLUGIN,
    version,
    layout: {
      plugin_dir: directory,
      has_plugin_yaml: false,
      has_register_init: false,
      has_dashboard_manifest: false,
      /** True if it is in the agent's plugins directory. */
      looks_like_user_plugin: false,
      recommended_install_identifier: PLUGIN,
    },
    plugins_dir: `${host.agentHome}/plugins`,
    /** Every directory that declares this plugin, if there are several. */
    duplicate_dirs: [] as string[],
  };
}

/** Layout of this installation (contract 07 §4, §5.2). The plugin's entry is the `entry` of its `plugin.yaml`. */
export async function readPlugin(host: Host, version: string, directory: string | null): Promise<PluginFacts> {
  const facts = noPluginFacts(host, version, directory);
  const duplicates = await findDuplicates(host, facts.plugins_dir);
  if (directory === null) return { ...facts, duplicate_dirs: duplicates };
  const [manifest, dashboard, own, plugins] = await Promise.all([
    readManifest(host, directory),
    isFile(host, `${directory}/dashboard/manifest.json`),
    realPath(host, directory),
    realPath(host, facts.plugins_dir),
  ]);
  const entry = manifest?.name === PLUGIN && typeof manifest.entry === 'string' ? manifest.entry : null;
  return {
    ...facts,
    duplicate_dirs: duplicates,
    layout: {
      ...facts.layout,
      has_plugin_yaml: manifest?.name === PLUGIN,
      has_register_init: entry !== null && (await isFile(host, `${directory}/${entry}`)),
      has_dashboard_manifest: dashboard,
      looks_like_user_plugin: own !== null && plugins !== null && own.startsWith(`${plugins}/`),
    },
  };
}

/** Verdicts when the installation was not read in time. */
export const unknownPlugin = (reason: string): Check[] =>
  ['plugin-root', 'dashboard-plugin', 'plugin-name-unique'].map((id) => ({
    ...notKnown(id, reason, 'plugin-root'),
    next: MORE_TIME,
  }));

export function pluginChecks({ layout, duplicate_dirs, plugins_dir }: PluginFacts): Check[] {
  const where = layout.plugin_dir ?? 'the program';
  const missing = [
    ...(layout.has_plugin_yaml ? [] : [`no plugin.yaml of ${PLUGIN}`]),
    ...(layout.has_register_init ? [] : ['no entry module']),
  ];
  return [
    missing.length === 0
      ? ok('plugin-root', `plugin.yaml and the entry module are in ${where}`)
      : fail(
          'plugin-root',
          `${where} has ${missing.join(' and ')}`,
          `Install ${PLUGIN} again; in a source tree, run: npm install && npm run build`,
        ),
    layout.has_dashboard_manifest
      ? ok('dashboard-plugin', 'dashboard/manifest.json exists')
      : warn(
          'dashboard-plugin',
          'dashboard/manifest.json is missing: the dashboard has no Relay tab',
          `Install a release of ${PLUGIN} with the dashboard plugin. Phones do not need it.`,
        ),
    duplicate_dirs.length === 0
      ? ok('plugin-name-unique', `at most one directory under ${plugins_dir} is ${PLUGIN}`)
      : warn(
          'plugin-name-unique',
          `${duplicate_dirs.length} directories declare the name ${PLUGIN}: ${duplicate_dirs.join(', ')}`,
          'Keep one of them and move the others out of the plugins directory.',
        ),
  ];
}

async function findDuplicates(host: Host, directory: string): Promise<string[]> {
  const entries = (await host.files.list(directory).catch(() => null)) ?? [];
  const found = await Promise.all(
    entries
      .filter(({ kind }) => kind === 'directory' || kind === 'link')
      .slice(0, MAX_PLUGINS)
      .map(async ({ name }): Promise<[real: string, path: string] | null> => {
        const path = `${directory}/${name}`;
        if ((await readManifest(host, path))?.name !== PLUGIN) return null;
        const real = await realPath(host, path);
        return real === null ? null : [real, path];
      }),
  );
  const byRealPath = new Map(found.filter((entry) => entry !== null).sort(([, a], [, b]) => byCodePoint(b, a)));
  return byRealPath.size > 1 ? [...byRealPath.values()].sort(byCodePoint) : [];
}

/** The `plugin.yaml` of a directory; null if it is missing or unreadable. */
async function readManifest(host: Host, directory: string): Promise<Record<string, unknown> | null> {
  const text = await host.files.readText(`${directory}/plugin.yaml`, MAX_MANIFEST).catch(() => null);
  const parsed = text === null ? null : await host.yaml.parseMapping(text);
  return parsed?.ok ? parsed.mapping : null;
}

const isFile = async (host: Host, path: string): Promise<boolean> =>
  (await host.files.stat(path).catch(() => null))?.kind === 'file';

const realPath = (host: Host, path: string): Promise<string | null> => host.files.realPath(path).catch(() => null);
