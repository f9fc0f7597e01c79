import { access, constants, writeFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { describeError } from '../../lib/errors.ts';
import { wavFile } from '../../lib/voice/streaming/wav.ts';
import { CommandError, printable } from '../output.ts';

/** Fails before anything is spoken that could not be stored in the file of `--out`. */
export async function checkOut(out: string): Promise<void> {
  const folder = dirname(resolve(out));
  await access(folder, constants.W_OK).catch(() => {
    throw new CommandError(`cannot write to the folder ${printable(folder)}`, 'Choose another --out.');
  });
}

/** Writes 16-bit mono samples to the file of `--out`. */
export async function writeOut(out: string, parts: readonly Buffer[], sampleRate: number): Promise<void> {
  await writeFile(out, wavFile(Buffer.concat(parts), sampleRate)).catch((error) => {
    throw new CommandError(`${printable(out)} cannot be written: ${describeError(error)}`, 'Choose another --out.');
  });
}
