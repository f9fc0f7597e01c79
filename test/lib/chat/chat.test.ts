import { describe, expect, it, vi } from 'vitest';
import { type ChatClient, createChat } from '../../../lib/chat/chat.ts';
import type { Upstream, UpstreamRequest } from '../../../lib/host/upstream.ts';
import type { WatermarkLimits } from '../../../lib/socket/watermark.ts';
import { createBody } from '../../support/agent-body.ts';
import { createTestClock } from '../../support/clock.ts';
import { garbageCollector } from '../../support/garbage.ts';
import { createTestLog } from '../../support/log.ts';

const MINUTE = 60_000;
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

function setUp({ answers = true, typedStream = true }: { answers?: boolean; typedStream?: boolean } = {}) {
  const clock = createTestClock();
  const requests: UpstreamRequest[] = [];
  const bodies: ReturnType<typeof createBody>[] = [];
  const upstream: Upstream = (request) => {
    requests.push(request);
    if (!answers) {
      return new Promise((_, reject) => {
        request.signal.addEventListener('abort', () => reject(new Error('aborted')));
      });
    }
    const body = createBody(request.signal);
    bodies.push(body);
    return Promise.resolve({ status: 200, headers: {}, body: body.chunks });
  };
  const log = createTestLog();
  const chat = createChat({ config: { webapiUrl: 'http://api', apiServerKey: 'k' }, upstream, clock, log });
  const sent: { channel: string; type: string; payload: Record<string, unknown>; id?: string }[] = [];
  const marks = new Set<WatermarkLimits>();
  const client: ChatClient = {
    typedStream,
    send: (channel, type, payload, id) => void sent.push({ channel, type, payload, id }),
    sendError: (message, error, id) =>
      void sent.push({ channel: 'system', type: 'error', payload: { message, error }, id }),
    follow(limits) {
      marks.add(limits);
      return () => marks.delete(limits);
    },
  };
  return { chat, client, clock, requests, bodies, sent, marks, log };
}

const TURN = { message: 'hi', sessionId: 's1' };

describe('timeouts (contract 02 §5.2)', () => {
  it.each([
    ['create', { message: 'hi' }],
    ['list', undefined],
  ])('%s times out after 30 seconds', async (_name, turn) => {
    const { chat, client, clock, requests, sent } = setUp({ answers: false });
    if (turn) chat.send(client, 'c1', turn);
    else chat.listSessions(client, 'c1');
    await clock.advanceAsync(29_999);
    expect(sent).toEqual([]);
    await clock.advanceAsync(1);
    await settled();
    expect(sent).toMatchObject([
      {
        type: 'chat.error',
        id: 'c1',
        payload: { message: 'Cannot reach the API server: no answer within 30 seconds' },
      },
    ]);
    expect(requests[0]?.signal.aborted).toBe(true);
    expect([chat.running(), clock.pending]).toEqual([0, 0]);
  });

  it('includes an answer that begins but does not end', async () => {
    const { chat, client, clock, bodies, sent } = setUp();
    chat.listSessions(client, 'c1');
    await settled();
    bodies[0]?.raw('[');
    await clock.advanceAsync(30_000);
    await settled();
    expect(sent).toMatchObject([{ type: 'chat.error' }]);
    expect([chat.running(), clock.pending]).toEqual([0, 0]);
  });

  it.each([true, false])('a stream may be silent for up to 30 minutes (answered: %s)', async (answers) => {
    const { chat, client, clock, requests, bodies, sent } = setUp({ answers });
    chat.send(client, 'c1', TURN);
    await settled();
    if (answers) {
      for (let n = 0; n < 5; n++) {
        await clock.advanceAsync(29 * MINUTE);
        bodies[0]?.raw(': still here\n');
        await settled();
      }
    }
    await clock.advanceAsync(30 * MINUTE - 1);
    await settled();
    const others = () => sent.filter(({ payload }) => payload.event !== 'relay.waiting');
    expect([others(), chat.running()]).toEqual([[], 1]);
    await clock.advanceAsync(1);
    await settled();
    expect(others()).toMatchObject([
      {
        type: 'chat.error',
        payload: { message: 'The API server sent nothing for 30 minutes', error: 'upstream_error' },
      },
    ]);
    expect(requests[0]?.signal.aborted).toBe(true);
    expect([chat.running(), clock.pending]).toEqual([0, 0]);
  });

  it('an upstream that stays open after [DONE] is dropped after 30 seconds without an error', async () => {
    for (const typedStream of [true, false]) {
      const { chat, client, clock, bodies, sent, requests } = setUp({ typedStream });
      chat.send(client, 'c1', TURN);
      await settled();
      bodies[0]?.raw('data: [DONE]\n\n');
      await clock.advanceAsync(29_999);
      expect(chat.running()).toBe(1);
      await clock.advanceAsync(1);
      await settled();
      expect(sent.map(({ type }) => type)).toEqual([typedStream ? 'stream.event' : 'chat.completed']);
      expect(requests[0]?.signal.aborted).toBe(true);
      expect([chat.running(), clock.pending]).toEqual([0, 0]);
    }
  });
});

describe('a silent agent (issue 23 §2.9)', () => {
  const waits = (sent: { payload: Record<string, unknown> }[]) =>
    sent.filter(({ payload }) => payload.event === 'relay.waiting').map(({ payload }) => payload.payload);

  it.each([true, false])(
    'is reported each 30 s to a client that reads typed events (answered: %s)',
    async (answers) => {
      const { chat, client, clock, bodies, sent } = setUp({ answers });
      chat.send(client, 'c1', TURN);
      await settled();
      await clock.advanceAsync(29_999);
      expect(sent).toEqual([]);
      await clock.advanceAsync(1);
      expect(sent).toMatchObject([
        {
          channel: 'chat',
          type: 'stream.event',
          id: 'c1',
          payload: { type: 'stream.event', schema_version: 1, session_id: 's1', run_id: null, seq: 1 },
        },
      ]);
      await clock.advanceAsync(65_000);
      expect(waits(sent)).toEqual([{ seconds: 30 }, { seconds: 60 }, { seconds: 90 }]);
      if (answers) {
        // A comment keeps the connection alive, and says nothing to the client.
        bodies[0]?.raw(': still here\n');
        bodies[0]?.event({ type: 'assistant.delta', delta: 'Hm', seq: 2 });
        await settled();
        await clock.advanceAsync(29_999);
        expect(sent.at(-1)?.payload).toMatchObject({ event: 'assistant.delta', seq: 4 });
        await clock.advanceAsync(1);
        expect(sent.at(-1)?.payload).toMatchObject({ event: 'relay.waiting', seq: 5, payload: { seconds: 30 } });
        bodies[0]?.raw('data: [DONE]\n\n');
        await settled();
        await clock.advanceAsync(29_999);
        expect([sent.at(-1)?.payload.event, waits(sent).length]).toEqual(['done', 4]);
      }
      chat.drop(client);
      await settled();
      expect(clock.pending).toBe(0);
    },
  );

  it('is not reported to any other client, nor while the client is behind', async () => {
    const legacy = setUp({ typedStream: false });
    legacy.chat.send(legacy.client, 'c1', TURN);
    await legacy.clock.advanceAsync(20 * MINUTE);
    expect(legacy.sent).toEqual([]);
    for (const limits of legacy.marks) limits.resume();
    await legacy.clock.advanceAsync(5 * MINUTE);
    expect(legacy.sent).toEqual([]);

    const { chat, client, clock, sent, marks } = setUp();
    chat.send(client, 'c1', TURN);
    await settled();
    for (const limits of marks) limits.pause();
    await clock.advanceAsync(5 * MINUTE);
    expect(sent).toEqual([]);
    for (const limits of marks) limits.resume();
    await clock.advanceAsync(30_000);
    expect(waits(sent)).toEqual([{ seconds: 30 }]);
  });
});

describe('backpressure (contract 02 §1.7)', () => {
  it('reads nothing while the client is behind, and does not count that as silence', async () => {
    const { chat, client, clock, bodies, sent, marks } = setUp();
    chat.send(client, 'c1', TURN);
    await settled();
    const [limits] = marks as unknown as [WatermarkLimits];
    expect([limits.high, limits.low]).toEqual([1024 * 1024, 256 * 1024]);
    limits.pause();
    bodies[0]?.event({ type: 'a' });
    bodies[0]?.event({ type: 'b' });
    await settled();
    // The read in flight still arrives.
    expect(sent).toHaveLength(1);
    await clock.advanceAsync(120 * MINUTE);
    expect([sent.length, bodies[0]?.pulled]).toEqual([1, 1]);
    limits.resume();
    await settled();
    expect(sent.map(({ payload }) => payload.event)).toEqual(['a', 'b']);
    bodies[0]?.end();
    await settled();
    expect([marks.size, chat.running(), clock.pending]).toEqual([0, 0, 0]);
  });

  it('a paused stream can be dropped', async () => {
    const { chat, client, clock, requests, bodies, sent, marks } = setUp();
    chat.send(client, 'c1', TURN);
    await settled();
    for (const limits of marks) limits.pause();
    bodies[0]?.event({ type: 'a' });
    await settled();
    chat.drop(client);
    expect(requests[0]?.signal.aborted).toBe(true);
    await settled();
    expect([sent.length, marks.size, chat.running(), clock.pending]).toEqual([1, 0, 0, 0]);
  });
});

describe('limits and cancellation', () => {
  it('contract 02 §5.1: four streams per socket; lists are counted separately', async () => {
    const { chat, client, requests, sent } = setUp({ answers: false });
    for (let n = 1; n <= 5; n++) chat.send(client, `c${n}`, TURN);
    chat.listSessions(client, 'l1');
    chat.send({ ...client }, 'other', TURN);
    await settled();
    expect(requests).toHaveLength(6);
    expect(sent).toMatchObject([{ type: 'chat.error', id: 'c5', payload: { error: 'session_limit' } }]);
    chat.drop(client);
    await settled();
    chat.send(client, 'c6', TURN);
    expect(requests).toHaveLength(7);
  });

  it('contract 02 §1.5: a lost grant is reported for each request', async () => {
    const { chat, client, sent, clock } = setUp({ answers: false });
    chat.send(client, 'c1', TURN);
    chat.send(client, 'c2', { message: 'hi' });
    chat.revoke(client);
    await settled();
    expect(sent.map(({ channel, type, id }) => [channel, type, id])).toEqual([
      ['chat', 'chat.error', 'c1'],
      ['system', 'error', 'c1'],
      ['chat', 'chat.error', 'c2'],
      ['system', 'error', 'c2'],
    ]);
    expect([chat.running(), clock.pending]).toEqual([0, 0]);
  });

  it('the end of one request leaves the others of its client to be cancelled and counted', async () => {
    const { chat, client, requests, bodies } = setUp();
    chat.send(client, 'c1', TURN);
    chat.send(client, 'c2', TURN);
    await settled();
    bodies[0]?.end();
    await vi.waitFor(() => expect(chat.streamsOf(client)).toBe(1));
    expect(chat.running()).toBe(1);
    chat.drop(client);
    expect(requests[1]?.signal.aborted).toBe(true);
    expect(chat.running()).toBe(0);
  });

  it('requests that end after their client was dropped do not take its new ones with them', async () => {
    const { chat, client, requests } = setUp({ answers: false });
    chat.send(client, 'c1', TURN);
    chat.drop(client);
    chat.send(client, 'c2', TURN);
    await settled();
    expect(chat.streamsOf(client)).toBe(1);
    chat.drop(client);
    expect(requests[1]?.signal.aborted).toBe(true);
  });

  it('a client whose requests have ended is forgotten', async () => {
    const collect = garbageCollector();
    const { chat, client, requests, bodies } = setUp();
    const seen = await (async () => {
      const own = { ...client };
      chat.send(own, 'c1', TURN);
      await settled();
      bodies[0]?.end();
      await vi.waitFor(() => expect(chat.streamsOf(own)).toBe(0));
      return new WeakRef(own);
    })();
    // The fake upstream's own way to the client.
    requests.length = 0;
    bodies.length = 0;
    let isKept = true;
    for (let round = 0; isKept && round < 20; round++) {
      // A reference that was looked up stays alive until the end of its turn.
      await settled();
      collect();
      isKept = seen.deref() !== undefined;
    }
    expect(isKept).toBe(false);
  });

  it('stop ends all requests of all clients', async () => {
    const { chat, client, requests, sent, clock } = setUp({ answers: false });
    chat.send(client, 'c1', TURN);
    chat.listSessions({ ...client }, 'l1');
    chat.stop();
    expect(requests.map(({ signal }) => signal.aborted)).toEqual([true, true]);
    await settled();
    expect([sent, chat.running(), clock.pending]).toEqual([[], 0, 0]);
  });

  it('contract 02 §5.2: a key that does not fit into a header is omitted and not logged', () => {
    const log = createTestLog();
    const requests: UpstreamRequest[] = [];
    const chat = createChat({
      config: { webapiUrl: 'http://api', apiServerKey: 'se\ncret' },
      upstream: (request) => {
        requests.push(request);
        return new Promise(() => {});
      },
      clock: createTestClock(),
      log,
    });
    chat.send(setUp().client, 'c1', TURN);
    expect(requests[0]?.headers).not.toHaveProperty('authorization');
    expect(log.lines.join('\n')).toMatch(/the API key has characters/);
    expect(log.lines.join('\n')).not.toContain('cret');
  });
});
