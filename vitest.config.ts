import { defineConfig } from 'vitest/config';
import { PATIENCE, POLL } from './test/support/limits.ts';
import { LongFirst } from './test/support/sequencer.ts';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/edge-bundle.ts'],
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
