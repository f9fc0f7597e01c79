import { defineConfig } from 'vitest/config';
import { PATIENCE, POLL } from './test/support/limits.ts';
import { LongFirst } from './test/support/sequencer.ts';

/** Domain tests share a process that loads the domain once: it has no state outside its objects. */
const DOMAIN = 'test/lib/**/*.test.ts';
/** Host tests count processes and descriptors, so each file gets its own process. */
const HOST = 'test/lib/host/**/*.test.ts';
/**
 * Tests of resources and channels that neither count nor change what is the process's share one too: loading the relay and
 * the local edge runtime takes 1.7 s of the processor for each file.
 */
const SHARING = [
  ...['auth', 'bridge-identity', 'chat', 'clipboard', 'context', 'dashboard-demo-names', 'dashboard-management'],
  ...['desktop', 'devices', 'events', 'health', 'http', 'image-activity', 'model-capabilities'],
  ...['notifications', 'operator', 'pairing', 'pairing-handlers', 'phone-history', 'profiles-read', 'profiles-write'],
  ...['push', 'routes', 'secure-link-setup', 'sessions', 'usage', 'voice-agent-config', 'voice-config'],
  ...['voice-options', 'voice-transcribe'],
].map((name) => `test/api/${name}.test.ts`);

export default defineConfig({
  test: {
    projects: [
      { extends: true, test: { name: 'domain', include: [DOMAIN], exclude: [HOST], isolate: false } },
      {
        extends: true,
        test: { name: 'api', include: SHARING, isolate: false, globalSetup: ['test/support/edge-bundle.ts'] },
      },
      {
        extends: true,
        test: {
          name: 'relay',
          include: ['test/!(lib)/**/*.test.ts', HOST],
          exclude: SHARING,
          globalSetup: ['test/support/edge-bundle.ts'],
        },
      },
    ],
    setupFiles: ['test/support/patience.ts'],
    // The default is one worker less than cores: a single one on two cores, though most cases wait for sockets.
    maxWorkers: 2,
    sequence: { sequencer: LongFirst },
    // Only a failing case takes that long, so a busy machine does not fail one.
    testTimeout: 2 * PATIENCE,
    hookTimeout: 2 * PATIENCE,
    expect: { poll: { timeout: PATIENCE, interval: POLL } },
  },
});
