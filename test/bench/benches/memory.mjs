import { setTimeout as sleep } from 'node:timers/promises';
import { residentMemory } from '../support/processes.mjs';

const SETTLE = 3_000;
const MiB = 1024 * 1024;

export default {
  name: 'memory',
  title: 'resident memory, idle',
  unit: 'MiB',
  max: 100,
  async prepare(stage) {
    // Garbage collection is not forced: this is what an operator sees.
    const measure = async (start) => {
      const server = await start();
      await sleep(SETTLE);
      const resident = residentMemory(server) / MiB;
      await stage.stop(server);
      return resident;
    };
    return { relay: () => measure(() => stage.relay()), bare: () => measure(() => stage.bare('http')) };
  },
};
