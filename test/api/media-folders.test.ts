import { execFileSync } from 'node:child_process';
import { mkdir, rename, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Host } from '../../lib/host/index.ts';
import type { HostMedia } from '../../lib/host/media.ts';
import { createFolderReader, procDescriptorPath } from '../../lib/host/node/open-exact.ts';
import { setup } from '../support/media-home.ts';
import { describeMatrix, pair } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

interface Entry {
  name: string;
  path: string;
  kind: string;
  size?: number;
  modified_at: number;
}

const at = (path: string): string => `/media/folder?path=${encodeURIComponent(path)}`;

describe('GET /media/folder (contract 04 §2)', () => {
  it('has the allowed folders, then what is in one of them, the newest first', async () => {
    const { device, tmp, workspace } = await setup();
    await mkdir(join(workspace, 'plans'));
    const long = `${'n'.repeat(240)}é 漢.txt`;
    for (const [name, age] of [
      [long, 300],
      ['new.txt', 100],
      ['old.txt', 900],
    ] as const) {
      await writeFile(join(workspace, 'plans', name), 'x'.repeat(age));
      const time = Date.now() / 1000 - age;
      await utimes(join(workspace, 'plans', name), time, time);
    }
    const top = await (await device.get('/media/folder')).json();
    expect(Object.keys(top)).toEqual(['ok', 'entries']);
    expect(top.entries.map(({ path, kind }: Entry) => [path, kind])).toEqual([
      [tmp, 'folder'],
      [workspace, 'folder'],
    ]);
    const home = await (await device.get(at(workspace))).json();
    expect(home).toMatchObject({ ok: true, path: workspace, parent: null, truncated: false });
    expect(home.entries).toMatchObject([{ name: 'plans', kind: 'folder' }]);
    const plans = await (await device.get(at(`${workspace}/../workspace/./plans/`))).json();
    expect(plans).toMatchObject({ path: `${workspace}/plans`, parent: workspace });
    expect(plans.entries.map(({ name, size }: Entry) => [name, size])).toEqual([
      ['new.txt', 100],
      [long, 300],
      ['old.txt', 900],
    ]);
    expect(Math.abs(plans.entries[0].modified_at - (Date.now() / 1000 - 100))).toBeLessThan(30);
    const got = await device.get(`/media/by-path?path=${encodeURIComponent(plans.entries[1].path)}`);
    expect(await got.text()).toHaveLength(300);
  });

  it('refuses as a file by its path is refused, without a path in the sentence', async () => {
    const { relay, device, workspace, outside } = await setup();
    await writeFile(join(workspace, 'a.txt'), 'x');
    await symlink(outside, join(workspace, 'away'));
    for (const [path, status, error] of [
      ['workspace', 403, 'path is not absolute'],
      [`${workspace}\0`, 403, 'path is not absolute'],
      ['/etc', 403, 'path is in a protected location'],
      [join(relay.agentHome, 'pairing'), 403, 'path is in a protected location'],
      ['/', 403, 'path is not under an allowed root'],
      [relay.agentHome, 403, 'path is not under an allowed root'],
      [outside, 403, 'path is not under an allowed root'],
      [join(outside, 'none'), 403, 'path is not under an allowed root'],
      [join(workspace, 'away'), 403, 'path is not under an allowed root'],
      [`${workspace}/../..`, 403, 'path is not under an allowed root'],
      [join(workspace, 'none'), 404, 'folder does not exist'],
      [join(workspace, 'a.txt'), 404, 'path is not a folder'],
    ] as const) {
      const answer = await device.get(at(path));
      expect([path, answer.status, await answer.json()]).toEqual([path, status, { ok: false, error }]);
    }
  });

  it('lists no secret, no link that leads away, and nothing but files and folders', async () => {
    const { relay, device, outside } = await setup({ RELAY_MEDIA_ALLOWED_ROOTS: '/' });
    const home = relay.agentHome;
    for (const name of ['.env', '.env.local', 'config.yaml~', 'notes.txt']) await writeFile(join(home, name), 'x');
    for (const name of ['pairing', 'logs']) await mkdir(join(home, name), { recursive: true });
    await symlink('/etc/passwd', join(home, 'users'));
    await symlink(join(home, 'auth.json'), join(home, 'login'));
    await symlink(join(home, 'none'), join(home, 'dangling'));
    await symlink(outside, join(home, 'elsewhere'));
    execFileSync('mkfifo', [join(home, 'fifo')]);
    const { entries } = await (await device.get(at(home))).json();
    const names = entries.map(({ name, kind }: Entry) => `${name} ${kind}`).sort();
    expect(names).toEqual(expect.arrayContaining(['elsewhere folder', 'logs folder', 'notes.txt file']));
    expect(names.join()).not.toMatch(/env|config|pairing|users|login|dangling|fifo/);
    const root = await (await device.get(at('/'))).json();
    expect(root).toMatchObject({ path: '/', parent: null });
    expect(root.entries.map(({ name }: Entry) => name)).not.toContain('etc');
  });

  it('is bounded: the newest 500 of a folder, and it says that there are more', async () => {
    const { device, workspace } = await setup();
    execFileSync('bash', ['-c', 'for n in {1..600}; do : > $n; done; touch -d @2000000000 7'], { cwd: workspace });
    const { entries, truncated } = await (await device.get(at(workspace))).json();
    expect([entries.length, truncated, entries[0].name]).toEqual([500, true, '7']);
  });

  it('reads the folder that was checked, also when its name is given to another one', async () => {
    const parent = await temporaryDirectory({ 'real/mine.txt': 'x', 'other/secret.txt': 'x' });
    const real = join(parent, 'real');
    const swapped = createFolderReader(async (fd) => {
      await rename(real, join(parent, 'moved'));
      await symlink(join(parent, 'other'), real);
      return procDescriptorPath(fd);
    });
    expect(await swapped(real, 10)).toBe('missing');
    // Where the system does not tell the path of a descriptor, the name has to lead there before and after.
    const unknown = createFolderReader(async () => null);
    expect(await unknown(join(parent, 'moved'), 10)).toMatchObject({ items: [{ name: 'mine.txt' }], isCut: false });
    expect(await unknown(real, 10)).toBe('irregular');
    expect(await unknown(join(parent, 'moved/mine.txt'), 10)).toBe('irregular');
  });
});

describe('GET /media/recent', () => {
  it('has the newest files of the workspace, and not those of tools or of the temporary directory', async () => {
    const { device, tmp, workspace } = await setup();
    for (const [path, age] of [
      ['report.md', 50],
      ['a/b/deep.txt', 20],
      ['node_modules/x.js', 1],
      ['.git/HEAD', 1],
    ] as const) {
      const file = join(workspace, path);
      await mkdir(join(file, '..'), { recursive: true });
      await writeFile(file, 'x');
      await utimes(file, Date.now() / 1000 - age, Date.now() / 1000 - age);
    }
    await writeFile(join(tmp, 'scratch.txt'), 'x');
    await symlink('/etc', join(workspace, 'etc'));
    const { entries } = await (await device.get('/media/recent')).json();
    expect(entries.map(({ path }: Entry) => path.slice(workspace.length + 1))).toEqual(['a/b/deep.txt', 'report.md']);
  });

  it('a folder on a disk that fails does not hide the others', async () => {
    const broken = Object.assign(new Error('ENOTCONN'), { code: 'ENOTCONN' });
    const withHost = (host: Host): Host => {
      const folder: HostMedia['folder'] = (path, limit) =>
        path.endsWith('/mount') ? Promise.reject(broken) : host.media.folder(path, limit);
      return { ...host, media: { ...host.media, folder } };
    };
    const { device, workspace } = await setup({}, { withHost });
    await mkdir(join(workspace, 'mount'));
    await writeFile(join(workspace, 'a.txt'), 'x');
    const { entries } = await (await device.get('/media/recent')).json();
    expect(entries.map(({ name }: Entry) => name)).toEqual(['a.txt']);
    expect((await device.get(at(join(workspace, 'mount')))).status).toBe(503);
  });
});

describeMatrix(
  'folders of a relay without a host',
  (start) => {
    it('are not supported', async () => {
      const target = await start();
      const { token } = await pair(target);
      for (const path of ['/media/folder', '/media/recent']) {
        const { status } = await target.fetch(path, { headers: { authorization: `Bearer ${token}` } });
        expect(status).toBe(501);
      }
    });
  },
  ['edge'],
);
