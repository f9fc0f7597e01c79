import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Page } from 'playwright-core';
import { expect, it, onTestFinished } from 'vitest';
import { lockHolder } from '../../lib/host/node/relay-lock.ts';
import { appOf, connected } from '../support/app.ts';
import { describeInBrowser, hasBrowser, type TestBrowser } from '../support/browser.ts';
import { ask, freePort, launch, temporaryHome } from '../support/process.ts';

/** Milliseconds for two installations and a build on a busy machine. */
const LIMIT = 400_000;

const BUILT = ['cli', 'handlers', 'lib', 'storage', 'package.json', 'package-lock.json', 'tsconfig.json'];
const PACKED = ['README.md', 'LICENSE', 'plugin.yaml'];

const NAME = 'npm install -g over a running relay leaves it whole, until svc restart (contract 11 §1)';
it.skipIf(hasBrowser)(NAME, { timeout: LIMIT }, () => upgrade());
describeInBrowser('with the app open in a browser', (browser) => {
  it(NAME, { timeout: LIMIT }, () => upgrade(browser));
});

async function upgrade(browser?: TestBrowser): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-relay-global-'));
  const home = await temporaryHome();
  onTestFinished(async () => {
    const pid = lockHolder(join(home, 'svc-relay/state.db'));
    if (pid !== undefined) process.kill(pid, 'SIGKILL');
    await rm(folder, { recursive: true, force: true });
  });
  const env = { ...process.env, npm_config_update_notifier: 'false' } as Record<string, string>;
  const run = (cwd: string, file: string, ...args: string[]) => promisify(execFile)(file, args, { env, cwd });
  const pack = async (from: string, to: string) => {
    await run(from, 'npm', 'pack', '--ignore-scripts', '--pack-destination', join(folder, to));
    return join(folder, to, (await readdir(join(folder, to))).find((name) => name.endsWith('.tgz')) ?? '');
  };
  // A newer version, built from changed sources.
  const newer = join(folder, 'newer');
  for (const name of [...BUILT, ...PACKED]) await cp(name, join(newer, name), { recursive: true });
  await symlink(join(process.cwd(), 'node_modules'), join(newer, 'node_modules'));
  const manifest = JSON.parse(await readFile(join(newer, 'package.json'), 'utf8'));
  await writeFile(join(newer, 'package.json'), JSON.stringify({ ...manifest, version: '1.0.1' }));
  await run(newer, process.execPath, 'cli/build.mjs');
  await promisify(execFile)('mkdir', ['-p', join(folder, 'a'), join(folder, 'b')]);
  const [first, second] = [await pack(process.cwd(), 'a'), await pack(newer, 'b')];

  const prefix = join(folder, 'prefix');
  const install = (file: string) => run(folder, 'npm', 'install', '-g', '--prefix', prefix, '--prefer-offline', file);
  await install(first);
  const port = await freePort();
  const svc = async (...words: string[]) => {
    const child = launch(join(prefix, 'bin/svc'), words, { PATH: process.env.PATH ?? '', HOME: home, SVC_HOME: home });
    const { code } = await child.ended;
    return { code, stdout: child.stdout, stderr: child.stderr };
  };
  const up = await svc('up', '--host', '127.0.0.1', '--port', String(port));
  expect([up.code, up.stderr]).toEqual([0, '']);
  const pid = lockHolder(join(home, 'svc-relay/state.db'));
  const dist = join(prefix, 'lib/node_modules/svc-relay/dist');
  const builds = async () => (await readdir(dist)).filter((name) => /^[0-9a-f]{16}$/.test(name));
  const [old] = await builds();

  const opened = await browser?.open({ device: 'desktop' });
  // The restart cuts its socket and what it asks meanwhile, and forgets the nonce of its proofs: it is asked for a new one.
  opened?.allow(/WebSocket|ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|Failed to fetch|status of 401/);
  const page = opened?.page;
  if (page) {
    const { page_url } = JSON.parse((await svc('pair', '--web', '--json')).stdout);
    await page.goto(page_url);
    await connected(page);
  }

  await install(second);
  expect(await builds()).not.toContain(old);
  expect(lockHolder(join(home, 'svc-relay/state.db'))).toBe(pid);
  // Everything that it loads only now: the pages with their chunks, the YAML thread, the doctor with the terminal module.
  const url = `http://127.0.0.1:${port}`;
  for (const path of [`http://localhost:${port}/app/`, `${url}/console/`]) {
    const page = await ask(path);
    expect([path, page.status]).toEqual([path, 200]);
    const scripts = [...page.text.matchAll(/(?:src|href)="([^"]+\.(?:js|css))"/g)].map(([, at]) => at as string);
    expect(scripts.length).toBeGreaterThan(0);
    for (const at of scripts) expect([at, (await ask(new URL(at, path).href)).status]).toEqual([at, 200]);
  }
  if (page) {
    // A screen whose code the page loads only now, and a second page of the running relay.
    await page.getByRole('link', { name: 'Settings' }).click();
    await page.getByRole('heading', { name: 'Settings', level: 1 }).waitFor();
    const later = (await opened?.tab()) as Page;
    await later.goto(appOf({ url }));
    await connected(later);
    await later.close();
  }
  await writeFile(join(home, 'config.yaml'), 'model: {default: fresh}\n');
  await expect.poll(async () => readFile(join(home, 'svc-relay/relay.log'), 'utf8')).toMatch(/profiles: default/);
  const doctor = await ask(`${url}/relay/doctor`, { method: 'POST', headers: { 'x-svc-operator': '1' } });
  expect(doctor.status).toBe(200);
  expect(doctor.text).not.toMatch(/Cannot find (module|package)/);

  const status = await svc('status');
  expect(status.stdout).toMatch(/Relay +running, version 1\.0\.0/);
  expect(status.stdout).toMatch(/Command +version 1\.0\.1.*newer than the relay/);
  expect(status.stdout).toContain('svc restart');
  const restart = await svc('restart');
  expect([restart.code, restart.stderr]).toEqual([0, '']);
  expect((await ask(`${url}/health`)).json.version).toBe('1.0.1');
  expect((await svc('status', '--json')).stdout).toContain('"outdated": false');
  if (page) {
    // It is still paired, and after a reload on the pages of the new version.
    await page.getByRole('link', { name: 'Home' }).click();
    await connected(page);
    await page.reload();
    await connected(page);
  }
  expect(existsSync(join(home, 'svc-relay/program', old as string))).toBe(true);
  await svc('down');
}
