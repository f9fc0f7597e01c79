import { cpuTime } from '../support/cpu.mjs';

export default {
  name: 'start',
  title: 'start until the first healthy answer',
  unit: 'ms',
  max: 500,
  operation: 'start',
  rounds: 7,
  async prepare(stage) {
    const measure = async (start) => {
      const server = await start();
      const cpu = cpuTime(server);
      await stage.stop(server);
      return { value: server.startedIn, cpu };
    };
    return { relay: () => measure(() => stage.relay()), bare: () => measure(() => stage.bare('http')) };
  },
};
