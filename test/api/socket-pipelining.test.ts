import { existsSync } from 'node:fs';
import { mkdir, readdir, readlink, truncate, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import type { Session } from '../../lib/sessions/session.ts';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { registered } from '../support/media.ts';
import { connectRaw, handshakeHeaders, OPCODE, openAuthenticated, request, textFrame } from '../support/raw-socket.ts';
import { bearer, pair } from '../support/relay.ts';
import { descriptors } from '../support/terminal.ts';

const pending = cleanups();

async function start() {
  const target = await startBuiltTarget();
  pending.push(target.stop);
  const honest = await pair(target);
  pending.push(() => honest.client.terminate());
  return { target, ...honest };
}

const plain = request('GET', '/health');
const mint = request('POST', '/pairing/mint', { 'content-length': '20' }, '{"host":"192.0.2.9"}');
const socket = request('GET', '/ws', handshakeHeaders());
const nowhere = request('GET', '/nope', handshakeHeaders());
const oldVersion = request('GET', '/ws', { ...handshakeHeaders(), 'sec-websocket-version': '8' });
const h2c = request('GET', '/health', {
  connection: 'Upgrade, HTTP2-Settings',
  upgrade: 'h2c',
  'http2-settings': 'AA',
});

it.each<[string, Buffer[], number[]]>([
  ['a refused upgrade', [plain, nowhere], [200, 404]],
  ['an upgrade of another version', [plain, oldVersion], [200, 426]],
  ['an upgrade to another protocol', [plain, h2c], [200, 200]],
  ['three upgrades to another protocol', [h2c, h2c, h2c], [200, 200, 200]],
  ['an upgrade between other requests', [plain, h2c, plain], [200, 200, 200]],
  ['a socket', [plain, mint, plain, socket], [200, 200, 200, 101]],
])('contract 01 §3.1: %s in a pipeline is answered in its turn', async (_name, requests, statuses) => {
  const { target, client } = await start();
  const raw = await connectRaw(target.port);
  pending.push(raw.destroy);
  raw.write(Buffer.concat(requests));
  const seen: number[] = [];
  for (const status of statuses) seen.push((status === 101 ? await raw.head() : await raw.response()).status);
  expect(seen).toEqual(statuses);
  if (statuses.at(-1) === 101) {
    raw.write(textFrame('system', 'auth', {}));
    expect((await raw.envelope()).type).toBe('auth.fail');
  }
  client.send('system', 'ping', {}, 'alive');
  expect((await client.next({ id: 'alive' })).type).toBe('pong');
});

it('contract 01 §3.1: a client that hangs up while its upgrade waits breaks nothing', async () => {
  const { target, token, client } = await start();
  for (const last of [nowhere, oldVersion, h2c, socket]) {
    const raw = await connectRaw(target.port);
    const poll = request('GET', '/phone/replies?timeout=0.2', { authorization: `Bearer ${token}` });
    raw.write(Buffer.concat([poll, last]));
    await new Promise<void>((resolve) => raw.socket.write('x', () => resolve()));
    raw.reset();
  }
  client.send('system', 'ping', {}, 'alive');
  expect((await client.next({ id: 'alive' })).type).toBe('pong');
  expect(target.relay.sockets.count()).toBe(1);
});

it('RFC 9110 §7.8: one connection may offer another protocol again and again', async () => {
  const { target } = await start();
  const warned: string[] = [];
  const warn = ({ name }: Error) => void warned.push(name);
  process.on('warning', warn);
  pending.push(() => process.off('warning', warn));
  const raw = await connectRaw(target.port);
  pending.push(raw.destroy);
  for (let count = 0; count < 30; count++) {
    raw.write(h2c);
    expect((await raw.response()).status).toBe(200);
  }
  expect(warned).not.toContain('MaxListenersExceededWarning');
});

it.skipIf(!existsSync('/proc/self/fd'))(
  'contract 01 §3.1: refused clients hold no connection, whatever they do next',
  async () => {
    const { target } = await start();
    const held = () => descriptors().filter((path) => path.startsWith('socket:')).length;
    const before = held();
    const refused = await Promise.all(
      Array.from({ length: 60 }, async (_, index) => {
        const raw = await connectRaw(target.port);
        pending.push(raw.destroy);
        raw.write(index % 2 === 0 ? nowhere : oldVersion);
        expect((await raw.response()).status).toBe(index % 2 === 0 ? 404 : 426);
        return raw;
      }),
    );
    // A third sends something more and leaves, a third keeps its side open, a third just leaves.
    const [chatty, stubborn, gone] = [0, 1, 2].map((third) => refused.filter((_, index) => index % 3 === third));
    for (const raw of chatty ?? []) raw.socket.end('x');
    for (const raw of gone ?? []) raw.destroy();
    await vi.waitFor(() => expect(held()).toBeLessThanOrEqual(before + (stubborn?.length ?? 0)), 5_000);
    for (const raw of stubborn ?? []) raw.destroy();
    await vi.waitFor(() => expect(held()).toBeLessThanOrEqual(before), 5_000);
  },
);

it.each(['a b', '', 'chat', ','])(
  'contract 01 §3.1: no subprotocol is selected, whatever is offered (%j)',
  async (offer) => {
    const { target } = await start();
    const raw = await connectRaw(target.port);
    pending.push(raw.destroy);
    raw.write(request('GET', '/ws', { ...handshakeHeaders(), 'sec-websocket-protocol': offer }));
    const { status, headers } = await raw.head();
    expect([status, headers['sec-websocket-protocol']]).toEqual([101, undefined]);
  },
);

it('contract 01 §6.4: frames after a revoked socket is closed are ignored', async () => {
  const { target, token } = await start();
  const raw = await openAuthenticated(target.port, { session_token: token });
  pending.push(raw.destroy);
  const [session] = target.relay.sessions.list();
  if (session) await target.relay.sessions.revoke(session);
  raw.write(textFrame('system', 'ping', {}));
  expect((await raw.frame()).opcode).toBe(OPCODE.close);
});

it('contract 01 §6.4: a session that revokes itself is sent nothing more while that is being stored', async () => {
  const { target, client } = await start();
  const { sessions, sockets } = target.relay;
  const revoked = sessions.revoke(sessions.list()[0] as Session, { answerFirst: true });
  sockets.broadcast(null, 'system', 'news', {});
  await revoked;
  expect(await client.closed()).toMatchObject({ code: 4401 });
  expect(client.frames.filter(({ type }) => type === 'news')).toEqual([]);
});

async function startWithFiles() {
  const relay = await startBuiltTarget({
    hostEnv: (home) => ({ PATH: process.env.PATH ?? '', HOME: home, TMPDIR: join(home, 'tmp') }),
  });
  pending.push(() => relay.stop());
  await mkdir(join(relay.agentHome, 'tmp'));
  /** Sends requests in one write, as a pipelining client does, and collects the answers. */
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

it('RFC 9112 §9.3.2: pipelined requests are answered in order', async () => {
  const { relay, device, pipeline } = await startWithFiles();
  const path = join(relay.agentHome, 'tmp/a.txt');
  await writeFile(path, 'the file');
  const token = await registered(relay, path);
  const { text } = pipeline(device.token, ['/phone/replies?timeout=0.05', `/media/${token}`, '/health', '/nowhere']);
  await expect
    .poll(text)
    .toMatch(/200 OK.*replies.*200 OK.*the file.*"status":"ok".*404 Not Found.*"error":"not found"/s);
});

it.skipIf(!existsSync('/proc/self/fd'))('a pipelined request that waits behind a download opens no file', async () => {
  const { relay, device, pipeline } = await startWithFiles();
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

it('contract 04 §5.5: a pipelined poll whose client hangs up loses no reply', async () => {
  const { relay, device, pipeline } = await startWithFiles();
  const { phone } = relay.relay;
  const { socket } = pipeline(device.token, Array(2).fill('/phone/replies?timeout=25'));
  await expect.poll(phone.replies.waiting).toBe(1);
  socket.destroy();
  await expect.poll(phone.replies.waiting).toBe(0);
  const [session] = relay.relay.sessions.list();
  const link = { id: 'x', session, isWritable: true, send() {} };
  await phone.reply(link as never, { text: 'hello' }, '1');
  const { replies } = await (await relay.fetch('/phone/replies?timeout=0', { headers: bearer(device.token) })).json();
  expect(replies).toMatchObject([{ text: 'hello' }]);
});
