import { execFile, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { temporaryDirectory } from '../support/temp.ts';

const LIMIT = 180_000;
const run = promisify(execFile);
const isClone = existsSync('.git') && spawnSync('git', ['rev-parse', 'HEAD']).status === 0;
if (!isClone) process.stderr.write('SKIPPED: a package of a clean clone needs a clone to start from\n');

interface Packed {
  filename: string;
  files: { path: string; mode: number }[];
}

/** Packs the last commit in a clean clone, as `npm pack` does for a release. */
async function packClone(folder: string): Promise<{ bytes: Buffer; files: Packed['files'] }> {
  await run('git', ['clone', '--quiet', '--no-hardlinks', '.', folder]);
  await mkdir(join(folder, 'node_modules'));
  for (const name of await readdir('node_modules')) {
    if (!name.startsWith('.'))
      await symlink(join(process.cwd(), 'node_modules', name), join(folder, 'node_modules', name));
  }
  const env = { ...process.env, npm_config_update_notifier: 'false' };
  const { stdout } = await run('npm', ['pack', '--json'], { cwd: folder, env });
  const [packed] = JSON.parse(stdout) as Packed[];
  return { bytes: await readFile(join(folder, packed?.filename ?? '')), files: packed?.files ?? [] };
}

test.runIf(isClone)(
  'a package of a clean clone is the same byte for byte, and holds only these files',
  async () => {
    const directory = await temporaryDirectory();
    const first = await packClone(join(directory, 'one'));
    // At another time and path, equally deep: esbuild names chunks by the way to the linked packages, too.
    const second = await packClone(join(directory, 'two'));
    const digest = ({ bytes }: { bytes: Buffer }) => createHash('sha256').update(bytes).digest('hex');
    expect(digest(second)).toBe(digest(first));

    const paths = first.files.map(({ path }) => path);
    const build = /^dist\/[0-9a-f]{16}\//;
    expect(paths.filter((path) => !build.test(path)).toSorted()).toEqual(
      [
        'CHANGELOG.md',
        'LICENSE',
        'README.md',
        'dashboard/api.js',
        'dashboard/manifest.json',
        'dashboard/tab.css',
        'dashboard/tab.js',
        'dist/.npmignore',
        'dist/LICENSES.txt',
        'dist/cli/compat/index.js',
        'dist/cli/dashboard/plugin.js',
        'dist/cli/pages.js',
        'dist/cli/svc-relay.js',
        'dist/cli/svc.js',
        'dist/man/svc.1',
        'dist/plugin/compat/index.js',
        'package.json',
        'plugin.yaml',
      ].toSorted(),
    );
    // Beside these, the build has only chunks, whose names end in a hash of their content.
    const built = paths.filter((path) => build.test(path)).map((path) => path.replace(build, ''));
    expect(built.filter((path) => !/^[\w.-]+-[0-9A-Z]{8}\.js$/.test(path)).toSorted()).toEqual(
      [
        'LICENSES.txt',
        'about.json',
        'build.json',
        'common.js',
        'compat.js',
        'dashboard-plugin.js',
        'lamejs.js',
        'man.js',
        'pages.js',
        'program.js',
        'relay.js',
        'svc-relay.js',
        'svc.1',
        'svc.js',
        'tab.js',
        'yaml.cjs',
      ].toSorted(),
    );
    const programs = first.files.filter(({ mode }) => (mode & 0o111) !== 0).map(({ path }) => path);
    expect(programs.toSorted()).toEqual(['dist/cli/svc-relay.js', 'dist/cli/svc.js']);
  },
  LIMIT,
);

test('package.json says what npm and its users need', async () => {
  const manifest = JSON.parse(await readFile('package.json', 'utf8'));
  expect(manifest).toMatchObject({
    license: 'MIT',
    engines: { node: '>=20.19' },
    bin: { svc: 'dist/cli/svc.js', 'svc-relay': 'dist/cli/svc-relay.js' },
    man: './dist/man/svc.1',
    publishConfig: { access: 'public', provenance: true },
  });
});
