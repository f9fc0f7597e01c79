import { expect, it, vi } from 'vitest';
import { eventsUntil, KEY, send, setUp, TYPED } from '../support/chat.ts';
import type { Client } from '../support/client.ts';
import { closedPort } from '../support/closed-port.ts';
import { type Exchange, type FakeApi, startFakeApi, whenAbandoned } from '../support/fake-api-server.ts';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';

const LEGACY = {};
const MiB = 1024 * 1024;

/** Resolves once everything that was on its way to the client has arrived. */
async function settle(client: Client): Promise<void> {
  const id = crypto.randomUUID();
  client.send('system', 'ping', {}, id);
  await client.next({ id });
}

/** Has the API server stream these events and end. */
const streaming = (api: FakeApi, ...events: unknown[]) =>
  api.onStream(async (exchange) => {
    exchange.open();
    for (const event of events) {
      await exchange.write(`data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`);
    }
    exchange.end();
  });

describeMatrix('chat (contract 02 §5)', (start) => {
  it('§5.2, §10.9: a turn without a session creates one and streams', async () => {
    const { api, device, client } = await setUp(start);
    streaming(api, { type: 'run.started', run_id: 'r1' }, { type: 'assistant.delta', delta: 'hello' }, '[DONE]');
    send(client, 'c1', { message: 'hi', profile: 'work' });
    expect(await client.next({ channel: 'chat' })).toEqual({
      channel: 'chat',
      type: 'chat.session',
      id: 'c1',
      payload: { session_id: 's1', title: 'T', model: 'm' },
    });
    const events = await eventsUntil(client, 'c1', 'done');
    expect(events.map(({ seq, event, session_id, run_id }) => [seq, event, session_id, run_id])).toEqual([
      [1, 'run.started', 's1', 'r1'],
      [2, 'assistant.delta', 's1', 'r1'],
      [3, 'done', 's1', 'r1'],
    ]);
    expect(events[2]?.payload).toEqual({ state: 'final' });

    expect(api.requests.map(({ method, path, body }) => [method, path, JSON.parse(body)])).toEqual([
      ['POST', '/api/sessions', { profile: 'work' }],
      ['POST', '/api/sessions/s1/chat/stream', { message: 'hi', profile: 'work' }],
    ]);
    expect(api.requests[1]?.headers.accept).toBe('text/event-stream');
    for (const { headers } of api.requests) {
      expect(headers['content-type']).toBe('application/json');
      expect(headers.authorization).toBe(`Bearer ${KEY}`);
      expect(JSON.stringify(headers)).not.toContain(device.token);
    }
  });

  it.each([undefined, null, '', 'default'])(
    '§5.1: profile %j and an empty session id count as absent',
    async (profile) => {
      const { api, client } = await setUp(start);
      send(client, 'c1', { message: 'hi', profile, session_id: '' });
      await eventsUntil(await afterSession(client), 'c1', 'done');
      expect(api.requests.map(({ body }) => JSON.parse(body))).toEqual([{}, { message: 'hi' }]);
    },
  );

  it('§5.2: encodes the session id in the path', async () => {
    const { api, client } = await setUp(start);
    send(client, 'c1', { message: 'hi', session_id: 'a/../b?c#ä ' });
    await eventsUntil(client, 'c1', 'done');
    expect(api.requests).toHaveLength(1);
    expect(api.requests[0]?.path).toBe('/api/sessions/a%2F..%2Fb%3Fc%23%C3%A4%20/chat/stream');
  });

  it.each([
    [{}, 'Empty message'],
    [{ message: '' }, 'Empty message'],
    [{ message: 5 }, 'Empty message'],
    [{ message: 'x', session_id: 'x'.repeat(257) }, 'Invalid session_id'],
    [{ message: 'x', session_id: 'a\nb' }, 'Invalid session_id'],
    [{ message: 'x', session_id: '..' }, 'Invalid session_id'],
    [{ message: 'x', session_id: 5 }, 'Invalid session_id'],
    [{ message: 'x', profile: {} }, 'Invalid profile'],
    ['text', 'payload must be a JSON object'],
    [[1], 'payload must be a JSON object'],
  ])('§1.4, §5.1: refuses %j: %s', async (payload, message) => {
    const { api, client } = await setUp(start);
    send(client, 'c1', payload);
    expect(await client.next({ channel: 'chat' })).toMatchObject({
      type: 'chat.error',
      id: 'c1',
      payload: { message },
    });
    await settle(client);
    expect(api.requests).toEqual([]);
  });

  it('§1.4: refuses an unknown type', async () => {
    const { client } = await setUp(start);
    client.send('chat', 'chat.nope', {}, 'c1');
    const { type, payload } = await client.next({ channel: 'chat', id: 'c1' });
    expect([type, payload.message]).toEqual(['chat.error', 'Unknown chat message type: chat.nope']);
  });

  it.each([
    [{ id: 'flat' }, { session_id: 'flat', title: 'New chat', model: 'unknown' }],
    [
      { session_id: 'flat2', title: 'A', model: 'B' },
      { session_id: 'flat2', title: 'A', model: 'B' },
    ],
  ])('§5.2: understands the create answer %j', async (answer, payload) => {
    const { api, client } = await setUp(start);
    api.onAny((exchange) => exchange.answer(200, exchange.path === '/api/sessions' ? answer : ''));
    send(client, 'c1', { message: 'hi' });
    expect((await client.next({ channel: 'chat' })).payload).toEqual(payload);
    expect((await api.request(1)).path).toBe(`/api/sessions/${payload.session_id}/chat/stream`);
  });

  it.each([
    [200, {}, 'Failed to create session: the answer has no usable session id'],
    [200, { session: { id: 5 } }, 'Failed to create session: the answer has no usable session id'],
    [200, { id: '..' }, 'Failed to create session: the answer has no usable session id'],
    [200, [], 'Failed to create session: the answer has no usable session id'],
    [200, 'hello', 'Failed to create session: the answer is not JSON'],
    [204, '', 'Failed to create session (HTTP 204): '],
    [500, 'no '.repeat(200), `Failed to create session (HTTP 500): ${'no '.repeat(200).slice(0, 200)}`],
    [401, `bad key ${KEY}`, 'Failed to create session (HTTP 401): bad key [REDACTED]'],
  ])('§5.2: refuses the create answer %i %j', async (status, answer, message) => {
    const { api, client } = await setUp(start);
    api.onAny((exchange) => exchange.answer(status, answer));
    send(client, 'c1', { message: 'hi' });
    const { type, payload } = await client.next({ channel: 'chat', id: 'c1' });
    expect([type, payload.message, payload.error]).toEqual(['chat.error', message, 'upstream_error']);
    expect(api.requests).toHaveLength(1);
  });

  it('§5.2: reports a stream that is not 200, and follows no redirect', async () => {
    const { api, client } = await setUp(start);
    api.onAny((exchange) => exchange.answer(503, 'x'.repeat(100_000)));
    send(client, 'c1');
    expect((await client.next({ id: 'c1' })).payload.message).toBe(`API server error (503): ${'x'.repeat(200)}`);
    api.onAny((exchange) => exchange.answer(307, 'over there', { location: '/elsewhere' }));
    send(client, 'c2');
    expect((await client.next({ id: 'c2' })).payload.message).toBe('API server error (307): over there');
    client.send('chat', 'chat.sessions.list', {}, 'l1');
    expect((await client.next({ id: 'l1' })).payload.message).toBe('Failed to list sessions (HTTP 307): over there');
    send(client, 'c3', { message: 'hi' });
    expect((await client.next({ id: 'c3' })).payload.message).toBe('Failed to create session (HTTP 307): over there');
    expect(api.requests.map(({ path }) => path)).not.toContain('/elsewhere');
    expect(api.requests).toHaveLength(4);
  });

  it('§5.2: reports an unreachable API server', async () => {
    const { client } = await setUp(start, TYPED, { url: `http://127.0.0.1:${await closedPort()}` });
    for (const payload of [{ message: 'hi' }, { message: 'hi', session_id: 's' }]) {
      send(client, 'c1', payload);
      const { type, payload: said } = await client.next({ channel: 'chat', id: 'c1' });
      expect(type).toBe('chat.error');
      expect(said.message).toMatch(/^Cannot reach the API server: ./);
    }
    client.send('chat', 'chat.sessions.list', {}, 'l1');
    expect((await client.next({ id: 'l1' })).payload.message).toMatch(/^Cannot reach the API server: ./);
  });

  it.each([
    [TYPED, 'stream.event'],
    [LEGACY, 'chat.delta'],
  ])('§5.2: reports a connection that breaks mid-stream', async (mode, type) => {
    const { api, client } = await setUp(start, mode);
    api.onStream(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'assistant.delta', delta: 'x' });
    });
    send(client, 'c1');
    await client.next({ channel: 'chat', type });
    (await api.request(0)).cut();
    const { type: error, payload } = await client.next({ channel: 'chat', id: 'c1' });
    expect(error).toBe('chat.error');
    expect(payload.message).toMatch(/^The connection to the API server broke/);
    await settle(client);
    expect(client.frames).toEqual([]);
  });

  it('§5.2: passes on lists of sessions in all their forms', async () => {
    const { api, client } = await setUp(start);
    const rows = [{ id: 'a', token: 'kept as it is' }, { id: 'b' }];
    for (const answer of [rows, { data: rows }, { sessions: [...rows, 5, null, []] }, { items: rows }]) {
      api.onAny((exchange) => exchange.answer(200, answer));
      client.send('chat', 'chat.sessions.list', {}, 'l1');
      const frame = await client.next({ channel: 'chat' });
      expect(frame).toEqual({ channel: 'chat', type: 'chat.sessions', id: 'l1', payload: { sessions: rows } });
    }
    client.send('chat', 'chat.sessions.list', { profile: 'a&b=c' }, 'l2');
    await client.next({ id: 'l2' });
    const last = api.requests.at(-1) as Exchange;
    expect([last.method, last.path, [...last.query]]).toEqual(['GET', '/api/sessions', [['profile', 'a&b=c']]]);
    expect(last.headers.authorization).toBe(`Bearer ${KEY}`);
    expect([...(api.requests[0] as Exchange).query]).toEqual([]);

    for (const [status, answer, message] of [
      [500, 'broken', 'Failed to list sessions (HTTP 500): broken'],
      [201, '[]', 'Failed to list sessions (HTTP 201): []'],
      [200, '{}', 'Failed to list sessions: the answer has no list'],
    ] as const) {
      api.onAny((exchange) => exchange.answer(status, answer));
      client.send('chat', 'chat.sessions.list', {}, 'l3');
      expect((await client.next({ id: 'l3' })).payload.message).toBe(message);
    }
  });

  it('§1.6: lists and other turns do not wait for a stream', async () => {
    const { api, client } = await setUp(start);
    api.onStream(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'run.started' });
      if (exchange.path.includes('quick')) exchange.end();
    });
    send(client, 'slow', { message: 'hi', session_id: 'slow' });
    client.send('chat', 'chat.sessions.list', {}, 'list');
    send(client, 'quick', { message: 'hi', session_id: 'quick' });
    expect((await client.next({ id: 'list' })).type).toBe('chat.sessions');
    expect(await eventsUntil(client, 'quick', 'done')).toHaveLength(2);
    expect((await client.next({ id: 'slow' })).payload.event).toBe('run.started');
  });

  it('§5.1: runs four streams at once; a fifth is refused until one ends', async () => {
    const { api, client } = await setUp(start);
    api.onStream(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'run.started' });
    });
    for (const id of ['c1', 'c2', 'c3', 'c4', 'c5']) send(client, id);
    expect((await client.next({ id: 'c5' })).type).toBe('chat.error');
    for (const id of ['c1', 'c2', 'c3', 'c4']) await client.next({ id, type: 'stream.event' });
    expect(api.requests).toHaveLength(4);
    api.requests[0]?.end();
    await client.next({ type: 'stream.event' });
    send(client, 'c6');
    await vi.waitFor(async () => {
      const answer = await client.next({ id: 'c6' });
      if (answer.type === 'chat.error') send(client, 'c6');
      expect(answer.type).toBe('stream.event');
    });
  });

  it('§5.3: parses split characters and lines, comments, names and marks, and drops the rest', async () => {
    const { api, client } = await setUp(start);
    const text =
      ': a comment\r\nevent: assistant.delta\r\ndata: {"delta":\r\ndata: "ä😀日"}\r\n\r\n' +
      'data: not json\n\ndata: [1]\n\nevent: x\n\ndata: {"event":"tool.started"}\r\rdata: {"type":"run.completed"}';
    const bytes = new TextEncoder().encode(text);
    api.onStream(async (exchange) => {
      exchange.open();
      for (const byte of bytes) await exchange.write(Uint8Array.of(byte));
      exchange.end();
    });
    send(client, 'c1');
    const events = await eventsUntil(client, 'c1', 'run.completed');
    expect(events.map(({ event, payload }) => [event, payload])).toEqual([
      ['assistant.delta', { delta: 'ä😀日' }],
      ['tool.started', {}],
      ['run.completed', {}],
    ]);
  });

  it('§5.3: skips an event of more than 4 MiB', async () => {
    const { api, client } = await setUp(start);
    streaming(api, { type: 'a' }, { type: 'big', delta: 'x'.repeat(4 * MiB) }, { type: 'b' }, '[DONE]');
    send(client, 'c1');
    expect((await eventsUntil(client, 'c1', 'done')).map(({ event }) => event)).toEqual(['a', 'b', 'done']);
  });

  it('§5.5: seq never decreases, previews are cut and secrets redacted', async () => {
    const { api, client } = await setUp(start);
    streaming(
      api,
      { type: 'assistant.delta', seq: 7, delta: 'x'.repeat(5000) },
      { type: 'tool.started', seq: 3, args: { api_key: 'k', list: Array(50).fill(1) } },
      { type: 'tool.completed', seq: 20, output: 'y'.repeat(5000) },
    );
    send(client, 'c1');
    const events = await eventsUntil(client, 'c1', 'done');
    expect(events.map(({ seq, event }) => [seq, event])).toEqual([
      [7, 'assistant.delta'],
      [8, 'tool.started'],
      [20, 'tool.completed'],
      [21, 'done'],
    ]);
    expect(events.map(({ payload }) => payload)).toEqual([
      { delta: 'x'.repeat(5000) },
      { args: { api_key: '[REDACTED]', list: Array(20).fill(1) } },
      { output_preview: `${'y'.repeat(1599)}…` },
      { state: 'final', synthetic: true },
    ]);
  });

  it.each([{ typed_stream_events: false }, { typed_stream_events: true, event_schema_version: 2 }, undefined])(
    '§5.4, §5.6: a socket that supports %j gets the legacy form',
    async (supports) => {
      const { api, client } = await setUp(start, { supports });
      streaming(
        api,
        { type: 'run.started' },
        { type: 'assistant.delta', message_id: 'm1', delta: 'hel' },
        { type: 'tool.started', tool_name: 't', call_id: 'k', args: { password: 'p', path: '/x' } },
        { type: 'tool.completed', tool_name: 't', call_id: 'k', result: 'z'.repeat(2000) },
        { type: 'assistant.completed', message_id: 'm1', content: 'hello' },
        { type: 'run.completed', message_id: 'm1', content: 'hello', api_calls: 2 },
        { type: 'done' },
        '[DONE]',
      );
      send(client, 'c1');
      const frames = [];
      while (frames.at(-1)?.type !== 'chat.completed') frames.push(await client.next({ channel: 'chat', id: 'c1' }));
      expect(frames.map(({ type, payload }) => [type, payload])).toEqual([
        ['chat.delta', { session_id: 's9', message_id: 'm1', delta: 'hel' }],
        [
          'chat.tool.started',
          { tool_name: 't', tool_call_id: 'k', preview: '', args: { password: '[REDACTED]', path: '/x' } },
        ],
        [
          'chat.tool.completed',
          { tool_name: 't', tool_call_id: 'k', result_preview: `${'z'.repeat(1599)}…`, success: true },
        ],
        [
          'chat.turn.completed',
          { session_id: 's9', message_id: 'm1', content: 'hello', completed: true, partial: false, interrupted: false },
        ],
        ['chat.completed', { session_id: 's9', message_id: 'm1', content: 'hello', api_calls: 2 }],
      ]);
      await settle(client);
      expect(client.frames).toEqual([]);

      streaming(api, { type: 'assistant.delta', delta: 'x' });
      send(client, 'c2');
      expect((await client.next({ id: 'c2', type: 'chat.completed' })).payload).toMatchObject({ session_id: 's9' });
      streaming(api, { type: 'error', message: 'no credit' });
      send(client, 'c3');
      expect((await client.next({ id: 'c3' })).payload).toEqual({ message: 'no credit' });
    },
  );

  it.each(['close', 'terminate'] as const)('§10.10: %s of the socket ends the upstream request', async (how) => {
    const { api, client } = await setUp(start);
    api.onStream(async (exchange) => {
      exchange.open();
      if (exchange.path.includes('talking')) await exchange.event({ type: 'run.started' });
    });
    send(client, 'c1', { message: 'hi', session_id: 'talking' });
    await client.next({ id: 'c1' });
    send(client, 'c2', { message: 'hi', session_id: 'silent' });
    await api.request(1);
    client[how]();
    await Promise.all(api.requests.map(whenAbandoned));
  });

  it('§10.10: also a request without an answer yet, and a list', async () => {
    const { api, client } = await setUp(start);
    api.onAny(() => {});
    send(client, 'c1');
    send(client, 'c2', { message: 'hi' });
    client.send('chat', 'chat.sessions.list', {}, 'l1');
    await api.request(2);
    client.close();
    await Promise.all(api.requests.map(whenAbandoned));
  });

  it('§1.5: the end of the grant ends the stream and is reported', async () => {
    const { api, target, device, client } = await setUp(start);
    api.onStream(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'run.started' });
    });
    send(client, 'c1');
    await client.next({ id: 'c1' });
    const reduced = await target.fetch(`/sessions/${device.prefix}`, {
      ...post({ grants: { chat: 1 } }),
      method: 'PATCH',
      headers: bearer(device.token),
    });
    expect(reduced.status).toBe(200);
    const message = 'Chat grant expired for this device';
    const expected = { message, error: 'permission_denied' };
    expect(await client.next({ channel: 'chat' })).toMatchObject({ type: 'chat.error', id: 'c1', payload: expected });
    const { payload } = await client.next({ channel: 'system', type: 'error' });
    expect(payload).toEqual({ ...expected, channel: 'chat' });
    await whenAbandoned(await api.request(0));

    send(client, 'c2');
    expect((await client.next({ channel: 'system', id: 'c2' })).payload).toEqual({ ...expected, channel: 'chat' });
    expect((await client.next({ channel: 'chat', id: 'c2' })).payload).toMatchObject(expected);
    await settle(client);
    expect(client.frames).toEqual([]);
    expect(api.requests).toHaveLength(1);
  });

  it('§1.5: revoking the session ends the stream', async () => {
    const { api, target, device, client } = await setUp(start);
    api.onStream((exchange) => exchange.open());
    send(client, 'c1');
    const exchange = await api.request(0);
    await target.fetch(`/sessions/${device.prefix}`, { method: 'DELETE', headers: bearer(device.token) });
    expect(await client.closed()).toEqual({ code: 4401, reason: 'session revoked' });
    await whenAbandoned(exchange);
  });

  it('§5.1: a finished upstream that stays connected holds no place, and its disconnect is not reported', async () => {
    const { api, client } = await setUp(start);
    api.onStream(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'run.completed' });
    });
    send(client, 'c1');
    await eventsUntil(client, 'c1', 'run.completed');
    (await api.request(0)).cut();
    send(client, 'c2');
    await eventsUntil(client, 'c2', 'run.completed');
    await settle(client);
    expect(client.frames).toEqual([]);
  });

  it('§5.7: the log holds no text, no argument and no key', async () => {
    const { api, target, device, client } = await setUp(start);
    streaming(api, { type: 'assistant.delta', delta: 'CANARY-1' }, { type: 'tool.started', args: { a: 'CANARY-2' } });
    send(client, 'c1', { message: 'CANARY-3', session_id: 's9', profile: 'work' });
    await eventsUntil(client, 'c1', 'done');
    api.onAny((exchange) => exchange.answer(500, 'CANARY-4'));
    send(client, 'c2', { message: 'CANARY-5' });
    await client.next({ id: 'c2' });
    await expect.poll(() => target.log.join('\n')).toContain('HTTP 500');
    const log = target.log.join('\n');
    expect(log).not.toContain('CANARY');
    expect(log).not.toContain(KEY);
    expect(log).not.toContain(device.token);
    expect(log).toContain('8 characters to s9 of work');
  });

  it('§5.2: sends no authorization without a key', async () => {
    const api = await startFakeApi();
    const target = await start({ env: { RELAY_WEBAPI_URL: api.url } });
    const { client } = await pair(target, { device: TYPED });
    send(client, 'c1');
    await eventsUntil(client, 'c1', 'done');
    expect(api.requests[0]?.headers).not.toHaveProperty('authorization');
  });
});

/** Consumes the `chat.session` frame. */
async function afterSession(client: Client): Promise<Client> {
  await client.next({ type: 'chat.session' });
  return client;
}

describeMatrix('chat.cancel (contract 09 §1)', (start) => {
  it('§1: ends a stream with a last event, aborts the request, and leaves other streams alone', async () => {
    for (const supports of [TYPED, LEGACY]) {
      const { api, client } = await setUp(start, supports);
      api.onStream(async (exchange) => {
        exchange.open();
        await exchange.write('data: {"type":"assistant.delta","delta":"a"}\n\n');
      });
      send(client, 'c1');
      await client.next({ channel: 'chat', id: 'c1' });
      send(client, 'c2');
      await client.next({ channel: 'chat', id: 'c2' });
      client.send('chat', 'chat.cancel', { request_id: 'c1' }, 'x1');
      const last = await client.next({ channel: 'chat', id: 'c1' });
      if (supports === TYPED) {
        expect(last.payload).toMatchObject({ event: 'done', payload: { state: 'final', cancelled: true } });
      } else {
        expect(last).toMatchObject({ type: 'chat.completed', payload: { interrupted: true } });
      }
      await whenAbandoned(await api.request(0));
      // Unknown, ended and malformed ids get no answer.
      for (const id of ['c1', 'other', 7, null]) client.send('chat', 'chat.cancel', { request_id: id });
      await settle(client);
      expect(client.frames.filter(({ channel }) => channel === 'chat')).toEqual([]);
      expect((await api.request(1)).abandoned).toBe(false);
    }
  });

  it('§1: cancels a turn whose session is still being created', async () => {
    const { api, client } = await setUp(start);
    api.onAny(() => {});
    send(client, 'c1', { message: 'hi' });
    await api.request(0);
    client.send('chat', 'chat.cancel', { request_id: 'c1' });
    const { payload } = await client.next({ channel: 'chat', id: 'c1' });
    expect(payload).toMatchObject({ event: 'done', session_id: '', payload: { cancelled: true } });
    await whenAbandoned(await api.request(0));
  });
});

describeMatrix(
  'chat on a host (contract 02 §1)',
  (start) => {
    it('§1.8: a client that leaves while the upstream is paused frees it', async () => {
      const { api, target, client } = await setUp(start);
      const delta = 'x'.repeat(64 * 1024);
      api.onStream(async (exchange) => {
        exchange.open();
        while (!exchange.abandoned) await exchange.event({ type: 'assistant.delta', delta });
      });
      client.socket.pause();
      send(client, 'c1');
      await api.request(0);
      await vi.waitFor(() => expect(target.relay?.chat.running()).toBe(1));
      client.terminate();
      await whenAbandoned(await api.request(0));
      await vi.waitFor(() => expect(target.relay?.chat.running()).toBe(0));
    });

    it('§1.8: shutdown ends the streams', async () => {
      const { api, target, client } = await setUp(start);
      api.onStream((exchange) => exchange.open());
      send(client, 'c1');
      const exchange = await api.request(0);
      await target.relay?.stop();
      expect(await client.closed()).toEqual({ code: 1001, reason: 'server shutting down' });
      await whenAbandoned(exchange);
      expect(client.frames).toEqual([]);
    });
  },
  ['node'],
);
