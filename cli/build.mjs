/**
 * Builds `dist`: `node cli/build.mjs`, or `node cli/build.mjs --prepare` as npm's scripts run it: after an install in the
 * checkout, and before `npm start` and `npm pack`. The script is `prepublish`, not `prepare`: npm would run that, or warn
 * of it, for a packed file too, and before `npx svc`.
 *
 * A build is a folder of its own, `dist/<fingerprint of its sources>`, moved into place by one rename. The files that
 * others name, such as `dist/cli/svc.js`, only load it and are replaced by a rename each. So `dist` is never without a
 * build, builds may race, and a running relay keeps the files that it has not loaded yet.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  chmod,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { bundle, LICENSES, REPLACEABLE } from './bundle.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const DIST = join(ROOT, 'dist');

/** Everything that decides what a build contains. The lock file stands for the packages. */
const SOURCES = ['cli', 'handlers', 'lib', 'storage', 'package.json', 'package-lock.json', 'tsconfig.json'];

/** The manual page, made from the command table. */
const MAN = 'svc.1';

/** Paths in `dist` that never change. Those with an entry point load it. */
const FIXED = [
  { path: 'cli/svc.js', entry: 'svc', program: 'svc' },
  { path: 'cli/svc-relay.js', entry: 'svc-relay', program: 'svc-relay' },
  { path: 'cli/compat/index.js', entry: 'compat' },
  { path: 'cli/dashboard/plugin.js', entry: 'dashboard-plugin' },
  // `wrangler.toml` and the relay in the sources name this path.
  { path: 'cli/pages.js', entry: 'pages' },
  // Startup hooks installed before the entry moved name this path.
  { path: 'plugin/compat/index.js', entry: 'compat' },
  { path: LICENSES },
  // `man` of package.json names this path.
  { path: `man/${MAN}` },
  // A package contains the current build only.
  { path: '.npmignore' },
];
const isFixed = (path) => FIXED.some((file) => file.path === path);

/** Where a dashboard looks for the plugin's tab (contract 07 §4). Not in the sources: made by every build. */
const DASHBOARD = join(ROOT, 'dashboard');

const MANIFEST = 'build.json';
/** Records the build, for `svc status`. */
const BUILD_INFO_FILE = 'about.json';
const COMMIT_DIGITS = 9;
const BUILD = /^[0-9a-f]{16}$/;
const STAGING = /^\.new-/;
/** Earlier builds to keep for programs that still run them, beside those of running relays. */
const KEPT_BUILDS = 10;
/** Milliseconds after which an unfinished folder belongs to a build that was killed. */
const ABANDONED_AFTER = 3_600_000;
/** How often to start again when the sources change during a build. */
const MAX_ATTEMPTS = 3;
/** Error codes of a `dist` that this user cannot write: another owner, a read-only mount. */
const NOT_WRITABLE = new Set(['EACCES', 'EPERM', 'EROFS', 'EBUSY']);

const sha256 = (content) => createHash('sha256').update(content).digest('hex');

async function filesOf(source) {
  if (!(await stat(join(ROOT, source))).isDirectory()) return [source];
  const entries = await readdir(join(ROOT, source), { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && !/\.(?:md|png)$/.test(entry.name))
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)));
}

/** Identifies the sources by content, so that a checkout or a copy does not change it. */
async function fingerprint() {
  const files = (await Promise.all(SOURCES.map(filesOf))).flat().sort();
  const lines = await Promise.all(files.map(async (file) => `${file} ${sha256(await readFile(join(ROOT, file)))}\n`));
  return sha256(lines.join('')).slice(0, 16);
}

async function fixedText({ path, entry, program }, id) {
  if (entry === undefined && path !== '.npmignore') return readFile(join(DIST, id, basename(path)), 'utf8');
  if (path === '.npmignore')
    return `/*\n${[...new Set([id, ...FIXED.map(topOf)])].map((name) => `!/${name}\n`).join('')}`;
  const target = `${relative(dirname(path), '.')}/${id}/${entry}.js`;
  if (!program) return `export * from '${target}';\n`;
  const check = await readFile(join(ROOT, 'cli/node-version.cjs'), 'utf8');
  return `#!/usr/bin/env node\n${check}import('${target}');\n`;
}

const topOf = ({ path }) => path.split('/', 1)[0];

/** Whether the build folder exists and its files have the content that was written, except the one to replace. */
async function isIntact(id) {
  try {
    const manifest = Object.entries(JSON.parse(await readFile(join(DIST, id, MANIFEST), 'utf8')));
    const hashes = await Promise.all(manifest.map(async ([file]) => sha256(await readFile(join(DIST, id, file)))));
    await stat(join(DIST, id, REPLACEABLE));
    return manifest.every(([, hash], index) => hash === hashes[index]);
  } catch {
    return false;
  }
}

async function isFixedFor(id) {
  try {
    const checked = FIXED.map(
      async (file) => (await readFile(join(DIST, file.path), 'utf8')) === (await fixedText(file, id)),
    );
    return !(await Promise.all(checked)).includes(false);
  } catch {
    return false;
  }
}

/** Names and contents of the files in `dashboard/`. */
async function dashboardFiles(id) {
  const source = (path) => readFile(join(ROOT, path), 'utf8');
  const [manifest, { version }] = (
    await Promise.all([source('cli/dashboard/manifest.json'), source('package.json')])
  ).map((text) => JSON.parse(text));
  return [
    ['manifest.json', `${JSON.stringify({ ...manifest, version }, null, 2)}\n`],
    ['tab.js', await readFile(join(DIST, id, 'tab.js'), 'utf8')],
    ['tab.css', await source('cli/dashboard/tab.css')],
    ['api.js', "export * from '../dist/cli/dashboard/plugin.js';\n"],
  ];
}

async function hasDashboard(id) {
  try {
    const files = await dashboardFiles(id);
    const texts = await Promise.all(files.map(([name]) => readFile(join(DASHBOARD, name), 'utf8')));
    return files.every(([, content], index) => content === texts[index]);
  } catch {
    return false;
  }
}

async function writeDashboard(id) {
  await mkdir(DASHBOARD, { recursive: true });
  for (const [name, content] of await dashboardFiles(id)) {
    const temporary = join(DASHBOARD, `.${name}.${process.pid}`);
    await writeFile(temporary, content);
    await rename(temporary, join(DASHBOARD, name));
  }
}

const isCurrent = async (id) => (await isFixedFor(id)) && (await isIntact(id)) && (await hasDashboard(id));

/**
 * Which build it is: the fingerprint, the commit of a checkout, and epoch seconds. Equal for each build of an unchanged
 * commit, so that a package of it is the same byte for byte; the time is that of the commit then, or SOURCE_DATE_EPOCH.
 */
function buildInfo(id) {
  const isCheckout = existsSync(join(ROOT, '.git'));
  const git = (...args) => {
    const { status, stdout } = spawnSync('git', ['-C', ROOT, ...args], { encoding: 'utf8' });
    return status === 0 ? stdout.trim() : null;
  };
  // Not `--short`: its length depends on the objects of the clone.
  const commit = (isCheckout && git('rev-parse', 'HEAD')?.slice(0, COMMIT_DIGITS)) || null;
  const isUnchanged = commit !== null && git('status', '--porcelain', '--', ...SOURCES) === '';
  const date = process.env.SOURCE_DATE_EPOCH || (isUnchanged && git('log', '-1', '--format=%ct'));
  return { id, commit, built_at: /^\d{1,12}$/.test(date) ? Number(date) : Math.floor(Date.now() / 1000) };
}

/** Bundles into a new folder and returns its path. */
async function stage(id) {
  const folder = join(DIST, `.new-${process.pid}-${Date.now()}`);
  // Done before the work, to fail at once where nothing can be written.
  await mkdir(folder, { recursive: true });
  try {
    await bundle(ROOT, folder);
    const { manPage } = await import(pathToFileURL(join(folder, 'man.js')));
    const { version } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
    await writeFile(join(folder, MAN), await manPage(version));
    await writeFile(join(folder, BUILD_INFO_FILE), `${JSON.stringify(buildInfo(id))}\n`);
    const files = (await readdir(folder)).filter((file) => file !== REPLACEABLE).sort();
    const hashes = await Promise.all(files.map(async (file) => [file, sha256(await readFile(join(folder, file)))]));
    await writeFile(join(folder, MANIFEST), JSON.stringify(Object.fromEntries(hashes), null, 1));
    return folder;
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** Renames a new folder to its final name. */
async function install(folder, id) {
  const target = join(DIST, id);
  try {
    await rename(folder, target);
  } catch (error) {
    if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    // Another build was faster, or the folder there is damaged. The files are the same: replace them one by one.
    for (const file of await readdir(folder)) await rename(join(folder, file), join(target, file));
    await rm(folder, { recursive: true, force: true });
  }
}

async function writeFixed(id) {
  for (const file of FIXED) {
    const path = join(DIST, file.path);
    const temporary = `${path}.${process.pid}`;
    await mkdir(dirname(path), { recursive: true });
    await writeFile(temporary, await fixedText(file, id));
    if (file.program) await chmod(temporary, 0o777 & ~process.umask());
    await rename(temporary, path);
  }
}

/** The builds that relays of this user run; null if that cannot be found out. */
function runningBuilds() {
  const args = [join(DIST, 'cli/svc.js'), 'status', '--all', '--json'];
  const { stdout } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  try {
    return JSON.parse(stdout).relays.map(({ build }) => build?.id);
  } catch {
    return null;
  }
}

/** The builds that are not needed any more, of `builds`, newest first. */
function surplusOf(builds) {
  const old = builds.slice(KEPT_BUILDS);
  const running = old.length > 0 && runningBuilds();
  return running ? old.filter(({ name }) => !running.includes(name)) : [];
}

/** Removes all but the newest builds and those of running relays, and what builds that were killed or of an earlier layout have left. */
async function prune(id) {
  const found = [];
  for (const name of await readdir(DIST)) {
    const age = Date.now() - ((await stat(join(DIST, name)).catch(() => null))?.mtimeMs ?? 0);
    found.push({ name, age });
  }
  const earlier = found.filter(({ name }) => BUILD.test(name) && name !== id).sort((a, b) => a.age - b.age);
  const abandoned = found.filter(({ name, age }) => STAGING.test(name) && age > ABANDONED_AFTER);
  for (const { name } of [...surplusOf(earlier), ...abandoned]) await remove(name);
  // The first build beside an earlier layout leaves it, as a relay may still run it.
  if (earlier.length === 0) return;
  for (const { name } of found) if (!BUILD.test(name) && !STAGING.test(name)) await sweep(name);
}

/** Removes a path of `dist` unless it is fixed or one that is being written. */
async function sweep(path) {
  if (isFixed(path) || isFixed(path.replace(/\.\d+$/, ''))) return;
  if (!FIXED.some((file) => file.path.startsWith(`${path}/`))) return remove(path);
  for (const name of await readdir(join(DIST, path))) await sweep(`${path}/${name}`);
}

const remove = (path) => rm(join(DIST, path), { recursive: true, force: true });

/** Brings `dist` up to date with the sources; `id` is their fingerprint. Fails if they change during every attempt. */
async function update(id) {
  for (let attempt = 1; ; attempt++) {
    if (!(await isIntact(id))) {
      const folder = await stage(id);
      const now = await fingerprint();
      if (now !== id) {
        await rm(folder, { recursive: true, force: true });
        if (attempt === MAX_ATTEMPTS)
          throw Object.assign(new Error('sources are changing'), { code: 'SOURCES_CHANGING' });
        id = now;
        continue;
      }
      await install(folder, id);
    }
    await utimes(join(DIST, id), new Date(), new Date());
    await writeFixed(id);
    await writeDashboard(id);
    await prune(id);
    return;
  }
}

/** Puts the programs where npm scripts and editors look for them. npm itself links only what is installed. */
async function linkPrograms() {
  const directory = join(ROOT, 'node_modules/.bin');
  for (const { path, program } of FIXED) {
    if (!program) continue;
    const link = join(directory, program);
    const target = relative(directory, join(DIST, path));
    if ((await readlink(link).catch(() => null)) === target) continue;
    try {
      await rm(link, { force: true });
      await symlink(target, link);
    } catch {
      // Best effort: `node_modules` may be missing, owned by another user, or in use by another build.
    }
  }
}

const say = (text) => process.stderr.write(`svc-relay: ${text}\n`);

/** Why this user cannot build here; undefined for a failure of the build itself. */
function obstacleOf({ code }) {
  if (NOT_WRITABLE.has(code)) return `this user cannot write it (${code}); as its owner, run: npm run build`;
  if (code === 'SOURCES_CHANGING')
    return 'they changed during every attempt; when they are at rest, run: npm run build';
  if (code === 'ERR_MODULE_NOT_FOUND') return 'the packages to make one are missing; run: npm ci';
  return undefined;
}

/** Returns the exit code. */
async function main(isPrepare) {
  const id = await fingerprint();
  if (await isCurrent(id)) {
    await linkPrograms();
    if (!isPrepare) say('the build in dist is current');
    return 0;
  }
  const isBuilt = await stat(join(DIST, 'cli/svc.js')).then(
    () => true,
    () => false,
  );
  try {
    await update(id);
  } catch (error) {
    const obstacle = obstacleOf(error);
    if (obstacle === undefined) throw error;
    say(`${isBuilt ? 'the build in dist is older than the sources' : 'there is no build in dist'}, and ${obstacle}`);
    return isPrepare && isBuilt ? 0 : 1;
  }
  await linkPrograms();
  return 0;
}

process.exitCode = await main(process.argv.includes('--prepare'));
