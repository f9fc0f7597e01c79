import { readFileSync } from 'node:fs';
import { expect, test, vi } from 'vitest';
import { startWatch } from '../support/cpu.ts';
import { median, TIMED } from '../support/limits.ts';
import { attach, reconnect } from '../support/terminal.ts';
import { roundTrip, start } from '../support/terminal-flow.ts';

const MB = 1024 * 1024;

/** CPU time that a process has used, in clock ticks. */
function ticks(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return Number(fields[11]) + Number(fields[12]);
}

test(
  'contract 02 §1.7: a client that stops reading pauses its program, memory stays flat and others do not notice',
  TIMED,
  async () => {
    const { client, target, token } = await start();
    const other = await reconnect(target, token);
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('yes flood & echo pid=$!; fg\r');
    await shell.has(/pid=\d+\r/);
    const pid = Number(/pid=(\d+)/.exec(shell.text)?.[1]);
    await shell.has('flood\r\nflood');
    client.socket.pause();
    // It is stopped when it has used no CPU for a while.
    let last = Number.NEGATIVE_INFINITY;
    await vi.waitFor(
      () => {
        const before = last;
        last = ticks(pid);
        expect(last - before).toBeLessThanOrEqual(1);
      },
      { timeout: 15_000, interval: 300 },
    );
    const rss = process.memoryUsage().rss;
    const times: number[] = [];
    for (let round = 0; round < 50; round++) times.push(await roundTrip(other));
    expect(process.memoryUsage().rss - rss).toBeLessThan(20 * MB);
    expect(median(times)).toBeLessThan(20);

    client.socket.resume();
    const stopped = performance.now();
    shell.type('\x03');
    await shell.has(/\^C\r\n.*ready> $/);
    expect(performance.now() - stopped).toBeLessThan(5_000);
  },
);

test('contract 02 §3.6: frames are batched, but the echo of a keystroke is not delayed', TIMED, async () => {
  const { client } = await start();
  const shell = await attach(client, 'a');
  await shell.shows('ready>');
  shell.type('seq 1 20000; cat\r');
  await shell.has(/\n20000\r\n/);
  expect(shell.outputs.length).toBeLessThan(shell.text.length / 1000);
  const KEYS = 100;
  const passed = startWatch();
  for (let key = 0; key < KEYS; key++) {
    shell.forget();
    const echo = new Promise<void>((resolve) => {
      client.socket.once('message', () => resolve());
    });
    shell.type('x');
    await echo;
  }
  expect(passed() / KEYS).toBeLessThan(3);
});
