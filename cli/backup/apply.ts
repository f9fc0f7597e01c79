import { copyFile, link, lstat, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoOf, unlessMissing } from '../../lib/host/errors.ts';
import { createFiles, fill, makeDirectory, remove, syncDirectory } from '../../lib/host/node/files.ts';
import { createTemporaryName } from '../../lib/host/node/temporary-files.ts';
import { parseObject } from '../../lib/kit/json.ts';
import { journalPath, restoreFolder } from './journal.ts';

// A restore first prepares every file in a folder of its own, and commits by renaming its journal into place. Only then does
// it put the old files aside and move the new ones into place, the state last. Every step can be repeated: after a kill, the
// next svc command finishes a committed restore before it reads anything. A kill before the commit changes nothing.

export interface Step {
  /** The file to change. */
  target: string;
  /** Path below the folder of the old state that the present file moves to; null if the target does not exist. */
  aside: string | null;
  /** Name of the prepared file that takes its place; null if the target is only removed. */
  staged: string | null;
}

export interface Journal {
  /** Folder that gets the old state. */
  aside: string;
  /** The database, locked against every relay meanwhile. */
  state: string;
  steps: Step[];
}

export type Staging = Awaited<ReturnType<typeof openStaging>>;

/** An empty folder for the files of a restore. Files left there by a killed one are removed. */
export async function openStaging(agentHome: string) {
  const folder = restoreFolder(agentHome);
  await rm(folder, { recursive: true, force: true });
  await makeDirectory(folder);
  return {
    folder,
    path: (name: string): string => join(folder, name),
    put: (name: string, bytes: Uint8Array): Promise<void> => fill(join(folder, name), bytes, 0o600),
    discard: (): Promise<void> => rm(folder, { recursive: true, force: true }),

    /** Commits the restore: from here on this process or the next command carries it out. */
    async commit(journal: Journal): Promise<void> {
      const temporary = join(folder, createTemporaryName());
      await fill(temporary, new TextEncoder().encode(JSON.stringify(journal)), 0o600);
      await syncDirectory(folder);
      await rename(temporary, journalPath(agentHome));
      await syncDirectory(folder);
      await syncDirectory(dirname(folder));
    },
  };
}

/**
 * Carries out a committed restore. Does nothing without one.
 * @throws StateInUseError when a relay, or another command that does the same, holds the state.
 */
export async function finishRestore(agentHome: string): Promise<void> {
  const journal = await readJournal(agentHome);
  if (journal === null) return;
  const { holdState } = await import('../../storage/sqlite.ts');
  const release = holdState(journal.state);
  try {
    await carryOut(agentHome, journal);
  } finally {
    release();
  }
}

/** As `finishRestore`, for a process that already holds the state. */
export async function carryOut(agentHome: string, { aside, steps }: Journal): Promise<void> {
  const folder = restoreFolder(agentHome);
  const changed = new Set<string>();
  for (const step of steps) {
    if (step.aside !== null) {
      const backup = join(aside, step.aside);
      await makeDirectory(dirname(backup));
      await linkTo(step.target, backup);
      changed.add(dirname(backup));
    }
    if (step.staged === null) await remove(step.target);
    else {
      await makeDirectory(dirname(step.target));
      await place(join(folder, step.staged), step.target);
    }
    changed.add(dirname(step.target));
  }
  for (const directory of changed) await syncDirectory(directory);
  await remove(journalPath(agentHome));
  await rm(folder, { recursive: true, force: true });
  await syncDirectory(dirname(folder));
}

/** Gives a file a second name. A name that exists already may be the new file by now. */
async function linkTo(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    if (['EEXIST', 'ENOENT'].includes(errnoOf(error)) || (await unlessMissing(lstat(to)))) return;
    // Another file system, or one without links.
    const temporary = join(dirname(to), createTemporaryName());
    await copyFile(from, temporary);
    await rename(temporary, to);
  }
}

async function place(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    // Moved before the kill.
    if (errnoOf(error) === 'ENOENT') return;
    if (errnoOf(error) !== 'EXDEV') throw error;
    await createFiles().writeAtomic(to, await readFile(from), 0o600);
    await remove(from);
  }
}

async function readJournal(agentHome: string): Promise<Journal | null> {
  const text = await unlessMissing(readFile(journalPath(agentHome), 'utf8'));
  return text === null ? null : (parseObject(text) as unknown as Journal);
}
