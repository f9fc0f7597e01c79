import { hostname } from 'node:os';
import type { DeviceFacts } from '../lib/companion/link/auth.ts';
import { asName, type Options, option } from './options.ts';

/** What this companion says of itself when it connects. */
export const deviceFacts = (options: Options): DeviceFacts => ({
  name: option(options, '--name', asName) ?? 'Simulated phone',
  hostname: hostname(),
  model: 'Simulated phone',
  platform: `Node ${process.versions.node}`,
});
