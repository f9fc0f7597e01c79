import { agentRoot, type Config } from '../config.ts';
import { errnoOf, unlessUnreadable } from '../host/errors.ts';
import type { DirectoryEntry, Host, HostFiles } from '../host/index.ts';
import { systemClock } from '../kit/clock.ts';
import { anyCase, componentsOf, exactly, fold, type SameName, spelledUnder } from './paths.ts';

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

/** Paths of secrets that differ between hosts. */
export interface SecretPaths {
  agentHomes: readonly string[];
  /** The relay's own home, `SVC_RELAY_HOME`. */
  relayHome: string;
  /** Single files: keys, state, credentials. Files beside them with the same beginning (`state.db-wal`) are secret too. */
  files: readonly string[];
}

/** Paths of the secrets of a relay and its agent. */
export function secretPaths(host: Host, config: Config): SecretPaths {
  const homes = host.media.userHomes().map((home) => `${home}/.svc`);
  const files = [
    config.sslKey,
    config.secureLinkKey,
    config.secureLinkHostIdFile,
    config.stateFile,
    config.agentConfig,
    config.voiceOutputConfig,
    config.realtimeVoiceConfig,
    config.realtimeVoiceXaiOauthPath,
  ];
  return {
    agentHomes: [...new Set([...homes, config.agentHome, agentRoot(config)])].filter((home) => home !== ''),
    relayHome: config.relayHome,
    files: files.filter((file) => typeof file === 'string'),
  };
}

/** A directory that contains secret names. */
interface Guarded {
  directory: string;
  trees: readonly string[];
  files: readonly string[];
}

/**
 * True if a real path is in a location that is never served (contract 04 §2.1), according to the disk now. Rejects if the
 * disk cannot be read.
 */
export type DenyList = (path: string) => Promise<boolean>;

/** The deny list as read from the disk at one time. */
interface Entries {
  /** Agent homes without their profiles. */
  agentHomes: readonly string[];
  guarded: readonly Guarded[];
  trees: readonly string[];
  /** Secret names that are links. They are followed for each path, since a link further on may change at any time. */
  links: readonly string[];
  /**
   * Directories in which a new, removed or replaced name changes the list, and their state; null if the state is uncertain.
   */
  watched: readonly string[];
  state: string | null;
}

/** Milliseconds within which two changes may have the same time, since file systems store coarse timestamps. */
const TIME_GRAIN = 2_000;

/**
 * The deny list of a host. Every entry counts both as written and as resolved. The entries are resolved once, and again when
 * a directory that contains some of them has changed. `now` returns epoch milliseconds of the file system's clock.
 */
export function createDenyList(host: Host, paths: SecretPaths, now = systemClock.now): DenyList {
  const { media } = host;
  let known: Entries | undefined;

  async function current(): Promise<Entries> {
    const entries = known;
    if (entries?.state != null && (await media.directoryState(entries.watched)).state === entries.state) return entries;
    const began = now();
    const read = await readEntries(host, paths);
    const { state, changed } = await media.directoryState(read.watched);
    // After such a recent change, another one could have happened during the reading.
    known = { ...read, state: changed < began - TIME_GRAIN ? state : null };
    return known;
  }

  return async (path) => {
    const { agentHomes, guarded, trees, links } = await current();
    const targets = await Promise.all(links.map((link) => media.resolve(link)));
    const denied = [...trees, ...targets];
    const holders = [...guarded, ...namedProfiles(path, agentHomes)];
    const spelled = (same: SameName) => [
      ...denied.map((tree) => spelledUnder(path, tree, same)),
      ...holders.map((each) => spelledInside(path, each, same)),
    ];
    if (spelled(exactly).some((match) => match !== null)) return true;
    const otherwise = spelled(anyCase).filter((match) => match !== null);
    if (otherwise.length === 0) return false;
    // A name in another case is the same file only on file systems that ignore case.
    if (media.ignoresCase) return true;
    const same = await Promise.all(otherwise.map((match) => media.isSame(path, match)));
    return same.includes(true);
  };
}

async function readEntries(host: Host, { agentHomes, relayHome, files }: SecretPaths): Promise<Omit<Entries, 'state'>> {
  const { media } = host;
  const bothForms = async (paths: readonly string[]): Promise<string[]> => [
    ...new Set([...paths, ...(await Promise.all(paths.map((path) => media.resolve(path))))]),
  ];
  const homes = await bothForms(media.userHomes());
  const [home] = media.userHomes();
  const own = home === undefined ? [] : await bothForms([home]);
  // A user's home may be a system location (`/root`): not denied as a whole, only the secrets in it.
  const system = (await bothForms(SYSTEM)).filter((path) => !own.includes(path));
  const agents = await bothForms(agentHomes);
  const guarded: Guarded[] = [
    ...homes.map((directory) => ({ directory, trees: USER_TREES, files: USER_FILES })),
    ...[...agents, ...(await profilesOf(host, agents))].map(agentHome),
    ...(await bothForms([relayHome])).map((directory) => ({ directory, trees: [], files: RELAY_FILES })),
    ...(await bothForms(files))
      .filter((file) => file.startsWith('/'))
      .map((file) => {
        const at = file.lastIndexOf('/');
        return { directory: file.slice(0, at) || '/', trees: [], files: [file.slice(at + 1)] };
      }),
  ];
  const contents = await Promise.all(guarded.map((each) => contentsOf(host, each)));
  return {
    agentHomes: agents,
    guarded,
    trees: system,
    links: contents.flatMap(({ links }) => links),
    watched: [
      ...new Set([...agents.map((agent) => `${agent}/profiles`), ...contents.flatMap(({ watched }) => watched)]),
    ],
  };
}

const agentHome = (directory: string): Guarded => ({ directory, trees: AGENT_TREES, files: AGENT_FILES });

/** The profiles of agent homes, any of which may be a link to another place. */
async function profilesOf(host: Host, homes: readonly string[]): Promise<string[]> {
  const found = await Promise.all(
    homes.map(async (home) => {
      const profiles = await entriesOf(host.files, `${home}/profiles`);
      const paths = profiles.map(({ name }) => `${home}/profiles/${name}`);
      const links = paths.filter((_, at) => profiles[at]?.kind === 'link');
      return [...paths, ...(await Promise.all(links.map((link) => host.media.resolve(link))))];
    }),
  );
  return [...new Set(found.flat())];
}

/**
 * The profile that `path` names, which counts even if it does not exist, so that a refusal does not reveal which ones exist.
 */
function namedProfiles(path: string, homes: readonly string[]): Guarded[] {
  return homes.flatMap((home) => {
    const named = componentsOf(spelledUnder(path, `${home}/profiles`, anyCase) ?? '')[componentsOf(home).length + 1];
    return named === undefined ? [] : [agentHome(`${home}/profiles/${named}`)];
  });
}

/**
 * The secret names of a directory that are links, as in homes whose settings are stored elsewhere, or that are below a link;
 * and the directory itself with its subdirectories that contain secrets.
 */
async function contentsOf({ files, media }: Host, guarded: Guarded): Promise<{ links: string[]; watched: string[] }> {
  const { directory } = guarded;
  const listed = await entriesOf(files, directory, [...guarded.trees, ...guarded.files]);
  const present = new Set(listed.map(({ name }) => name));
  const isSecret = (name: string) => spelledInside(`${directory}/${name}`, guarded, anyCase) !== null;
  const links = listed.filter(({ name, kind }) => kind === 'link' && isSecret(name)).map(({ name }) => name);
  const nested = [...guarded.trees, ...guarded.files].filter((name) => name.includes('/'));
  const parents = nested.map((name) => name.slice(0, name.lastIndexOf('/'))).filter((parent) => present.has(parent));
  if (parents.length > 0) {
    const real = await media.resolve(directory);
    const resolved = await Promise.all(nested.map((name) => media.resolve(`${directory}/${name}`)));
    links.push(...nested.filter((name, at) => resolved[at] !== `${real}/${name}`));
  }
  return {
    links: links.map((name) => `${directory}/${name}`),
    watched: [directory, ...parents.map((parent) => `${directory}/${parent}`)],
  };
}

/**
 * The entries of a directory. In a directory that this account may not list (a directory of keys, mode 0710), every name of
 * `known` counts as a link, to be followed. Without names, such a directory must be unreachable.
 */
async function entriesOf(files: HostFiles, directory: string, known?: readonly string[]): Promise<DirectoryEntry[]> {
  try {
    return (await files.list(directory)) ?? [];
  } catch (error) {
    const code = errnoOf(error);
    // A loop of links leads nowhere.
    if (code === 'ELOOP' || code === 'ENAMETOOLONG') return [];
    if (code !== 'EACCES' && code !== 'EPERM') throw error;
    if (known) return known.map((name) => ({ name, kind: 'link' }));
    if ((await unlessUnreadable(files.stat(directory))) !== null) throw error;
    return [];
  }
}

/** `path` respelled with the entry of a guarded directory that it equals or is below; else null. */
function spelledInside(path: string, { directory, trees, files }: Guarded, same: SameName): string | null {
  if (spelledUnder(path, directory, same) === null) return null;
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
 * True if a name is that of a secret file, of a backup or lock beside it (`.env.local`, `config.yaml~`,
 * `state.db-wal`), or of an editor's leftovers (`.config.yaml.swp`, `#auth.json#`).
 */
function isCopyOf(name: string, secret: string, same: SameName): boolean {
  const forms = [name, name.replace(/^(?:\.?#|\.(?=.*\.sw[a-z]$))/, '')];
  return forms.some(
    (form) => same(form.slice(0, secret.length), secret) && !/^[A-Za-z0-9]/.test(form.slice(secret.length)),
  );
}

function respelled(name: string, secret: string): string {
  const at = fold(name).indexOf(fold(secret));
  return name.slice(0, at) + secret + name.slice(at + secret.length);
}
