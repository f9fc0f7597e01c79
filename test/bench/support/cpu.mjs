import { readdirSync, readFileSync } from 'node:fs';

/**
 * Processor time that a server has used so far, in microseconds, summed over its threads. Unlike wall time it hardly
 * depends on what else the machine is doing. NaN where the kernel offers no schedstat (anything but Linux).
 *
 * Threads that have ended are no longer counted: a server must not end threads while it is measured.
 */
export function cpuTime({ child }) {
  const tasks = `/proc/${child.pid}/task`;
  try {
    const nanoseconds = readdirSync(tasks).reduce((sum, task) => sum + threadTime(`${tasks}/${task}/schedstat`), 0);
    return nanoseconds / 1000;
  } catch {
    return Number.NaN;
  }
}

function threadTime(path) {
  try {
    return Number(readFileSync(path, 'latin1').split(' ')[0]);
  } catch (error) {
    // The thread ended between the two reads.
    if (error.code === 'ENOENT' || error.code === 'ESRCH') return 0;
    throw error;
  }
}

/**
 * Starts measuring servers. The function it returns ends the measurement: given the number of operations done since,
 * it returns `{ value, cpu }`: operations per second, and microseconds of CPU of all servers per operation.
 */
export function startMeter(...servers) {
  const total = () => servers.reduce((sum, server) => sum + cpuTime(server), 0);
  const cpu = total();
  const began = performance.now();
  return (operations) => ({
    value: (operations * 1000) / (performance.now() - began),
    cpu: (total() - cpu) / operations,
  });
}

const PACE = 50;
const MAX_WAIT = 20_000;

/**
 * Resolves after `ms`, and once `count()` has grown by `operations`: on a busy machine, code that has run for a while is not
 * compiled yet, and costs several times as much. After 20 s it resolves anyway.
 */
export async function run(ms, operations, count) {
  const [began, before] = [performance.now(), count()];
  for (;;) {
    const passed = performance.now() - began;
    if (passed >= MAX_WAIT || (passed >= ms && count() - before >= operations)) return;
    await new Promise((resolve) => setTimeout(resolve, PACE));
  }
}
