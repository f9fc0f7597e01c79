import { mkdir, readdir, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { copyOfInstallation } from '../../cli/own-copy.ts';
import type { OwnPackage } from '../../cli/own-package.ts';
import { writeRelayLock } from '../../lib/host/node/relay-lock.ts';
import { openStateFile } from '../../storage/sqlite.ts';
import { temporaryDirectory } from '../support/temp.ts';

const HOUR = 3_600_000;

async function setUp() {
  const root = await temporaryDirectory();
  const directory = join(root, 'node_modules', 'svc-relay');
  const folder = join(root, 'state');
  const copies = join(folder, 'program');
  const relayHome = join(root, 'relay-home');

  /** Installs a build, and copies it. */
  async function copy(id: string): Promise<string | null> {
    await mkdir(join(directory, 'dist', id), { recursive: true });
    await writeFile(join(directory, 'package.json'), '{}');
    await writeFile(join(directory, 'dist', id, 'svc.js'), '');
    const own = { directory, build: { id }, isCopy: false } as unknown as OwnPackage;
    return copyOfInstallation(own, folder, 'svc.js', relayHome);
  }

  /** A folder below the copies, used `ago` milliseconds before. */
  async function leave(name: string, ago: number): Promise<void> {
    await mkdir(join(copies, name), { recursive: true });
    const used = new Date(Date.now() - ago);
    await utimes(join(copies, name), used, used);
  }

  /** Holds a state in the folder, as a relay of this build. Returns its end. */
  async function runRelay(id: string): Promise<() => void> {
    await mkdir(folder, { recursive: true });
    const state_file = join(folder, 'other.db');
    const held = openStateFile(state_file, () => {});
    const build = { id, commit: null, built_at: 1 };
    const record = { pid: process.pid, host: '127.0.0.1', port: 1, tls: false, version: '1.0.0', args: [] };
    const unlock = await writeRelayLock({ ...record, build, state_file, agent_home: root }, relayHome);
    let isOver = false;
    const end = () => {
      if (!isOver) held.close?.();
      isOver = true;
      unlock();
    };
    onTestFinished(end);
    return end;
  }

  return { copy, leave, runRelay, copies, kept: async () => (await readdir(copies)).sort() };
}

it('contract 11 §1: keeps the copy in use before, and removes older ones', async () => {
  const { copy, leave, kept, copies } = await setUp();
  await leave('first', 3 * HOUR);
  await leave('second', HOUR / 2);
  expect(await copy('third')).toBe(`file://${copies}/third/dist/third/svc.js`);
  expect(await kept()).toEqual(['second', 'third']);
});

it('contract 11 §1: keeps the copy of a running relay, however many are newer', async () => {
  const { copy, leave, runRelay, kept } = await setUp();
  await leave('older', 5 * HOUR);
  await leave('running', 4 * HOUR);
  await leave('second', 3 * HOUR);
  const end = await runRelay('running');
  await copy('third');
  expect(await kept()).toEqual(['running', 'second', 'third']);
  await copy('fourth');
  expect(await kept()).toEqual(['fourth', 'running', 'third']);
  end();
  await leave('third', 2 * HOUR);
  await copy('fifth');
  expect(await kept()).toEqual(['fifth', 'fourth']);
});

it('keeps those of relays that have begun to start, and are in no list yet', async () => {
  const { copy, leave, kept } = await setUp();
  await leave('first', HOUR / 2);
  await leave('second', HOUR / 4);
  await copy('third');
  expect(await kept()).toEqual(['first', 'second', 'third']);
});

it('counts no unfinished copy among them, and removes one that a killed command has left', async () => {
  const { copy, leave, kept } = await setUp();
  await leave('running', HOUR);
  await leave('second.new-123', 0);
  await leave('second.new-122', 2 * HOUR);
  await copy('third');
  expect(await kept()).toEqual(['running', 'second.new-123', 'third']);
});
