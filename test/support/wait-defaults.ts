import { afterAll, vi } from 'vitest';
import { treeCpu } from './cpu.ts';
import { endFile } from './file-end.ts';
import { POLL, TIMEOUT } from './limits.ts';

const PATIENT = Symbol.for('svc-relay tests: patient');

/** `vi.waitFor` gives up after one second and has no setting for it. Patched once, as files may share a process. */
function makePatient(tool: typeof vi & { [PATIENT]?: true }): void {
  if (tool[PATIENT]) return;
  tool[PATIENT] = true;
  const { waitFor, waitUntil } = tool;
  const patient = (options: number | { timeout?: number; interval?: number } = {}) => ({
    timeout: TIMEOUT,
    interval: POLL,
    ...(typeof options === 'number' ? { timeout: options } : options),
  });
  tool.waitFor = (check, options) => waitFor(check, patient(options));
  tool.waitUntil = (check, options) => waitUntil(check, patient(options));
}

makePatient(vi);

const CPU = Symbol.for('svc-relay tests: cpu');

/** Seconds since the file before this one in the same process, or since the process began. */
function takeCpu(counted: { [CPU]?: number }): number {
  const before = counted[CPU] ?? 0;
  counted[CPU] = treeCpu();
  return counted[CPU] - before;
}

// biome-ignore lint/correctness/noEmptyPattern: vitest takes the first parameter for fixtures
afterAll(async ({}, file) => {
  await endFile();
  file.meta.cpu = takeCpu(globalThis as { [CPU]?: number });
});
