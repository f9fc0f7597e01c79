import { spawnSync } from 'node:child_process';
import { cp, mkdir, readdir, readFile, realpath, rename, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { launch, temporaryHome } from '../support/process.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));
const hasBrowser = spawnSync('chromium', ['--version']).status === 0;
if (!hasBrowser) process.stderr.write('SKIPPED: there is no chromium here\n');

/** Milliseconds for a drill to settle on a busy machine, beside its own time. */
const SETTLING = 240_000;

/** Starts a drill whose user has an empty home, and an empty temporary directory. */
async function begin(...words: string[]) {
  const home = await temporaryHome();
  const temporary = join(home, 'tmp');
  await mkdir(temporary);
  const env = { PATH: process.env.PATH ?? '', HOME: home, TMPDIR: temporary };
  const drill = launch(process.execPath, [PROGRAM, 'relay', 'drill', ...words], env);
  return {
    drill,
    temporary,
    env,
    folders: () => readdir(temporary),
    /** Everything below the home of this user. */
    left: async () => (await readdir(home, { recursive: true })).filter((path) => path !== 'tmp'),
  };
}

/** Whether a process of that relay runs, by its temporary directory. */
async function isRelayRunning(folder: string): Promise<boolean> {
  const ids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const environments = await Promise.all(ids.map((id) => readFile(`/proc/${id}/environ`, 'utf8').catch(() => '')));
  return environments.some((text) => text.includes(folder));
}

describe('contract 09 §8: svc relay drill', () => {
  test(
    'a minute on Node: nothing acknowledged is lost, nothing is done twice, and nothing is left behind',
    async () => {
      const { drill, left } = await begin('--minutes', '1', '--json');
      const { code } = await drill.ended;
      const result = JSON.parse(drill.stdout);
      process.stdout.write(`drill: ${JSON.stringify(result)}\n`);
      expect(result).toMatchObject({ ok: true, runtime: 'node', minutes: 1, failures: [] });
      expect(code).toBe(0);
      expect(drill.stderr).toBe('');
      expect(result.kills).toBeGreaterThan(4);
      for (const kind of ['cut', 'reset', 'stall', 'half-open', 'trickle'])
        expect(result.faults[kind]).toBeGreaterThan(0);
      const kinds = ['messages', 'replies', 'commands', 'shell', 'uploads', 'refreshes'];
      expect(result.kinds.map(({ kind }: { kind: string }) => kind)).toEqual(kinds);
      for (const { acknowledged, lost, doubled } of result.kinds) {
        expect(acknowledged).toBeGreaterThan(1);
        expect([lost, doubled]).toEqual([0, 0]);
      }
      expect(await left()).toEqual([]);
    },
    60_000 + SETTLING,
  );

  test(
    '11 §6: a shorter one in the Workers runtime, which has no shell',
    async () => {
      const { drill, left } = await begin('--minutes', '0.3', '--edge', '--json');
      const { code } = await drill.ended;
      process.stdout.write(drill.stdout);
      const result = JSON.parse(drill.stdout);
      expect(result).toMatchObject({ runtime: 'edge', minutes: 0.3 });
      expect(result.kills).toBeGreaterThan(0);
      const kinds = ['messages', 'replies', 'commands', 'uploads', 'refreshes'];
      expect(result.kinds.map(({ kind }: { kind: string }) => kind)).toEqual(kinds);
      for (const { acknowledged, doubled } of result.kinds) {
        expect(acknowledged).toBeGreaterThan(0);
        expect(doubled).toBe(0);
      }
      expect(result.failures).toEqual([]);
      expect([result.ok, code]).toEqual([true, 0]);
      expect(await left()).toEqual([]);
    },
    20_000 + SETTLING,
  );

  test.runIf(hasBrowser)(
    '11 §6: a shorter one with the app in a browser, which gets every message and sends every reply once',
    async () => {
      const { drill, left } = await begin('--minutes', '0.5', '--web', '--json');
      const { code } = await drill.ended;
      process.stdout.write(drill.stdout);
      expect(drill.stderr).toBe('');
      const { ok, kinds } = JSON.parse(drill.stdout);
      expect(ok).toBe(true);
      const pages = kinds.filter(({ kind }: { kind: string }) => kind.startsWith('page_'));
      expect(pages).toMatchObject([
        { kind: 'page_messages', lost: 0, doubled: 0 },
        { kind: 'page_replies', lost: 0, doubled: 0 },
      ]);
      for (const { acknowledged } of pages) expect(acknowledged).toBeGreaterThan(1);
      expect(code).toBe(0);
      expect(await left()).toEqual([]);
    },
    30_000 + SETTLING,
  );

  test('Ctrl-C ends it with its relay, and leaves nothing', async () => {
    const { drill, left, folders, temporary } = await begin('--minutes', '5');
    await expect.poll(folders).toHaveLength(1);
    await expect.poll(() => isRelayRunning(temporary)).toBe(true);
    drill.signal('SIGINT');
    expect(await drill.ended).toEqual({ code: 1, signal: null });
    expect(drill.stdout).toBe('');
    expect(drill.stderr).toMatch(/^error: the drill was stopped before its end/);
    expect(await left()).toEqual([]);
    expect(await isRelayRunning(temporary)).toBe(false);
  }, 300_000);

  test('its relay ends with a drill that is killed, and the next drill removes the folder', async () => {
    const { drill, folders, temporary, env } = await begin('--minutes', '5');
    await expect.poll(folders).toHaveLength(1);
    await expect.poll(() => isRelayRunning(join(temporary, 'svc-drill-'))).toBe(true);
    await drill.kill('SIGKILL');
    await expect.poll(() => isRelayRunning(join(temporary, 'svc-drill-'))).toBe(false);
    const [folder = ''] = await folders();
    // That of a running process, and one of another program.
    const others = [folder.replace(/\d+/, String(process.pid)), 'svc-drill-notes'];
    for (const name of others) await mkdir(join(temporary, name));
    const next = launch(process.execPath, [PROGRAM, 'relay', 'drill', '--minutes', '5'], env);
    await expect.poll(async () => (await folders()).includes(folder)).toBe(false);
    next.signal('SIGTERM');
    await next.ended;
    expect((await folders()).toSorted()).toEqual(others.toSorted());
  }, 300_000);

  test('--edge and --web name what an installation lacks', async () => {
    const home = await temporaryHome();
    // As npm installs it: without the sources.
    await mkdir(join(home, 'package'));
    await cp('package.json', join(home, 'package/package.json'));
    await cp(join('dist'), join(home, 'package/dist'), { recursive: true });
    await mkdir(join(home, 'package/node_modules/@lydell'), { recursive: true });
    for (const name of ['libsql', '@lydell/node-pty']) {
      await symlink(await realpath(join('node_modules', name)), join(home, 'package/node_modules', name));
    }
    const words = [join(home, 'package/dist/cli/svc.js'), 'relay', 'drill', '--edge', '--json'];
    const env = { PATH: process.env.PATH ?? '', HOME: home };
    const packed = launch(process.execPath, words, env);
    expect(await packed.ended).toEqual({ code: 1, signal: null });
    expect(JSON.parse(packed.stdout)).toEqual({
      ok: false,
      error: '--edge runs the Worker from its sources, and this installation has none',
      next: 'Run it in a checkout of svc-relay, after npm ci: npx svc relay drill --edge',
    });
    const web = (path: string, words: string[]) =>
      launch(process.execPath, [...words, 'relay', 'drill', '--web', '--json'], { PATH: path, HOME: home });
    const without = web(env.PATH, [words[0] ?? '']);
    await without.ended;
    expect(JSON.parse(without.stdout)).toMatchObject({
      error: '--web needs a package that is not installed: playwright-core',
      next: expect.stringMatching(/npm ci$|npm install -g playwright-core$/),
    });
    const bareOfBrowsers = web(home, [PROGRAM]);
    await bareOfBrowsers.ended;
    expect(JSON.parse(bareOfBrowsers.stdout)).toMatchObject({
      error: expect.stringMatching(/^--web needs a browser, and the PATH has none of chromium, /),
      next: 'Install Chromium, or leave out --web.',
    });
    // A checkout whose packages are not installed.
    await mkdir(join(home, 'package/cli/runtime'), { recursive: true });
    await cp('cli/runtime/edge', join(home, 'package/cli/runtime/edge'), { recursive: true });
    await rename(join(home, 'package'), join(home, 'checkout'));
    const bare = launch(process.execPath, [words[0]?.replace('package', 'checkout') ?? '', ...words.slice(1)], env);
    expect(await bare.ended).toEqual({ code: 1, signal: null });
    expect(JSON.parse(bare.stdout)).toEqual({
      ok: false,
      error: '--edge needs packages that are not installed: esbuild, miniflare',
      next: `Run in ${join(home, 'checkout')}: npm ci`,
    });
  });
});
