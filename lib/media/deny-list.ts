import type { Host } from '../host/index.ts';
import { anyCase, componentsOf, exactly, type SameName, spelledUnder } from './paths.ts';

const SYSTEM = ['/etc', '/proc', '/sys', '/dev', '/root', '/boot', '/var/log', '/var/lib', '/var/run'];

const USER_TREES = ['.ssh', '.aws', '.gnupg', '.kube', '.docker', '.config', '.azure', '.gcloud', 'Library/Keychains'];
const USER_FILES = ['.netrc', '.git-credentials', '.npmrc', '.pypirc', '.pgpass'];

const AGENT_TREES = [
  'pairing',
  'mcp-tokens',
  'relay-secure-link',
  'relay-secure-proxy',
  // State database, operator's signing key, companion's session token.
  'svc-relay',
  'companion',
];
const AGENT_FILES = [
  '.env',
  'auth.json',
  'auth.lock',
  'credentials',
  'config.yaml',
  '.anthropic_oauth.json',
  'google_token.json',
  'google_oauth_pending.json',
  'auth/google_oauth.json',
  'webhook_subscriptions.json',
  'cache/bws_cache.json',
  'svc-relay-qr-secret',
  'svc-relay-sessions.json',
];
const RELAY_FILES = ['config.yaml'];

/** Locations of secrets that differ between hosts. */
export interface SecretPlaces {
  agentHomes: readonly string[];
  /** The relay's own home, `SVC_RELAY_HOME`. */
  relayHome: string;
  /** Single files: keys, state, credentials. Files beside them whose names begin alike (`state.db-wal`) are secret too. */
  files: readonly string[];
}

/** A directory that contains secret names. */
interface Guarded {
  directory: string;
  trees: readonly string[];
  files: readonly string[];
}

/**
 * Whether a real path is in a location that is never served (contract 04 §2.1), as the disk is now. Every entry of the
 * list counts both as it is written and as it resolves.
 */
export async function isDenied(path: string, host: Host, places: SecretPlaces): Promise<boolean> {
  const { media } = host;
  const { trees, guarded } = await entries(path, host, places);
  const spelled = (same: SameName) => [
    ...trees.map((tree) => spelledUnder(path, tree, same)),
    ...guarded.map((each) => spelledInside(path, each, same)),
  ];
  if (spelled(exactly).some((match) => match !== null)) return true;
  const otherwise = spelled(anyCase).filter((match) => match !== null);
  if (otherwise.length === 0) return false;
  // A name in another case is the same file only on file systems that ignore case.
  if (media.ignoresCase) return true;
  const same = await Promise.all(otherwise.map((match) => media.isSame(path, match)));
  return same.includes(true);
}

async function entries(path: string, host: Host, { agentHomes, relayHome, files }: SecretPlaces) {
  const { media } = host;
  const bothForms = async (paths: readonly string[]): Promise<string[]> => [
    ...new Set([...paths, ...(await Promise.all(paths.map((path) => media.resolve(path))))]),
  ];
  const homes = await bothForms(media.userHomes());
  const [home] = media.userHomes();
  const own = home === undefined ? [] : await bothForms([home]);
  // A user's home may be a system location (`/root`): not denied as a whole, only the secrets in it.
  const system = (await bothForms(SYSTEM)).filter((path) => !own.includes(path));
  const agents = await withProfiles(path, host, await bothForms(agentHomes));
  const guarded: Guarded[] = [
    ...homes.map((directory) => ({ directory, trees: USER_TREES, files: USER_FILES })),
    ...agents.map((directory) => ({ directory, trees: AGENT_TREES, files: AGENT_FILES })),
    ...(await bothForms([relayHome])).map((directory) => ({ directory, trees: [], files: RELAY_FILES })),
    ...(await bothForms(files))
      .filter((file) => file.startsWith('/'))
      .map((file) => {
        const at = file.lastIndexOf('/');
        return { directory: file.slice(0, at) || '/', trees: [], files: [file.slice(at + 1)] };
      }),
  ];
  const linked = await Promise.all(guarded.map((each) => linkTargets(host, each)));
  return { guarded, trees: [...system, ...linked.flat()] };
}

/**
 * Agent homes and every profile in them; a profile may be a link to another place. The profile that `path` names counts
 * even when it does not exist, so that a refusal does not reveal which do.
 */
async function withProfiles(path: string, host: Host, homes: string[]): Promise<string[]> {
  const found = await Promise.all(
    homes.map(async (home) => {
      const profiles = (await host.files.list(`${home}/profiles`).catch(() => null)) ?? [];
      const paths = profiles.map(({ name }) => `${home}/profiles/${name}`);
      const links = profiles.flatMap(({ kind }, at) => (kind === 'link' ? [paths[at] as string] : []));
      const named = componentsOf(spelledUnder(path, `${home}/profiles`, anyCase) ?? '')[componentsOf(home).length + 1];
      if (named !== undefined) paths.push(`${home}/profiles/${named}`);
      return [home, ...paths, ...(await Promise.all(links.map((link) => host.media.resolve(link))))];
    }),
  );
  return [...new Set(found.flat())];
}

/** Targets of secret names that are links, as in homes whose settings are kept elsewhere. */
async function linkTargets({ files, media }: Host, guarded: Guarded): Promise<string[]> {
  const { directory } = guarded;
  const nested = [...guarded.trees, ...guarded.files].filter((name) => name.includes('/'));
  const listed = (await files.list(directory).catch(() => null)) ?? [];
  const links = listed.filter(
    ({ name, kind }) => kind === 'link' && spelledInside(`${directory}/${name}`, guarded, anyCase) !== null,
  );
  const paths = [...links.map(({ name }) => name), ...nested].map((name) => `${directory}/${name}`);
  return Promise.all(paths.map((path) => media.resolve(path)));
}

/** `path` respelled by the entry of a guarded directory that it equals or lies below; else null. */
function spelledInside(path: string, { directory, trees, files }: Guarded, same: SameName): string | null {
  for (const tree of trees) {
    const match = spelledUnder(path, `${directory}/${tree}`, same);
    if (match !== null) return match;
  }
  for (const file of files) {
    const names = componentsOf(file);
    const above = [...componentsOf(directory), ...names.slice(0, -1)];
    const spelled = spelledUnder(path, `/${above.join('/')}`, same);
    const name = spelled === null ? undefined : componentsOf(spelled)[above.length];
    const secret = names.at(-1) as string;
    if (spelled === null || name === undefined || !isCopyOf(name, secret, same)) continue;
    return spelled
      .split('/')
      .toSpliced(above.length + 1, 1, respelled(name, secret))
      .join('/');
  }
  return null;
}

/**
 * Whether a name is that of a secret file, of a backup or lock beside it (`.env.local`, `config.yaml~`,
 * `state.db-wal`), or of an editor's leftovers (`.config.yaml.swp`, `#auth.json#`).
 */
function isCopyOf(name: string, secret: string, same: SameName): boolean {
  const forms = [name, name.replace(/^(?:\.?#|\.(?=.*\.sw[a-z]$))/, '')];
  return forms.some(
    (form) => same(form.slice(0, secret.length), secret) && !/^[A-Za-z0-9]/.test(form.slice(secret.length)),
  );
}

function respelled(name: string, secret: string): string {
  const at = name.toLowerCase().indexOf(secret.toLowerCase());
  return name.slice(0, at) + secret + name.slice(at + secret.length);
}
