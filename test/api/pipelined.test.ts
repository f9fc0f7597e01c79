import { existsSync } from 'node:fs';
import { mkdir, readdir, readlink, truncate, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { registered } from '../support/media.ts';
import { bearer, pair } from '../support/relay.ts';

const pending = cleanups();

async function start() {
  const relay = await startBuiltTarget({
    hostEnv: (home) => ({ PATH: process.env.PATH ?? '', HOME: home, TMPDIR: join(home, 'tmp') }),
  });
  pending.push(() => relay.stop());
  await mkdir(join(relay.agentHome, 'tmp'));
  /** Sends requests in one go, as a client that pipelines does, and keeps what comes back. */
  function pipeline(token: string, paths: string[]) {
    const socket = connect(relay.port, '127.0.0.1');
    pending.push(() => socket.destroy());
    let text = '';
    socket.on('data', (bytes) => {
      text += bytes.toString('latin1');
    });
    socket.on('error', () => {});
    const head = Object.entries({ host: `127.0.0.1:${relay.port}`, ...bearer(token) }).map((line) => line.join(': '));
    socket.write(paths.map((path) => [`GET ${path} HTTP/1.1`, ...head, '', ''].join('\r\n')).join(''));
    return { socket, text: () => text };
  }
  return { relay, device: await pair(relay), pipeline };
}

it('pipelined requests are answered one after the other, in their order', async () => {
  const { relay, device, pipeline } = await start();
  const path = join(relay.agentHome, 'tmp/a.txt');
  await writeFile(path, 'the file');
  const token = await registered(relay, path);
  const { text } = pipeline(device.token, ['/phone/replies?timeout=0.05', `/media/${token}`, '/health', '/nowhere']);
  await expect
    .poll(text)
    .toMatch(/200 OK.*replies.*200 OK.*the file.*"status":"ok".*404 Not Found.*"error":"not found"/s);
});

it.skipIf(!existsSync('/proc/self/fd'))('one that waits behind a download opens nothing', async () => {
  const { relay, device, pipeline } = await start();
  const path = join(relay.agentHome, 'tmp/film.mp4');
  await writeFile(path, '');
  await truncate(path, 64 * 1024 * 1024);
  const token = await registered(relay, path);
  const opened = async () => {
    const names = await readdir('/proc/self/fd');
    const links = await Promise.all(names.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')));
    return links.filter((link) => link === path).length;
  };
  const { socket, text } = pipeline(device.token, Array(20).fill(`/media/${token}`));
  await expect.poll(text).toContain('200');
  socket.pause();
  expect(await opened()).toBe(1);
  socket.resetAndDestroy();
  await expect.poll(opened).toBe(0);
});

it('one that waited behind a poll takes no reply with it when its client hangs up', async () => {
  const { relay, device, pipeline } = await start();
  const { phone } = relay.relay;
  const { socket } = pipeline(device.token, Array(2).fill('/phone/replies?timeout=25'));
  await expect.poll(phone.pollsWaiting).toBe(1);
  socket.destroy();
  await expect.poll(phone.pollsWaiting).toBe(0);
  const link = { id: 'x', session: { prefix: 'x' }, isWritable: true, send() {} };
  await phone.reply(link as never, { text: 'hello' }, '1');
  const { replies } = await (await relay.fetch('/phone/replies?timeout=0', { headers: bearer(device.token) })).json();
  expect(replies).toMatchObject([{ text: 'hello' }]);
});
