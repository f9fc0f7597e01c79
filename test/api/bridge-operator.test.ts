import { expect, it } from 'vitest';
import { reconnect, startPhone } from '../support/phone.ts';
import { bearer, describeMatrix, pair, post, type Target } from '../support/relay.ts';

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
  device_id: 'a lie',
  session_token_prefix: 'a lie',
};

describeMatrix('operator routes of the bridge (contract 03 §6)', (start) => {
  it('are the operator’s alone', async () => {
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

  it('status: never a phone, a phone, a phone that was', async () => {
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

  it('several: newest first; ambiguous 409', async () => {
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

  it('activity: decisions', async () => {
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

  it('activity: no secret and no private content is kept, and the phone gets everything', async () => {
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
    if (target.log.length > 0) expect(target.log.join('\n')).not.toMatch(/hidden|[?]query/);
  });

  it('activity: a ring of 100, newest first; limits', async () => {
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

  it('GET /relay/info names the bridge', async () => {
    const target = await start();
    const [, info] = await read(target, '/relay/info');
    expect(info.capabilities).toContain('bridge');
    expect(info.pending_commands).toBe(0);
  });
});
