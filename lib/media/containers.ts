import type { Config } from '../config.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { parseJson } from '../kit/json.ts';
import { componentsOf, isUnder, spelledUnder } from './paths.ts';

/** A directory of the host and its path in the agent's container. */
export interface Mount {
  host: string;
  container: string;
}

const AGENT = '/root/.svc';
const CACHES = [
  'cache/documents',
  'cache/images',
  'cache/audio',
  'cache/videos',
  'cache/screenshots',
  'images',
  'attachments',
];
const PART = /^[A-Za-z0-9._ @()+,=-]{1,255}$/;

type ContainerConfig = Pick<
  Config,
  | 'home'
  | 'agentHome'
  | 'terminalEnv'
  | 'dockerVolumes'
  | 'containerPersistent'
  | 'dockerCwd'
  | 'dockerMountsCwd'
  | 'sandboxDir'
>;

/** The mounts of the agent's container, in the order of their declaration; empty without one (contract 04 §4). */
export async function containerMounts({ files, media }: Host, config: ContainerConfig): Promise<Mount[]> {
  if (config.terminalEnv?.toLowerCase() !== 'docker') return [];
  const mounts = volumes(config.dockerVolumes, config.home);
  for (const cache of CACHES) {
    const host = `${config.agentHome}/${cache}`;
    const found = await unlessUnreadable(files.stat(host));
    if (found?.kind === 'directory') mounts.push({ host, container: `${AGENT}/${cache}` });
  }
  if (config.containerPersistent) {
    const sandbox = `${config.sandboxDir}/docker/default`;
    const has = (container: string) => mounts.some((mount) => mount.container === container);
    const workspace = config.dockerMountsCwd ? (config.dockerCwd ?? media.currentDirectory()) : `${sandbox}/workspace`;
    if (!has('/workspace')) mounts.push({ host: workspace, container: '/workspace' });
    if (!has('/root')) mounts.push({ host: `${sandbox}/home`, container: '/root' });
  }
  return mounts;
}

/** Parses `host:container[:mode]`, split at the first `:/`; malformed volumes are skipped. */
function volumes(text: string | undefined, home: string): Mount[] {
  const list = parseJson(text ?? '[]');
  if (!Array.isArray(list)) return [];
  return list.flatMap((entry) => {
    if (typeof entry !== 'string') return [];
    const at = entry.indexOf(':/', entry[1] === ':' ? 2 : 0);
    if (at < 0) return [];
    const given = entry.slice(0, at);
    const host = given === '~' || given.startsWith('~/') ? home + given.slice(1) : given;
    const container = `/${componentsOf(entry.slice(at + 1).replace(/:[^/]*$/, '')).join('/')}`;
    return host.startsWith('/') ? [{ host, container }] : [];
  });
}

/**
 * The host path of a path in the container, or the path unchanged if no mount contains it. Never leaves the mount's root on
 * the host. The result still has to pass every check.
 */
export async function translate(path: string, mounts: readonly Mount[], { media }: Host): Promise<string> {
  const mount = mounts
    .filter(({ container }) => isUnder(path, container) && !(container === '/root' && isUnder(path, AGENT)))
    // Sorting is stable: of two mounts at the same path, the first one counts.
    .sort((one, other) => componentsOf(other.container).length - componentsOf(one.container).length)[0];
  if (!mount || !path.startsWith('/')) return path;
  const spelled = spelledUnder(path, mount.container) ?? path;
  const rest = componentsOf(spelled).slice(componentsOf(mount.container).length);
  if (rest.length === 0 || !rest.every((part) => PART.test(part) && part !== '.' && part !== '..')) return path;
  const translated = `${mount.host}/${rest.join('/')}`;
  const [real, root] = await Promise.all([media.resolve(translated), media.resolve(mount.host)]);
  return isUnder(real, root) ? translated : path;
}
