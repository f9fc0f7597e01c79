import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freePort, launch, temporaryHome } from '../support/process.ts';
import { temporaryDirectory } from '../support/temp.ts';

/** Milliseconds for an installation on a busy machine, its packages from npm's cache. */
const INSTALL_LIMIT = 180_000;

const read = async (path: string) => JSON.parse(await readFile(path, 'utf8'));

async function environment(): Promise<Record<string, string>> {
  const home = await temporaryHome();
  const cache = process.env.npm_config_cache ?? join(process.env.HOME ?? '/', '.npm');
  return { PATH: process.env.PATH ?? '', HOME: home, SVC_HOME: home, npm_config_cache: cache };
}

describe('the packed file', () => {
  let prefix: string;
  let installed: string;
  let printed: string;

  // Once for every case: it takes most of the time.
  beforeAll(async () => {
    prefix = await mkdtemp(join(tmpdir(), 'svc-relay-package-'));
    const env = { ...process.env, npm_config_update_notifier: 'false' } as Record<string, string>;
    const npm = (...args: string[]) => promisify(execFile)('npm', args, { env });
    await npm('pack', '--ignore-scripts', '--pack-destination', prefix);
    const file = (await readdir(prefix)).find((name) => name.endsWith('.tgz')) ?? '';
    const { stdout, stderr } = await npm('install', '-g', '--prefix', prefix, '--prefer-offline', join(prefix, file));
    printed = stdout + stderr;
    installed = join(prefix, 'lib/node_modules/svc-relay');
  }, INSTALL_LIMIT);
  afterAll(() => rm(prefix, { recursive: true, force: true }));

  test('installs only native packages beside the bundle, without a script or a word about one', async () => {
    expect(printed).not.toMatch(/allow-?scripts|install-scripts|deprecated|EBADENGINE/i);
    const { dependencies, devDependencies, scripts } = await read(join(installed, 'package.json'));
    expect(Object.keys(dependencies).toSorted()).toEqual(['@lydell/node-pty', 'libsql']);
    expect(Object.keys(devDependencies).filter((name) => name in dependencies)).toEqual([]);
    for (const name of ['preinstall', 'install', 'postinstall', 'prepare']) expect(scripts).not.toHaveProperty(name);
    const files = await readdir(prefix, { recursive: true });
    const sizes = await Promise.all(files.map(async (file) => (await stat(join(prefix, file))).size));
    expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(38 * 1024 * 1024);
    expect((await readdir(join(installed, 'dist'))).filter((name) => /^[0-9a-f]{16}$/.test(name))).toHaveLength(1);
    // npm links what `man` names where `man svc` finds it (contract 11 §4).
    const { man } = await read(join(installed, 'package.json'));
    expect(await readFile(join(installed, man), 'utf8')).toMatch(/^\.TH SVC 1 /);
  });

  test('contains the licence of what is bundled, and the MP3 encoder as a file to replace', async () => {
    const text = await readFile(join(installed, 'dist/LICENSES.txt'), 'utf8');
    for (const name of ['@breezystack/lamejs', '@whatwg-node/server', 'cac', 'crossws', 'jose', 'yaml']) {
      expect(text).toMatch(new RegExp(`^${name} \\d+\\.\\d+\\.\\d+ \\(`, 'm'));
    }
    // Every licence as a whole, the LGPL with the GPL that it adds to.
    for (const section of text.split(/^-{80}$/m).slice(1)) {
      expect(section).toMatch(
        /Permission is hereby granted|Permission to use, copy|Redistribution and use|END OF TERMS/,
      );
    }
    expect(text).toMatch(/GNU LESSER GENERAL PUBLIC LICENSE\s+Version 3, 29 June 2007[\s\S]+6\. Revised Versions/);
    expect(text).toMatch(/GNU GENERAL PUBLIC LICENSE\s+Version 3, 29 June 2007[\s\S]+17\. Interpretation of Sections/);
    const id = (await readdir(join(installed, 'dist'))).find((name) => /^[0-9a-f]{16}$/.test(name)) ?? '';
    const lamejs = await readFile(join(installed, 'dist', id, 'lamejs.js'), 'utf8');
    expect(lamejs).toBe(await readFile('node_modules/@breezystack/lamejs/dist/lamejs.js', 'utf8'));
    expect(Object.keys(await import(join(installed, 'dist', id, 'lamejs.js')))).toContain('Mp3Encoder');
  });

  test('runs a relay that reads YAML, in a thread, and stops', async () => {
    const env = await environment();
    await writeFile(join(env.SVC_HOME ?? '', 'config.yaml'), 'model: {default: one}\n');
    const port = String(await freePort());
    const relay = launch(join(prefix, 'bin/svc'), ['relay', 'start', '--host', '127.0.0.1', '--port', port], env);
    await relay.prints(/Next: run svc pair/);
    await relay.prints(/profiles: default/);
    expect(await relay.kill('SIGTERM')).toEqual({ code: 0, signal: null });
    expect(relay.stderr).toMatch(/stopped\n$/);
  });
});

describe('npm start', () => {
  test('names commands as npx calls them, and passes SIGTERM on', async () => {
    const env = { ...(await environment()), RELAY_PORT: String(await freePort()), RELAY_HOST: '127.0.0.1' };
    const npm = launch('npm', ['start'], env);
    await npm.prints(/Next: run npx svc pair/);
    npm.signal('SIGTERM');
    await npm.prints(/relay: stopped/);
    await npm.ended;
  });
});

describe('an old Node', () => {
  test.each(['dist/cli/svc.js', 'dist/cli/svc-relay.js', 'cli/node-version.cjs'])(
    '%s says one sentence',
    async (file) => {
      const directory = await temporaryDirectory();
      const old = join(directory, 'old.cjs');
      await writeFile(old, "Object.defineProperty(process, 'versions', { value: { node: '12.22.12' } });\n");
      const program = launch(process.execPath, ['--require', old, file, '--version'], {});
      expect(await program.ended).toEqual({ code: 1, signal: null });
      const { engines } = await read('package.json');
      const needed = engines.node.replace('>=', '');
      expect(program.stderr).toBe(`svc-relay needs Node ${needed} or newer, and this is Node 12.22.12.\n`);
    },
  );
});
