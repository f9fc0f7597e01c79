import { vi } from 'vitest';
import { PATIENCE, POLL } from './limits.ts';

// vitest gives up `vi.waitFor` after one second, and has no setting for it.
const { waitFor, waitUntil } = vi;
const patient = (options: number | { timeout?: number; interval?: number } = {}) => ({
  timeout: PATIENCE,
  interval: POLL,
  ...(typeof options === 'number' ? { timeout: options } : options),
});
vi.waitFor = (check, options) => waitFor(check, patient(options));
vi.waitUntil = (check, options) => waitUntil(check, patient(options));
