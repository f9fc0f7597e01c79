import { open, rename, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describeError } from '../lib/errors.ts';
import { unlessMissing } from '../lib/host/errors.ts';
import { makeDirectory, moveToNew, remove, syncDirectory } from '../lib/host/node/files.ts';
import { createTemporaryName, sweepTemporaryFiles } from '../lib/host/node/temporary-files.ts';
import { CommandError, printable } from './output.ts';

/** Codes that `withNextStep` explains. */
const EXPLAINED = ['ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE'];

export type Put = (bytes: Uint8Array) => Promise<void>;

/**
 * A file that a command writes for somebody to keep: mode 0600, and there whole or not at all, whatever kills the command. Call
 * the result once what goes into it is known.
 * @throws CommandError when the file exists, unless `force` is set, or cannot be written.
 */
export async function newFile(
  path: string,
  force: boolean,
): Promise<(write: (put: Put) => Promise<void>) => Promise<void>> {
  // An early check; the final write is what counts.
  if (!force && (await unlessMissing(stat(path)))) throw existsAlready(path);
  return async (write) => {
    const directory = dirname(path);
    let temporary: string | undefined;
    try {
      await makeDirectory(directory);
      await sweepTemporaryFiles(directory, remove);
      temporary = join(directory, createTemporaryName());
      const output = await open(temporary, 'wx', 0o600);
      try {
        await write((bytes) => output.writeFile(bytes));
        await output.sync();
      } finally {
        await output.close();
      }
      if (force) await rename(temporary, path);
      else await moveToNew(temporary, path);
      await syncDirectory(directory);
    } catch (error) {
      if (temporary !== undefined) await remove(temporary);
      const { code = '' } = error as NodeJS.ErrnoException;
      if (code === 'EEXIST') throw existsAlready(path);
      if (error instanceof CommandError || EXPLAINED.includes(code)) throw error;
      throw new CommandError(
        `cannot write ${printable(path)}: ${describeError(error)}`,
        'Choose another place for it.',
      );
    }
  };
}

export const existsAlready = (path: string): CommandError =>
  new CommandError(`${printable(path)} exists already`, 'Choose another name, or replace it with --force.');
