import memoryDriver from 'unstorage/drivers/memory';
import type { Backend } from './backend.ts';

/** Holds everything in the memory of the process, for tests and for a relay without a state file. */
export const memoryBackend = (): Backend => ({
  durable: false,
  failing: new Map(),
  driver: () => memoryDriver(),
  batch: (work) => work(),
  close() {},
});
