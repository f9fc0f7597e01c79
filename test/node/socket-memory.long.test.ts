import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { startNodeBroker } from '../../cli/runtime/node/broker.ts';
import { createNodeDialUpstream } from '../../lib/host/node/upstream-socket.ts';
import { digestOf } from '../../lib/kit/sha256.ts';
import { createLog } from '../../lib/log.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { encodeMessage } from '../../lib/reach/messages.ts';
import { openBrokerStore } from '../../storage/broker.ts';
import { startBuiltTarget } from '../support/built-relay.ts';
import { garbageCollector } from '../support/garbage.ts';
import { type connectRaw, frame, OPCODE, openAuthenticated, openRaw, textFrame } from '../support/raw-socket.ts';
import { pair } from '../support/relay.ts';
import { startSecureLink } from '../support/secure-link.ts';

type Raw = Awaited<ReturnType<typeof connectRaw>>;
/** One side of a connection, below the protocol. */
interface Sender {
  write(bytes: Buffer): unknown;
  frame(): Promise<{ opcode: number; payload: Buffer }>;
}

const KiB = 1024;
const CHUNKS = 150;

const collect = garbageCollector();

/** Bytes of buffers in use. */
async function buffers(): Promise<number> {
  for (let round = 0; round < 2; round++) {
    collect();
    await new Promise(setImmediate);
  }
  return process.memoryUsage().arrayBuffers;
}

/** Resolves once the other side has read everything so far. */
async function answered(raw: Sender, masked: boolean): Promise<void> {
  raw.write(frame({ opcode: OPCODE.ping, payload: 'read', masked }));
  for (;;) {
    const { opcode, payload } = await raw.frame();
    if (opcode === OPCODE.pong && String(payload) === 'read') return;
  }
}

/** Bytes that the other side holds for a message of one byte in each of many chunks, which are otherwise pongs. */
async function heldByFragments(raw: Sender, { masked = true } = {}): Promise<number> {
  const pongs = Buffer.concat(
    Array.from({ length: 450 }, () => frame({ opcode: OPCODE.pong, payload: 'x'.repeat(125), masked })),
  );
  const fragment = (opcode: number) => frame({ opcode, payload: 'x', fin: false, masked });
  await answered(raw, masked);
  const before = await buffers();
  for (let count = 0; count < CHUNKS; count++) {
    raw.write(Buffer.concat([pongs, fragment(count === 0 ? OPCODE.text : OPCODE.continuation)]));
    await answered(raw, masked);
  }
  return (await buffers()) - before;
}

async function device(target: Awaited<ReturnType<typeof startBuiltTarget>>): Promise<Raw> {
  const { token, client } = await pair(target);
  client.terminate();
  const raw = await openAuthenticated(target.port, { session_token: token });
  onTestFinished(raw.destroy);
  return raw;
}

it.each([
  ['no more', Buffer.alloc(0)],
  ['a ping', frame({ opcode: OPCODE.ping, payload: 'x' })],
  ['the start of a frame', frame({ payload: 'x' }).subarray(0, 3)],
])(
  'contract 01 §3.1: a device that sends 60 KB, %s, and nothing else keeps none of it in memory',
  async (_what, more) => {
    const target = await startBuiltTarget();
    onTestFinished(target.stop);
    const devices: Raw[] = [];
    for (let count = 0; count < 24; count++) devices.push(await device(target));
    const before = await buffers();
    const long = textFrame('system', 'ping', { filler: 'x'.repeat(60_000) });
    for (const raw of devices) {
      raw.write(Buffer.concat([long, more]));
      while ((await raw.envelope()).type !== 'pong');
    }
    expect(((await buffers()) - before) / devices.length).toBeLessThan(8 * KiB);
  },
);

it('contract 02 §1.1: a device that sends a message in many small fragments holds its own bytes only', async () => {
  const target = await startBuiltTarget();
  onTestFinished(target.stop);
  expect(await heldByFragments(await device(target))).toBeLessThan(CHUNKS * KiB);
});

it('contract 08 §4.5: nor does one at Secure Link, in a socket of the dashboard', async () => {
  const link = await startSecureLink();
  const raw = await link.open('/dashboard/api/ws');
  onTestFinished(raw.destroy);
  expect(await heldByFragments(raw)).toBeLessThan(CHUNKS * KiB);
});

it('contract 08 §7: nor does a host at the broker', async () => {
  const [host_id, token] = [newId(), newToken()];
  const running = await startNodeBroker({
    hosts: new Map([[host_id, [digestOf(token)]]]),
    store: openBrokerStore(),
    host: '127.0.0.1',
    port: 0,
    log: createLog('ERROR', () => {}),
  });
  onTestFinished(() => running.stop());
  const raw = await openRaw(running.address.port, { path: '/v1/connect' });
  onTestFinished(raw.destroy);
  const registration = { role: 'host', host_id, connection_id: newId(), credential_kind: 'host', token } as const;
  raw.write(frame({ payload: encodeMessage({ type: 'register', ...registration }) }));
  expect(JSON.parse(String((await raw.frame()).payload)).type).toBe('registered');
  expect(await heldByFragments(raw)).toBeLessThan(CHUNKS * KiB);
});

it('contract 02 §1.1: nor does a server that the relay dials', async () => {
  const server = createServer();
  const wss = new WebSocketServer({ server });
  onTestFinished(() => {
    for (const client of wss.clients) client.terminate();
    server.close();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const signal = new AbortController().signal;
  const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const connected = once(wss, 'connection') as Promise<[WebSocket, IncomingMessage]>;
  await createNodeDialUpstream()({ url, headers: {}, signal, maxMessage: 1024 }, { message() {}, closed() {} });
  const [webSocket, { socket }] = await connected;
  const sender: Sender = {
    write: (bytes) => socket.write(bytes),
    async frame() {
      const [payload] = (await once(webSocket, 'pong')) as [Buffer];
      return { opcode: OPCODE.pong, payload };
    },
  };
  expect(await heldByFragments(sender, { masked: false })).toBeLessThan(CHUNKS * KiB);
});
