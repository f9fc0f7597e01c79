import { defineConfig } from 'vitest/config';
import { PATIENCE, POLL } from './test/support/limits.ts';
import { LongFirst } from './test/support/sequencer.ts';

/** Tests of the domain. It keeps no state outside of its objects: they share a process, which loads it once. */
const DOMAIN = 'test/lib/**/*.test.ts';
/** What it has of a host counts processes and descriptors: those tests want a process of their own. */
const HOST = 'test/lib/host/**/*.test.ts';

export default defineConfig({
  test: {
    projects: [
      { extends: true, test: { name: 'domain', include: [DOMAIN], exclude: [HOST], isolate: false } },
      {
        extends: true,
        test: {
          name: 'relay',
          include: ['test/!(lib)/**/*.test.ts', HOST],
          globalSetup: ['test/support/edge-bundle.ts'],
        },
      },
    ],
    setupFiles: ['test/support/patience.ts'],
    // One worker less than cores is the default: on two cores that is one, and most cases wait for sockets anyway.
    maxWorkers: 2,
    sequence: { sequencer: LongFirst },
    // Only a failure takes that long: a busy machine must not make one.
    testTimeout: 2 * PATIENCE,
    hookTimeout: 2 * PATIENCE,
    expect: { poll: { timeout: PATIENCE, interval: POLL } },
  },
});
