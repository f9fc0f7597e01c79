import { readFile, writeFile } from 'node:fs/promises';
import { Worker } from 'node:worker_threads';

/** Milliseconds between two requests. */
const PERIOD = 5;

/** Runs in a thread of its own, so that the attack in the test's thread does not delay what it measures. */
const PROGRAM = `
const { readFileSync } = require('node:fs');
const { request, Agent } = require('node:http');
const { parentPort, workerData: { url, pid } } = require('node:worker_threads');
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
const impact = { slowest: 0, busiest: 0, answers: 0 };
let over = false;
parentPort.once('message', () => { over = true; });
const busy = () => Number(readFileSync('/proc/' + pid + '/task/' + pid + '/schedstat', 'utf8').split(' ')[0]) / 1e6;
const next = () => (over ? parentPort.postMessage(impact) : setTimeout(ask, ${PERIOD}));
const ask = () => {
  const [began, worked] = [performance.now(), busy()];
  const asked = request(url, { agent }, (response) => {
    response.resume().on('end', () => {
      if (impact.answers++ === 0) parentPort.postMessage('ready');
      else {
        impact.slowest = Math.max(impact.slowest, performance.now() - began);
        impact.busiest = Math.max(impact.busiest, busy() - worked);
      }
      next();
    });
  });
  asked.on('error', () => {
    impact.slowest = impact.busiest = Infinity;
    next();
  });
  asked.end();
};
ask();
`;

/** Effect of an attack on another process. */
export interface Impact {
  /** Milliseconds of the slowest answer of `/health`. */
  slowest: number;
  /**
   * The most milliseconds that the main thread of the relay worked while an answer was waited for. On a quiet machine
   * that is how long the slowest one took; on a busy one it is not longer.
   */
  busiest: number;
  /** Answers in all. */
  answers: number;
  /** Bytes by which the resident memory exceeded, at most, what it was at the start. */
  growth: number;
}

/** Measures the relay process from before an attack until it is over. */
export async function measureImpact(relay: { url: string; pid: number }, attack: () => Promise<void>): Promise<Impact> {
  const worker = new Worker(PROGRAM, { eval: true, workerData: { url: `${relay.url}/health`, pid: relay.pid } });
  const message = <T>() => new Promise<T>((resolve) => worker.once('message', resolve));
  try {
    await message();
    // Resets the peak to the current size (proc(5)).
    await writeFile(`/proc/${relay.pid}/clear_refs`, '5');
    const before = await memoryOf(relay.pid, 'VmRSS');
    await attack();
    const result = message<Omit<Impact, 'growth'>>();
    worker.postMessage('end');
    return { ...(await result), growth: (await memoryOf(relay.pid, 'VmHWM')) - before };
  } finally {
    await worker.terminate();
  }
}

async function memoryOf(pid: number, field: 'VmRSS' | 'VmHWM'): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1024;
}
