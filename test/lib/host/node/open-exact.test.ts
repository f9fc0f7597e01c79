import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { link, mkdir, readdir, readlink, realpath, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { describe, expect, it, vi } from 'vitest';
import type { HostMedia, OpenBytes } from '../../../../lib/host/media.ts';
import type { FileBody } from '../../../../lib/host/node/file-body.ts';
import { createMediaFiles } from '../../../../lib/host/node/media.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

const ways = [
  ['by the path of the descriptor', createMediaFiles({ env: {} })],
  ['without it', createMediaFiles({ env: {}, descriptorPath: async () => null })],
] as const;

const text = async (file: OpenBytes) => {
  const { to, done } = collector();
  ((await file.body(0, file.size - 1)) as unknown as FileBody).pipe(to);
  return done;
};

/** Consumes a body as a socket does: a chunk is invalid after its callback. */
function collector() {
  let all = '';
  const to = new Writable({
    write(chunk, _encoding, done) {
      all += chunk;
      setImmediate(done);
    },
  });
  return { to, done: finished(to).then(() => all) };
}

/** Opens an existing file. Without the descriptor's path, that requires a moment without changes above it. */
async function opened(media: HostMedia, path: string): Promise<OpenBytes> {
  return vi.waitFor(
    async () => {
      const file = await media.open(path);
      if (typeof file === 'string') throw new Error(file);
      return file;
    },
    { interval: 1 },
  );
}

/** Descriptors of this process in and above a directory. Other tests open and close files at the same time. */
async function openOf(directory: string): Promise<string[]> {
  const own = await realpath(directory);
  const names = await readdir('/proc/self/fd');
  const links = await Promise.all(names.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')));
  return links.filter((to) => to === own || to.startsWith(`${own}/`) || (to !== '' && own.startsWith(`${to}/`)));
}

describe.each(ways)('opening a file %s (contract 04 §2)', (_way, media) => {
  it('opens a regular file, with its properties, first bytes and any part', async () => {
    const path = join(await temporaryDirectory({ 'a.txt': 'hello world' }), 'a.txt');
    const file = await opened(media, path);
    expect(file).toMatchObject({ size: 11, tag: expect.stringMatching(/^b-[0-9a-f]+$/) });
    expect(Math.abs(file.modified - Date.now())).toBeLessThan(60_000);
    expect(Buffer.from(await file.head(5)).toString()).toBe('hello');
    expect(Buffer.from(await file.head(50)).toString()).toBe('hello world');
    const part = collector();
    ((await file.body(6, 8)) as unknown as FileBody).pipe(part.to);
    expect(await part.done).toBe('wor');
  });

  it('opens nothing else, and never waits', async () => {
    const directory = await temporaryDirectory({ 'a.txt': 'x' });
    execFileSync('mkfifo', [join(directory, 'fifo')]);
    await symlink('a.txt', join(directory, 'link'));
    const socket = createServer().listen(join(directory, 'socket'));
    await once(socket, 'listening');
    for (const [name, failure] of [
      ['fifo', 'irregular'],
      ['link', 'irregular'],
      ['socket', 'irregular'],
      ['', 'irregular'],
      ['none', 'missing'],
      ['a.txt/below', 'missing'],
      ['x'.repeat(5000), 'missing'],
    ]) {
      expect([name, await media.open(join(directory, name as string))]).toEqual([name, failure]);
    }
    expect(await media.open('/dev/null')).toBe('irregular');
    expect(await media.open('/dev/tty')).toBe('irregular');
    socket.close();
  });

  it('follows no link above it', async () => {
    const directory = await temporaryDirectory({ 'real/a.txt': 'x' });
    await symlink('real', join(directory, 'link'));
    expect(await media.open(join(directory, 'link/a.txt'))).toBe('missing');
  });

  it('leaves no descriptor open, whatever happens', async () => {
    const directory = await temporaryDirectory({ 'a.txt': 'x'.repeat(2_000_000) });
    const path = join(directory, 'a.txt');
    await symlink('a.txt', join(directory, 'link'));
    const held = await opened(media, path);
    expect(await openOf(directory)).toContain(await realpath(path));
    await held.close();
    for (let round = 0; round < 10; round++) {
      const [closed, read, dropped] = [await opened(media, path), await opened(media, path), await opened(media, path)];
      await closed.close();
      await closed.close();
      expect((await text(read)).length).toBe(2_000_000);
      const { to, done } = collector();
      ((await dropped.body(0, dropped.size - 1)) as unknown as FileBody).pipe(to);
      const broken = expect(done).rejects.toThrow();
      to.once('drain', () => to.destroy());
      const unsent = (await (await opened(media, path)).body(0, 0)) as unknown as FileBody;
      unsent.destroy();
      await Promise.all([broken, dropped.close(), media.open(join(directory, 'link')), media.open(directory)]);
    }
    await expect.poll(() => openOf(directory)).toEqual([]);
  });

  it('aborts the body of a file that becomes shorter', async () => {
    const path = join(await temporaryDirectory({ 'a.txt': 'x'.repeat(2_000_000) }), 'a.txt');
    const file = await opened(media, path);
    await truncate(path, 1_000_000);
    await expect(text(file)).rejects.toThrow('shorter');
  });
});

it.each(['EMFILE', 'ENFILE', 'ENOMEM', 'EIO'])('opening rejects when the machine fails (%s)', async (code) => {
  const directory = await temporaryDirectory({ 'a.txt': 'x' });
  const failing = createMediaFiles({
    env: {},
    descriptorPath: () => Promise.reject(Object.assign(new Error(code), { code })),
  });
  await expect(failing.open(join(directory, 'a.txt'))).rejects.toMatchObject({ code });
  await expect(failing.folder(directory, 10)).rejects.toMatchObject({ code });
  await expect.poll(() => openOf(directory)).toEqual([]);
});

describe('while a directory is swapped for a link and back', () => {
  it.each(ways)('%s: never returns a byte of the link’s target', { timeout: 60_000 }, async (_way, media) => {
    const directory = await temporaryDirectory({ 'inside/a.txt': 'inside', 'outside/a.txt': 'SECRET' });
    const at = (name: string) => join(directory, name);
    await rename(at('inside'), at('kept'));
    await symlink(at('outside'), at('link'));
    let over = false;
    let swaps = 0;
    const swapping = (async () => {
      while (!over) {
        await rename(at('kept'), at('inside'));
        await rename(at('inside'), at('kept'));
        await rename(at('link'), at('inside'));
        await rename(at('inside'), at('link'));
        swaps++;
      }
    })();
    const seen = new Map<string, number>();
    const until = Date.now() + 1_000;
    let rounds = 0;
    while (Date.now() < until || swaps <= 50) {
      const found = await Promise.all(Array.from({ length: 8 }, () => media.open(at('inside/a.txt'))));
      for (const file of found) {
        rounds++;
        const outcome = typeof file === 'string' ? file : await text(file);
        seen.set(outcome, (seen.get(outcome) ?? 0) + 1);
      }
    }
    over = true;
    await swapping;
    expect(seen.has('SECRET'), JSON.stringify([...seen])).toBe(false);
    expect([...seen.keys()].every((outcome) => ['inside', 'missing', 'irregular'].includes(outcome))).toBe(true);
    expect(swaps).toBeGreaterThan(50);
    expect(rounds).toBeGreaterThan(7);
  });
});

describe('resolving a path (contract 04 §2, check 3)', () => {
  const media = createMediaFiles({ env: {} });

  it('resolves links and dots, even in missing paths', async () => {
    const directory = await media.resolve(await temporaryDirectory({ 'real/a.txt': 'x' }));
    const at = (name: string) => `${directory}/${name}`;
    await symlink('real', at('link'));
    await symlink(at('nowhere/x'), at('dangling'));
    await symlink('loop', at('loop'));
    await mkdir(at('real/deep'));
    for (const [path, expected] of [
      ['link/a.txt', 'real/a.txt'],
      ['link/none/x', 'real/none/x'],
      ['link/deep/../../real/a.txt', 'real/a.txt'],
      ['none/../link/b', 'real/b'],
      ['none/../../../../../../../../etc/passwd', '/etc/passwd'],
      ['dangling', 'nowhere/x'],
      ['dangling/../y', 'nowhere/y'],
      ['./real//a.txt/', 'real/a.txt'],
    ] as const) {
      const wanted = expected.startsWith('/') ? expected : at(expected);
      expect([path, await media.resolve(at(path))]).toEqual([path, wanted]);
    }
    expect(await media.resolve(at('loop'))).toBe(at('loop'));
    expect(await media.resolve('/')).toBe('/');
    expect(await media.resolve('/..')).toBe('/');
  });

  it('recognizes one file under two names', async () => {
    const directory = await temporaryDirectory({ a: 'x', b: 'x' });
    await link(join(directory, 'a'), join(directory, 'c'));
    expect(await media.isSame(join(directory, 'a'), join(directory, 'c'))).toBe(true);
    expect(await media.isSame(join(directory, 'a'), join(directory, 'b'))).toBe(false);
    expect(await media.isSame(join(directory, 'a'), join(directory, 'd'))).toBe(false);
    await rm(join(directory, 'c'));
    await writeFile(join(directory, 'c'), '');
    expect(await media.isSame(join(directory, 'a'), join(directory, 'c'))).toBe(false);
  });
});
