import { createLog, type Log } from '../../lib/log.ts';

/** A log whose lines can be looked at. */
export function createTestLog(): Log & { lines: string[] } {
  const lines: string[] = [];
  return Object.assign(
    createLog('DEBUG', (line) => lines.push(line)),
    { lines },
  );
}
