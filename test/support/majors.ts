import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { vi } from 'vitest';
import { TIMEOUT } from './limits.ts';
import { temporaryDirectory } from './temp.ts';

const PRELOADED = fileURLToPath(new URL('./count-majors.mjs', import.meta.url));

/** Counts how often V8 marks the whole heap of a program that is started with the variables `env`. */
export async function countMajors() {
  const file = join(await temporaryDirectory(), 'majors');
  const count = async (): Promise<number> => (await readFile(file, 'utf8')).split('\n').length - 1;
  return {
    env: { NODE_OPTIONS: `--import ${PRELOADED}`, MAJORS: file },
    /** Has the program mark its heap once, as one that has run for a day has done. Returns a count of the marks since. */
    async start(pid: number): Promise<() => Promise<number>> {
      process.kill(pid, 'SIGUSR2');
      const before = await vi.waitFor(count, { timeout: TIMEOUT });
      return async () => (await count()) - before;
    },
  };
}
