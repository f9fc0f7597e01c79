import { spawn, spawnSync } from 'node:child_process';
import {
  chmod,
  chown,
  cp,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { listRelayLocks } from '../../lib/host/node/relay-lock.ts';
import { connect } from '../support/client.ts';
import { median, TIMED } from '../support/limits.ts';
import { startRelayProcess } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';
import { attach } from '../support/terminal.ts';

const COPIED = [
  'cli',
  'handlers',
  'lib',
  'storage',
  'package.json',
  'package-lock.json',
  'tsconfig.json',
  'plugin.yaml',
  'LICENSE',
];
const NOBODY = 65534;
const isRoot = process.getuid?.() === 0;
const JSON_HEADERS = { 'content-type': 'application/json' };
const hasNpx = spawnSync('npx', ['--version']).status === 0;
if (!isRoot) process.stderr.write('SKIPPED: only root can run a build as another user\n');
if (!hasNpx) process.stderr.write('SKIPPED: there is no npx here\n');

interface RunOptions {
  env?: Record<string, string>;
  uid?: number;
}

/** Copies this tree, with links to its packages. */
async function copyTree(directory: string): Promise<void> {
  await chmod(directory, 0o755);
  for (const name of COPIED) await cp(name, join(directory, name), { recursive: true });
  await mkdir(join(directory, 'node_modules/.bin'), { recursive: true });
  for (const name of await readdir('node_modules')) {
    if (name === '.bin') continue;
    await symlink(join(process.cwd(), 'node_modules', name), join(directory, 'node_modules', name));
  }
}

function checkoutIn(directory: string) {
  function run(command: string, args: string[], { env = {}, uid }: RunOptions = {}) {
    const ids = uid === undefined ? {} : { uid, gid: uid };
    const child = spawn(command, args, {
      cwd: directory,
      env: { PATH: process.env.PATH ?? '', HOME: directory, ...env },
      ...ids,
    });
    const printed = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr'] as const) {
      child[name].setEncoding('utf8').on('data', (text: string) => {
        printed[name] += text;
      });
    }
    return new Promise<{ code: number | null; stdout: string; stderr: string }>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code) => resolve({ code, ...printed }));
    });
  }
  const script = (args: string[], options?: RunOptions) => run(process.execPath, ['cli/build.mjs', ...args], options);

  return {
    directory,
    run,
    build: (options?: RunOptions) => script([], options),
    prepare: (options?: RunOptions) => script(['--prepare'], options),
    version: (options?: RunOptions) => run(process.execPath, ['dist/cli/svc.js', '--version'], options),
    async edit(): Promise<void> {
      const path = join(directory, 'lib/relay.ts');
      await writeFile(path, `${await readFile(path, 'utf8')}// ${crypto.randomUUID()}\n`);
    },
    /** Every path below `dist` with what a write to it would change. */
    async state(): Promise<string[]> {
      const paths = await readdir(join(directory, 'dist'), { recursive: true });
      const stats = await Promise.all(paths.map((path) => lstat(join(directory, 'dist', path))));
      return paths.map((path, at) => `${path} ${stats[at]?.ino} ${stats[at]?.size} ${stats[at]?.mtimeMs}`).sort();
    },
    builds: async () => (await readdir(join(directory, 'dist'))).filter((name) => /^[0-9a-f]{16}$/.test(name)),
  };
}

type Checkout = ReturnType<typeof checkoutIn>;

/** A checkout of this tree with its packages, not built yet. */
async function createCheckout(): Promise<Checkout> {
  const directory = await temporaryDirectory();
  await copyTree(directory);
  return checkoutIn(directory);
}

/** Template of every built checkout: a build takes a second of CPU. */
const built = await mkdtemp(join(tmpdir(), 'svc-relay-built-'));
beforeAll(async () => {
  await copyTree(built);
  expect(await checkoutIn(built).build()).toEqual({ code: 0, stdout: '', stderr: '' });
});
afterAll(() => rm(built, { recursive: true, force: true }));

async function builtCheckout(): Promise<Checkout> {
  const directory = await temporaryDirectory();
  await chmod(directory, 0o755);
  await cp(built, directory, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
  return checkoutIn(directory);
}

/** Copies are no repositories, so that their builds are named by the day. */
const RUNS = {
  code: 0,
  stdout: expect.stringMatching(/^svc-relay 1\.0\.0 \(\d{4}-\d\d-\d\d\)\n$/),
  stderr: '',
};
const SILENT = { code: 0, stdout: '', stderr: '' };

describe('the build', () => {
  test('makes the programs, the compat entry and links in node_modules/.bin', async () => {
    const checkout = await builtCheckout();
    expect(await checkout.version()).toEqual(RUNS);
    expect(await checkout.builds()).toHaveLength(1);
    expect((await readdir(join(checkout.directory, 'dist'))).toSorted()).toEqual(
      ['.npmignore', 'LICENSES.txt', 'cli', 'man', 'plugin', ...(await checkout.builds())].toSorted(),
    );
    for (const name of ['svc', 'svc-relay']) {
      const link = join(checkout.directory, 'node_modules/.bin', name);
      expect(await readlink(link)).toBe(`../../dist/cli/${name}.js`);
      expect(await checkout.run(link, ['--version'])).toEqual(RUNS);
    }
    // The second path is in startup hooks that were installed before the entry moved.
    for (const path of ['dist/cli/compat/index.js', 'dist/plugin/compat/index.js']) {
      const entry = await import(pathToFileURL(join(checkout.directory, path)).href);
      expect(entry.register).toBeTypeOf('function');
    }
  });

  test('help and version load little: every command is loaded on demand', async () => {
    const checkout = await builtCheckout();
    const folder = join(checkout.directory, 'dist', (await checkout.builds())[0] ?? '');
    const loaded = new Map<string, number>();
    async function load(file: string): Promise<void> {
      if (loaded.has(file)) return;
      const text = await readFile(join(folder, file), 'utf8');
      loaded.set(file, text.length);
      for (const [, next = ''] of text.matchAll(/\b(?:import|from)"\.\/([^"]+)"/g)) await load(next);
    }
    await load('svc.js');
    expect(loaded.size).toBeGreaterThan(1);
    expect([...loaded.values()].reduce((sum, size) => sum + size)).toBeLessThan(50_000);
    // The files of the commands exist, and none of them is loaded.
    const commands = (await readdir(folder)).filter((name) => /^(?:doctor|pair|service|start)-\w+\.js$/.test(name));
    expect(commands.length).toBeGreaterThan(3);
    expect(commands.filter((name) => loaded.has(name))).toEqual([]);
    // The relay is few files: each costs a millisecond of its start.
    for (const name of await readdir(folder)) if (/^(?:relay|start-\w+|node-\w+)\.js$/.test(name)) await load(name);
    expect(loaded.size).toBeLessThan(25);
  });

  test('prepare does nothing in well under a second when the build is current', TIMED, async () => {
    const checkout = await builtCheckout();
    const before = await checkout.state();
    const time = async (task: () => Promise<unknown>) => {
      const began = performance.now();
      expect(await task()).toEqual(SILENT);
      return performance.now() - began;
    };
    const extra: number[] = [];
    for (let round = 0; round < 3; round++) {
      const bare = await time(() => checkout.run(process.execPath, ['--eval', '0']));
      extra.push((await time(() => checkout.prepare())) - bare);
    }
    expect(await checkout.state()).toEqual(before);
    expect(median(extra)).toBeLessThan(500);
  });

  test('prepare builds what is missing, stale or damaged', async () => {
    const checkout = await createCheckout();
    expect(await checkout.prepare()).toEqual(SILENT);
    const [first] = await checkout.builds();
    await checkout.edit();
    expect(await checkout.prepare()).toEqual(SILENT);
    const second = (await checkout.builds()).find((id) => id !== first);
    expect(second).toBeDefined();
    await writeFile(join(checkout.directory, `dist/${second}/svc.js`), 'throw new Error("damaged");\n');
    await rm(join(checkout.directory, 'dist/cli/svc-relay.js'));
    expect(await checkout.prepare()).toEqual(SILENT);
    expect(await checkout.version()).toEqual(RUNS);
    expect(await checkout.run(process.execPath, ['dist/cli/svc-relay.js', '--version'])).toEqual(RUNS);
    expect(await checkout.builds()).toHaveLength(2);
  });

  test('builds may race, and the program works at every moment', async () => {
    const checkout = await builtCheckout();
    await checkout.edit();
    let isBuilding = true;
    const builds = Promise.all([1, 2, 3, 4].map(() => checkout.build())).finally(() => {
      isBuilding = false;
    });
    while (isBuilding) expect(await checkout.version()).toEqual(RUNS);
    for (const { code } of await builds) expect(code).toBe(0);
    expect(await checkout.builds()).toHaveLength(2);
    expect((await readdir(join(checkout.directory, 'dist'))).filter((name) => name.startsWith('.new-'))).toEqual([]);
    expect(await checkout.prepare()).toEqual(SILENT);
  });

  test('a running relay loads the rest of its own build after it was replaced', async () => {
    const checkout = await builtCheckout();
    const program = join(checkout.directory, 'dist/cli/svc.js');
    const env = { RELAY_TERMINAL_TMUX: '0', SHELL: '/bin/sh', ENV: '', PS1: 'ready> ' };
    const relay = await startRelayProcess({ program, env });
    const code = randomCode();
    const body = { code };
    expect((await relay.ask('/pairing/register', { method: 'POST', body, headers: JSON_HEADERS })).status).toBe(200);
    const client = await connect(relay.wsUrl);
    client.send('system', 'auth', { pairing_code: code, device_id: 'tablet' });
    await client.next({ type: 'auth.ok' });
    await expect.poll(() => listRelayLocks(join(relay.home, '.svc-relay'))).toHaveLength(1);

    // More than stay: that of the relay is the oldest.
    for (let at = 0; at < 12; at++) await mkdir(join(checkout.directory, 'dist', at.toString(16).padStart(16, '0')));
    for (let round = 0; round < 2; round++) {
      await checkout.edit();
      expect(await checkout.build({ env: { HOME: relay.home } })).toEqual(SILENT);
    }
    // The screen of a shell is kept by a part that is loaded with the first shell.
    const shell = await attach(client, 'work');
    shell.type('echo $((40 + 2))-is-shown\r');
    await shell.shows('42-is-shown');
    client.send('terminal', 'terminal.detach', { session_name: 'work' }, 'd');
    await client.next({ id: 'd' });
    await (await attach(client, 'work')).shows('42-is-shown');
    client.close();
    expect(relay.output).not.toMatch(/ERROR|Cannot find/);
    expect(await checkout.builds()).toHaveLength(12);
  });

  test('earlier builds are kept up to a number; what was there before the first stays for one build', async () => {
    const checkout = await createCheckout();
    const dist = join(checkout.directory, 'dist');
    await mkdir(join(dist, 'lib'), { recursive: true });
    await mkdir(join(dist, 'cli'));
    await writeFile(join(dist, 'lib/relay.js'), '');
    await writeFile(join(dist, 'cli/start.js'), '');
    await checkout.build();
    expect(await readdir(dist)).toContain('lib');
    for (let at = 0; at < 12; at++) await mkdir(join(dist, at.toString(16).padStart(16, '0')));
    await checkout.edit();
    await checkout.build();
    expect(await checkout.builds()).toHaveLength(11);
    expect(await readdir(dist)).not.toContain('lib');
    expect((await readdir(join(dist, 'cli'))).toSorted()).toEqual([
      'compat',
      'dashboard',
      'pages.js',
      'svc-relay.js',
      'svc.js',
    ]);
    expect(await checkout.version()).toEqual(RUNS);
  });
});

describe.runIf(isRoot)('a build that this user cannot write', () => {
  const STALE = expect.stringMatching(
    /^svc-relay: the build in dist is older than the sources, and [^\n]*EACCES[^\n]*\n$/,
  );

  async function check(checkout: Checkout) {
    const before = await checkout.state();
    const uid = NOBODY;
    expect(await checkout.prepare({ uid })).toEqual(SILENT);
    expect((await checkout.build({ uid })).code).toBe(0);
    expect(await checkout.version({ uid })).toEqual(RUNS);
    await checkout.edit();
    expect(await checkout.prepare({ uid })).toEqual({ code: 0, stdout: '', stderr: STALE });
    expect(await checkout.build({ uid })).toEqual({ code: 1, stdout: '', stderr: STALE });
    expect(await checkout.version({ uid })).toEqual(RUNS);
    expect(await checkout.state()).toEqual(before);
  }

  test('somebody else owns the checkout', async () => check(await builtCheckout()));

  test('dist is read-only', async () => {
    const checkout = await builtCheckout();
    const { directory } = checkout;
    const paths = ['.', ...(await readdir(join(directory, 'dist'), { recursive: true })).map((path) => `dist/${path}`)];
    for (const path of [...paths, 'dist', 'node_modules', 'node_modules/.bin']) {
      await chown(join(directory, path), NOBODY, NOBODY);
      if (path.startsWith('dist')) await chmod(join(directory, path), 0o555);
    }
    await check(checkout);
  });

  test('prepare fails where there is no build at all', async () => {
    const checkout = await createCheckout();
    const { code, stderr } = await checkout.prepare({ uid: NOBODY });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^svc-relay: there is no build in dist, and [^\n]*npm run build\n$/);
  });
});

describe.runIf(hasNpx)('npx --no-install svc in a built checkout', () => {
  const npx = async (checkout: Checkout) =>
    checkout.run('npx', ['--no-install', 'svc', '--version'], {
      env: { npm_config_cache: await temporaryDirectory(), npm_config_offline: 'true' },
    });

  test('works with a fresh cache and leaves dist alone, current or stale', async () => {
    const checkout = await builtCheckout();
    const before = await checkout.state();
    expect(await npx(checkout)).toMatchObject({ code: 0, stdout: RUNS.stdout });
    expect(await checkout.state()).toEqual(before);
    await checkout.edit();
    expect(await npx(checkout)).toMatchObject({ code: 0, stdout: RUNS.stdout });
    expect(await checkout.state()).toEqual(before);
  });

  test('works without the links in node_modules/.bin', async () => {
    const checkout = await builtCheckout();
    await rm(join(checkout.directory, 'node_modules/.bin'), { recursive: true });
    const before = await checkout.state();
    expect(await npx(checkout)).toMatchObject({ code: 0, stdout: RUNS.stdout });
    expect(await checkout.state()).toEqual(before);
  });
});
