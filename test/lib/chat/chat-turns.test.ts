import { describe, expect, it } from 'vitest';
import type { AskedQuestion } from '../../../lib/chat/agent-history.ts';
import { openChatTurns } from '../../../lib/chat/chat-turns.ts';
import type { TurnClient } from '../../../lib/chat/turn-sockets.ts';
import type { Upstream, UpstreamRequest } from '../../../lib/host/upstream.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import type { Payload } from '../../../lib/socket/envelope.ts';
import { Watermark, type WatermarkLimits } from '../../../lib/socket/watermark.ts';
import type { Stores } from '../../../storage/schema.ts';
import { createBody } from '../../support/agent-body.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { memoryStores } from '../../support/states.ts';

const MINUTE = 60_000;
const MiB = 1024 * 1024;
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

/** A socket of a family that reads what it gets when the test says so. */
function createClient(family: string, readsAtOnce = true) {
  const sent: { type: string; payload: Payload; id?: string }[] = [];
  const marks = new Set<Watermark>();
  let unsent = 0;
  const update = () => {
    for (const mark of [...marks]) mark.update(unsent);
  };
  const client: TurnClient = {
    id: crypto.randomUUID(),
    session: { family } as Session,
    isOpen: true,
    typedStream: true,
    send(_channel, type, payload, id) {
      sent.push({ type, payload, id });
      if (readsAtOnce) return;
      unsent += JSON.stringify(payload).length;
      update();
    },
    sendError: (message, error) => void sent.push({ type: 'error', payload: { message, error } }),
    follow(limits: WatermarkLimits) {
      const mark = new Watermark(limits);
      marks.add(mark);
      return () => marks.delete(mark);
    },
    probe() {},
  };
  const take = (type: string) => sent.filter((frame) => frame.type === type).map(({ payload }) => payload);
  return {
    ...client,
    sent,
    take,
    get unsent() {
      return unsent;
    },
    read() {
      unsent = 0;
      update();
    },
  };
}

interface Options {
  recover?(turn: AskedQuestion): Promise<{ text: string } | undefined>;
  /** The process before, which has crashed. */
  from?: { stores: Stores; clock: TestClock };
}

async function setUp(options: Options = {}) {
  const { stores, clock } = options.from ?? { stores: memoryStores(), clock: createTestClock() };
  const store = stores.open('chat-turns');
  const requests: UpstreamRequest[] = [];
  const bodies: ReturnType<typeof createBody>[] = [];
  const upstream: Upstream = async (request) => {
    requests.push(request);
    bodies.push(createBody(request.signal));
    return { status: 200, headers: {}, body: (bodies.at(-1) as (typeof bodies)[0]).chunks };
  };
  const ended = new Set<string>();
  const turns = await openChatTurns({
    config: { webapiUrl: 'http://api', apiServerKey: undefined },
    upstream,
    store,
    sessions: {
      byFamily: (family) =>
        ended.has(family) ? undefined : ({ family, grants: { chat: null } } as unknown as Session),
      onEnd() {},
      onReduce() {},
    },
    clock,
    log: createTestLog(),
    sleeps: false,
    recover: options.recover,
  });
  return {
    stores,
    clock,
    store,
    turns,
    requests,
    bodies,
    ended,
    /** Begins a turn, up to its request. */
    async begin(client: TurnClient, id = 'c1', clientTurnId?: string) {
      turns.send(client, id, { message: 'hi', sessionId: 's1' }, clientTurnId);
      await settled();
      await settled();
      return bodies.at(-1) as (typeof bodies)[0];
    },
  };
}

const eventsOf = ({ take }: ReturnType<typeof createClient>) => take('stream.event').map(({ event }) => event);

describe('chat turns (contract 10 §1)', () => {
  it('wait 29 minutes for a silent agent, and end after 30, or after four hours', async () => {
    const { turns, clock, begin } = await setUp();
    const client = createClient('f');
    turns.follow(client, 'f1');
    const body = await begin(client);
    await clock.advanceAsync(29 * MINUTE);
    expect(turns.running()).toBe(1);
    expect(eventsOf(client)).toEqual(Array(58).fill('relay.waiting'));
    body.event({ type: 'assistant.delta', delta: 'at last' });
    await clock.advanceAsync(30 * MINUTE - 1);
    expect(turns.running()).toBe(1);
    await clock.advanceAsync(1);
    expect(turns.running()).toBe(0);
    const message = 'The API server sent nothing for 30 minutes';
    expect(client.take('chat.error')).toMatchObject([{ message }]);
    expect(client.take('chat.turn').at(-1)).toMatchObject({ state: 'failed', preview: 'at last' });

    const talkative = await begin(client, 'c2');
    for (let at = 0; at < 12; at++) {
      talkative.event({ type: 'assistant.delta', delta: 'x' });
      await clock.advanceAsync(20 * MINUTE - 1);
      expect(turns.running()).toBe(1);
    }
    await clock.advanceAsync(1_000);
    expect(turns.running()).toBe(0);
    expect(client.take('chat.error').at(-1)).toMatchObject({ message: 'The turn took more than four hours' });
  });

  it('are stored before the agent is asked, once a second, and before their end is sent', async () => {
    const { turns, clock, store, requests, bodies, begin } = await setUp();
    const client = createClient('f');
    const setItem = store.setItem.bind(store);
    const written: string[] = [];
    let release = () => {};
    let held: Promise<void> | undefined = new Promise((resolve) => {
      release = resolve;
    });
    store.setItem = async (key: string, value: never) => {
      written.push(key.split(':')[0] ?? '');
      await held;
      return setItem(key, value);
    };
    await begin(client);
    expect([written.splice(0), requests.length]).toEqual([['turn', 'question'], 0]);
    release();
    held = undefined;
    await settled();
    await settled();
    expect(requests).toHaveLength(1);
    const [body] = bodies as [(typeof bodies)[0]];
    for (let at = 0; at < 100; at++) {
      body.event({ type: 'assistant.delta', delta: 'x' });
      await clock.advanceAsync(50);
    }
    expect(written.splice(0).filter((kind) => kind === 'turn')).toHaveLength(5);

    held = new Promise((resolve) => {
      release = resolve;
    });
    body.event({ type: 'run.completed' });
    body.event({ type: 'done' });
    await clock.advanceAsync(500);
    expect(eventsOf(client)).toHaveLength(100);
    expect(turns.running()).toBe(1);
    // Nor does anybody see it in another way.
    const other = createClient('f');
    turns.follow(other, 'f1');
    expect(other.take('chat.turns')).toMatchObject([{ turns: [{ state: 'running' }] }]);
    const [{ turn_id } = {}] = client.take('stream.event');
    await turns.resume(other, 'r1', String(turn_id));
    expect(other.take('chat.snapshot')).toEqual([]);
    release();
    await clock.advanceAsync(0);
    await settled();
    expect(eventsOf(client).slice(100)).toEqual(['run.completed', 'done']);
    expect(other.take('chat.snapshot')).toMatchObject([{ state: 'done', text: 'x'.repeat(100) }]);
  });

  it('are refused, and ask nothing, when they cannot be stored', async () => {
    const { turns, store, requests, begin } = await setUp();
    const [client, other] = [createClient('f'), createClient('f')];
    const setItem = store.setItem.bind(store);
    store.setItem = () => Promise.reject(new Error('ENOSPC'));
    turns.follow(other, 'f1');
    turns.send(client, 'c1', { message: 'hi', sessionId: 's1' }, 'mine');
    turns.send(other, 'c2', { message: 'hi', sessionId: 's1' }, 'mine');
    await settled();
    await settled();
    for (const each of [client, other]) {
      expect(each.take('chat.error')).toEqual([
        { message: 'could not be stored: try again later', error: 'unavailable' },
      ]);
    }
    expect(requests).toEqual([]);
    store.setItem = setItem;
    await begin(client, 'c3', 'mine');
    expect(requests).toHaveLength(1);
  });

  /** A turn that ends when nothing can be stored. Returns a function that mends the store. */
  async function endUnstored(
    { store, begin }: Awaited<ReturnType<typeof setUp>>,
    client: ReturnType<typeof createClient>,
  ): Promise<() => void> {
    const body = await begin(client);
    body.event({ type: 'assistant.delta', delta: 'x' });
    await settled();
    const setItem = store.setItem.bind(store);
    store.setItem = () => Promise.reject(new Error('EIO'));
    body.event({ type: 'run.completed' });
    body.end();
    return () => {
      store.setItem = setItem;
    };
  }

  it('hold their end back while it cannot be stored, for three seconds at most', async () => {
    const world = await setUp();
    const { clock, stores, turns } = world;
    const [client, other] = [createClient('f'), createClient('f')];
    turns.follow(other, 'f1');
    const mend = await endUnstored(world, client);
    await clock.advanceAsync(2_500);
    expect(eventsOf(client)).toEqual(['assistant.delta']);
    expect(other.take('chat.turn').at(-1)).toMatchObject({ state: 'running' });
    mend();
    await clock.advanceAsync(500);
    await settled();
    expect(eventsOf(client)).toEqual(['assistant.delta', 'run.completed']);
    expect(other.take('chat.turn').at(-1)).toMatchObject({ state: 'done' });
    // A crash loses nothing that a client has seen.
    const { turns: after } = await setUp({ from: { stores, clock } });
    after.follow(other, 'f2');
    expect(other.take('chat.turns').at(-1)).toMatchObject({ turns: [{ state: 'done', preview: 'x' }] });
  });

  it('do not hold up a stop whose store fails', async () => {
    const { clock, store, begin, turns } = await setUp();
    const client = createClient('f');
    const body = await begin(client);
    store.setItem = () => Promise.reject(new Error('EIO'));
    body.event({ type: 'run.completed' });
    await settled();
    await turns.stop();
    expect(clock.pending).toBe(0);
  });

  it('reach clients although their end could not be stored, and are written until it is', async () => {
    const world = await setUp();
    const { clock, turns } = world;
    const client = createClient('f');
    const mend = await endUnstored(world, client);
    await clock.advanceAsync(3_000);
    expect(eventsOf(client)).toEqual(['assistant.delta', 'run.completed']);
    mend();
    await clock.advanceAsync(1_000);
    const [{ turn_id } = {}] = client.take('stream.event');
    await turns.resume(client, 'r1', String(turn_id));
    expect(client.take('chat.snapshot')).toMatchObject([{ state: 'done', text: 'x' }]);
    expect(clock.pending).toBe(1);
  });

  it('send a socket that is behind a snapshot in place of what it missed, also after the end', async () => {
    const { turns, clock, begin } = await setUp();
    const [slow, fast] = [createClient('f', false), createClient('f')];
    const body = await begin(slow);
    const [{ turn_id } = {}] = await (async () => {
      body.event({ type: 'assistant.delta', delta: 'x' });
      await settled();
      return slow.take('stream.event');
    })();
    await turns.resume(fast, 'r1', String(turn_id), 1);
    for (let at = 0; at < 200; at++) {
      body.event({ type: 'tool.completed', tool_name: 't', call_id: `${at % 20}`, result: 'y'.repeat(20_000) });
      body.event({ type: 'tool.progress', delta: 'z'.repeat(20_000) });
      await settled();
      await settled();
    }
    await clock.advanceAsync(1_000);
    expect(fast.take('stream.event')).toHaveLength(400);
    expect(slow.unsent).toBeLessThan(MiB + 64 * 1024);
    expect(slow.take('chat.snapshot')).toEqual([]);
    slow.read();
    expect(slow.take('chat.snapshot')).toMatchObject([{ state: 'running', seq: 401, text: 'x' }]);
    body.event({ type: 'assistant.delta', delta: 'y' });
    await settled();
    await settled();
    expect(slow.take('stream.event').at(-1)).toMatchObject({ seq: 402 });

    for (let at = 0; at < 100; at++) {
      body.event({ type: 'tool.progress', delta: 'z'.repeat(20_000) });
      await settled();
      await settled();
    }
    body.event({ type: 'run.completed' });
    body.end();
    await clock.advanceAsync(2_000);
    expect(turns.running()).toBe(0);
    slow.read();
    await settled();
    await settled();
    expect(slow.take('chat.snapshot').at(-1)).toMatchObject({ state: 'done', seq: 503, text: 'xy' });
    // One that is gone gets nothing.
    turns.drop(slow);
    expect(clock.pending).toBe(1);
  });

  it('are at most 32 of a relay, and end with their family', async () => {
    const { turns, clock, requests, ended, begin } = await setUp();
    const clients = Array.from({ length: 33 }, (_, at) => createClient(`f${Math.floor(at / 8)}`));
    for (const client of clients) await begin(client);
    expect(turns.running()).toBe(32);
    expect(clients[32]?.take('chat.error')).toMatchObject([{ message: 'too many running turns' }]);
    ended.add('f0');
    await clock.advanceAsync(1_000);
    expect(turns.running()).toBe(24);
    expect(requests.filter(({ signal }) => signal.aborted)).toHaveLength(8);
    await begin(clients[32] as TurnClient);
    expect(turns.running()).toBe(25);
  });

  it('close a stream that upstream leaves open after the end', async () => {
    const { turns, clock, requests, begin } = await setUp();
    const client = createClient('f');
    (await begin(client)).event({ type: 'run.completed' });
    await clock.advanceAsync(29_000);
    expect([turns.running(), requests[0]?.signal.aborted]).toEqual([0, false]);
    await clock.advanceAsync(2_000);
    expect(requests[0]?.signal.aborted).toBe(true);
    expect(client.take('chat.error')).toEqual([]);
  });

  it('keep an object awake while they run: by a timer each second, and each minute by one that is an alarm', async () => {
    const { clock, begin } = await setUp();
    const { after } = clock;
    const delays: number[] = [];
    clock.after = (delay, run) => {
      delays.push(delay);
      return after(delay, run);
    };
    const body = await begin(createClient('f'));
    await clock.advanceAsync(10 * MINUTE);
    const count = (wanted: number) => delays.splice(0).filter((delay) => delay === wanted).length;
    expect([delays.filter((delay) => delay === 1_000).length, count(MINUTE)]).toEqual([601, 11]);
    body.end();
    await clock.advanceAsync(MINUTE);
    expect(count(1_000)).toBe(0);
  });

  it('are interrupted by a crash, with the text of a second before, and a seq that nobody has seen', async () => {
    const first = await setUp();
    const client = createClient('f');
    const body = await first.begin(client, 'c1', 'mine');
    body.event({ type: 'assistant.delta', delta: 'stored' });
    await first.clock.advanceAsync(1_000);
    body.event({ type: 'assistant.delta', delta: ' lost' });
    await settled();
    await settled();
    const { seq, turn_id } = client.take('stream.event').at(-1) ?? {};
    const later = await setUp({ from: first });
    await later.turns.start();
    const back = createClient('f');
    await later.turns.resume(back, 'r1', String(turn_id), Number(seq));
    expect(back.take('chat.snapshot')).toMatchObject([{ state: 'interrupted', question: 'hi', text: 'stored' }]);
    await later.begin(back, 'c1', 'mine');
    expect(later.requests).toEqual([]);
  });

  it('are recovered from the history of the agent, which is asked once', async () => {
    const first = await setUp();
    const client = createClient('f');
    const asked: AskedQuestion[] = [];
    const body = await first.begin(client);
    await first.begin(client, 'c2');
    body.event({ type: 'tool.completed', tool_name: 't', result: 'r' });
    await first.clock.advanceAsync(1_000);
    const answers = [{ text: 'the whole answer' }, undefined];
    const recover = async (turn: AskedQuestion) => {
      asked.push(turn);
      return answers[asked.length - 1];
    };
    const second = await setUp({ from: first, recover });
    const back = createClient('f');
    second.turns.follow(back, 'f1');
    expect(back.take('chat.turns')).toMatchObject([{ turns: [{ state: 'interrupted' }, { state: 'interrupted' }] }]);
    await second.turns.start();
    expect(asked[0]).toMatchObject({ sessionId: 's1', profile: null, question: 'hi' });
    expect(back.take('chat.turn')).toMatchObject([{ state: 'done', recovered: true, preview: 'the whole answer' }]);
    const [{ turn_id } = {}] = back.take('chat.turn');
    await second.turns.resume(back, 'r1', String(turn_id));
    expect(back.take('chat.snapshot')).toMatchObject([
      { state: 'done', recovered: true, text: 'the whole answer', tools: [{ name: 't', preview: 'r' }] },
    ]);
    const third = await setUp({ from: first, recover });
    await third.turns.start();
    expect(asked).toHaveLength(2);
    third.turns.follow(back, 'f2');
    expect(back.take('chat.turns').at(-1)).toMatchObject({
      turns: [{ state: 'done', recovered: true }, { state: 'interrupted' }],
    });
  });

  it('are not recovered by the answer to the same question that was asked again later', async () => {
    const first = await setUp();
    const client = createClient('f');
    // No event tells that the first one has reached the agent; of the second, one does.
    await first.begin(client);
    await first.clock.advanceAsync(10_000);
    const body = await first.begin(client, 'c2');
    body.event({ type: 'assistant.delta', delta: 'so' });
    await first.clock.advanceAsync(1_000);
    const asked: AskedQuestion[] = [];
    const second = await setUp({
      from: first,
      async recover(turn) {
        asked.push(turn);
        return undefined;
      },
    });
    await second.turns.start();
    const [start = 0, again = 0] = asked.map(({ startedAt }) => startedAt);
    expect(again - start).toBeGreaterThanOrEqual(10);
    expect(asked.map(({ askedBefore }) => askedBefore)).toEqual([again, undefined]);
    // Alone, it has a minute to arrive.
    const third = await setUp();
    await third.begin(client);
    const fourth = await setUp({
      from: third,
      async recover(turn) {
        asked.push(turn);
        return undefined;
      },
    });
    await fourth.turns.start();
    const { startedAt = 0, askedBefore } = asked.at(-1) ?? {};
    expect(askedBefore).toBe(startedAt + 60);
  });

  it('are gone a week after their end, without anybody asking', async () => {
    const { turns, clock, store, begin } = await setUp();
    const client = createClient('f');
    (await begin(client)).end();
    await clock.advanceAsync(7 * 24 * 60 * MINUTE - 2_000);
    expect(await store.getKeys()).not.toEqual([]);
    await clock.advanceAsync(2 * MINUTE);
    expect(await store.getKeys()).toEqual([]);
    turns.follow(client, 'f1');
    expect(client.take('chat.turns')).toEqual([{ turns: [] }]);
    expect(clock.pending).toBe(0);
  });

  it('have times of their own, so that since misses none', async () => {
    const { turns, begin } = await setUp();
    const client = createClient('f');
    for (let at = 0; at < 5; at++) await begin(client, `c${at}`);
    turns.follow(client, 'f1');
    const listed = client.take('chat.turns')[0]?.turns as { started_at: number }[];
    expect(new Set(listed.map(({ started_at }) => started_at)).size).toBe(5);
    turns.follow(client, 'f2', listed[1]?.started_at);
    expect(client.take('chat.turns')[1]?.turns).toEqual(listed.slice(2));
  });
});
