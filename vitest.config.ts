import { readdirSync, readFileSync } from 'node:fs';
import { defineConfig, type UserWorkspaceConfig as ProjectConfig } from 'vitest/config';
import { POLL, TIMEOUT } from './test/support/limits.ts';
import { LongFirst } from './test/support/sequencer.ts';

/** What needs a browser, a build, kill rounds, floods or much time: `npm run test:long`. */
const LONG = 'test/**/*.long.test.ts';

/** Files of `test/api` with cases for both runtimes. */
const BOTH = readdirSync('test/api')
  .map((name) => `test/api/${name}`)
  .filter((path) => /(?<!\.long)\.test\.ts$/.test(path))
  .filter((path) => /describeMatrix\(|AtEdge\(|runtimes\(/.test(readFileSync(path, 'utf8')));

/** Their matrix has Node alone. */
const NODE_ONLY = ['clock-jump', 'http-early', 'mcp-limits', 'profiles-write'].map(
  (name) => `test/api/${name}.test.ts`,
);

/** Where the edge has code of its own. Guards, validation and domains are the same on both, so the rest is in the long suite. */
const EDGE = ['events', 'http', 'sockets'].map((name) => `test/api/${name}.test.ts`);

const ALL = readdirSync('test', { recursive: true, encoding: 'utf8' })
  .map((name) => `test/${name}`)
  .filter((path) => path.endsWith('.test.ts'));
/** True if the file's text has a match. */
const says = (pattern: RegExp) => (path: string) => pattern.test(readFileSync(path, 'utf8'));

/** Files with properties that have few runs in the fast suite (`test/support/runs.ts`). */
const PROPERTIES = ALL.filter((path) => !path.endsWith('.long.test.ts')).filter(says(/\/support\/runs\.ts'/));

/** Long files with cases that measure time: beside another one, they would measure it too. */
const TIMED = ALL.filter((path) => path.endsWith('.long.test.ts')).filter(says(/\bTIMED\b/));

type Runtimes = ('node' | 'edge')[];
const project = (name: string, runtimes: Runtimes, test: ProjectConfig['test']) => ({
  extends: true as const,
  test: { name, provide: { runtimes, isLong: name.startsWith('long') }, ...test },
});
/** Files of the long suite take whole cores, and their cases begin processes one after the other, which a busy machine is slow with. */
const SLOW = {
  maxWorkers: 2,
  sequence: { groupOrder: 1 },
  testTimeout: 10 * TIMEOUT,
  hookTimeout: 10 * TIMEOUT,
};

export default defineConfig({
  test: {
    projects: [
      // `npm test`
      project('node', ['node'], { include: ['test/**/*.test.ts'], exclude: [LONG, 'test/edge/**'], isolate: false }),
      project('edge', ['edge'], { include: [...EDGE, 'test/edge/**/*.test.ts'], exclude: [LONG], isolate: false }),
      // `npm run test:long`
      project('long', ['node', 'edge'], { include: [LONG], exclude: TIMED, ...SLOW }),
      project('long-properties', ['node'], { include: PROPERTIES, isolate: false, ...SLOW }),
      project('long-edge', ['edge'], { include: BOTH, exclude: [...EDGE, ...NODE_ONLY], isolate: false, ...SLOW }),
      project('long-timed', ['node', 'edge'], { include: TIMED, ...SLOW, maxWorkers: 1, sequence: { groupOrder: 2 } }),
    ],
    globalSetup: ['test/support/edge-bundle.ts'],
    setupFiles: ['test/support/wait-defaults.ts', 'test/support/sizes.ts'],
    reporters: ['default', 'test/support/budget.ts'],
    // The default is one worker less than cores, though most cases wait for sockets and children.
    maxWorkers: 4,
    sequence: { sequencer: LongFirst },
    // Only a failing case takes that long, so a busy machine does not fail one.
    testTimeout: 2 * TIMEOUT,
    hookTimeout: 2 * TIMEOUT,
    expect: { poll: { timeout: TIMEOUT, interval: POLL } },
  },
});
