import { describe, expect, test } from 'vitest';
import { startWatch } from '../support/cpu.ts';
import { median, TIMED } from '../support/limits.ts';
import { attach, reconnect } from '../support/terminal.ts';
import { roundTrip, start } from '../support/terminal-flow.ts';

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
  const passed = startWatch();
  shell.type('\x03');
  await shell.has(/\^C\r\n.*ready> $/);
  expect(passed()).toBeLessThan(1_000);
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
  }, 300_000);

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
