import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { moveToNew } from '../../../../lib/host/node/files.ts';
import { createNodeHost } from '../../../../lib/host/node/index.ts';

const text = (value: string) => new TextEncoder().encode(value);
let home: string;
const { files } = createNodeHost({ agentHome: '/nowhere' });

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'relay-files-'));
});
afterEach(() => rm(home, { recursive: true, force: true }));

describe('streaming and private directories', () => {
  it('reads a file chunk by chunk, and closes it when the reader leaves', async () => {
    const content = Buffer.alloc(200_000, 'abc');
    await writeFile(`${home}/file`, content);
    const chunks: Uint8Array[] = [];
    for await (const chunk of files.chunks(`${home}/file`)) chunks.push(chunk);
    expect(chunks.length).toBeGreaterThan(2);
    expect(Buffer.concat(chunks).equals(content)).toBe(true);
    for await (const _ of files.chunks(`${home}/file`)) break;
    const open = await Promise.all(
      (await readdir('/proc/self/fd')).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')),
    );
    expect(open).not.toContain(`${home}/file`);
  });

  it.each([
    ['none', 'ENOENT'],
    ['.', 'EISDIR'],
    ['fifo', 'EINVAL'],
  ])('does not read %s', async (name, code) => {
    execFileSync('mkfifo', [`${home}/fifo`]);
    await expect(files.chunks(`${home}/${name}`)[Symbol.asyncIterator]().next()).rejects.toMatchObject({ code });
  });

  it('creates a directory for this user only, and removes it with its content but not what links lead to', async () => {
    const made = await files.createDirectory(`${home}/private-`);
    expect(made.startsWith(`${home}/private-`)).toBe(true);
    expect((await stat(made)).mode & 0o777).toBe(0o700);
    await mkdir(`${home}/other`);
    await writeFile(`${home}/other/kept`, '');
    await mkdir(`${made}/below`);
    await symlink(`${home}/other`, `${made}/below/link`);
    await files.removeAll(made);
    await files.removeAll(made);
    expect(await readdir(home)).toEqual(['other']);
    expect(await readdir(`${home}/other`)).toEqual(['kept']);
  });
});

describe('reading', () => {
  it('returns null for a missing path, even below a file', async () => {
    await writeFile(`${home}/file`, '');
    for (const path of [`${home}/none`, `${home}/file/none`]) {
      expect(await files.read(path)).toBeNull();
      expect(await files.readText(path)).toBeNull();
      expect(await files.readTail(path, 5)).toBeNull();
      expect(await files.stat(path)).toBeNull();
      expect(await files.list(path)).toBeNull();
      expect(await files.realPath(path)).toBeNull();
    }
  });

  it('reads a whole file, its beginning and its end', async () => {
    const content = 'abcdefghij'.repeat(20_000);
    await writeFile(`${home}/file`, content);
    expect(await files.readText(`${home}/file`)).toBe(content);
    expect(await files.read(`${home}/file`, 3)).toStrictEqual(text('abc'));
    expect(await files.read(`${home}/file`, 0)).toStrictEqual(new Uint8Array());
    expect(await files.readText(`${home}/file`, 150_000)).toBe(content.slice(0, 150_000));
    expect(await files.readTail(`${home}/file`, 4)).toBe('ghij');
    expect(await files.readTail(`${home}/file`, 1e9)).toBe(content);
  });

  it('reads files that claim to be empty', async () => {
    expect(await files.readText('/proc/self/stat')).toContain('(');
  });

  it('decodes invalid UTF-8 and drops a byte-order mark', async () => {
    await writeFile(`${home}/file`, new Uint8Array([0xef, 0xbb, 0xbf, 0x61, 0xff]));
    expect(await files.readText(`${home}/file`)).toBe('a\ufffd');
  });

  it('refuses a directory, and a FIFO without waiting for a writer', async () => {
    execFileSync('mkfifo', [`${home}/fifo`]);
    await expect(files.read(home)).rejects.toMatchObject({ code: 'EISDIR' });
    await expect(files.read(`${home}/fifo`)).rejects.toMatchObject({ code: 'EINVAL' });
  });

  it('distinguishes files, directories and links', async () => {
    await writeFile(`${home}/file`, 'four');
    await mkdir(`${home}/directory`);
    await symlink('directory', `${home}/link`);
    expect((await files.list(home))?.sort((a, b) => (a.name < b.name ? -1 : 1))).toEqual([
      { name: 'directory', kind: 'directory' },
      { name: 'file', kind: 'file' },
      { name: 'link', kind: 'link' },
    ]);
    expect(await files.stat(`${home}/link`)).toMatchObject({ kind: 'directory' });
    expect(await files.stat(`${home}/file`)).toMatchObject({ kind: 'file', size: 4 });
    expect(Math.abs(((await files.stat(`${home}/file`))?.modified ?? 0) - Date.now())).toBeLessThan(60_000);
    expect(await files.realPath(`${home}/link`)).toBe(await files.realPath(`${home}/directory`));
  });
});

describe('writing', () => {
  it('makes the directories of files that come at once', async () => {
    for (let round = 0; round < 50; round++) {
      const paths = Array.from({ length: 6 }, (_, at) => `${home}/${round}/a/b/${at}`);
      await Promise.all(paths.map((path) => files.append(path, text('x'))));
      expect((await readdir(`${home}/${round}/a/b`)).length).toBe(6);
    }
  });

  it('replaces a file with the given mode and leaves nothing else', async () => {
    await files.writeAtomic(`${home}/file`, text('one'), 0o600);
    await files.writeAtomic(`${home}/file`, text('two'), 0o666);
    expect(await readFile(`${home}/file`, 'utf8')).toBe('two');
    expect((await stat(`${home}/file`)).mode & 0o777).toBe(0o666);
    expect(await readdir(home)).toEqual(['file']);
  });

  it('creates missing directories, private ones', async () => {
    await files.writeAtomic(`${home}/a/b/file`, text('x'), 0o600);
    expect((await stat(`${home}/a`)).mode & 0o777).toBe(0o700);
    expect((await stat(`${home}/a/b`)).mode & 0o777).toBe(0o700);
  });

  it('removes the temporary file when the rename fails', async () => {
    await mkdir(`${home}/target/full`, { recursive: true });
    await expect(files.writeAtomic(`${home}/target`, text('x'), 0o600)).rejects.toHaveProperty('code');
    expect(await readdir(home)).toEqual(['target']);
  });

  it.skipIf(process.getuid?.() === 0)('keeps the old file where it may not make a new one', async () => {
    await files.writeAtomic(`${home}/file`, text('old'), 0o600);
    await chmod(home, 0o500);
    await expect(files.writeAtomic(`${home}/file`, text('new'), 0o600)).rejects.toMatchObject({ code: 'EACCES' });
    await chmod(home, 0o700);
    expect(await readFile(`${home}/file`, 'utf8')).toBe('old');
  });

  it('moves a file to a new name without hard links too, and never over another file', async () => {
    const noLinks = () => Promise.reject(Object.assign(new Error('EPERM'), { code: 'EPERM' }));
    for (const [name, makeLink] of [
      ['linked', undefined],
      ['renamed', noLinks],
    ] as const) {
      await files.writeAtomic(`${home}/from`, text('one'), 0o600);
      await moveToNew(`${home}/from`, `${home}/${name}`, makeLink);
      await files.writeAtomic(`${home}/from`, text('two'), 0o600);
      await expect(moveToNew(`${home}/from`, `${home}/${name}`, makeLink)).rejects.toMatchObject({ code: 'EEXIST' });
      expect(await readFile(`${home}/${name}`, 'utf8')).toBe('one');
      await expect(moveToNew(`${home}/missing`, `${home}/other`, makeLink)).rejects.toMatchObject({
        code: 'ENOENT',
      });
    }
    expect((await readdir(home)).sort()).toEqual(['from', 'linked', 'renamed']);
  });

  it('never shows a reader half a file', async () => {
    const versions = ['a', 'b'].map((letter) => letter.repeat(300_000));
    await files.writeAtomic(`${home}/file`, text(versions[0] ?? ''), 0o600);
    let writing = true;
    const writer = (async () => {
      for (let round = 0; round < 20; round++) {
        await files.writeAtomic(`${home}/file`, text(versions[round % 2] ?? ''), 0o600);
      }
      writing = false;
    })();
    while (writing) expect(versions).toContain(await files.readText(`${home}/file`));
    await writer;
  });

  it('creates a file once', async () => {
    const attempts = await Promise.allSettled(
      ['one', 'two', 'three'].map((value) => files.createExclusive(`${home}/deep/secret`, text(value), 0o600)),
    );
    expect(attempts.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    for (const attempt of attempts) {
      if (attempt.status === 'rejected') expect(attempt.reason).toMatchObject({ code: 'EEXIST' });
    }
    expect((await stat(`${home}/deep/secret`)).mode & 0o777).toBe(0o600);
    expect(await readFile(`${home}/deep/secret`, 'utf8')).toMatch(/^(?:one|two|three)$/);
  });

  it('removes a file, and ignores a missing one', async () => {
    await writeFile(`${home}/file`, '');
    await files.remove(`${home}/file`);
    await files.remove(`${home}/file`);
    expect(await readdir(home)).toEqual([]);
  });
});

describe('watching', () => {
  /** Repeats a change until it is noticed, since a watch takes a moment to start. */
  const seen = async (called: ReturnType<typeof vi.fn>, change: () => Promise<unknown>) => {
    called.mockClear();
    await vi.waitFor(
      async () => {
        await change();
        expect(called).toHaveBeenCalled();
      },
      { interval: 50 },
    );
  };

  it('notices files, entries of directories and those one level deeper', async () => {
    await mkdir(`${home}/profiles/one`, { recursive: true });
    const called = vi.fn();
    const end = files.watch([`${home}/config.yaml`, `${home}/profiles`], called);
    await seen(called, () => writeFile(`${home}/config.yaml`, String(Math.random())));
    await seen(called, () => writeFile(`${home}/profiles/one/config.yaml`, String(Math.random())));
    await mkdir(`${home}/profiles/two`);
    await seen(called, () => writeFile(`${home}/profiles/two/SOUL.md`, String(Math.random())));
    end();
  });

  it('notices a missing path with missing parents appear, and again after its removal', async () => {
    const called = vi.fn();
    const end = files.watch([`${home}/later/profiles`], called);
    await seen(called, async () => {
      await mkdir(`${home}/later/profiles`, { recursive: true });
      await writeFile(`${home}/later/profiles/file`, String(Math.random()));
    });
    await seen(called, async () => {
      await rm(`${home}/later`, { recursive: true, force: true });
      await mkdir(`${home}/later/profiles`, { recursive: true });
    });
    await seen(called, () => writeFile(`${home}/later/profiles/file`, String(Math.random())));
    end();
  });

  it('coalesces a burst, ignores neighbours, and is silent once stopped', async () => {
    const called = vi.fn();
    const other = vi.fn();
    const endOther = files.watch([`${home}/neighbour`], other);
    const end = files.watch([`${home}/file`], called);
    await seen(called, () => writeFile(`${home}/file`, String(Math.random())));
    // Earlier events have been handled once the later one of the neighbour has.
    await seen(other, () => writeFile(`${home}/neighbour`, String(Math.random())));
    await seen(other, () => writeFile(`${home}/neighbour`, String(Math.random())));
    called.mockClear();
    await seen(other, () => writeFile(`${home}/neighbour`, String(Math.random())));
    expect(called).not.toHaveBeenCalled();
    for (let round = 0; round < 30; round++) writeFileSync(`${home}/file`, String(round));
    await vi.waitFor(() => expect(called).toHaveBeenCalled());
    expect(called.mock.calls.length).toBeLessThan(5);
    end();
    called.mockClear();
    await writeFile(`${home}/file`, 'after');
    await seen(other, () => writeFile(`${home}/neighbour`, String(Math.random())));
    expect(called).not.toHaveBeenCalled();
    endOther();
  });
});
