/**
 * Preloaded into a program: appends a line to the file `MAJORS` whenever V8 has marked the whole heap. SIGUSR2 makes V8 do so
 * once, as it has done many times in a program that has run for a day.
 */
import { appendFileSync } from 'node:fs';
import { constants, PerformanceObserver } from 'node:perf_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');
setFlagsFromString('--no-expose-gc');
new PerformanceObserver((list) => {
  for (const { detail } of list.getEntries()) {
    if (detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR) appendFileSync(process.env.MAJORS, 'marked\n');
  }
}).observe({ entryTypes: ['gc'] });
process.on('SIGUSR2', () => collect());
