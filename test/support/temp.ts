import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { onTestFinished } from 'vitest';

/** A directory with the given files, removed after the test. */
export async function temporaryDirectory(files: Record<string, string> = {}): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'svc-relay-test-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  await writeFiles(directory, files);
  return directory;
}

/** Writes files below a directory, creating parent directories. */
export async function writeFiles(directory: string, files: Record<string, string>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    const path = join(directory, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }
}
