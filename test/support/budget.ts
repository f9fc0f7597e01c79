import { relative } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';

declare module 'vitest' {
  interface TaskMeta {
    /** Seconds of processor time that the file took, with its children. */
    cpu?: number;
  }
}

/** Seconds of processor time for a file of the fast suite. A slower one is named `*.long.test.ts`, or made faster. */
const MAX_SECONDS = 15;
/** Share of the run's processor time that a file may take besides. On a busy machine, the same work takes more time. */
const MAX_SHARE = 0.05;
const SHOWN = Number(process.env.SLOWEST ?? 10);

/** Prints the processor time of a run and of its slowest files, and fails when a file of `npm test` is over the budget. */
export default class Budget implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const files = modules
      .map((module) => ({
        name: relative(process.cwd(), module.moduleId),
        project: module.project.name,
        seconds: module.meta().cpu ?? 0,
      }))
      .sort((a, b) => b.seconds - a.seconds);
    const sum = files.reduce((seconds, file) => seconds + file.seconds, 0);
    print(`\nProcessor time: ${sum.toFixed(0)} s in ${files.length} files. The slowest:`);
    for (const { name, project, seconds } of files.slice(0, SHOWN))
      print(`${seconds.toFixed(1).padStart(7)} s  ${name} [${project}]`);
    const limit = Math.max(MAX_SECONDS, sum * MAX_SHARE);
    const over = files.filter(({ project, seconds }) => !project.startsWith('long') && seconds > limit);
    if (over.length === 0) return;
    const names = over.map(({ name }) => name).join(', ');
    print(`Over the ${limit.toFixed(0)} s that a file of \`npm test\` may take: ${names}`);
    print('Make it faster, or move its slow cases to a file named *.long.test.ts.');
    process.exitCode = 1;
  }
}

const print = (line: string): void => void process.stdout.write(`${line}\n`);
