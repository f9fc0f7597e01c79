import { describe, expect, it } from 'vitest';
import type { PhoneAnswer } from '../../../../lib/companion/types.ts';
import type { Message } from '../../../../lib/socket/envelope.ts';
import { BROKER, DEEP, PAIRING, REACH, SECURE_LINK, sentOf, settle, setup } from './support.ts';

const OFFER = { code: 'ABC123', endpoints: PAIRING.endpoints };
const command = (requestId: unknown, path = '/ping') => ({
  request_id: requestId,
  method: 'get',
  path,
  params: {},
  body: {},
});

describe('authentication (01 §3.3 to 3.5)', () => {
  it('sends token, refresh token, device id and supports as the first frame, and nothing before auth.ok', async () => {
    const { link, socket } = setup();
    link.start();
    expect(socket().url).toBe('ws://192.0.2.1:8767/ws');
    expect(socket().sent).toEqual([]);
    socket().open();
    expect(socket().sent).toHaveLength(1);
    expect(socket().sent[0]).toMatchObject({
      channel: 'system',
      type: 'auth',
      payload: {
        session_token: 'token-1',
        refresh_token: 'refresh-1',
        device_id: 'b1f4c1d2-0000-4000-8000-000000000001',
        device_name: 'Test phone',
        client_surface: 'android',
        device_form_factor: 'phone',
        supports: { typed_stream_events: false, event_schema_version: 1 },
      },
    });
    expect(socket().sent[0]?.payload).not.toHaveProperty('pairing_code');
  });

  it('with an offer sends the code and no token, and stores a new pairing without the old pins', async () => {
    const old = { ...PAIRING, tofu_pins: { 'relay.example:443': 'f'.repeat(64), 'gone:1': 'e'.repeat(64) } };
    const { link, socket, written, admit } = setup({
      pairing: old,
      parts: { offer: { ...OFFER, endpoints: [OFFER.endpoints[1] as never] } },
    });
    link.start();
    const current = await admit({ session_token: 'new', refresh_token: 'fresh', server_version: '1.2.3' });
    expect(current.sent[0]?.payload).toMatchObject({ pairing_code: 'ABC123' });
    expect(current.sent[0]?.payload).not.toHaveProperty('session_token');
    expect(written).toHaveLength(1);
    expect(written[0]).toMatchObject({
      session_token: 'new',
      refresh_token: 'fresh',
      server_version: '1.2.3',
      last_good: 'wss://relay.example:443/ws',
      tofu_pins: { 'relay.example:443': 'a'.repeat(64) },
    });
    expect(written[0]?.tofu_pins).not.toHaveProperty('gone:1');
    expect(link.state.name).toBe('online');
    expect(socket()).toBe(current);
  });

  it('stores newly issued tokens before it uses them: sends no status until they are written', async () => {
    const { link, socket, control, written } = setup();
    let store: () => void = () => {};
    control.gate = new Promise((resolve) => {
      store = resolve;
    });
    link.start();
    socket().open();
    socket().push('system', 'auth.ok', { session_token: 'token-2', refresh_token: 'refresh-2' });
    socket().push('bridge', 'bridge.command', command('early'));
    await settle();
    expect([link.state.name, socket().sent.length, written.length]).toEqual(['authenticating', 1, 0]);
    store();
    await settle();
    expect(written).toMatchObject([{ session_token: 'token-2', refresh_token: 'refresh-2' }]);
    expect(link.state.name).toBe('online');
    expect(sentOf(socket(), 'bridge.status')).toHaveLength(1);
  });

  it('when the socket is lost while tokens are being stored, the next attempt uses them', async () => {
    const { link, socket, sockets, control, clock, admit } = setup({ pairing: null, parts: { offer: OFFER } });
    let store: () => void = () => {};
    control.gate = new Promise((resolve) => {
      store = resolve;
    });
    link.start();
    socket().open();
    socket().push('system', 'auth.ok', { session_token: 'token-2', refresh_token: 'refresh-2' });
    socket().end();
    await settle();
    // The code is spent: the next attempt must wait for the token.
    expect(sockets).toHaveLength(1);
    store();
    await settle();
    expect(sockets).toHaveLength(2);
    const next = await admit({ session_token: 'token-2' });
    expect(next.sent[0]?.payload).toMatchObject({ session_token: 'token-2', refresh_token: 'refresh-2' });
    expect(next.sent[0]?.payload).not.toHaveProperty('pairing_code');
    await link.stop();
    expect(clock.pending).toBe(0);
  });

  it('does not use tokens that cannot be stored: disconnects and retries with the old ones', async () => {
    const { link, socket, sockets, control, clock, states } = setup({
      pairing: { ...PAIRING, endpoints: [PAIRING.endpoints[0] as never] },
    });
    control.failure = new Error('no space left');
    link.start();
    socket().open();
    socket().push('system', 'auth.ok', { session_token: 'token-2', refresh_token: 'refresh-2' });
    await settle();
    expect(states.at(-1)).toMatchObject({ name: 'waiting', reason: expect.stringContaining('no space left') });
    expect(socket().letGo).not.toBeNull();
    clock.advance(1000);
    expect(sockets).toHaveLength(2);
    socket().open();
    expect(socket().sent[0]?.payload).toMatchObject({ session_token: 'token-1', refresh_token: 'refresh-1' });
  });

  it('when killed between auth.ok and the write, the stored refresh token is the old one, which is still valid', async () => {
    const first = setup();
    first.control.gate = new Promise(() => {});
    first.link.start();
    first.socket().open();
    first.socket().push('system', 'auth.ok', { session_token: 'token-2', refresh_token: 'refresh-2' });
    await settle();
    // Here the process dies. Another one starts from what the first has stored.
    const second = setup({ pairing: first.store.pairing() });
    second.link.start();
    second.socket().open();
    expect(second.socket().sent[0]?.payload).toMatchObject({ session_token: 'token-1', refresh_token: 'refresh-1' });
  });

  it.each([
    ['no token', {}],
    ['a token that is not text', { session_token: 7 }],
    ['a token of two lines', { session_token: 'a\nb' }],
    ['a token that is too long', { session_token: 'x'.repeat(600) }],
    ['a refresh token that is not text', { session_token: 'good', refresh_token: {} }],
  ])('auth.ok with %s is rejected: nothing is stored', async (_name, payload) => {
    const { link, socket, written, sockets } = setup();
    link.start();
    socket().open();
    socket().push('system', 'auth.ok', payload);
    await settle();
    expect(written).toEqual([]);
    expect(link.state).toMatchObject({ name: 'connecting', endpoint: { role: 'public' } });
    expect(sockets).toHaveLength(2);
  });

  it('ignores frames before auth.ok, and malformed frames', async () => {
    const { link, socket, admit } = setup();
    link.start();
    socket().open();
    for (const text of ['', 'no json', '[]', '{"channel":1}', '{"channel":"system"}']) socket().raw(text);
    socket().push('bridge', 'bridge.command', command('x'));
    socket().push('system', 'pong', {});
    expect([link.state.name, socket().sent.length]).toEqual(['authenticating', 1]);
    await admit();
    socket().push('voice', 'unheard.of', { much: 1 });
    socket().push('bridge', 'bridge.other', command('y'));
    socket().raw('{"channel":"bridge","type":"bridge.command","id":"q","payload":[1]}');
    for (const id of [undefined, '', 7, null]) socket().push('bridge', 'bridge.command', command(id));
    await settle();
    expect(sentOf(socket(), 'bridge.response')).toEqual([]);
    expect(link.state.name).toBe('online');
  });
});

describe('refusals (01 §3.6)', () => {
  it.each([
    ['Authentication timeout', true],
    ['could not be stored: try again later', true],
    ["authentication timeout: the clock of the relay's machine may be wrong, try again later", true],
    ['Invalid session token', false],
    ['Invalid pairing code or session token', false],
    ['Missing pairing code or session token', false],
  ])('%s: the pairing is kept: %s', async (reason, isKept) => {
    const { link, socket, store, states, clock } = setup();
    link.start();
    const refused = socket();
    refused.open();
    refused.push('system', 'auth.fail', { reason });
    refused.end({ code: 1008, reason });
    await settle();
    expect(store.pairing() !== null).toBe(isKept);
    if (!isKept) {
      expect(states.at(-1)).toEqual({ name: 'unpaired', reason });
      expect(clock.pending).toBe(0);
    } else expect(link.state.name).toBe('connecting');
  });

  it('without TLS proves nothing while the pairing has a pinned route: that one is tried', async () => {
    const endpoints = [{ role: 'lan', url: 'ws://192.0.2.9:8767/ws', priority: 0 }, SECURE_LINK];
    const { link, socket, store } = setup({ pairing: { ...PAIRING, endpoints } });
    link.start();
    socket().open();
    socket().push('system', 'auth.fail', { reason: 'Invalid session token' });
    await settle();
    expect([store.pairing()?.session_token, socket().url]).toEqual(['token-1', SECURE_LINK.url]);
    // The pinned relay's word counts.
    const { pin } = SECURE_LINK.pinned;
    socket().open(Buffer.from(pin.slice(7), 'base64').toString('hex'));
    socket().push('system', 'auth.fail', { reason: 'Invalid session token' });
    await settle();
    expect([store.pairing(), link.state.name]).toEqual([null, 'unpaired']);
  });

  it('a refused code does not change the stored pairing', async () => {
    const { link, socket, store } = setup({ parts: { offer: OFFER } });
    link.start();
    socket().open();
    socket().push('system', 'auth.fail', { reason: 'Invalid pairing code or session token' });
    await settle();
    expect(link.state.name).toBe('unpaired');
    expect(store.pairing()).toEqual(PAIRING);
  });

  it('after a revoked session (4401) it reconnects once, is refused, and unpairs', async () => {
    const { link, socket, sockets, clock, store, admit } = setup();
    link.start();
    (await admit()).end({ code: 4401, reason: 'session revoked' });
    expect(link.state).toMatchObject({ name: 'waiting', reason: 'closed (4401 session revoked)', wait: 1000 });
    clock.advance(1000);
    socket().open();
    socket().push('system', 'auth.fail', { reason: 'Invalid session token' });
    await settle();
    expect(link.state).toEqual({ name: 'unpaired', reason: 'Invalid session token' });
    expect(store.pairing()).toBeNull();
    await clock.advanceAsync(600_000);
    expect(sockets).toHaveLength(2);
  });

  it('an expired session (4401) is refreshed: both new tokens are stored', async () => {
    const { link, clock, store, socket, admit } = setup();
    link.start();
    (await admit()).end({ code: 4401, reason: 'session expired' });
    clock.advance(1000);
    await admit({ session_token: 'token-2', refresh_token: 'refresh-2' });
    expect(store.pairing()).toMatchObject({ session_token: 'token-2', refresh_token: 'refresh-2' });
    // A resumed session issues no new refresh token, so the stored one is kept.
    socket().end();
    clock.advance(30_000);
    await admit({ session_token: 'token-2' });
    expect(store.pairing()?.refresh_token).toBe('refresh-2');
    expect(link.state.name).toBe('online');
  });
});

describe('reconnecting', () => {
  it('tries every endpoint of a round without a wait, then waits 1, 2, 4 … 30 s', async () => {
    const { link, sockets, socket, clock, states } = setup();
    link.start();
    const waits: number[] = [];
    for (let round = 0; round < 8; round++) {
      for (const { url } of PAIRING.endpoints) {
        expect(socket().url).toBe(url);
        socket().end({ reason: 'nothing is listening there' });
      }
      const state = states.at(-1);
      if (state?.name !== 'waiting') throw new Error('it must wait');
      waits.push(state.wait);
      const before = sockets.length;
      clock.advance(state.wait - 1);
      expect(sockets).toHaveLength(before);
      clock.advance(1);
      expect(sockets).toHaveLength(before + 1);
    }
    expect(waits).toEqual([1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
  });

  it('starts with the endpoint that last worked', async () => {
    const { link, sockets, socket, clock, admit } = setup();
    link.start();
    socket().end();
    expect(socket().url).toBe('wss://relay.example:443/ws');
    (await admit()).end();
    clock.advance(1000);
    expect(sockets.at(-1)?.url).toBe('wss://relay.example:443/ws');
  });

  it('is back within two seconds of a restart, however often (issue 23 §2.4)', async () => {
    const { link, clock, socket, admit } = setup({ pairing: { ...PAIRING, endpoints: PAIRING.endpoints.slice(0, 1) } });
    link.start();
    for (let round = 0; round < 10; round++) {
      (await admit()).end({ code: 1001, reason: 'server shutting down' });
      for (let attempt = 0; attempt < 5; attempt++) {
        expect(link.state).toMatchObject({ name: 'waiting', wait: 500 });
        clock.advance(500);
        if (attempt < 4) socket().end({ isRefused: true });
      }
    }
  });

  it('waits at least five minutes after a 429, without trying the other endpoints', async () => {
    const { link, sockets, socket, clock } = setup();
    link.start();
    socket().end({ status: 429 });
    expect(link.state).toMatchObject({ name: 'waiting', rateLimited: true });
    clock.advance(299_999);
    expect(sockets).toHaveLength(1);
    clock.advance(1);
    expect(sockets).toHaveLength(2);
  });

  it('backs off from a relay that accepts and then disconnects at once', async () => {
    const { link, clock, admit } = setup();
    link.start();
    const waits: number[] = [];
    for (let round = 0; round < 6; round++) {
      (await admit()).end({ code: 1013, reason: 'slow consumer' });
      if (link.state.name === 'waiting') waits.push(link.state.wait);
      clock.advance(30_000);
    }
    expect(waits).toEqual([1000, 2000, 4000, 8000, 16_000, 30_000]);
    const steady = await admit();
    for (let minute = 0; minute < 4; minute++) {
      clock.advance(10_000);
      steady.alive();
    }
    steady.end({ code: 1013, reason: 'slow consumer' });
    expect(link.state).toMatchObject({ name: 'waiting', wait: 1000 });
  });

  it('gives up dialling after 15 s and authentication after 20 s', async () => {
    const { link, sockets, socket, clock } = setup();
    link.start();
    clock.advance(15_000);
    expect(sockets[0]?.letGo).toBe('terminated');
    expect(sockets).toHaveLength(2);
    socket().open('a'.repeat(64));
    clock.advance(20_000);
    expect(sockets[1]?.letGo).toBe('terminated');
    expect(link.state).toMatchObject({ name: 'waiting', reason: expect.stringContaining('20 s') });
  });

  it('pings after 7 s of silence, gives up 7 s later, and any frame resets this (issue 23 §2.4)', async () => {
    const { link, clock, admit } = setup();
    link.start();
    const current = await admit();
    for (let round = 0; round < 10; round++) {
      clock.advance(6_000);
      current.alive();
    }
    expect(sentOf(current, 'ping')).toEqual([]);
    clock.advance(7_000);
    expect(sentOf(current, 'ping')).toHaveLength(1);
    current.answersPings = false;
    clock.advance(13_999);
    expect([link.state.name, sentOf(current, 'ping').length]).toEqual(['online', 2]);
    clock.advance(1);
    expect(link.state).toMatchObject({ name: 'waiting', reason: 'nothing was heard for 14 s' });
    expect(current.letGo).toBe('terminated');
  });

  it('is not taken to be silent by a timer that runs late: the relay gets time to answer', async () => {
    const { link, clock, admit } = setup();
    link.start();
    const current = await admit();
    // As in a hidden page: no timer for a minute.
    const late = clock.after;
    clock.after = (delay, run) => late(Math.max(delay, 60_000), run);
    current.alive();
    clock.advance(180_000);
    expect([link.state.name, sentOf(current, 'ping').length > 0]).toEqual(['online', true]);
    clock.after = late;
  });

  it('ignores messages from an old socket', async () => {
    const { link, sockets, clock, admit } = setup();
    link.start();
    const old = await admit();
    old.answersPings = false;
    clock.advance(14_000);
    clock.advance(1000);
    const current = await admit();
    old.push('bridge', 'bridge.command', command('stale'));
    old.end({ code: 4401 });
    await settle();
    expect(link.state.name).toBe('online');
    expect(sentOf(current, 'bridge.response')).toEqual([]);
    expect(sockets).toHaveLength(2);
  });

  it('start cuts a wait short', () => {
    const { link, sockets, socket } = setup();
    link.start();
    socket().end();
    socket().end();
    expect(link.state.name).toBe('waiting');
    link.start();
    expect(sockets).toHaveLength(3);
  });
});

describe('pins (spec 2.1)', () => {
  const only = { ...PAIRING, endpoints: [PAIRING.endpoints[1] as never] };

  it('stores the first key on the first success, and sends nothing to another key', async () => {
    const { link, socket, store, clock, admit, log } = setup({ pairing: only });
    link.start();
    (await admit()).end();
    expect(store.pairing()?.tofu_pins).toEqual({ 'relay.example:443': 'a'.repeat(64) });
    clock.advance(1000);
    socket().open('b'.repeat(64));
    expect(socket().sent).toEqual([]);
    expect(socket().letGo).toBe('terminated');
    expect(link.state).toMatchObject({ name: 'waiting', reason: expect.stringContaining('has changed') });
    expect(log.lines.join('\n')).toContain('nothing was sent');
    expect(store.pairing()?.session_token).toBe('token-1');
  });

  it('does not store the key of a relay that did not accept this device', async () => {
    const { link, socket, store } = setup({ pairing: only });
    link.start();
    socket().open('b'.repeat(64));
    socket().end();
    await settle();
    expect(store.pairing()?.tofu_pins).toEqual({});
  });
});

describe('the bridge (03 §1)', () => {
  it('reports at once, every 30 s and on every change, but not after the socket has ended', async () => {
    const { link, clock, changed, admit } = setup();
    link.start();
    const current = await admit();
    expect(sentOf(current, 'bridge.status')).toHaveLength(1);
    clock.advance(30_000);
    expect(sentOf(current, 'bridge.status')).toHaveLength(2);
    for (const listener of changed) listener();
    expect(sentOf(current, 'bridge.status')).toHaveLength(3);
    current.end();
    expect(changed.size).toBe(0);
    clock.advance(1000);
    const next = await admit();
    expect(sentOf(next, 'bridge.status')).toHaveLength(1);
    expect(sentOf(current, 'bridge.status')).toHaveLength(3);
  });

  it('runs commands concurrently and answers each once, in the order in which they finish', async () => {
    const open = new Map<string, (answer: PhoneAnswer) => void>();
    const { link, admit } = setup({
      handle: ({ requestId }) => new Promise((resolve) => void open.set(requestId, resolve)),
    });
    link.start();
    const current = await admit();
    current.push('bridge', 'bridge.command', command('a', '/screen'));
    current.push('bridge', 'bridge.command', command('b'));
    current.push('bridge', 'bridge.command', command('a'));
    await settle();
    expect([...open.keys()]).toEqual(['a', 'b']);
    open.get('b')?.({ status: 403, result: { error: 'no' }, blocked: true });
    await settle();
    open.get('a')?.({ status: 200, result: [1] });
    await settle();
    expect(sentOf(current, 'bridge.response').map((frame) => frame.payload)).toEqual([
      { request_id: 'b', status: 403, result: { error: 'no' }, blocked: true },
      { request_id: 'a', status: 200, result: [1] },
    ]);
  });

  it('answers 429 to the 65th concurrent command, and accepts more afterwards', async () => {
    const open: (() => void)[] = [];
    const { link, admit } = setup({
      handle: () => new Promise((resolve) => open.push(() => resolve({ status: 200 }))),
    });
    link.start();
    const current = await admit();
    for (let count = 0; count < 65; count++) current.push('bridge', 'bridge.command', command(`c${count}`));
    await settle();
    expect(sentOf(current, 'bridge.response').map((frame) => frame.payload)).toMatchObject([
      { request_id: 'c64', status: 429 },
    ]);
    for (const done of open.splice(0)) done();
    await settle();
    current.push('bridge', 'bridge.command', command('again'));
    await settle();
    for (const done of open.splice(0)) done();
    await settle();
    expect(sentOf(current, 'bridge.response')).toHaveLength(66);
    expect(sentOf(current, 'bridge.response').at(-1)?.payload).toMatchObject({ request_id: 'again', status: 200 });
  });

  const circular: Record<string, unknown> = {};
  circular.self = circular;
  it.each<[string, () => Promise<PhoneAnswer>]>([
    ['throws', () => Promise.reject(new Error('boom'))],
    ['returns something that is not JSON', async () => ({ status: 200, result: circular })],
    ['returns more than fits into a frame', async () => ({ status: 200, result: 'ä'.repeat(3_000_000) })],
  ])('answers 500 once for a phone that %s', async (_name, handle) => {
    const { link, admit } = setup({ handle });
    link.start();
    const current = await admit();
    current.push('bridge', 'bridge.command', command('a'));
    await settle();
    const answers = sentOf(current, 'bridge.response');
    expect(answers).toHaveLength(1);
    expect(answers[0]?.payload).toMatchObject({ request_id: 'a', status: 500, result: { error: expect.any(String) } });
    expect(JSON.stringify(answers[0]).length).toBeLessThan(1000);
  });

  it('sends an answer only to the socket of its command', async () => {
    let done: (answer: PhoneAnswer) => void = () => {};
    const { link, clock, admit } = setup({
      handle: () =>
        new Promise((resolve) => {
          done = resolve;
        }),
    });
    link.start();
    const old = await admit();
    old.push('bridge', 'bridge.command', command('a'));
    old.end();
    clock.advance(1000);
    const current = await admit();
    done({ status: 200 });
    await settle();
    expect([sentOf(old, 'bridge.response'), sentOf(current, 'bridge.response')]).toEqual([[], []]);
  });

  it('09 §3: `bridge.cancel` aborts a command with its reason, and a late answer is not sent', async () => {
    const open = new Map<string, { gone?: AbortSignal; done(answer: PhoneAnswer): void }>();
    const answered: [string, boolean | undefined][] = [];
    const { link, admit } = setup({
      handle: ({ requestId, gone }) => new Promise((done) => void open.set(requestId, { gone, done })),
      onAnswer: ({ command, isCancelled }) => void answered.push([command.requestId, isCancelled]),
    });
    link.start();
    const current = await admit();
    for (const id of ['a', 'b']) current.push('bridge', 'bridge.command', command(id));
    for (const request_id of ['a', 'unknown', 7]) {
      current.push('bridge', 'bridge.cancel', { request_id, reason: 'frozen' });
    }
    expect([open.get('a')?.gone?.reason, open.get('b')?.gone?.aborted]).toEqual(['frozen', false]);
    for (const { done } of open.values()) done({ status: 200 });
    await settle();
    expect(sentOf(current, 'bridge.response').map(({ payload }) => payload.request_id)).toEqual(['b']);
    expect(answered).toEqual([
      ['a', true],
      ['b', false],
    ]);
    // Its id is free again.
    current.push('bridge', 'bridge.command', command('a'));
    open.get('a')?.done({ status: 200 });
    await settle();
    expect(sentOf(current, 'bridge.response')).toHaveLength(2);
  });

  it('09 §3: `system/frozen` that follows `auth.ok` is not lost while the credentials are stored', async () => {
    const heard: unknown[] = [];
    const system = {
      online: () => {
        heard.push('online');
        return () => heard.push('offline');
      },
      message: ({ type, payload }: Message) => void heard.push([type, payload]),
    };
    const { link, socket, clock, control } = setup({ parts: { channels: { system } } });
    let stored = () => {};
    control.gate = new Promise((resolve) => {
      stored = resolve;
    });
    link.start();
    socket().open();
    socket().push('system', 'frozen', { frozen: 'before auth.ok' });
    socket().push('system', 'auth.ok', { session_token: 'token-1', server_version: '1.0.0' });
    socket().push('system', 'frozen', { frozen: true, by: 'operator' });
    expect(heard).toEqual([]);
    stored();
    await settle();
    expect(heard).toEqual(['online', ['frozen', { frozen: true, by: 'operator' }]]);
    socket().push('system', 'frozen', { frozen: false });
    expect(heard.at(-1)).toEqual(['frozen', { frozen: false }]);
    socket().end();
    clock.advance(1000);
    control.gate = Promise.resolve();
    heard.length = 0;
    socket().open();
    socket().push('system', 'auth.ok', { session_token: 'token-1', server_version: '1.0.0' });
    await settle();
    expect(heard).toEqual(['online']);
  });

  it('passes on a notice whose code is a list so deep that no text of it can be made', async () => {
    const { link, notices, admit } = setup();
    link.start();
    const current = await admit();
    current.raw(`{"channel":"system","type":"error","payload":{"message":"No.","error_code":${DEEP}}}`);
    expect(notices).toEqual(['No.']);
  });

  it("answers the relay's ping with the same id and ts, and passes on its notices", async () => {
    const { link, notices, admit } = setup();
    link.start();
    const current = await admit();
    current.push('system', 'ping', { ts: 42 }, 'p1');
    expect(sentOf(current, 'pong')).toMatchObject([{ id: 'p1', payload: { ts: 42 } }]);
    current.push('system', 'error', { message: 'Bridge grant expired for this device' });
    current.push('system', 'error', { message: 'Bridge grant expired for this device' });
    expect(notices).toEqual(['Bridge grant expired for this device']);
  });
});

describe('stopping', () => {
  it.each(['connecting', 'authenticating', 'online', 'waiting'])(
    'from %s leaves no timer and no socket, and does not reconnect',
    async (from) => {
      const { link, clock, socket, sockets, changed, admit } = setup();
      link.start();
      if (from === 'authenticating') socket().open();
      if (from === 'online') await admit();
      if (from === 'waiting') for (const _ of PAIRING.endpoints) socket().end();
      expect(link.state.name).toBe(from);
      const count = sockets.length;
      await link.stop();
      expect([clock.pending, changed.size, link.state.name]).toEqual([0, 0, 'stopped']);
      if (from !== 'waiting') expect(socket().letGo).toBe(1000);
      link.start();
      await clock.advanceAsync(60_000);
      expect(sockets).toHaveLength(count);
    },
  );

  it('a listener may stop the link as soon as it is told of a state', async () => {
    const { link, clock, admit, changed } = setup({
      parts: {
        onState: (state) => {
          if (state.name === 'online') void link.stop();
        },
      },
    });
    link.start();
    await admit();
    await settle();
    expect([clock.pending, changed.size, link.state.name]).toEqual([0, 0, 'stopped']);
  });
});

it('logs no secret', async () => {
  const { link, socket, log, admit, clock } = setup();
  link.start();
  (await admit({ session_token: 'token-2', refresh_token: 'refresh-2' })).end({ code: 4401 });
  clock.advance(1000);
  socket().open();
  socket().push('system', 'auth.fail', { reason: 'Invalid session token' });
  await settle();
  expect(log.lines.join('\n')).not.toMatch(/token-\d|refresh-\d/);
});

describe('pinned routes (08 §2.5, §7.9)', () => {
  const KEY = Buffer.from(SECURE_LINK.pinned.pin.slice(7), 'base64').toString('hex');
  const credential = {
    kind: 'broker_route',
    broker_url: BROKER.url,
    host_id: BROKER.host_id,
    credential_id: `${'c'.repeat(21)}A`,
    token: `${'r'.repeat(42)}A`,
    expires_at: 2_000_000_000,
  };
  const offer = { code: 'ABC123', endpoints: [SECURE_LINK, REACH] };

  it('send nothing to another key, even if the connection were made', () => {
    const { link, socket, sockets } = setup({ pairing: null, parts: { offer } });
    link.start();
    const first = socket();
    first.open('b'.repeat(64));
    expect([first.sent, first.letGo, sockets.length]).toEqual([[], 'terminated', 2]);
  });

  it('say it when somebody else answers, before the next route is tried', async () => {
    const lan = { role: 'lan', url: 'ws://192.0.2.9:8767/ws', priority: 1 };
    const { link, socket, log } = setup({ pairing: { ...PAIRING, endpoints: [SECURE_LINK, lan] } });
    link.start();
    socket().end({ reason: 'the key of the certificate is not the pinned one', isOtherPeer: true });
    expect(log.lines).toEqual([
      expect.stringMatching(
        /\[ERROR\].*: the key of the certificate is not the pinned one: nothing was sent\. If the relay has a new certificate/,
      ),
    ]);
    expect([socket().url, socket().sent]).toEqual([lan.url, []]);
    // A route that merely fails is no such news.
    socket().end({ reason: 'connection refused' });
    expect(log.lines).toHaveLength(1);
  });

  it('unpair at once when their session is revoked, because the broker lets a revoked device through no more', async () => {
    for (const endpoint of [REACH, SECURE_LINK]) {
      const { link, sockets, store, admit, log, clock } = setup({ pairing: { ...PAIRING, endpoints: [endpoint] } });
      link.start();
      (await admit({ session_token: 'new' }, KEY)).end({ code: 4401, reason: 'session revoked' });
      await settle();
      expect([link.state, store.pairing()]).toEqual([{ name: 'unpaired', reason: 'session revoked' }, null]);
      expect(log.lines.join('\n')).toContain('the relay has ended the session of this device: session revoked');
      await clock.advanceAsync(600_000);
      expect(sockets).toHaveLength(1);
    }
  });

  it('reconnect when their session has expired: the refresh token may still be valid', async () => {
    const { link, store, admit } = setup({ pairing: { ...PAIRING, endpoints: [REACH] } });
    link.start();
    (await admit({}, KEY)).end({ code: 4401, reason: 'session expired' });
    expect([link.state.name, store.pairing()?.refresh_token]).toEqual(['waiting', 'refresh-1']);
  });

  it('pair over Reach: the credential of auth.ok is stored with the session, and used from then on', async () => {
    const { link, socket, written, clock, admit } = setup({ pairing: null, parts: { offer } });
    link.start();
    socket().end();
    expect(socket().route?.tunnel?.hello()).toContain('"credential_kind":"bootstrap"');
    await admit({ session_token: 'new', route_credential: credential }, KEY);
    const { kind: _, ...stored } = credential;
    expect(written).toMatchObject([{ session_token: 'new', route_credential: stored }]);
    socket().end();
    clock.advance(1000);
    // Where only Reach works, the others get five seconds.
    expect(socket().route).toEqual({ origin: SECURE_LINK.pinned });
    clock.advance(5000);
    expect(socket().route?.tunnel?.hello()).toContain(credential.token);
  });

  it('keep the credential when an answer has none, and ignore one for somebody else', async () => {
    const { link, socket, written, log, admit, clock } = setup({ pairing: null, parts: { offer } });
    link.start();
    await admit({ route_credential: credential }, KEY);
    for (const next of [undefined, { ...credential, host_id: `${'x'.repeat(21)}A` }]) {
      socket().end();
      clock.advance(1000);
      clock.advance(1000);
      await admit({ route_credential: next }, KEY);
    }
    expect(written).toHaveLength(3);
    for (const pairing of written) expect(pairing?.route_credential?.token).toBe(credential.token);
    expect(log.lines.filter((line) => line.includes('not for this route'))).toHaveLength(1);
  });

  it('leave Reach out of a round when its credential has expired', () => {
    const expired = { ...REACH, broker: { ...REACH.broker, bootstrap: { token: BROKER.token, expiresAt: 1 } } };
    const { link, socket, sockets, states } = setup({ pairing: { ...PAIRING, endpoints: [SECURE_LINK, expired] } });
    link.start();
    socket().end();
    expect([sockets.length, states.at(-1)?.name]).toEqual([1, 'waiting']);
  });

  it('take no time of auth.ok that no date can hold', async () => {
    const { link, written, admit } = setup({ pairing: null, parts: { offer } });
    link.start();
    await admit({ expires_at: 1e13, grants: { chat: 8e12, terminal: 1e300, bridge: null } }, KEY);
    expect(written).toMatchObject([{ expires_at: null }]);
    expect(written[0]?.grants).toEqual({ chat: 8e12, bridge: null });
  });

  it('never start from what auth.ok says of endpoints, pins or health', async () => {
    const { link, written, admit } = setup({ pairing: null, parts: { offer } });
    link.start();
    const evil = { ...SECURE_LINK, url: 'wss://evil.example/relay/ws' };
    await admit({ endpoints: [evil], secure_proxy: evil, tofu_pins: { 'evil.example:443': 'a'.repeat(64) } }, KEY);
    expect(written).toMatchObject([{ endpoints: offer.endpoints, tofu_pins: {} }]);
  });
});
