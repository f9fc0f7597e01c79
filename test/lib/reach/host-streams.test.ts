import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { concatBytes } from '../../../lib/kit/bytes.ts';
import { decodeFrame, type Frame } from '../../../lib/reach/frames.ts';
import { HostStreams, type LocalEnd, type StreamPort } from '../../../lib/reach/host-streams.ts';
import { newId } from '../../../lib/reach/ids.ts';
import { createTestClock } from '../../support/clock.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

/** A local end that records its input, and takes it or not. */
class TestEnd implements LocalEnd {
  readonly port: StreamPort;
  readonly chunks: Uint8Array[] = [];
  state: 'open' | 'ended' | 'destroyed' = 'open';
  takes = true;

  constructor(port: StreamPort) {
    this.port = port;
  }
  write(bytes: Uint8Array) {
    this.chunks.push(bytes);
    return this.takes;
  }
  end() {
    this.state = 'ended';
  }
  destroy() {
    this.state = 'destroyed';
  }
  get received(): Buffer {
    return Buffer.concat(this.chunks);
  }
}

function setUp({ window }: { window?: number } = {}) {
  const clock = createTestClock();
  const ends: TestEnd[] = [];
  const frames: Exclude<Frame, { type: 'bad' }>[] = [];
  let held: (() => void)[] = [];
  const socket = {
    isPaused: false,
    isStuck: false,
    sendBytes(head: Uint8Array, parts: readonly Uint8Array[], sent: () => void) {
      if (parts.length > 16) throw new Error('a frame in too many parts');
      const frame = decodeFrame(concatBytes(head, ...parts), window !== undefined);
      if (frame.type === 'bad') throw new Error('a bad frame was sent');
      frames.push(frame);
      if (this.isStuck) held.push(sent);
      else queueMicrotask(sent);
    },
    pause() {
      this.isPaused = true;
    },
    resume() {
      this.isPaused = false;
    },
    /** Lets everything leave that was sent. */
    flow() {
      this.isStuck = false;
      const sent = held;
      held = [];
      for (const run of sent) run();
    },
  };
  let completed = 0;
  const streams = new HostStreams({
    socket,
    clock,
    window,
    open: (port) => {
      const end = new TestEnd(port);
      ends.push(end);
      return end;
    },
    completed: () => {
      completed++;
    },
  });
  return {
    clock,
    socket,
    streams,
    frames,
    ends,
    get completed() {
      return completed;
    },
    open(id = newId()): { id: string; end: TestEnd } {
      streams.open(id);
      return { id, end: ends.at(-1) as TestEnd };
    },
    data: (streamId: string, payload: string | Uint8Array) =>
      streams.receive({ type: 'data', streamId, payload: Buffer.from(payload) }),
    closes: (id: string) => frames.filter(({ type, streamId }) => type === 'close' && streamId === id).length,
    sent: (id: string) =>
      Buffer.concat(frames.flatMap((frame) => (frame.type === 'data' && frame.streamId === id ? [frame.payload] : []))),
  };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));
const send = (end: TestEnd, bytes: Uint8Array | string, done = () => {}) => end.port.send([Buffer.from(bytes)], done);

describe('contract 08 §6.4: streams', () => {
  it('carries bytes both ways, and keeps streams apart', async () => {
    const test = setUp();
    const [a, b] = [test.open(), test.open()];
    test.data(a.id, 'to a');
    test.data(b.id, 'to b');
    send(a.end, 'from a');
    send(b.end, 'from b');
    await settled();
    expect([String(a.end.received), String(b.end.received)]).toEqual(['to a', 'to b']);
    expect([String(test.sent(a.id)), String(test.sent(b.id))]).toEqual(['from a', 'from b']);
  });

  it('answers DATA of an unknown stream with one CLOSE, and ignores CLOSE of one', () => {
    const test = setUp();
    const id = newId();
    for (let count = 0; count < 5; count++) test.data(id, 'x');
    test.streams.receive({ type: 'close', streamId: newId() });
    expect(test.frames).toEqual([{ type: 'close', streamId: id }]);
  });

  it('ignores a known stream, and closes the seventeenth', () => {
    const test = setUp();
    const { id } = test.open();
    test.streams.open(id);
    for (let count = 1; count < 16; count++) test.open();
    expect(test.ends).toHaveLength(16);
    const surplus = newId();
    test.streams.open(surplus);
    expect(test.ends).toHaveLength(16);
    expect(test.frames).toEqual([{ type: 'close', streamId: surplus }]);
  });

  it('queues no CLOSE for a broker that opens streams over the limit and reads nothing', () => {
    const test = setUp();
    for (let count = 0; count < 16; count++) test.open();
    test.socket.isStuck = true;
    const ids = Array.from({ length: 40_000 }, newId);
    for (const id of ids) test.streams.open(id);
    expect(test.frames.length).toBeLessThan(30_000);
    test.socket.flow();
    const [last] = ids.slice(-1) as [string];
    test.data(last, 'x');
    expect(test.closes(last)).toBe(1);
  });

  it('ends the local side after queued bytes when the client closes, and echoes no CLOSE', () => {
    const test = setUp();
    const { id, end } = test.open();
    end.takes = false;
    test.data(id, 'one ');
    test.data(id, 'two');
    test.streams.receive({ type: 'close', streamId: id });
    expect([String(end.received), end.state, test.streams.size]).toEqual(['one ', 'open', 0]);
    end.takes = true;
    end.port.resume();
    expect([String(end.received), end.state]).toEqual(['one two', 'ended']);
    expect(test.closes(id)).toBe(0);
    end.port.end();
    expect(test.closes(id)).toBe(0);
  });

  it('gives a local side that does not take the rest ten seconds', () => {
    const test = setUp();
    const { id, end } = test.open();
    end.takes = false;
    test.data(id, 'one');
    test.data(id, 'two');
    test.streams.receive({ type: 'close', streamId: id });
    test.clock.advance(10_000);
    expect(end.state).toBe('destroyed');
    expect(test.clock.pending).toBe(0);
  });

  it('sends the rest and exactly one CLOSE when the local side ends', async () => {
    const test = setUp();
    const { id, end } = test.open();
    send(end, 'last words');
    end.port.end();
    end.port.end();
    await settled();
    expect(String(test.sent(id))).toBe('last words');
    expect([test.closes(id), end.state, test.streams.size, test.completed]).toEqual([1, 'destroyed', 0, 1]);
    expect(test.clock.pending).toBe(0);
  });

  it('joins what is written in one turn into records of 64 KiB at most', async () => {
    const test = setUp();
    const { id, end } = test.open();
    const chunks = Array.from({ length: 40 }, (_, at) => Buffer.alloc(5000, at));
    end.port.send(chunks, () => {});
    send(end, 'x');
    await settled();
    const sizes = test.frames.map((frame) => (frame.type === 'data' ? frame.payload.length : 0));
    expect(sizes).toEqual([65536, 65536, 65536, 3393]);
    expect(test.sent(id).equals(Buffer.concat([...chunks, Buffer.from('x')]))).toBe(true);
  });

  it('joins many small chunks, which would each be a write', async () => {
    const test = setUp();
    const { id, end } = test.open();
    const chunks = Array.from({ length: 100 }, (_, index) => Buffer.from([index]));
    end.port.send(chunks, () => {});
    await settled();
    expect(test.frames).toHaveLength(1);
    expect(test.sent(id).equals(Buffer.concat(chunks))).toBe(true);
  });

  it('closes a stream after 300 s without DATA in either direction', async () => {
    const test = setUp();
    const [quiet, fed, feeding] = [test.open(), test.open(), test.open()];
    await test.clock.advanceAsync(200_000);
    test.data(fed.id, 'x');
    send(feeding.end, 'x');
    await settled();
    await test.clock.advanceAsync(100_000);
    expect([quiet, fed, feeding].map(({ id }) => test.closes(id))).toEqual([1, 0, 0]);
    await test.clock.advanceAsync(200_000);
    expect([quiet, fed, feeding].map(({ end }) => end.state)).toEqual(['destroyed', 'destroyed', 'destroyed']);
    expect(test.clock.pending).toBe(0);
  });

  it('closes every stream when the host shuts down, and drops them without a word when the connection is gone', () => {
    const leaving = setUp();
    const a = leaving.open();
    leaving.streams.closeAll();
    expect([leaving.closes(a.id), a.end.state, leaving.clock.pending]).toEqual([1, 'destroyed', 0]);
    const lost = setUp();
    const b = lost.open();
    lost.streams.abort();
    lost.streams.open(newId());
    expect([lost.frames.length, b.end.state, lost.ends.length, lost.clock.pending]).toEqual([0, 'destroyed', 1, 0]);
  });
});

describe('contract 08 §7.6: backpressure', () => {
  it.each([
    ['32 frames', 33, 10],
    ['8 MiB', 9, MIB],
  ])('pauses the socket at %s, and goes on when half of it is taken', (_name, count, size) => {
    const test = setUp();
    const { id, end } = test.open();
    end.takes = false;
    for (let at = 0; at < count - 1; at++) test.data(id, Buffer.alloc(size, at));
    expect(test.socket.isPaused).toBe(false);
    test.data(id, Buffer.alloc(size, count));
    expect(test.socket.isPaused).toBe(true);
    end.takes = true;
    end.port.resume();
    expect([test.socket.isPaused, end.received.length]).toEqual([false, count * size]);
    test.clock.advance(20_000);
    expect(end.state).toBe('open');
  });

  it('closes only the stream that keeps the socket paused for ten seconds', () => {
    const test = setUp();
    const [stuck, other] = [test.open(), test.open()];
    stuck.end.takes = false;
    for (let at = 0; at < 33; at++) test.data(stuck.id, 'x');
    test.clock.advance(9_999);
    expect(test.socket.isPaused).toBe(true);
    test.clock.advance(1);
    expect([test.socket.isPaused, test.closes(stuck.id), stuck.end.state]).toEqual([false, 1, 'destroyed']);
    expect(other.end.state).toBe('open');
  });

  it('holds 512 KiB in the socket at most, and lets streams take turns', async () => {
    const test = setUp();
    const [bulk, other] = [test.open(), test.open()];
    test.socket.isStuck = true;
    let isDone = false;
    send(bulk.end, Buffer.alloc(4 * MIB), () => {
      isDone = true;
    });
    await settled();
    expect(test.sent(bulk.id).length).toBe(512 * KIB);
    send(other.end, 'me too');
    test.socket.flow();
    await settled();
    const order = test.frames.map(({ streamId }) => streamId);
    expect(order.indexOf(other.id)).toBeLessThan(12);
    await settled();
    expect([isDone, test.sent(bulk.id).length]).toEqual([true, 4 * MIB]);
  });

  it('asks the local side for more only once 128 KiB or less wait', async () => {
    const test = setUp({ window: 64 * KIB });
    const { id, end } = test.open();
    let isDone = false;
    send(end, Buffer.alloc(256 * KIB), () => {
      isDone = true;
    });
    await settled();
    expect([isDone, test.sent(id).length]).toEqual([false, 64 * KIB]);
    test.streams.receive({ type: 'window', streamId: id, credit: 64 * KIB });
    await settled();
    expect([isDone, test.sent(id).length]).toEqual([true, 128 * KIB]);
  });

  it('grants what the local side took, in steps of half a window, which the first one widens to 1 MiB', () => {
    const test = setUp({ window: 64 * KIB });
    const { id, end } = test.open();
    const credits = () => test.frames.map((frame) => (frame.type === 'window' ? frame.credit / KIB : frame.type));
    for (let at = 0; at < 4; at++) test.data(id, Buffer.alloc(32 * KIB));
    // 256 KiB were there before any grant, and as many as were read are there again.
    expect(credits()).toEqual([128 + 768]);
    for (let at = 0; at < 15; at++) test.data(id, Buffer.alloc(32 * KIB));
    expect(credits()).toHaveLength(1);
    test.data(id, Buffer.alloc(32 * KIB));
    expect(credits()).toEqual([128 + 768, 512]);
    end.takes = false;
    // The local side takes this one, and then no more.
    test.data(id, Buffer.alloc(32 * KIB));
    for (let at = 0; at < 990; at++) test.data(id, Buffer.alloc(KIB));
    expect(credits()).toHaveLength(2);
    expect(test.socket.isPaused).toBe(false);
    end.takes = true;
    end.port.resume();
    expect(credits()).toEqual([128 + 768, 512, 32 + 990]);
    expect(end.received.length).toBe(21 * 32 * KIB + 990 * KIB);
  });

  it('sends no more than the credit, and CLOSE only after the last byte', async () => {
    const test = setUp({ window: 10 });
    const { id, end } = test.open();
    send(end, '0123456789abcdef');
    end.port.end();
    await settled();
    expect([String(test.sent(id)), test.closes(id)]).toEqual(['0123456789', 0]);
    test.data(id, 'too late');
    expect(end.received.length).toBe(0);
    test.streams.receive({ type: 'window', streamId: id, credit: 100 });
    await settled();
    expect([String(test.sent(id)), test.closes(id)]).toEqual(['0123456789abcdef', 1]);
  });
});

it('contract 08 §6.4: keeps every byte in order whatever happens in between', async () => {
  const step = fc.oneof(
    fc.record({ do: fc.constant('receive' as const), bytes: fc.integer({ min: 1, max: 4000 }) }),
    fc.record({ do: fc.constant('send' as const), bytes: fc.integer({ min: 0, max: 90_000 }) }),
    fc.record({ do: fc.constantFrom('take', 'refuse', 'stick', 'flow', 'credit', 'tick'), bytes: fc.constant(0) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.boolean(), fc.array(step, { maxLength: 60 }), async (hasFlow, steps) => {
      const test = setUp({ window: hasFlow ? 100 * KIB : undefined });
      const { id, end } = test.open();
      const [up, down]: [Buffer[], Buffer[]] = [[], []];
      let marker = 0;
      let isBusy = false;
      for (const { do: action, bytes } of steps) {
        const chunk = Buffer.alloc(bytes, ++marker);
        if (action === 'receive' && !test.socket.isPaused) {
          up.push(chunk);
          test.data(id, chunk);
        } else if (action === 'send' && !isBusy) {
          // As a stream: one write at a time.
          isBusy = true;
          down.push(chunk);
          send(end, chunk, () => {
            isBusy = false;
          });
        } else if (action === 'take' || action === 'refuse') {
          end.takes = action === 'take';
          if (end.takes) end.port.resume();
        } else if (action === 'stick') test.socket.isStuck = true;
        else if (action === 'flow') test.socket.flow();
        else if (action === 'credit') test.streams.receive({ type: 'window', streamId: id, credit: 70_000 });
        await settled();
      }
      end.takes = true;
      end.port.resume();
      test.socket.flow();
      test.streams.receive({ type: 'window', streamId: id, credit: 100 * MIB });
      end.port.end();
      await settled();
      await settled();
      expect(end.received.equals(Buffer.concat(up))).toBe(true);
      expect(test.sent(id).equals(Buffer.concat(down))).toBe(true);
      expect([test.closes(id), test.clock.pending]).toEqual([1, 0]);
    }),
    { numRuns: 60 },
  );
});
