import { mkdir, readdir, readFile, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { image, PNG, setup } from './support.ts';

const JPEG = Buffer.from('\xff\xd8\xff\xe0rest', 'latin1');
const WEBP = Buffer.from('RIFF....WEBPrest', 'latin1');
const GIF = Buffer.from('GIF89arest', 'latin1');

describe('clipboard inbox (04 §6)', () => {
  it.each<[string, Buffer, string]>([
    ['png', PNG, 'png'],
    [' PNG\n', PNG, 'png'],
    ['jpg', JPEG, 'jpeg'],
    ['Jpeg', JPEG, 'jpeg'],
    ['webp', WEBP, 'webp'],
    ['gif', GIF, 'gif'],
    ['gif', Buffer.from('GIF87a'), 'gif'],
  ])('saves %s', async (format, bytes, extension) => {
    const { inbox, directory, log } = await setup();
    const entry = await inbox.put(image(format, bytes));
    expect(entry).toMatchObject({ sizeBytes: bytes.length, sweptStale: 0 });
    expect(entry.path.startsWith(`${directory}/`)).toBe(true);
    expect(entry.path.slice(directory.length + 1)).toMatch(
      new RegExp(`^clip_\\d{8}_\\d{6}_${process.pid}_[a-z0-9]{6}\\.${extension}$`),
    );
    expect(await readFile(entry.path)).toEqual(bytes);
    expect((await stat(entry.path)).mode & 0o777).toBe(0o600);
    expect(await readdir(directory)).toHaveLength(1);
    expect(log.lines.join()).toContain(`staged ${entry.path.slice(directory.length + 1)} of ${bytes.length} bytes`);
    expect(log.lines.join()).not.toContain(directory);
  });

  it.each([
    ['Screenshot_2026-01', '_Screenshot_2026-01'],
    ['../../etc/pass wd.png', '_etcpasswdpng'],
    ['\u0000é/', ''],
    ['x'.repeat(100), `_${'x'.repeat(40)}`],
  ])('takes %j as a hint', async (hint, shown) => {
    const { inbox } = await setup();
    expect((await inbox.put(image('png', PNG, hint))).path).toMatch(
      new RegExp(`_${process.pid}${shown}_[a-z0-9]{6}\\.png$`),
    );
  });

  it.each<[string, string, string]>([
    ['another format', 'bmp', PNG.toString('base64')],
    ['a name of the prototype', 'constructor', PNG.toString('base64')],
    ['no bytes', 'png', ''],
    ['other characters', 'png', '!!!!'],
    ['line breaks', 'png', `${PNG.toString('base64')}\n`],
    ['missing padding', 'png', PNG.toString('base64').replace(/=+$/, '').slice(0, -1)],
    ['the URL alphabet', 'png', '-_-_'],
    ['bytes of another format', 'png', JPEG.toString('base64')],
    ['half of the mark', 'webp', Buffer.from('RIFF....WAVE').toString('base64')],
    ['a cut mark', 'png', PNG.subarray(0, 4).toString('base64')],
  ])('refuses %s', async (_, format, bytesBase64) => {
    const { inbox, home } = await setup();
    await expect(inbox.put({ format, bytesBase64 })).rejects.toMatchObject({ name: 'RelayError', kind: 'invalid' });
    expect(await readdir(home)).toEqual([]);
  });

  it('never uses a name twice within a second', async () => {
    const { inbox, directory } = await setup();
    await Promise.all(Array.from({ length: 20 }, () => inbox.put(image('png', PNG, 'same'))));
    expect(await readdir(directory)).toHaveLength(20);
  });

  it('keeps the newest 20', async () => {
    const { inbox, directory, clock } = await setup();
    await mkdir(directory, { recursive: true });
    for (let age = 1; age <= 25; age++) {
      const name = join(directory, `clip_${age}.png`);
      await writeFile(name, '');
      await utimes(name, clock.now() / 1000 - age, clock.now() / 1000 - age);
    }
    await writeFile(join(directory, 'being-written.tmp'), '');
    const entry = await inbox.put(image('png', PNG));
    expect(entry.sweptStale).toBe(0);
    const left = await readdir(directory);
    expect(left).toHaveLength(21);
    expect(left).toContain('being-written.tmp');
    expect(left).toContain('clip_19.png');
    expect(left).not.toContain('clip_20.png');
    expect(await readFile(entry.path)).toEqual(PNG);
  });

  it('sweeps files older than 300 s, whatever their names', async () => {
    const { inbox, directory, clock } = await setup();
    await mkdir(join(directory, 'folder'), { recursive: true });
    await writeFile(join(directory, 'target'), '');
    await symlink('target', join(directory, 'link'));
    for (const [name, age] of [
      ['clip_old.png', 301],
      ['left.tmp', 9999],
      ['clip_young.png', 299],
      ['folder', 9999],
    ] as const) {
      if (name !== 'folder') await writeFile(join(directory, name), '');
      const time = clock.now() / 1000 - age;
      await utimes(join(directory, name), time, time);
    }
    expect((await inbox.put(image('png', PNG, 'new'))).sweptStale).toBe(2);
    const left = (await readdir(directory)).filter((name) => !name.includes('_new_')).sort();
    expect(left).toEqual(['clip_young.png', 'folder', 'link', 'target']);
  });

  it('keeps the file that it has just written, whatever the clock says', async () => {
    const { inbox, clock } = await setup();
    clock.advance(3_600_000);
    const entry = await inbox.put(image('png', PNG));
    expect(entry.sweptStale).toBe(0);
    expect((await stat(entry.path)).size).toBe(PNG.length);
  });

  it('reveals no path when the disk fails', async () => {
    const { inbox, home } = await setup({
      writeAtomic: async (path) => {
        throw Object.assign(new Error(`ENOSPC: no space left on device, open '${path}'`), { code: 'ENOSPC' });
      },
    });
    const error = await inbox.put(image('png', PNG)).catch((caught) => caught);
    expect(error).toMatchObject({ kind: 'internal' });
    expect(error.message).not.toContain(home);
  });

  it('saves even when the sweep fails', async () => {
    const { inbox } = await setup({
      list: async () => {
        throw new Error('EACCES');
      },
    });
    expect((await inbox.put(image('png', PNG))).sweptStale).toBe(0);
  });
});
