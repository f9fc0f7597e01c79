import { expect, it, vi } from 'vitest';
import { CLOSE_TIMEOUT } from '../../cli/runtime/node/sockets.ts';
import type { Channel, Connection } from '../../lib/socket/channel.ts';
import { type BuiltOptions, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { TIMED } from '../support/limits.ts';
import { frame, OPCODE, openAuthenticated, type RawConnection, textFrame } from '../support/raw-socket.ts';
import { pair } from '../support/relay.ts';

const KiB = 1024;
const MiB = 1024 * KiB;
const pending = cleanups();

/** A relay with an honest client, and a raw one with the relay's side of it. */
async function start(options: BuiltOptions = {}) {
  const connections: Connection[] = [];
  const probe: Channel = { message: (connection) => void connections.push(connection) };
  const target = await startBuiltTarget({ ...options, channels: { probe, ...options.channels } });
  pending.push(target.stop);
  const { client: honest, token } = await pair(target);
  pending.push(() => honest.terminate());
  const raw = await openAuthenticated(target.port, { session_token: token });
  pending.push(raw.destroy);
  raw.write(textFrame('probe', 'hello'));
  await vi.waitFor(() => expect(connections).toHaveLength(1));
  const alive = async () => {
    const id = crypto.randomUUID();
    honest.send('system', 'ping', {}, id);
    expect((await honest.next({ id })).type).toBe('pong');
  };
  return { target, raw, alive, connection: connections[0] as Connection };
}

/** Messages that are answered, and what counts as their answer. */
interface Flood {
  message: Buffer;
  isAnswer(text: string, opcode: number): boolean;
  /** Bytes of the longest answer, by default 160. */
  longest?: number;
}
const FLOODS: Record<string, Flood> = {
  'unknown channels': {
    message: textFrame('nowhere', 'x'),
    isAnswer: (text) => text.includes('unknown_channel'),
  },
  'bad JSON': {
    message: frame({ payload: `{${' '.repeat(100)}` }),
    isAnswer: (text) => text.includes('Invalid envelope'),
  },
  'system pings': { message: textFrame('system', 'ping'), isAnswer: (text) => text.includes('"pong"') },
  'long system pings': {
    message: textFrame('system', 'ping', { ts: 'x'.repeat(3900) }),
    isAnswer: (text) => text.includes('"pong"'),
    longest: 4096,
  },
  'WebSocket pings': {
    message: frame({ opcode: OPCODE.ping, payload: 'x'.repeat(100) }),
    isAnswer: (_text, opcode) => opcode === OPCODE.pong,
  },
};

/** Writes as much as the other side takes, which must be less than all of it. */
async function writeUntilStuck(raw: RawConnection, connection: Connection, bytes: Buffer): Promise<void> {
  raw.write(bytes);
  let last = -1;
  await vi.waitFor(
    () => {
      const before = last;
      last = raw.socket.writableLength;
      expect(connection.unsent).toBeGreaterThan(0);
      expect(last).toBe(before);
    },
    { interval: 200 },
  );
}

/** Reads until so many frames match. None is as long as 64 KiB. */
async function framesUntil(raw: RawConnection, count: number, matches: Flood['isAnswer']): Promise<void> {
  let rest = Buffer.alloc(0);
  let found = 0;
  raw.socket.removeAllListeners('data');
  await new Promise<void>((resolve) => {
    raw.socket.on('data', (chunk: Buffer) => {
      rest = Buffer.concat([rest, chunk]);
      for (;;) {
        const [first = 0, short = 0] = rest;
        const at = short < 126 ? 2 : 4;
        const end = at + (short < 126 ? short : rest.length < 4 ? Number.POSITIVE_INFINITY : rest.readUInt16BE(2));
        if (rest.length < 2 || rest.length < end) break;
        if (matches(rest.toString('latin1', at, end), first & 15) && ++found === count) resolve();
        rest = rest.subarray(end);
      }
    });
    raw.socket.resume();
  });
}

it.each(Object.keys(FLOODS))(
  'contract 02 §1.1: a client that sends %s and never reads is not read either, until it reads',
  { timeout: 300_000 },
  async (name) => {
    const { message, isAnswer, longest = 160 } = FLOODS[name] as Flood;
    const { raw, connection, alive } = await start();
    raw.socket.pause();
    const count = Math.ceil((12 * MiB) / message.length / 1000) * 1000;
    const thousand = Buffer.concat(Array.from({ length: 1000 }, () => message));
    await writeUntilStuck(raw, connection, Buffer.concat(Array.from({ length: count / 1000 }, () => thousand)));
    expect(raw.socket.writableLength).toBeGreaterThan(0);
    // What is read at once is answered at once: 64 KiB of the smallest messages.
    expect(connection.unsent).toBeLessThan(Math.min(MiB + 64 * KiB, (2000 + (64 * KiB) / message.length) * longest));
    expect(connection.isOpen).toBe(true);
    await alive();
    await framesUntil(raw, count, isAnswer);
    expect(connection.isOpen).toBe(true);
    await alive();
  },
);

it('contract 02 §1.1: a client that is not read and takes nothing is dropped', async () => {
  const { target, raw, connection, alive } = await start({ stallTimeout: 200 });
  raw.socket.pause();
  const message = textFrame('nowhere', 'x');
  raw.write(Buffer.concat(Array.from({ length: 100_000 }, () => message)));
  await vi.waitFor(() => expect(connection.isOpen).toBe(false));
  expect(target.relay.sockets.count()).toBe(1);
  await alive();
});

it('contract 02 §1.6: a client that is not read because its messages wait is not dropped for that', async () => {
  const order: number[] = [];
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const slow: Channel = {
    async message(_connection, { payload }) {
      await released;
      order.push(payload.index as number);
    },
  };
  const { raw, connection } = await start({ channels: { slow }, stallTimeout: 50 });
  const total = 1000;
  const filler = 'x'.repeat(KiB);
  for (let index = 0; index < total; index++) raw.write(textFrame('slow', 'work', { index, filler }));
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(connection.isOpen).toBe(true);
  release();
  await vi.waitFor(() => expect(order).toHaveLength(total));
  expect(order).toEqual(order.toSorted((a, b) => a - b));
});

it.each([
  ['after another message of its channel', [textFrame('faulty', 'first'), textFrame('faulty', 'bad')]],
  ['after a turn of the event loop', [...Array(1100).fill(textFrame('faulty', 'x')), textFrame('faulty', 'bad')]],
  ['after it was counted', [textFrame('faulty', 'late', { filler: 'x'.repeat(MiB) })]],
])('contract 02 §1.4: a message that fails %s closes its socket alone', async (_name, frames) => {
  let checks = 0;
  const faulty: Channel = {
    grant: { name: 'terminal', label: 'Terminal' },
    needsGrant({ type }) {
      if (type === 'bad' || (type === 'late' && ++checks > 1)) throw new Error('faulty');
      return false;
    },
    message: (_connection, { type }) =>
      type === 'first' ? new Promise((resolve) => setImmediate(resolve)) : undefined,
  };
  const { target, raw, connection, alive } = await start({ channels: { faulty } });
  raw.write(Buffer.concat(frames));
  expect((await raw.closing()).code).toBe(1011);
  expect(connection.isOpen).toBe(false);
  expect(target.relay.sockets.count()).toBe(1);
  await alive();
});

it('issue: a slow consumer that ends with many frames unsent does not stop the process', TIMED, async () => {
  const { raw, connection } = await start();
  raw.socket.pause();
  const data = 'x'.repeat(100);
  while (connection.isOpen) connection.send('probe', 'data', { data });
  await new Promise((resolve) => setTimeout(resolve, 10));
  // Work between two turns of the event loop: what others do meanwhile on a busy machine is not counted.
  let [longest, last] = [0, process.cpuUsage()];
  const turns = setInterval(() => {
    const { user, system } = process.cpuUsage(last);
    [longest, last] = [Math.max(longest, (user + system) / 1000), process.cpuUsage()];
  }, 1);
  // The closing handshake is given up after two seconds.
  await new Promise((resolve) => setTimeout(resolve, CLOSE_TIMEOUT + 500));
  clearInterval(turns);
  expect(longest).toBeLessThan(250);
});
