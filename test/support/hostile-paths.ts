import { readdirSync, readlinkSync } from 'node:fs';
import { lstat, mkdir, readdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { writeFiles } from './temp.ts';

/** Content of the files of a hostile world: which of them an answer comes from shows in any byte, and in their sizes. */
const PUBLIC = 'pq'.repeat(150);
const OUTSIDE = 'oy'.repeat(151);
const SECRET = 'ZQXJKV'.repeat(67);
/** Every four characters of a secret. */
const MARKS = Array.from({ length: 6 }, (_, at) => SECRET.slice(at, at + 4));

/** Secrets below the home of the host's user, each denied by a name of contract 04 §2.1. */
const USER_SECRETS = [
  '.ssh/id_ed25519',
  '.aws/credentials',
  '.gnupg/private.key',
  '.kube/config',
  '.docker/config.json',
  '.azure/token',
  '.gcloud/token',
  'Library/Keychains/login.keychain',
  '.netrc',
  '.git-credentials',
  '.npmrc',
  '.npmrc.bak',
  '.pypirc',
  '.pgpass',
  '.svc/auth.json',
  '.svc/pairing/approved.json',
  '.svc/profiles/old/.env',
];
/** Secrets below the home of an agent and of each profile. */
const AGENT_SECRETS = [
  '.env',
  '.env.local',
  'auth.json',
  'auth.json~',
  'auth.lock',
  'config.yaml.bak',
  '.config.yaml.swp',
  '#auth.json#',
  'credentials',
  '.anthropic_oauth.json',
  'google_token.json',
  'auth/google_oauth.json',
  'cache/bws_cache.json',
  'webhook_subscriptions.json',
  'svc-relay-qr-secret',
  'svc-relay-sessions.json',
  'pairing/codes.json',
  'mcp-tokens/token',
  'svc-relay/state.db',
  'svc-relay/operator-key',
  'relay-secure-link/host-id',
  'relay-secure-proxy/key.pem',
  'companion/token',
];
const PUBLIC_FILES = ['notes.txt', 'logs/agent.log', 'workspace/a.txt', 'workspace/sub/b.txt', 'tmp/c.txt'];

/** A home full of secrets and of links that lead to them, beside a few files that anybody paired may read. */
export interface HostileWorld {
  /** Home of the agent, the relay's agent home. */
  home: string;
  /** A directory beside it, outside every root. */
  outside: string;
  secrets: string[];
  publicFiles: string[];
  outsideFiles: string[];
  /** Links that lead to directories. */
  doors: string[];
}

/** Fills an agent home and a directory outside of it, whose `user` is the home of the host's user. */
export async function buildHostileWorld(home: string, outside: string): Promise<HostileWorld> {
  const at = (name: string) => join(home, name);
  const secrets = [
    ...USER_SECRETS.map((name) => join(outside, 'user', name)),
    ...['', 'profiles/work/', 'profiles/Ünï/'].flatMap((profile) => AGENT_SECRETS.map((name) => at(profile + name))),
    at('.svc-relay/config.yaml'),
    join(outside, 'dotconfig/secret'),
    join(outside, 'linked-auth'),
    join(outside, 'away/.env'),
    join(outside, 'away/auth.json'),
    join(outside, 'dotconfig/note.md'),
  ];
  const publicFiles = PUBLIC_FILES.map(at);
  const outsideFiles = [join(outside, 'o.txt'), join(outside, 'away/o.txt')];
  await writeFiles('/', {
    ...Object.fromEntries(secrets.map((path) => [path, SECRET])),
    ...Object.fromEntries(publicFiles.map((path) => [path, PUBLIC])),
    ...Object.fromEntries(outsideFiles.map((path) => [path, OUTSIDE])),
    [at('profiles/work/memories/note.md')]: PUBLIC,
    [at('memories/note.md')]: PUBLIC,
  });
  await mkdir(at('images/inbox'), { recursive: true });
  const user = join(outside, 'user');
  await symlink(join(outside, 'dotconfig'), join(user, '.config'));
  await symlink(at('workspace'), join(outside, 'mounted'));
  const links: Record<string, string> = {
    // Secret names that are links: their targets are secret, too.
    'google_oauth_pending.json': join(outside, 'linked-auth'),
    'profiles/away': join(outside, 'away'),
    'profiles/up': '..',
    'profiles/ssh': join(user, '.ssh'),
    'workspace/env': '../.env',
    'workspace/chain': 'env',
    'workspace/up': '..',
    'workspace/here': '.',
    'workspace/loop': 'loop',
    'workspace/root': '/',
    'workspace/proc': '/proc/self/root',
    'workspace/fds': '/proc/self/fd',
    'workspace/ssh': join(user, '.ssh'),
    'workspace/out': outside,
    'workspace/dangling': '../pairing/none',
    'tmp/user': user,
    'memories/secret.md': join(outside, 'linked-auth'),
    'profiles/work/memories/secret.md': join(user, '.netrc'),
    'profiles/work/SOUL.md': join(user, '.netrc'),
    'profiles/work/avatar.png': join(user, '.netrc'),
    'profiles/work/skills': user,
    'profiles/Ünï/memories': join(user, '.ssh'),
    'SOUL.md': join(user, '.netrc'),
  };
  for (const [name, target] of Object.entries(links)) await symlink(target, at(name));
  const doors = ['up', 'here', 'root', 'proc', 'fds', 'ssh', 'out', 'loop'].map((name) => at(`workspace/${name}`));
  return { home, outside, secrets, publicFiles, outsideFiles, doors: [...doors, at('tmp/user'), at('profiles/away')] };
}

/** Every entry below a directory with its size, time and target, but for the names that `skip` matches. */
export async function snapshot(directory: string, skip: RegExp): Promise<string[]> {
  const rows: string[] = [];
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (skip.test(path)) continue;
    const { size, mtimeMs, mode } = await lstat(path);
    const content = entry.isDirectory() ? '' : `${size} ${mtimeMs}`;
    rows.push(`${path} ${mode} ${content} ${entry.isSymbolicLink() ? readlinkSync(path) : ''}`);
  }
  return rows.sort();
}

/** Where an answer shows a secret; null when it does not. */
export function markIn(text: string): string | null {
  return MARKS.find((mark) => text.includes(mark)) ?? null;
}

/** Whether bytes, or a size, are those of a file that may be served: a public one, or one outside where that is allowed. */
export const mayServe = (body: string, outside: boolean): boolean => (outside ? /^[pqoy]*$/ : /^[pq]*$/).test(body);
export const maySize = (size: number, outside: boolean): boolean =>
  size === PUBLIC.length || (outside && size === OUTSIDE.length);

const SYSTEM = [
  '/etc/passwd',
  '/etc/shadow',
  '/etc/ssl/../hostname',
  '/proc/self/environ',
  '/proc/self/cmdline',
  '/proc/self/maps',
  '/proc/self/mem',
  '/proc/1/environ',
  '/proc/net/tcp',
  '/proc/kcore',
  '/dev/stdin',
  '/dev/zero',
  '/dev/fd/0',
  '/sys/kernel/notes',
  '/var/run/utmp',
  '/run/utmp',
  '/var/log/dpkg.log',
  '/var/lib/dpkg/status',
  '/boot/grub',
];
const PROC = ['/proc/self/root', '/proc/thread-self/root', `/proc/${process.pid}/root`, '/dev/fd/../root'];
/** Lookalikes of a character for a reader, or to a file system that normalises or folds names. */
const ALIKE: Record<string, string[]> = {
  '.': ['\u2024', '\uff0e', '\u3002', '%2e', '%252e'],
  '/': ['\u2215', '\uff0f', '\\', '%2f', '%5c', '%252f', '//', '/./', '/;/'],
  s: ['\u017f', '\uff53', 'S'],
  k: ['\u212a', 'K'],
  e: ['\u0435', 'e\u0301', 'E'],
  v: ['V', '\u2174'],
  Ü: ['U\u0308', 'ü'],
};
const SUFFIXES = [
  ...['/', '//', '/.', '/..', '.', '..', ' ', '  ', '\t', '\n', '\0', '\0.png', '.png', '%00', '%00.png', '~', ';x=1'],
  ...['::$DATA', '?', '?.png', '#', '#.png', '/../notes.txt', '/x/..', '\u200b', '\ufeff', '\u00a0', '\u2028'],
];
const PREFIXES = [
  ...[' ', '\t', '/', '//', '///', '/.', '/..', './', '../', '~', '~/', '\\', '\\\\?\\', 'file:', 'file://', 'C:'],
  ...['\ufeff', '\u00a0', '\0', '%2f', '%00', 'svc-relay://', 'MEDIA:'],
];

/** Changes one path into another that may lead to the same place. */
type Twist = (path: string) => string;
const anywhere = (path: string, at: number, text: string): string => {
  const cuts = [...path.matchAll(/\//g)].map(({ index }) => index);
  const cut = cuts[at % Math.max(1, cuts.length)] ?? 0;
  return path.slice(0, cut) + text + path.slice(cut);
};

function twistOf(world: HostileWorld): fc.Arbitrary<Twist> {
  const folder = fc.constantFrom(...world.publicFiles, ...world.secrets, world.outside).map((path) => join(path, '..'));
  const at = fc.nat(12);
  const up = (count: number) => '/..'.repeat(count);
  return fc.oneof<fc.Arbitrary<Twist>[]>(
    fc.tuple(at, fc.constantFrom('/.', '/', '/x/..', '/./.', '/none/../.', '/.//')).map(
      ([at, text]) =>
        (path) =>
          anywhere(path, at, text),
    ),
    // Down and up again, by a place that exists, a file, a link, or nothing.
    fc.tuple(folder, fc.nat(30)).map(
      ([folder, count]) =>
        (path) =>
          folder + up(count) + path,
    ),
    fc.tuple(fc.constantFrom(...world.doors), fc.nat(12), fc.boolean()).map(([door, count, whole]) => (path) => {
      const below = whole ? path : path.slice(world.home.length);
      return `${door}${up(count)}${below}`;
    }),
    fc.constantFrom(...PROC).map((proc) => (path) => proc + path),
    fc.nat(40).map((fd) => (path) => `/proc/self/fd/${fd}${path}`),
    fc.tuple(fc.constantFrom(...Object.keys(ALIKE)), fc.nat(8), fc.nat(12)).map(([letter, which, place]) => (path) => {
      const others = ALIKE[letter] as string[];
      let seen = 0;
      const all = place === 12;
      return path.replaceAll(letter, (same) =>
        all || seen++ === place ? (others[which % others.length] ?? '') : same,
      );
    }),
    fc.constantFrom(...SUFFIXES).map((suffix) => (path) => path + suffix),
    fc.constantFrom(...PREFIXES).map((prefix) => (path) => prefix + path),
    fc.constantFrom<Twist>(
      (path) => path.toUpperCase(),
      (path) => path.toLowerCase(),
      (path) => path.normalize('NFD'),
      (path) => path.normalize('NFKD'),
      (path) => path.replaceAll('/', '\\'),
      (path) => path.slice(1),
      (path) => path.split('').reverse().join(''),
      (path) => path.slice(0, -1),
      (path) => `${path}/../${path.split('/').at(-1)}`,
      (path) => `${'/.'.repeat(2000)}${path}`,
      (path) => path.replace('/', `/${'a'.repeat(300)}/../`),
      (path) => `${path}/${'a'.repeat(5000)}`,
      (path) => path.split('/').map(encodeURIComponent).join('/'),
    ),
  );
}

/** Paths of a world, and of the system, that are twisted up to four times. */
export function hostilePath(world: HostileWorld): fc.Arbitrary<string> {
  const targets = fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(...world.secrets) },
    { weight: 4, arbitrary: fc.constantFrom(...world.publicFiles, ...world.outsideFiles) },
    { weight: 2, arbitrary: fc.constantFrom(...SYSTEM) },
    { weight: 1, arbitrary: fc.constantFrom(...links(world.home)) },
    { weight: 1, arbitrary: fc.constantFrom(...containerPaths(world)) },
  );
  return fc
    .tuple(targets, fc.oneof(fc.array(twistOf(world), { maxLength: 1 }), fc.array(twistOf(world), { maxLength: 4 })))
    .map(([target, twists]) => twists.reduce((path, twist) => twist(path), target));
}

/** Links of the world, and the entries of this process that the kernel makes. */
function links(home: string): string[] {
  const found = readdirSync(home, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isSymbolicLink())
    .map((entry) => join(entry.parentPath, entry.name));
  return [...found, ...found.map((path) => `${path}/.env`), ...found.map((path) => `${path}/id_ed25519`)];
}

/** Paths in the container of `containerEnv`. */
const containerPaths = ({ outside }: HostileWorld): string[] => [
  '/mnt/a.txt',
  '/mnt/env',
  '/mnt/up/.env',
  '/user/.netrc',
  '/user/.ssh/id_ed25519',
  '/config/passwd',
  '/root/.svc/images/../.env',
  '/root/.svc/.env',
  '/workspace/../.env',
  `/mnt/root${outside}/linked-auth`,
];

/** Variables of a relay whose agent lives in a container that mounts parts of the world. */
export const containerEnv = (outside: string): Record<string, string> => ({
  TERMINAL_ENV: 'docker',
  TERMINAL_DOCKER_VOLUMES: JSON.stringify([`${outside}/mounted:/mnt`, `${outside}/user:/user`, '/etc:/config']),
});

const hex = (byte: number, upper: boolean): string => {
  const text = byte.toString(16).padStart(2, '0');
  return `%${upper ? text.toUpperCase() : text}`;
};

/** Two bytes, or three, that a lax decoder takes for an ASCII character. */
const overlong = (byte: number, three: boolean): string =>
  three
    ? `%e0%${(0x80 | (byte >> 6)).toString(16)}%${(0x80 | (byte & 0x3f)).toString(16)}`
    : `%${(0xc0 | (byte >> 6)).toString(16)}%${(0x80 | (byte & 0x3f)).toString(16)}`;

/** A text as it may be written in a request target. `exact` says that it decodes to the text again. */
export interface Encoded {
  text: string;
  exact: boolean;
}

/** Spellings of a text in a path or a query: plain, escaped in parts or in full, twice, or wrongly. */
export const encoded = (text: string): fc.Arbitrary<Encoded> => {
  const bytes = [...Buffer.from(text)];
  const escaped = (keep: RegExp, upper = false) =>
    bytes.map((byte) => (keep.test(String.fromCharCode(byte)) ? String.fromCharCode(byte) : hex(byte, upper))).join('');
  const plain = escaped(/[A-Za-z0-9._~-]/);
  return fc.oneof(
    { weight: 6, arbitrary: fc.constant({ text: plain, exact: true }) },
    { weight: 2, arbitrary: fc.constant({ text: escaped(/[A-Za-z0-9/._~:@!$'()*,;-]/, true), exact: true }) },
    { weight: 2, arbitrary: fc.boolean().map((upper) => ({ text: escaped(/[^\s\S]/, upper), exact: true })) },
    { weight: 1, arbitrary: fc.constant({ text: encodeURIComponent(plain), exact: false }) },
    {
      weight: 1,
      arbitrary: fc.tuple(fc.constantFrom('.', '/', 's'), fc.boolean()).map(([char, three]) => ({
        text: plain.replaceAll(char === '/' ? '%2f' : char, overlong(char.charCodeAt(0), three)),
        exact: false,
      })),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom('%', '%u002e', '%2', '%zz', '%ff', '%c0%ae').map((junk) => ({
        text: plain.replaceAll('.', junk),
        exact: false,
      })),
    },
  );
};
