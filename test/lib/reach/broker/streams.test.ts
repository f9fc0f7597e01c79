import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { closeFrame, windowFrame } from '../../../../lib/reach/frames.ts';
import { newId } from '../../../../lib/reach/ids.ts';
import { dataFrame } from '../../../support/frames.ts';
import { runs } from '../../../support/runs.ts';
import { World, type WorldSocket } from './world.ts';

const MiB = 1024 * 1024;
const bytes = (...values: number[]) => Uint8Array.from(values);

/** Fills the queue of a stream until its host is no longer read: a broker that goes on reading fails here. */
function sendUntilPaused(world: World, host: WorldSocket, id: string): void {
  for (let sent = 0; !host.isPaused; sent++) {
    expect(sent).toBeLessThan(12);
    world.send(host, dataFrame(id, new Uint8Array(MiB)));
  }
}

describe('data §7.5', () => {
  it('announces a stream before its data, and carries bytes both ways', () => {
    const world = new World();
    const host = world.host({ connection_id: 'AAAAAAAAAAAAAAAAAAAAAA' });
    const { client, id } = world.match(host);
    world.send(client, bytes(1, 2, 3));
    world.send(host, dataFrame(id, bytes(4, 5)));
    expect(host.json.at(-1)).toEqual({
      type: 'open',
      protocol_version: 1,
      stream_id: id,
      host_connection_id: 'AAAAAAAAAAAAAAAAAAAAAA',
    });
    expect(host.frames).toEqual([{ type: 'data', streamId: id, payload: bytes(1, 2, 3) }]);
    expect(client.json).toEqual([{ type: 'matched', protocol_version: 1, stream_id: id }]);
    expect(client.received).toEqual([4, 5]);
  });

  it('splits a record of 1 MiB, which with its header would be too long for older connectors', () => {
    const world = new World();
    const host = world.host();
    const { client, id } = world.match(host);
    world.send(client, new Uint8Array(MiB));
    const sizes = host.messages.filter((message) => typeof message !== 'string').map(({ length }) => length);
    expect(sizes).toEqual([MiB, 36]);
    expect(host.dataOf(id)).toHaveLength(MiB);
  });

  it.each([
    ['an empty message', bytes(), 1000, undefined],
    ['a text message', '{}', 1008, 'unauthorized'],
    ['more than 1 MiB', new Uint8Array(MiB + 1), 1008, 'quota_exceeded'],
  ])('ends the stream of a client that sends %s', (_name, message, closed, code) => {
    const world = new World();
    const host = world.host();
    const { client, id } = world.match(host);
    world.send(client, message);
    expect([client.closed, world.codeOf(client)]).toEqual([closed, code]);
    expect(host.frames).toEqual([{ type: 'close', streamId: id }]);
    expect(host.closed).toBeUndefined();
  });

  it('sends one CLOSE after what a client sent last', () => {
    const world = new World();
    const host = world.host();
    const { client, id } = world.match(host);
    host.isFast = false;
    const sent = Array.from({ length: 30 }, (_, index) => new Uint8Array(60_000).fill(index));
    for (const payload of sent) world.send(client, payload);
    world.drop(client);
    expect(host.frames.some(({ type }) => type === 'close')).toBe(false);
    world.take(host);
    expect(host.frames.filter(({ type }) => type === 'close')).toEqual([{ type: 'close', streamId: id }]);
    expect(host.frames.at(-1)?.type).toBe('close');
    expect(host.dataOf(id)).toHaveLength(30 * 60_000);
    expect(world.broker.counts().active_streams).toBe(0);
  });

  it('closes the client with 1000 after what the host sent last, and sends no CLOSE back', () => {
    const world = new World();
    const host = world.host();
    const { client, id } = world.match(host);
    client.isFast = false;
    for (let index = 0; index < 10; index++) world.send(host, dataFrame(id, new Uint8Array(100_000)));
    world.send(host, closeFrame(id));
    expect(client.closed).toBeUndefined();
    world.take(client);
    expect(client.closed).toBe(1000);
    expect(client.messages.slice(1).reduce((sum, { length }) => sum + length, 0)).toBe(1_000_000);
    expect(host.frames).toEqual([]);
  });

  it('ignores races, and closes a host that makes up stream IDs', () => {
    const world = new World();
    const host = world.host();
    const { client, id } = world.match(host);
    world.drop(client);
    for (const frame of [dataFrame(id, bytes(1)), closeFrame(id), closeFrame(newId())]) world.send(host, frame);
    expect(host.closed).toBeUndefined();
    const bystander = world.match(host).client;
    world.send(host, dataFrame(newId(), bytes(1)));
    expect([host.closed, world.codeOf(host), bystander.closed]).toEqual([1008, 'unauthorized', 1001]);
  });

  it.each([
    ['17 bytes', new Uint8Array(17), 'quota_exceeded'],
    ['more than 1 MiB of payload', new Uint8Array(MiB + 19), 'quota_exceeded'],
    ['DATA without a payload', bytes(1, 2, ...new Uint8Array(16)), 'unauthorized'],
    ['CLOSE with a payload', bytes(1, 4, ...new Uint8Array(17)), 'unauthorized'],
    ['WINDOW without an agreement', windowFrame(newId(), 1), 'unauthorized'],
    ['another version', bytes(2, 4, ...new Uint8Array(16)), 'unauthorized'],
  ])('closes a host that sends %s', (_name, frame, code) => {
    const world = new World();
    const host = world.host();
    const { client } = world.match(host);
    world.send(host, frame);
    expect([host.closed, world.codeOf(host), client.closed]).toEqual([1008, code, 1001]);
    expect(world.broker.counts()).toEqual({ hosts_online: 0, active_streams: 0 });
  });

  it('closes a stream without data for 300 s', async () => {
    const world = new World();
    const host = world.host();
    const { client } = world.match(host);
    const { client: busy } = world.match(host);
    await world.pass(200_000);
    world.send(busy, bytes(1));
    await world.pass(100_000);
    expect([client.closed, busy.closed, host.closed]).toEqual([1000, undefined, undefined]);
    expect(host.frames.filter(({ type }) => type === 'close')).toHaveLength(1);
  });
});

describe('fairness and backpressure §7.5, 7.6', () => {
  it('sends control first, and one frame of each stream in turn', () => {
    const world = new World();
    const host = world.host();
    const bulk = world.match(host);
    const small = world.match(host);
    host.isFast = false;
    for (let index = 0; index < 20; index++) world.send(bulk.client, new Uint8Array(100_000));
    world.send(small.client, bytes(42));
    world.match(host);
    const before = host.messages.length;
    world.take(host, 4);
    const [first, ...rest] = host.messages.slice(before);
    expect(JSON.parse(first as string).type).toBe('published');
    expect(rest.slice(0, 3).some((message) => typeof message !== 'string' && message.length === 19)).toBe(true);
  });

  it('stops reading a client whose queue to the host passes 1 MiB, and goes on when it has drained', () => {
    const world = new World();
    const host = world.host();
    const { client } = world.match(host);
    const { client: other } = world.match(host);
    host.isFast = false;
    while (!client.isPaused) world.send(client, new Uint8Array(64_000));
    expect(other.isPaused).toBe(false);
    world.take(host);
    expect(client.isPaused).toBe(false);
  });

  it('stops reading a client under flow control whose queue passes the window of its host', () => {
    const world = new World();
    const host = world.host({ flow: 262_144 });
    const { client, id } = world.match(host);
    let sent = 0;
    for (; !client.isPaused; sent += 64_000) world.send(client, new Uint8Array(64_000));
    // One window is on its way, and another one waits.
    expect(sent).toBeLessThan(2 * 262_144 + 64_000);
    world.send(host, windowFrame(id, 262_144));
    expect(client.isPaused).toBe(false);
  });

  it('keeps what 16 clients may queue for one host within bounds', () => {
    const world = new World();
    const host = world.host();
    const clients = Array.from({ length: 16 }, () => world.match(host).client);
    host.isFast = false;
    let queued = 0;
    for (let round = 0; round < 100; round++) {
      for (const client of clients) {
        if (client.isPaused) continue;
        world.send(client, new Uint8Array(250_000));
        queued += 250_000;
      }
    }
    expect(clients.every(({ isPaused }) => isPaused)).toBe(true);
    expect(queued).toBeLessThan(6 * MiB);
    world.take(host);
    expect(clients.some(({ isPaused }) => isPaused)).toBe(false);
  });

  it('stops reading the host for a slow client for at most 10 s, then closes that stream only', async () => {
    const world = new World();
    const host = world.host();
    const { client, id } = world.match(host);
    const other = world.match(host);
    client.isFast = false;
    sendUntilPaused(world, host, id);
    await world.pass(9_000);
    expect(client.closed).toBeUndefined();
    await world.pass(1_000);
    expect([client.closed, world.codeOf(client), host.isPaused]).toEqual([1008, 'quota_exceeded', false]);
    expect(host.frames).toEqual([{ type: 'close', streamId: id }]);
    world.send(host, dataFrame(other.id, bytes(9)));
    expect(other.client.received).toEqual([9]);
  });

  it('goes on reading the host as soon as the client has taken enough', async () => {
    const world = new World();
    const host = world.host();
    const { client, id } = world.match(host);
    client.isFast = false;
    sendUntilPaused(world, host, id);
    await world.pass(5_000);
    world.take(client);
    expect([host.isPaused, client.closed]).toEqual([false, undefined]);
    await world.pass(20_000);
    expect(client.closed).toBeUndefined();
  });

  it('joins what is small and waits, for queues of 32 records', () => {
    const world = new World();
    const host = world.host();
    const { client, id } = world.match(host);
    client.isFast = false;
    world.send(host, dataFrame(id, new Uint8Array(300_000)));
    for (let index = 0; index < 5000; index++) world.send(host, dataFrame(id, bytes(index % 256)));
    expect(host.isPaused).toBe(false);
    world.take(client);
    expect(client.messages).toHaveLength(3);
    expect([...(client.messages[2] as Uint8Array)]).toEqual(Array.from({ length: 5000 }, (_, index) => index % 256));
  });

  it('keeps to the credit of a host with flow control, and never pauses it', () => {
    const world = new World();
    const host = world.host({ flow: 100_000 });
    const { client, id } = world.match(host);
    const other = world.match(host);
    world.send(client, new Uint8Array(250_000));
    world.send(other.client, bytes(5));
    expect([host.dataOf(id).length, host.dataOf(other.id)]).toEqual([100_000, [5]]);
    world.send(host, windowFrame(id, 50_000));
    expect(host.dataOf(id)).toHaveLength(150_000);
    world.send(host, windowFrame(id, 1_000_000));
    expect(host.dataOf(id)).toHaveLength(250_000);
  });

  it('grants credit as a client takes, and closes a host that sends more', () => {
    const world = new World();
    const host = world.host({ flow: 262_144 });
    const { client, id } = world.match(host);
    client.isFast = false;
    for (let index = 0; index < 4; index++) world.send(host, dataFrame(id, new Uint8Array(65_536)));
    expect([host.isPaused, host.frames]).toEqual([false, []]);
    world.take(client);
    const granted = host.frames.map((frame) => (frame.type === 'window' ? frame.credit : 0));
    expect(granted.reduce((sum, credit) => sum + credit, 0)).toBe(262_144);
    for (let index = 0; index < 4; index++) world.send(host, dataFrame(id, new Uint8Array(65_536)));
    expect(host.closed).toBeUndefined();
    world.send(host, dataFrame(id, bytes(1)));
    expect([host.closed, world.codeOf(host)]).toEqual([1008, 'quota_exceeded']);
  });

  it('limits a host without flow control where nothing tells that a client reads (§8)', () => {
    const world = new World({ limits: { maxStreamsWithoutFlow: 4, maxUnanswered: 8 * MiB } });
    const host = world.host();
    const { client, id } = world.match(host);
    for (let index = 0; index < 3; index++) world.match(host);
    expect(world.codeOf(world.register({ token: world.route(host) }))).toBe('host_busy');
    for (let index = 0; index < 8; index++) world.send(host, dataFrame(id, new Uint8Array(MiB)));
    world.send(client, bytes(1));
    for (let index = 0; index < 8; index++) world.send(host, dataFrame(id, new Uint8Array(MiB)));
    expect(client.closed).toBeUndefined();
    world.send(host, dataFrame(id, bytes(1)));
    expect([client.closed, host.closed]).toEqual([1008, undefined]);
  });

  it('outlives a loss of its memory with its sockets (§8)', () => {
    const world = new World();
    const host = world.host({ flow: 100_000 });
    const { client, id } = world.match(host);
    const gone = world.match(host);
    world.drop(gone.client);
    world.send(client, new Uint8Array(30_000));
    world.send(host, dataFrame(id, new Uint8Array(10_000)));
    const snapshots = [host, client].map((socket) => world.broker.snapshot(socket));
    const woken = new World({ hosts: new Map([[world.hostId, [snapshots[0]?.digest as string]]]) });
    for (const [index, socket] of [host, client].entries()) {
      expect(woken.broker.restore(socket, structuredClone(snapshots[index]) as never)).toBe(true);
    }
    woken.send(host, dataFrame(gone.id, bytes(1)));
    woken.send(client, new Uint8Array(100_000));
    woken.send(host, dataFrame(id, bytes(1, 2)));
    expect(host.closed).toBeUndefined();
    expect([host.dataOf(id).length, client.received.length]).toEqual([100_000, 10_002]);
  });
});

/** One side of a stream writes numbered bytes, so that lost, doubled and swapped ones all show. */
class Counter {
  sent: number[] = [];
  next(length: number): Uint8Array {
    const payload = Uint8Array.from({ length }, (_, index) => (this.sent.length + index) % 251);
    this.sent.push(...payload);
    return payload;
  }
}

interface Pair {
  client: WorldSocket;
  id: string;
  up: Counter;
  down: Counter;
}

const step = fc.oneof(
  { weight: 1, arbitrary: fc.record({ do: fc.constant('match' as const) }) },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constantFrom('up' as const, 'down' as const),
      of: fc.nat(7),
      length: fc.oneof(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 1, max: 90_000 })),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constantFrom('host takes' as const), count: fc.integer({ min: 1, max: 9 }) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('client takes' as const),
      of: fc.nat(7),
      count: fc.integer({ min: 1, max: 9 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constantFrom('client goes' as const, 'host closes' as const), of: fc.nat(7) }),
  },
);

it('§7.5: random histories lose, double and swap nothing, and leave nothing behind', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.boolean(), (steps, isSlow) => {
      const world = new World();
      const host = world.host();
      host.isFast = !isSlow;
      const pairs: Pair[] = [];
      const all: Pair[] = [];
      for (const each of steps) {
        const pair = 'of' in each ? pairs[each.of % Math.max(1, pairs.length)] : undefined;
        if (each.do === 'match' && pairs.length < 16) {
          const { client, id } = world.match(host);
          client.isFast = !isSlow;
          pairs.push({ client, id, up: new Counter(), down: new Counter() });
          all.push(pairs.at(-1) as Pair);
        } else if (each.do === 'host takes') world.take(host, each.count);
        if (!pair) continue;
        if (each.do === 'client takes') world.take(pair.client, each.count);
        else if (each.do === 'up' && !pair.client.isPaused) world.send(pair.client, pair.up.next(each.length));
        else if (each.do === 'down' && !host.isPaused)
          world.send(host, dataFrame(pair.id, pair.down.next(each.length)));
        else if (each.do === 'client goes' || each.do === 'host closes') {
          if (each.do === 'client goes') world.drop(pair.client);
          else world.send(host, closeFrame(pair.id));
          pairs.splice(pairs.indexOf(pair), 1);
        }
      }
      for (const pair of pairs) world.drop(pair.client);
      world.take(host);
      for (const { client, id, up, down } of all) {
        world.take(client);
        const received = client.received;
        expect(received).toEqual(down.sent.slice(0, received.length));
        const carried = host.dataOf(id);
        expect(carried).toEqual(up.sent.slice(0, carried.length));
        // Whoever ends a stream gets no answer; the other side gets all that was sent before.
        const closes = host.frames.filter((frame) => frame.type === 'close' && frame.streamId === id).length;
        if (client.closed === 1000) expect([closes, received.length]).toEqual([0, down.sent.length]);
        else expect([closes, carried.length]).toEqual([1, up.sent.length]);
      }
      expect(host.closed).toBeUndefined();
      expect(world.broker.counts().active_streams).toBe(0);
      expect(world.broker.isBusy()).toBe(false);
    }),
    { numRuns: runs(60) },
  );
});

it('§7.5: hostile messages of hosts and clients throw nothing and disturb nobody else', () => {
  const hostile = fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc.string({ maxLength: 60 }),
    fc
      .tuple(fc.constantFrom(1, 2), fc.integer({ min: 0, max: 12 }), fc.uint8Array({ minLength: 16, maxLength: 20 }))
      .map(([version, flags, rest]) => Uint8Array.of(version, flags, ...rest)),
    fc.json().map((json) => `{"protocol_version":1,"type":"publish_route","x":${json}}`),
  );
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(2), hostile), { maxLength: 30 }), (messages) => {
      const world = new World();
      const host = world.host();
      const { client, id } = world.match(host);
      for (const [who, message] of messages) {
        const stranger = world.open();
        const matched = world.match(host).client;
        world.send([stranger, matched, stranger][who] as WorldSocket, message);
        world.drop(stranger);
        world.drop(matched);
      }
      world.send(host, dataFrame(id, bytes(1, 2)));
      expect(client.received).toEqual([1, 2]);
      for (const [, message] of messages) world.send(host, message);
      expect([undefined, 1008]).toContain(host.closed);
    }),
    { numRuns: runs(100) },
  );
});
