import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, renameSync, symlinkSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { createNodeHost } from '../../../../lib/host/node/index.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

const { homeFiles } = createNodeHost({ agentHome: '/nowhere' });
const bytes = (text: string) => new TextEncoder().encode(text);
const hash = (text: string) => createHash('sha256').update(text).digest('hex');
const always = () => true;
const WHOLE = { content: 1e6, digest: 1e6 };
let root: string;
let home: string;

beforeEach(async () => {
  root = await temporaryDirectory({ 'home/file': 'inside', 'outside/file': 'outside' });
  home = `${root}/home`;
});

describe('reading below a home', () => {
  it('returns leading bytes, size and digest', async () => {
    expect(await homeFiles.read(home, `${home}/file`, { content: 3, digest: 100 })).toEqual({
      ...{ bytes: bytes('ins'), size: 6, sha256: hash('inside') },
    });
    expect(await homeFiles.read(home, `${home}/file`, { content: 9, digest: 5 })).toEqual({
      ...{ bytes: bytes('inside'), size: 6, sha256: null },
    });
    expect(await homeFiles.read(home, `${home}/none`, WHOLE)).toBe('missing');
    const long = 'abcdefgh'.repeat(40_000);
    await writeFile(`${home}/long`, long);
    expect(await homeFiles.read(home, `${home}/long`, { content: 70_000, digest: 1e6 })).toEqual({
      ...{ bytes: bytes(long.slice(0, 70_000)), size: long.length, sha256: hash(long) },
    });
  });

  it('judges links by their target', async () => {
    await symlink('../outside/file', `${home}/out`);
    await symlink('../outside', `${home}/directory`);
    await symlink('../home/file', `${home}/in`);
    expect(await homeFiles.read(home, `${home}/out`, WHOLE)).toBe('outside');
    expect(await homeFiles.read(home, `${home}/directory/file`, WHOLE)).toBe('outside');
    expect(await homeFiles.read(home, `${home}/../outside/file`, WHOLE)).toBe('outside');
    expect(await homeFiles.read(`${root}/hom`, `${home}/file`, WHOLE).catch((error) => error.code)).toBe('EAGAIN');
    expect(await homeFiles.read(home, `${home}/in`, WHOLE)).toMatchObject({ size: 6 });
    await expect(homeFiles.read(home, home, WHOLE)).resolves.toBe('outside');
    execFileSync('mkfifo', [`${home}/fifo`]);
    await expect(homeFiles.read(home, `${home}/fifo`, WHOLE)).rejects.toMatchObject({ code: 'EINVAL' });
  });

  it('never returns the target of a swapped name', async () => {
    await writeFile(`${root}/outside/file`, 'secret');
    let swapping = true;
    const swapper = (async () => {
      while (swapping) {
        await symlink('../outside/file', `${home}/next`);
        await rename(`${home}/next`, `${home}/file`);
        await writeFile(`${home}/next`, 'inside');
        await rename(`${home}/next`, `${home}/file`);
      }
    })();
    const seen = new Set<string>();
    for (let round = 0; round < 300; round++) {
      const file = await homeFiles.read(home, `${home}/file`, WHOLE).catch((error) => String(error.code));
      seen.add(typeof file === 'string' ? file : new TextDecoder().decode(file.bytes));
    }
    swapping = false;
    await swapper;
    expect([...seen].filter((what) => !['inside', 'outside', 'EAGAIN'].includes(what))).toEqual([]);
    expect(seen).toContain('outside');
  });
});

describe('writing below a home', () => {
  const write = (path: string, text: string, may = always as Parameters<typeof homeFiles.write>[3]) =>
    homeFiles.write(home, `${home}/${path}`, bytes(text), may);

  it('calls mayReplace right before the change', async () => {
    const asked: unknown[] = [];
    await write('file', 'new', (present) => asked.push(present?.sha256) > 0);
    expect(asked).toEqual([hash('inside'), hash('inside')]);
    // Another program writes between the two calls.
    const answer = await write('file', 'mine', (present) => {
      if (present?.sha256 !== hash('new')) return false;
      execFileSync('cp', [`${root}/outside/file`, `${home}/file`]);
      return true;
    });
    expect(answer).toBe('refused');
    expect(await readFile(`${home}/file`, 'utf8')).toBe('outside');
    expect(await readdir(home)).toEqual(['file']);
  });

  it.runIf(existsSync('/proc/self/fd'))('stays in its directory when a link takes its place', async () => {
    await mkdir(`${home}/memories`);
    let calls = 0;
    const swap = () => {
      if (calls++ === 0) {
        renameSync(`${home}/memories`, `${home}/kept`);
        symlinkSync('../outside', `${home}/memories`);
      }
      return true;
    };
    expect(await homeFiles.write(home, `${home}/memories/file`, bytes('new'), swap)).toEqual({ sha256: hash('new') });
    expect(calls).toBe(2);
    expect(await readFile(`${home}/kept/file`, 'utf8')).toBe('new');
    expect(await readFile(`${root}/outside/file`, 'utf8')).toBe('outside');
    expect(await readdir(`${root}/outside`)).toEqual(['file']);
    expect(await homeFiles.write(home, `${home}/memories/file`, bytes('newer'), always)).toBe('outside');
  });

  it('creates one missing directory, and none when refused', async () => {
    expect(await write('memories/a', 'x', () => false)).toBe('refused');
    expect(await readdir(home)).toEqual(['file']);
    expect(await write('memories/a', 'x')).toEqual({ sha256: hash('x') });
    expect((await stat(`${home}/memories`)).mode & 0o777).toBe(0o700);
    await expect(write('none/of/these', 'x')).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('serializes writes to one file, in any spelling', async () => {
    let under = 0;
    let most = 0;
    const names = ['one', 'ONE', 'One'];
    await Promise.all(
      Array.from({ length: 30 }, (_, index) => {
        let questions = 0;
        return write(names[index % 3] ?? '', String(index), () => {
          if (questions++ === 0) most = Math.max(most, ++under);
          else under--;
          return true;
        });
      }),
    );
    expect(most).toBe(1);
  });

  it('replaces neither FIFO nor directory, and leaves no temporary file', async () => {
    execFileSync('mkfifo', [`${home}/fifo`]);
    await mkdir(`${home}/directory`);
    await expect(write('fifo', 'x')).rejects.toMatchObject({ code: 'EINVAL' });
    await expect(write('directory', 'x')).rejects.toMatchObject({ code: 'EISDIR' });
    await rm(`${home}/fifo`);
    expect((await readdir(home)).sort()).toEqual(['directory', 'file']);
  });
});

describe('leftovers of killed writes', () => {
  const name = (pid: number) => `.svc-relay-${pid}-${'0'.repeat(24)}.tmp`;
  const dead = 2 ** 22 + 1;

  it('are removed by the next write or sweep', async () => {
    const old = new Date(Date.now() - 2 * 60 * 60 * 1000);
    const other = process.ppid;
    await writeFile(`${home}/${name(dead)}`, 'x');
    await writeFile(`${home}/${name(other)}`, 'of a living process');
    await writeFile(`${home}/${name(process.pid)}`, 'of a relay beside this one');
    await writeFile(`${home}/.svc-relay-1-short.tmp`, 'not ours');
    await homeFiles.write(home, `${home}/file`, bytes('x'), always);
    const left = ['.svc-relay-1-short.tmp', name(other), name(process.pid), 'file'].sort();
    expect((await readdir(home)).sort()).toEqual(left);
    await utimes(`${home}/${name(other)}`, old, old);
    await utimes(`${home}/${name(process.pid)}`, old, old);
    await homeFiles.sweep(home);
    expect((await readdir(home)).sort()).toEqual(['.svc-relay-1-short.tmp', 'file']);
    await homeFiles.sweep(`${home}/none`);
  });
});
