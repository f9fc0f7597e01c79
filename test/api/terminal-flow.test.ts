import { readFileSync } from 'node:fs';
import { describe, expect, test, vi } from 'vitest';
import { cleanups } from '../support/built-relay.ts';
import type { Client } from '../support/client.ts';
import { median, TIMED } from '../support/limits.ts';
import { attach, pairTerminal, reconnect, startTerminalRelay } from '../support/terminal.ts';

const cleanup = cleanups();
const MB = 1024 * 1024;

async function start() {
  const target = await startTerminalRelay();
  cleanup.push(() => target.stop());
  return { target, ...(await pairTerminal(target)) };
}

/** CPU time that a process has used, in clock ticks. */
function ticks(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return Number(fields[11]) + Number(fields[12]);
}

async function roundTrip(client: Client): Promise<number> {
  const began = performance.now();
  client.send('system', 'ping', {}, 'p');
  await client.next({ id: 'p' });
  return performance.now() - began;
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

test('contract 02 §1.7: Ctrl-C stops a flood in under a second, and other channels stay quick', TIMED, async () => {
  const { client } = await start();
  const shell = await attach(client, 'a');
  await shell.shows('ready>');
  shell.type('yes\r');
  await shell.has('y\r\ny\r\n');
  const times: number[] = [];
  for (let round = 0; round < 20; round++) times.push(await roundTrip(client));
  expect(median(times)).toBeLessThan(200);
  shell.forget();
  const began = performance.now();
  shell.type('\x03');
  await shell.has(/\^C\r\n.*ready> $/);
  expect(performance.now() - began).toBeLessThan(1_000);
});

describe('nothing is dropped (contract 02 §3.6)', () => {
  test('of a flood to a client that stops reading now and then', async () => {
    const { client, target, token } = await start();
    const other = await reconnect(target, token);
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    const count = 400_000;
    shell.type(`seq 1 ${count}; echo e'n'd\r`);
    for (let round = 0; round < 5; round++) {
      await shell.has(new RegExp(`^${20_000 * (round + 1)}\r`, 'm'));
      client.socket.pause();
      // The relay has had that many turns to send to a client that does not read.
      for (let turn = 0; turn < 50; turn++) await roundTrip(other);
      client.socket.resume();
    }
    await shell.has(/\nend\r/);
    const numbers = shell.text.split(/\r\n|\r/).filter((line) => /^\d+$/.test(line));
    expect(numbers).toHaveLength(count);
    expect(numbers.every((line, at) => line === String(at + 1))).toBe(true);
  }, 90_000);

  test('of coloured output, which is parsed for the screen', async () => {
    const { client } = await start();
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    const count = 60_000;
    shell.type(`seq -f $'\\e[31m%.0f\\e[0m of many colourful lines' 1 ${count}; echo e'n'd\r`);
    await shell.has(/\nend\r/, 40_000);
    const numbers = [...shell.text.matchAll(/31m(\d+)\S+ of/g)].map(([, number]) => Number(number));
    expect(numbers).toHaveLength(count);
    expect(numbers.every((number, at) => number === at + 1)).toBe(true);
  });
});

test('contract 02 §3.6: frames are batched, but the echo of a keystroke is not delayed', TIMED, async () => {
  const { client } = await start();
  const shell = await attach(client, 'a');
  await shell.shows('ready>');
  shell.type('seq 1 20000; cat\r');
  await shell.has(/\n20000\r\n/);
  expect(shell.outputs.length).toBeLessThan(shell.text.length / 1000);
  const times: number[] = [];
  for (let key = 0; key < 100; key++) {
    shell.forget();
    const began = performance.now();
    const echo = new Promise<void>((resolve) => {
      client.socket.once('message', () => resolve());
    });
    shell.type('x');
    await echo;
    times.push(performance.now() - began);
  }
  expect(median(times)).toBeLessThan(3);
});
