import { existsSync } from 'node:fs';
import { expect, it, vi } from 'vitest';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { connectRaw, handshakeHeaders, OPCODE, openAuthenticated, request, textFrame } from '../support/raw-socket.ts';
import { pair } from '../support/relay.ts';
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
  ['an upgrade to something else', [plain, h2c], [200, 200]],
  ['three of these', [h2c, h2c, h2c], [200, 200, 200]],
  ['one between others', [plain, h2c, plain], [200, 200, 200]],
  ['a socket', [plain, mint, plain, socket], [200, 200, 200, 101]],
])('01 §3.1: %s that is pipelined is answered in its turn', async (_name, requests, statuses) => {
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

it('a client that hangs up while its upgrade waits for its turn breaks nothing', async () => {
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

it('one connection may offer something else over and over', async () => {
  const { target } = await start();
  const warned = vi.fn();
  process.on('warning', warned);
  pending.push(() => process.off('warning', warned));
  const raw = await connectRaw(target.port);
  pending.push(raw.destroy);
  for (let count = 0; count < 30; count++) {
    raw.write(h2c);
    expect((await raw.response()).status).toBe(200);
  }
  expect(warned).not.toHaveBeenCalled();
});

it.skipIf(!existsSync('/proc/self/fd'))('refused clients hold no connection, whatever they do then', async () => {
  const { target } = await start();
  const before = descriptors().length;
  const refused = await Promise.all(
    Array.from({ length: 60 }, async (_, index) => {
      const raw = await connectRaw(target.port);
      pending.push(raw.destroy);
      raw.write(index % 2 === 0 ? nowhere : oldVersion);
      expect((await raw.response()).status).toBe(index % 2 === 0 ? 404 : 426);
      return raw;
    }),
  );
  // A third says something more and leaves, a third keeps its side open, a third just leaves.
  const [chatty, stubborn, gone] = [0, 1, 2].map((third) => refused.filter((_, index) => index % 3 === third));
  for (const raw of chatty ?? []) raw.socket.end('x');
  for (const raw of gone ?? []) raw.destroy();
  await vi.waitFor(() => expect(descriptors().length).toBeLessThanOrEqual(before + (stubborn?.length ?? 0)), 5_000);
  for (const raw of stubborn ?? []) raw.destroy();
  await vi.waitFor(() => expect(descriptors().length).toBeLessThanOrEqual(before), 5_000);
});

it.each(['a b', '', 'chat', ','])(
  'contract 01 §3.1: no subprotocol is spoken, whatever is offered (%j)',
  async (offer) => {
    const { target } = await start();
    const raw = await connectRaw(target.port);
    pending.push(raw.destroy);
    raw.write(request('GET', '/ws', { ...handshakeHeaders(), 'sec-websocket-protocol': offer }));
    const { status, headers } = await raw.head();
    expect([status, headers['sec-websocket-protocol']]).toEqual([101, undefined]);
  },
);

it('what comes after a revoked socket is closed goes nowhere', async () => {
  const { target, token } = await start();
  const raw = await openAuthenticated(target.port, { session_token: token });
  pending.push(raw.destroy);
  const [session] = target.relay.sessions.list();
  if (session) await target.relay.sessions.revoke(session);
  raw.write(textFrame('system', 'ping', {}));
  expect((await raw.frame()).opcode).toBe(OPCODE.close);
});
