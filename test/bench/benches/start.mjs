import { cpuTime } from '../support/cpu.mjs';

/** Milliseconds of a start that do not count against a bare Node. */
const ALLOWANCE = 150;

async function startOf(stage, start) {
  const server = await start();
  const cpu = cpuTime(server);
  await stage.stop(server);
  return { value: server.startedIn, cpu };
}

const bareNode = (stage) => stage.timed(['-e', '0']);

export default [
  {
    name: 'start',
    title: 'start until the first healthy answer',
    unit: 'ms',
    max: 500,
    operation: 'start',
    rounds: 7,
    async prepare(stage) {
      return {
        relay: () => startOf(stage, () => stage.relay()),
        bare: () => startOf(stage, () => stage.bare('http')),
      };
    },
  },
  {
    name: 'start-cpu',
    title: 'CPU until the first healthy answer',
    unit: 'ms',
    max: 300,
    rounds: 7,
    async prepare(stage) {
      const cpuOf = async (start) => (await startOf(stage, start)).cpu / 1000;
      return { relay: () => cpuOf(() => stage.relay()), bare: () => cpuOf(() => stage.bare('http')) };
    },
  },
  {
    name: 'start-wall',
    title: `start less ${ALLOWANCE} ms, beside node -e 0`,
    unit: 'ms',
    maxRatio: 2.5,
    rounds: 7,
    async prepare(stage) {
      const relay = async () => (await startOf(stage, () => stage.relay())).value - ALLOWANCE;
      return { relay, bare: () => bareNode(stage) };
    },
  },
  {
    name: 'version',
    title: 'svc --version beside node -e 0',
    unit: 'ms',
    maxRatio: 2,
    rounds: 15,
    async prepare(stage) {
      return { relay: () => stage.timed([stage.executable, '--version']), bare: () => bareNode(stage) };
    },
  },
];
