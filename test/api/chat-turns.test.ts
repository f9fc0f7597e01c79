import { expect, it } from 'vitest';
import { setUp, TYPED } from '../support/chat.ts';
import { again, follow, keep, nextEvent, nextTurn, resume, settle } from '../support/chat-turns.ts';
import { createTestClock } from '../support/clock.ts';
import { type FakeApi, whenAbandoned } from '../support/fake-api-server.ts';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';

/** Has the API server begin a stream with these deltas, and leave it open. */
const begin = (api: FakeApi, ...deltas: string[]) =>
  api.onStream(async (exchange) => {
    exchange.open();
    for (const delta of deltas) await exchange.event({ type: 'assistant.delta', delta });
  });

describeMatrix('chat turns that outlive their socket (contract 10 §1)', (start, runtime) => {
  it('goes on without its socket, and another one resumes it', async () => {
    const { api, target, device, client } = await setUp(start);
    begin(api, 'hel');
    keep(client, 'c1', { client_turn_id: 'mine-1', profile: 'work' });
    const first = await nextEvent(client, 'c1');
    expect(first).toMatchObject({ seq: 1, event: 'assistant.delta', payload: { delta: 'hel' } });
    const { turn_id } = first;
    client.terminate();

    const second = await again(target, device);
    expect(await follow(second)).toEqual([
      {
        turn_id,
        client_turn_id: 'mine-1',
        session_id: 's9',
        profile: 'work',
        state: 'running',
        started_at: expect.any(Number),
        seq: 1,
        preview: 'hel',
      },
    ]);
    const { type, payload } = await resume(second, { turn_id }, 'r1');
    expect(type).toBe('chat.snapshot');
    expect(payload).toEqual({
      turn_id,
      session_id: 's9',
      state: 'running',
      question: 'hi',
      text: 'hel',
      tools: [],
      seq: 1,
    });
    const exchange = await api.request(0);
    await exchange.event({ type: 'tool.started', tool_name: 'shell', call_id: 't1', args: { token: 'x', cmd: 'ls' } });
    await exchange.event({ type: 'assistant.delta', delta: 'lo' });
    expect(await nextEvent(second, 'r1')).toMatchObject({ turn_id, seq: 2, event: 'tool.started' });
    await exchange.event({ type: 'tool.completed', tool_name: 'shell', call_id: 't1', result: 'a b' });
    await exchange.event({ type: 'run.completed', usage: { input_tokens: 1, output_tokens: 2 } });
    exchange.end();
    for (const event of ['assistant.delta', 'tool.completed', 'run.completed']) {
      expect(await nextEvent(second, 'r1')).toMatchObject({ turn_id, event });
    }
    expect(await nextTurn(second)).toMatchObject({ turn_id, state: 'done', seq: 5, preview: 'hello' });
    expect(api.requests).toHaveLength(1);

    const done = (await resume(second, { turn_id, after: 3 })).payload;
    expect(done).toEqual({
      turn_id,
      session_id: 's9',
      state: 'done',
      question: 'hi',
      text: 'hello',
      tools: [{ id: 't1', name: 'shell', state: 'done', preview: 'a b' }],
      usage: { input_tokens: 1, output_tokens: 2 },
      seq: 5,
    });
    // Who has everything gets no snapshot.
    second.send('chat', 'chat.resume', { turn_id, after: 5 }, 'r2');
    await settle(second);
    expect(second.frames.filter(({ id }) => id === 'r2')).toEqual([]);
  });

  it('answers a repeated client_turn_id with the turn, and asks the agent once', async () => {
    const { api, target, device, client } = await setUp(start);
    begin(api, 'a');
    for (const id of ['c1', 'c2']) keep(client, id, { client_turn_id: 'same' });
    expect((await client.next({ channel: 'chat', id: 'c2' })).payload).toMatchObject({
      client_turn_id: 'same',
      state: 'running',
    });
    // The socket's latest request gets the events.
    const { turn_id, seq } = await nextEvent(client, 'c2');
    const other = await again(target, device);
    keep(other, 'c3', { client_turn_id: 'same', message: 'something else' });
    expect((await other.next({ channel: 'chat', id: 'c3' })).payload).toMatchObject({ turn_id, seq });
    const exchange = await api.request(0);
    await exchange.event({ type: 'run.completed' });
    expect(await nextEvent(other, 'c3')).toMatchObject({ turn_id, event: 'run.completed' });
    await nextEvent(client, 'c2');
    // Nor is one that has ended asked anew.
    await expect
      .poll(async () => {
        keep(other, 'c4', { client_turn_id: 'same' });
        return (await other.next({ id: 'c4' })).payload.state;
      })
      .toBe('done');
    expect(api.requests).toHaveLength(1);
    // Another pairing has ids of its own, and sees none of these turns.
    const stranger = await pair(target, { device: TYPED });
    expect(await follow(stranger.client)).toEqual([]);
    expect((await resume(stranger.client, { turn_id })).payload.message).toBe('Unknown turn');
    stranger.client.send('chat', 'chat.cancel', { turn_id });
    keep(stranger.client, 'x', { client_turn_id: 'same' });
    await api.request(1);
  });

  it('refuses a client_turn_id that is none', async () => {
    const { api, client } = await setUp(start);
    for (const client_turn_id of ['a b', '', 'x'.repeat(65), 5, 'a/b', {}]) {
      keep(client, 'c1', { client_turn_id });
      const { type, payload } = await client.next({ channel: 'chat', id: 'c1' });
      expect([type, payload.message]).toEqual(['chat.error', 'Invalid client_turn_id']);
    }
    expect(api.requests).toEqual([]);
  });

  it('tells all followers at the start and at the end, and lists what has changed since', async () => {
    const { api, target, device, client } = await setUp(start);
    api.onStream((exchange) => {
      exchange.open();
      exchange.end();
    });
    const other = await again(target, device, {});
    expect(await follow(client)).toEqual([]);
    await follow(other);
    keep(client, 'c1', { session_id: undefined });
    const created = await client.next({ channel: 'chat', id: 'c1' });
    expect(created).toMatchObject({ type: 'chat.session', payload: { session_id: 's1', title: 'T', model: 'm' } });
    for (const follower of [client, other]) {
      expect(await nextTurn(follower)).toMatchObject({ session_id: 's1', state: 'running', client_turn_id: null });
      expect(await nextTurn(follower)).toMatchObject({ turn_id: created.payload.turn_id, state: 'done', seq: 1 });
    }
    const [first] = await follow(client);
    keep(client, 'c2');
    await nextTurn(client);
    const second = await nextTurn(client);
    const ids = async (since?: unknown) => (await follow(client, { since })).map(({ turn_id }) => turn_id);
    expect(await ids()).toEqual([first?.turn_id, second.turn_id]);
    expect(await ids(first?.ended_at)).toEqual([second.turn_id]);
    expect(await ids(second.ended_at)).toEqual([]);
    client.send('chat', 'chat.follow', { since: 'yesterday' }, 'f1');
    expect((await client.next({ id: 'f1' })).payload.message).toBe('Invalid since');
  });

  it('is cancelled from any socket of the pairing, by its id or by the request', async () => {
    const { api, target, device, client } = await setUp(start);
    begin(api, 'a');
    const other = await again(target, device);
    await follow(other);
    for (const by of ['turn', 'request']) {
      keep(client, by);
      const { turn_id } = await nextEvent(client, by);
      if (by === 'turn') other.send('chat', 'chat.cancel', { turn_id });
      else client.send('chat', 'chat.cancel', { request_id: by });
      expect(await nextEvent(client, by)).toMatchObject({
        turn_id,
        event: 'done',
        payload: { state: 'final', cancelled: true },
      });
      expect((await nextTurn(other)).state).toBe('running');
      expect(await nextTurn(other)).toMatchObject({ turn_id, state: 'cancelled', preview: 'a' });
      await whenAbandoned(await api.request(by === 'turn' ? 0 : 1));
    }
  });

  it('fails with what the agent has said so far', async () => {
    const { api, client } = await setUp(start);
    begin(api, 'partial');
    await follow(client);
    keep(client, 'c1');
    const { turn_id } = await nextEvent(client, 'c1');
    (await api.request(0)).cut();
    const { type, payload } = await client.next({ channel: 'chat', id: 'c1' });
    expect([type, payload]).toMatchObject(['chat.error', { turn_id, seq: 2, error: 'upstream_error' }]);
    await nextTurn(client);
    expect(await nextTurn(client)).toMatchObject({ state: 'failed' });
    expect((await resume(client, { turn_id })).payload).toMatchObject({
      state: 'failed',
      text: 'partial',
      error: payload.message,
      seq: 2,
    });
    api.onAny((exchange) => exchange.answer(500, 'no'));
    keep(client, 'c2', { session_id: undefined });
    expect((await client.next({ id: 'c2' })).payload.message).toBe('Failed to create session (HTTP 500): no');
    expect(await nextTurn(client)).toMatchObject({ state: 'failed', session_id: null });
  });

  it('gives sockets without typed events the legacy form, with the id of the turn', async () => {
    const { api, client } = await setUp(start, {});
    begin(api, 'a');
    keep(client, 'c1');
    const { type, payload } = await client.next({ channel: 'chat', id: 'c1' });
    expect([type, payload]).toEqual([
      'chat.delta',
      { session_id: 's9', message_id: '', delta: 'a', seq: 1, turn_id: expect.any(String) },
    ]);
    (await api.request(0)).end();
    expect(await client.next({ channel: 'chat', id: 'c1' })).toMatchObject({ type: 'chat.completed' });
  });

  it('survives the end of the relay: what ran is interrupted, what had ended is as it was', async () => {
    const { api, target, device, client } = await setUp(start);
    api.onStream(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'assistant.delta', delta: 'answer' });
      if (exchange.body.includes('short')) exchange.end();
    });
    await follow(client);
    keep(client, 'c1', { message: 'short', client_turn_id: 'one' });
    await nextTurn(client);
    const { turn_id } = await nextTurn(client);
    keep(client, 'c2', { message: 'long', client_turn_id: 'two' });
    const { turn_id: running } = await nextEvent(client, 'c2');
    // At the edge nothing is written at the end: the text is, a second later.
    if (target.runtime === 'edge')
      await expect.poll(() => target.stored?.('chat-turns', `text:${running}:0`)).toContain('answer');
    await target.restart();
    const later = await again(target, device);
    expect(await follow(later)).toMatchObject([
      { turn_id, client_turn_id: 'one', state: 'done', preview: 'answer' },
      { turn_id: running, client_turn_id: 'two', state: 'interrupted' },
    ]);
    expect((await resume(later, { turn_id })).payload).toMatchObject({ question: 'short', text: 'answer' });
    expect((await resume(later, { turn_id: running })).payload).toMatchObject({ question: 'long', text: 'answer' });
    keep(later, 'c3', { message: 'long', client_turn_id: 'two' });
    expect((await later.next({ id: 'c3' })).payload).toMatchObject({ turn_id: running, state: 'interrupted' });
    expect(api.requests).toHaveLength(2);
  });

  it.each([
    ['ends', { grants: { chat: 1 } }],
    ['is taken away', { without: ['chat'] }],
  ])('ends with its grant, when that %s', async (_how, reduction) => {
    const { api, target, device, client } = await setUp(start);
    begin(api, 'a');
    keep(client, 'c1');
    const { turn_id } = await nextEvent(client, 'c1');
    const headers = bearer(device.token);
    await target.fetch(`/sessions/${device.prefix}`, { ...post(reduction), method: 'PATCH', headers });
    const error = { message: 'Chat grant expired for this device', error: 'permission_denied' };
    expect((await client.next({ channel: 'chat', id: 'c1' })).payload).toEqual({ ...error, turn_id });
    expect((await client.next({ channel: 'system', type: 'error' })).payload).toEqual({ ...error, channel: 'chat' });
    await whenAbandoned(await api.request(0));
  });

  it.runIf(runtime === 'node')('tells its client of an ended grant after a machine has slept', async () => {
    const clock = createTestClock();
    const { api, target, device, client } = await setUp((options) => start({ ...options, clock }));
    begin(api, 'a');
    keep(client, 'c1');
    await nextEvent(client, 'c1');
    const reduction = { ...post({ grants: { chat: 2 } }), method: 'PATCH', headers: bearer(device.token) };
    expect((await target.fetch(`/sessions/${device.prefix}`, reduction)).status).toBe(200);
    // The regular check of all turns is due before the end of the grant, and both run after it.
    await clock.leap(3_000);
    expect((await client.next({ channel: 'chat', id: 'c1' })).type).toBe('chat.error');
    await whenAbandoned(await api.request(0));
  });

  it('ends with its session, also while no socket is there', async () => {
    const { api, target, device, client } = await setUp(start);
    begin(api, 'a');
    keep(client, 'c1');
    await nextEvent(client, 'c1');
    client.terminate();
    await target.fetch(`/sessions/${device.prefix}`, { method: 'DELETE', headers: bearer(device.token) });
    await whenAbandoned(await api.request(0));
  });

  it('runs eight turns of a pairing at once, beside the four streams of a socket', async () => {
    const { api, client } = await setUp(start);
    begin(api, 'a');
    for (let at = 1; at <= 9; at++) keep(client, `k${at}`);
    for (let at = 1; at <= 4; at++) client.send('chat', 'chat.send', { message: 'hi', session_id: 's' }, `c${at}`);
    expect((await client.next({ id: 'k9' })).payload.message).toBe('too many running turns');
    for (const id of ['k1', 'k8', 'c1', 'c4']) await nextEvent(client, id);
    await api.request(11);
    expect(api.requests).toHaveLength(12);
    client.send('chat', 'chat.cancel', { request_id: 'k1' });
    await nextEvent(client, 'k1');
    await expect
      .poll(async () => {
        keep(client, 'k10');
        return (await client.next({ id: 'k10' })).type;
      })
      .toBe('stream.event');
  });
});
