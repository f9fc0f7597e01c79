import { expect, it } from 'vitest';
import { clockedTargets } from '../support/built-relay.ts';
import { type Command, echo, loseGrant, type Phone, reconnect, silent, startPhone } from '../support/phone.ts';
import { bearer, describeMatrix, describeOnNode, pair, post, type Target } from '../support/relay.ts';

const read = async (target: Target, path: string) => {
  const response = await target.operator(path);
  return [response.status, await response.json()] as const;
};
const activity = async (target: Target, query = '') => (await read(target, `/bridge/activity${query}`))[1].activity;

const STATUS = {
  device: { battery_percent: 80, screen_on: true, current_app: 'com.x', flavor: 'sideload' },
  bridge: { device_control_supported: true, master_enabled: false },
  safety: { blocklist_count: 28, auto_disable_at_ms: null },
  capabilities: { schema_version: 1, timed: { screen_control: 1 } },
  battery: 80,
  phone_connected: false,
  connected: 'no',
  last_seen_seconds_ago: -5,
  device_id: 'forged',
  session_token_prefix: 'forged',
};

describeMatrix('operator routes of the bridge (contract 03 §6)', (start) => {
  it('admit only the operator', async () => {
    const target = await start();
    const phone = await startPhone(target);
    for (const [path, init] of [
      ['/bridge/status', {}],
      ['/bridge/activity', {}],
      ['/bridge/devices', {}],
      ['/bridge/select-active', post({ device: phone.id })],
    ] as const) {
      const headers = { ...bearer(phone.token), origin: 'https://evil.example' };
      expect((await target.fetch(path, { ...init, headers })).status, path).toBe(403);
      const own = await target.operator(path, init);
      expect(own.status, path).toBe(200);
      expect(own.headers.get('cache-control')).toBe('no-store');
    }
    expect((await target.operator('/bridge/status', { method: 'HEAD' })).status).toBe(200);
    expect((await target.operator('/bridge/select-active')).status).toBe(405);
  });

  it('§6: status before the first phone, with a phone, after it left', async () => {
    const target = await start();
    expect(await read(target, '/bridge/status')).toEqual([
      503,
      { ok: false, phone_connected: false, last_seen_seconds_ago: null, error: 'no phone connected' },
    ]);
    expect((await read(target, '/bridge/devices'))[1]).toEqual({
      active_device_id: null,
      most_recent_device_id: null,
      devices: [],
      count: 0,
    });
    const device = { device_id: 'id-1', device_name: 'Fold', client_surface: 'android', device_form_factor: 'phone' };
    const phone = await startPhone(target, { device, status: STATUS });
    const expected = {
      ...STATUS,
      device: { ...STATUS.device, name: 'Fold', device_id: 'id-1' },
      phone_connected: true,
      connected: true,
      active: true,
      last_seen_seconds_ago: expect.any(Number),
      device_id: 'id-1',
      device_name: 'Fold',
      aliases: ['Fold', 'fold', 'id-1', 'id1', 'phone', 'pixel'],
      session_token_prefix: phone.prefix,
      client_surface: 'android',
      device_form_factor: 'phone',
    };
    const [status, body] = await read(target, '/bridge/status');
    expect([status, body]).toEqual([200, expected]);
    expect(body.last_seen_seconds_ago).toBeGreaterThanOrEqual(0);
    expect((await read(target, '/bridge/status?device=fold'))[1]).toEqual(expected);
    expect((await read(target, '/bridge/status?device=zzz'))[0]).toBe(404);
    expect((await read(target, '/bridge/devices'))[1]).toEqual({
      active_device_id: 'id-1',
      most_recent_device_id: 'id-1',
      devices: [expected],
      count: 1,
    });
    phone.client.close();
    await expect.poll(async () => (await read(target, '/bridge/status'))[1].phone_connected).toBe(false);
    expect(await read(target, '/bridge/status')).toMatchObject([
      200,
      { bridge: STATUS.bridge, safety: STATUS.safety, device: { battery_percent: 80 }, active: false },
    ]);
    expect((await read(target, '/bridge/status?device=fold'))[0]).toBe(404);
  });

  it('§6: devices lists several phones, the most recent first; an ambiguous selector is 409', async () => {
    const target = await start();
    const one = await startPhone(target, { device: { device_id: 'id-1', device_name: 'One' } });
    await startPhone(target, { device: { device_id: 'id-2', device_name: 'One' } });
    expect((await read(target, '/bridge/status?device=one'))[0]).toBe(409);
    await one.report();
    const [, list] = await read(target, '/bridge/devices');
    expect(list).toMatchObject({ active_device_id: 'id-1', most_recent_device_id: 'id-1', count: 2 });
    const seen = list.devices.map((device: { last_seen_seconds_ago: number }) => device.last_seen_seconds_ago);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    await reconnect(target, one);
    expect((await read(target, '/bridge/devices'))[1].count).toBe(2);
  });

  it('§6: activity records decisions', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const cases: [answer: Record<string, unknown>, decision: string, error: string | null][] = [
      [{ result: { ok: true } }, 'executed', null],
      [{ status: 404, result: { error: 'no node' } }, 'error', 'no node'],
      [{ status: 500, error: 'broken', result: { error: 'other' } }, 'error', 'broken'],
      [{ status: 200, error: 'Blocked by Safety rules' }, 'blocked', 'Blocked by Safety rules'],
      [{ blocked: true }, 'blocked', null],
      [{ result: { blocked: true, confirmed: true } }, 'blocked', null],
      [{ status: 403, result: { error: 'blocked package com.x' } }, 'blocked', 'blocked package com.x'],
      [{ status: 403, result: { error: 'no', error_code: 'user_denied' } }, 'blocked', 'no'],
      [{ status: 403, result: { error: 'no', error_code: 'bridge_capability_denied' } }, 'blocked', 'no'],
      [{ status: 403, result: { error: 'no' } }, 'error', 'no'],
      [{ status: 400, result: { status: 'blocked' } }, 'error', null],
      [{ result: { confirmation_required: true } }, 'confirmed', null],
      [{ status: 700, result: {} }, 'error', null],
    ];
    for (const [answer, decision, error] of cases) {
      phone.script = () => answer;
      await target.fetch('/tap', { ...post({ x: 1 }), headers: phone.headers });
      const [record] = await activity(target, '?limit=1');
      expect(record, JSON.stringify(answer)).toMatchObject({ decision, error, method: 'POST', path: '/tap' });
      expect(record.response_status).toBe(answer.status ?? 200);
    }
  });

  it('§6: activity keeps no secret and no private content, while the phone gets everything', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const body = {
      text: 'hidden-1',
      accessToken: 'hidden-2',
      extras: { a: 'hidden-3' },
      list: [{ PIN: 'hidden-4', body: 'hidden-5', x: 1 }],
      nodeId: 'w0:1',
    };
    await target.fetch('/type?query=hidden-6&device_pin=hidden-7&limit=3', { ...post(body), headers: phone.headers });
    expect(phone.commands[0]?.body).toEqual(body);
    expect(phone.commands[0]?.params).toEqual({ query: 'hidden-6', device_pin: 'hidden-7', limit: '3' });
    phone.script = () => ({ result: { text: 'hidden-8', entries: [{ text: 'hidden-9' }], token: 'hidden-10' } });
    for (const path of ['/clipboard', '/events', '/location', '/screen', '/current_app']) {
      await target.fetch(path, { headers: phone.headers });
    }
    const records = await activity(target);
    expect(JSON.stringify(records)).not.toContain('hidden');
    expect(records.at(-1)).toMatchObject({
      params: {
        query: '[8 chars]',
        device_pin: '[redacted]',
        limit: '3',
        text: '[8 chars]',
        accessToken: '[redacted]',
        extras: '[object]',
        list: [{ PIN: '[redacted]', body: '[8 chars]', x: 1 }],
        nodeId: 'w0:1',
      },
      device_id: phone.id,
      device_name: 'Phone',
      alias_used: null,
    });
    expect(records[4].result_summary).toBe('{"text":"[8 chars]","entries":"[1 items]","token":"[9 chars]"}');
    expect(records[0].result_summary).toBe(
      '{"text":"[8 chars]","entries":[{"text":"[8 chars]"}],"token":"[redacted]"}',
    );
    expect(Math.abs(records[0].sent_at - Date.now())).toBeLessThan(60_000);
    expect(target.log.join('\n')).not.toMatch(/hidden|[?]query/);
  });

  it('§6: activity is a ring of 100, newest first, with limits', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const { token } = await pair(target);
    for (let at = 0; at < 105; at++) await target.fetch(`/events?limit=${at}`, { headers: bearer(token) });
    const limits = (records: { params: { limit: string } }[]) => records.map(({ params }) => Number(params.limit));
    const all = limits(await activity(target));
    expect(all).toEqual(Array.from({ length: 100 }, (_, at) => 104 - at));
    expect(limits(await activity(target, '?limit=3'))).toEqual([104, 103, 102]);
    for (const limit of ['0', '-1', '1.5', 'x', '', '501', '99999999999999999999']) {
      expect(await activity(target, `?limit=${limit}`), limit).toHaveLength(100);
    }
    expect(phone.commands).toHaveLength(105);
  });

  it('01 §8.1: GET /relay/info names the bridge', async () => {
    const target = await start();
    const [, info] = await read(target, '/relay/info');
    expect(info.capabilities).toContain('bridge');
    expect(info.pending_commands).toBe(0);
  });
});

const ping = (target: Target, phone: Pick<Phone, 'headers'>, init: RequestInit = {}) =>
  target.fetch('/ping', { headers: phone.headers, ...init });
const answerOf = async (response: Response | Promise<Response>) => {
  const settled = await response;
  return [settled.status, await settled.json()];
};
const newest = async (target: Target) =>
  (await (await target.operator('/bridge/activity?limit=1')).json()).activity[0] as Record<string, unknown>;
const pendingCommands = async (target: Target): Promise<number> =>
  (await (await target.operator('/relay/info')).json()).pending_commands;

describeMatrix('faults on the bridge channel (contract 03 §1.1, 1.4)', (start, runtime) => {
  it('§1.5: commands of a phone that vanishes fail with 502 at once, those of other phones go on', async () => {
    const target = await start();
    const phone = await startPhone(target, { script: silent });
    const other = await startPhone(target, { script: silent });
    const lost = ping(target, phone);
    await phone.received();
    const kept = target.fetch(`/ping?device=${other.id}`, { headers: phone.headers });
    await other.received();
    expect(await pendingCommands(target)).toBe(2);
    phone.client.terminate();
    expect(await answerOf(lost)).toEqual([502, { ok: false, error: 'Phone disconnected' }]);
    other.answer(await other.received(), { result: { kept: true } });
    expect(await answerOf(kept)).toEqual([200, { kept: true }]);
    expect(await pendingCommands(target)).toBe(0);
    const { activity } = await (await target.operator('/bridge/activity')).json();
    expect(activity[1]).toMatchObject({ decision: 'error', error: 'Phone disconnected', response_status: null });
  });

  it('§1.4: the first of two answers counts', async () => {
    const target = await start();
    const phone = await startPhone(target, { script: silent });
    const asked = ping(target, phone);
    const command = await phone.received();
    phone.answer(command, { result: { n: 1 } });
    phone.answer(command, { status: 500, result: { n: 2 } });
    expect(await answerOf(asked)).toEqual([200, { n: 1 }]);
    await phone.settled();
    expect(await newest(target)).toMatchObject({ decision: 'executed', response_status: 200 });
    phone.script = echo;
    expect((await ping(target, phone)).status).toBe(200);
  });

  it('§1.4: an answer on behalf of another phone is ignored', async () => {
    const target = await start();
    const phone = await startPhone(target, { script: silent });
    const thief = await startPhone(target, { script: silent });
    const asked = ping(target, phone);
    const command = await phone.received();
    thief.answer(command, { result: { stolen: true } });
    await thief.settled();
    phone.answer(command, { result: { own: true } });
    expect(await answerOf(asked)).toEqual([200, { own: true }]);
  });

  it('§1.1: invalid frames are ignored silently', async () => {
    const target = await start();
    const phone = await startPhone(target, { script: silent });
    const asked = ping(target, phone);
    const { request_id } = await phone.received();
    for (const payload of [
      {},
      { request_id: '' },
      { request_id: 5 },
      { request_id: 'none' },
      [request_id],
      'text',
      7,
    ]) {
      phone.client.send('bridge', 'bridge.response', payload);
    }
    for (const payload of ['text', [], 5]) phone.client.send('bridge', 'bridge.status', payload);
    phone.client.send('bridge', 'bridge.command', { request_id, method: 'GET', path: '/ping', params: {}, body: {} });
    phone.client.send('bridge', 'bridge.unknown', {});
    phone.client.raw('{');
    await phone.settled();
    phone.client.send('bridge', 'bridge.response', { request_id, result: {} });
    expect((await asked).status).toBe(200);
    const words = phone.client.frames.filter(
      ({ channel, type }) => !(channel === 'bridge' && type === 'bridge.command'),
    );
    expect(words.map(({ payload }) => payload.message)).toEqual(['Invalid envelope']);
  });

  it('§1.4: commands in flight may be answered in any order', async () => {
    const target = await start();
    const phone = await startPhone(target, { script: silent });
    const asked = Array.from({ length: 20 }, (_, at) =>
      target.fetch(`/events?limit=${at}`, { headers: phone.headers }).then((response) => response.json()),
    );
    await phone.received(19);
    for (const command of [...phone.commands].reverse()) phone.answer(command, { result: { n: command.params.limit } });
    expect(await Promise.all(asked)).toEqual(asked.map((_, at) => ({ n: String(at) })));
  });

  it('§1.4: the 65th command in flight is 429 until one is answered', async () => {
    const target = await start();
    const phone = await startPhone(target, { script: silent });
    const asked = Array.from({ length: 64 }, () => ping(target, phone));
    await phone.received(63);
    const refused = await ping(target, phone);
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(await refused.json()).toMatchObject({ ok: false, error: expect.any(String) });
    const other = await startPhone(target);
    expect((await target.fetch(`/ping?device=${other.id}`, { headers: phone.headers })).status).toBe(200);
    phone.answer(phone.commands[0] as Command, {});
    await phone.settled();
    asked.push(ping(target, phone));
    await phone.received(64);
    for (const command of phone.commands) phone.answer(command, {});
    for (const response of await Promise.all(asked)) expect(response.status).toBe(200);
    expect(await pendingCommands(target)).toBe(0);
  });

  it('§1.1: answers of 4 MiB arrive whole', async () => {
    const target = await start();
    const text = 'ü'.repeat(2 * 1024 * 1024);
    const phone = await startPhone(target, { script: () => ({ result: { text, rest: [1, 2] } }) });
    const response = await target.fetch('/screen', { headers: phone.headers });
    expect(await response.json()).toEqual({ text, rest: [1, 2] });
    expect((await newest(target)).result_summary).toBe('{"text":"[2097152 chars]","rest":"[2 items]"}');
  });

  // The local edge runtime tells neither the Worker nor its object that a caller left (seen 2026-11, also with the flags
  // `enable_request_signal` and `request_signal_passthrough`): there the command waits for its answer or its 30 s.
  it.skipIf(runtime === 'edge')(
    '§1.4: a command whose caller vanishes is settled, and the phone hears nothing of it',
    async () => {
      const target = await start();
      const phone = await startPhone(target, { script: silent });
      const abort = new AbortController();
      const asked = ping(target, phone, { signal: abort.signal });
      asked.catch(() => {});
      const command = await phone.received();
      abort.abort();
      await expect.poll(() => pendingCommands(target)).toBe(0);
      expect(await newest(target)).toMatchObject({ decision: 'error', error: 'caller disconnected' });
      phone.answer(command, { result: {} });
      await phone.settled();
      expect(await newest(target)).toMatchObject({ decision: 'error', response_status: null });
      expect(phone.commands).toHaveLength(1);
    },
  );

  it('§1.5: revoking the phone fails its commands with 502 at once', async () => {
    const target = await start();
    const phone = await startPhone(target, { script: silent });
    const caller = await pair(target);
    const asked = target.fetch('/ping', { headers: bearer(caller.token) });
    await phone.received();
    await target.fetch(`/sessions/${phone.prefix}`, { method: 'DELETE', headers: bearer(caller.token) });
    expect((await answerOf(asked))[0]).toBe(502);
    expect(await newest(target)).toMatchObject({ decision: 'error' });
    expect((await target.fetch('/ping', { headers: bearer(caller.token) })).status).toBe(503);
    expect((await (await target.operator('/bridge/devices')).json()).devices).toEqual([]);
  });

  it('§1.5: a lost grant fails commands with 502 at once, and the socket stays', async () => {
    const target = await start();
    const phone = await startPhone(target, { script: silent });
    const caller = await pair(target);
    const asked = target.fetch('/ping', { headers: bearer(caller.token) });
    await phone.received();
    await loseGrant(target, phone);
    expect((await answerOf(asked))[0]).toBe(502);
    await phone.settled();
    expect((await target.fetch('/ping', { headers: bearer(caller.token) })).status).toBe(503);
  });

  it('§1.2: commands on the old socket of a phone that reconnects fail at once', async () => {
    const target = await start();
    const phone = await startPhone(target, { script: silent, device: { device_name: 'Fold' } });
    const asked = ping(target, phone);
    await phone.received();
    const fresh = await reconnect(target, phone);
    expect(await answerOf(asked)).toEqual([502, { ok: false, error: 'Bridge device Fold reconnected' }]);
    expect((await ping(target, fresh)).status).toBe(200);
    expect(fresh.commands).toHaveLength(1);
  });

  it('§1.3: an oversized report does not count', async () => {
    const target = await start();
    const phone = await startPhone(target, { status: { filler: 'x'.repeat(300_000) } });
    expect((await ping(target, phone)).status).toBe(503);
  });

  // A Durable Object is evicted without notice; it has no shutdown.
  it.skipIf(runtime === 'edge')('§1.5: shutdown fails commands with 502 before the listener closes', async () => {
    const target = await start();
    const phone = await startPhone(target, { script: silent });
    const asked = ping(target, phone);
    await phone.received();
    const stopped = target.relay?.stop();
    expect(await answerOf(asked)).toEqual([502, { ok: false, error: 'Relay is shutting down' }]);
    await stopped;
  });
});

describeOnNode('timeouts on the bridge (contract 03 §1.4, 4.2)', () => {
  const start = clockedTargets();

  it('§4.2: 504 after 30 s without an answer; a late one changes nothing', async () => {
    const { clock, target } = await start();
    const phone = await startPhone(target, { script: silent });
    const asked = ping(target, phone);
    const command = await phone.received();
    clock.advance(29_999);
    expect(target.relay.bridge.pendingCount()).toBe(1);
    clock.advance(1);
    expect(await answerOf(asked)).toEqual([
      504,
      { ok: false, error: 'Phone did not respond within 30s: its owner may still be asked there' },
    ]);
    phone.answer(command, { result: {} });
    await phone.settled();
    expect(await newest(target)).toMatchObject({ decision: 'timeout', response_status: null, error: null });
    expect(target.relay.bridge.pendingCount()).toBe(0);
  });

  it('23.3.4: a phone that asks its owner has 150 s, and is told so', async () => {
    const { clock, target } = await start();
    const phone = await startPhone(target, { script: silent });
    const other = await startPhone(target, { script: silent });
    const ask = (from: typeof phone, payload: unknown) => from.client.send('bridge', 'command.waiting', payload);
    const [first, second] = [ping(target, phone), ping(target, phone)];
    const one = await phone.received();
    const two = await phone.received(1);
    for (const payload of [{}, { request_id: one.request_id }, { request_id: 'x', for: 'owner' }]) ask(phone, payload);
    // Another phone cannot extend it.
    ask(other, { request_id: two.request_id, for: 'owner' });
    await other.settled();
    clock.advance(20_000);
    ask(phone, { request_id: one.request_id, for: 'owner' });
    expect((await phone.client.next({ channel: 'bridge', type: 'command.waiting' })).payload).toEqual({
      request_id: one.request_id,
      for: 'owner',
      timeout_ms: 150_000,
    });
    clock.advance(10_000);
    expect((await answerOf(second))[0]).toBe(504);
    // Asked again, it gets no more.
    ask(phone, { request_id: one.request_id, for: 'owner' });
    await phone.client.next({ channel: 'bridge', type: 'command.waiting' });
    for (let at = 30; at < 140; at += 10) {
      await phone.settled();
      await other.settled();
      clock.advance(10_000);
    }
    await phone.settled();
    clock.advance(9_999);
    expect(target.relay.bridge.pendingCount()).toBe(1);
    clock.advance(1);
    const error = 'The owner of the phone did not decide within 150s';
    expect(await answerOf(first)).toEqual([504, { ok: false, error }]);
  });

  it('§1.4: a settled command leaves no timer behind', async () => {
    const { clock, target } = await start();
    const phone = await startPhone(target);
    // The limiter, too, is written within a second.
    clock.advance(1_000);
    const before = clock.pending;
    for (let round = 0; round < 5; round++) expect((await ping(target, phone)).status).toBe(200);
    // So is the activity.
    clock.advance(1_000);
    expect(clock.pending).toBe(before);
  });

  it('§1.2: a phone is absent once its grant has expired, without a frame', async () => {
    const { clock, target } = await start();
    const phone = await startPhone(target, { policy: { grants: { bridge: 600 } } });
    const caller = await pair(target);
    const ask = () => target.fetch('/tap', { ...post({}), headers: bearer(caller.token) });
    clock.advance(599_000);
    expect((await ask()).status).toBe(200);
    clock.advance(2_000);
    expect((await ask()).status).toBe(503);
    expect(phone.commands).toHaveLength(1);
  });

  it('§6: an answer updates last_seen', async () => {
    const { clock, target } = await start();
    const phone = await startPhone(target);
    const seen = async () => (await (await target.operator('/bridge/status')).json()).last_seen_seconds_ago;
    clock.advance(10_500);
    expect(await seen()).toBe(10);
    await ping(target, phone);
    expect(await seen()).toBe(0);
  });
});
