import { mkdir, readdir, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { copyOfInstallation } from '../../cli/own-copy.ts';
import type { OwnPackage } from '../../cli/own-package.ts';
import { temporaryDirectory } from '../support/temp.ts';

const HOUR = 3_600_000;

async function setUp() {
  const root = await temporaryDirectory();
  const directory = join(root, 'node_modules', 'svc-relay');
  const folder = join(root, 'state');
  const copies = join(folder, 'program');

  /** Installs a build, and copies it. */
  async function copy(id: string): Promise<string | null> {
    await mkdir(join(directory, 'dist', id), { recursive: true });
    await writeFile(join(directory, 'package.json'), '{}');
    await writeFile(join(directory, 'dist', id, 'svc.js'), '');
    const own = { directory, build: { id }, isCopy: false } as unknown as OwnPackage;
    return copyOfInstallation(own, folder, 'svc.js');
  }

  /** A folder below the copies, used `ago` milliseconds before. */
  async function leave(name: string, ago: number): Promise<void> {
    await mkdir(join(copies, name), { recursive: true });
    const used = new Date(Date.now() - ago);
    await utimes(join(copies, name), used, used);
  }

  return { copy, leave, copies, kept: async () => (await readdir(copies)).sort() };
}

it('contract 11 §1: keeps the copy in use before, and removes older ones', async () => {
  const { copy, leave, kept, copies } = await setUp();
  await leave('first', 3 * HOUR);
  await leave('second', HOUR / 2);
  expect(await copy('third')).toBe(`file://${copies}/third/dist/third/svc.js`);
  expect(await kept()).toEqual(['second', 'third']);
});

it('counts no unfinished copy among them, and removes one that a killed command has left', async () => {
  const { copy, leave, kept } = await setUp();
  await leave('running', HOUR);
  await leave('second.new-123', 0);
  await leave('second.new-122', 2 * HOUR);
  await copy('third');
  expect(await kept()).toEqual(['running', 'second.new-123', 'third']);
});
