import { createLog, type Log } from '../../lib/log.ts';

/** A log that collects its lines. */
export function createTestLog(): Log & { lines: string[] } {
  const lines: string[] = [];
  return Object.assign(
    createLog('DEBUG', (line) => lines.push(line)),
    { lines },
  );
}
