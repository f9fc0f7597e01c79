import { expect, it } from 'vitest';
import { DEVICE_ROWS } from '../../lib/operations/device.ts';
import { devices, named } from '../support/device-control.ts';
import { loseGrant, type Phone, reconnect, startPhone } from '../support/phone.ts';
import { bearer, describeMatrix, describeOnNode, pair, post, type Target } from '../support/relay.ts';

describeOnNode('table of device routes (contract 03 §5)', () => {
  it('has 34 paths and 35 pairs of method and path', () => {
    expect(DEVICE_ROWS).toHaveLength(35);
    expect(new Set(DEVICE_ROWS.map(({ path }) => path)).size).toBe(34);
    expect(new Set(DEVICE_ROWS.map(({ method, path }) => method + path)).size).toBe(35);
  });
});

describeMatrix('Device Control over HTTP (contract 03 §2, 4)', (start) => {
  it('§4.1: every pair of method and path reaches the phone, and its answer comes back', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const { token } = await pair(target, { device: { device_name: 'Host tool' } });
    const body = { a: 1, nested: { list: [null, 1.5, 'ü\u2028😀', {}], token: 'for the phone' }, empty: '' };
    for (const { method, path } of DEVICE_ROWS) {
      const query = '?limit=5&limit=6&text=a%20b&n=';
      const params = { limit: '6', text: 'a b', n: '' };
      const init = method === 'GET' ? { method } : { method, body: JSON.stringify(body) };
      const response = await target.fetch(path + query, { ...init, headers: bearer(token) });
      expect(response.status, path).toBe(200);
      expect(response.headers.get('content-type')).toBe('application/json; charset=utf-8');
      expect(response.headers.get('cache-control')).toBe('no-store');
      expect(await response.json()).toEqual({ method, path, params, body: method === 'GET' ? params : body });
      const command = phone.commands.at(-1);
      expect(command?.request_id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4/);
    }
    expect(phone.commands).toHaveLength(35);
  });

  it('§4.1: the envelope carries the id of its command; params and body are always present', async () => {
    const target = await start();
    const phone = await startPhone(target);
    await target.fetch('/ping', { headers: phone.headers });
    const { id, payload } = await phone.client.next({ channel: 'bridge' });
    expect(payload).toEqual({ request_id: id, method: 'GET', path: '/ping', params: {}, body: {} });
    await target.fetch('/setup', { method: 'POST', headers: phone.headers });
    expect(phone.commands[1]).toMatchObject({ params: {}, body: {} });
  });

  it('§2: checks the method first, then the bearer, then the grant', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const ungranted = await pair(target);
    await loseGrant(target, ungranted);
    for (const { path } of DEVICE_ROWS) {
      const allow = DEVICE_ROWS.filter((route) => route.path === path).map(({ method }) => method);
      for (const method of ['HEAD', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'GET', 'POST']) {
        if (allow.includes(method as 'GET')) continue;
        const response = await target.fetch(path, { method });
        expect(response.status, `${method} ${path}`).toBe(405);
        expect(response.headers.get('allow')).toBe(allow.sort().join(', '));
        expect(response.headers.get('cache-control')).toBe('no-store');
      }
      const [method] = allow;
      for (const headers of [{}, { authorization: 'Bearer ' }, bearer(crypto.randomUUID()), { cookie: 'a=b' }]) {
        const response = await target.fetch(path, { method, headers: headers as Record<string, string> });
        expect(response.status, path).toBe(401);
        expect(await response.json()).toMatchObject({ ok: false, error: expect.any(String) });
        expect(response.headers.get('cache-control')).toBe('no-store');
      }
      const refused = await target.fetch(path, { method, headers: bearer(ungranted.token) });
      expect(refused.status, path).toBe(403);
      expect((await refused.json()).error).toMatch(/bridge/);
    }
    expect(phone.commands).toEqual([]);
  });

  it('§2: similar and escaped paths are 404', async () => {
    const target = await start();
    const phone = await startPhone(target);
    for (const path of ['/%74ap', '/ta', '/tapp', '/tap/x', '/x/tap', '/events/streams', '/constructor']) {
      expect((await target.fetch(path, { ...post({}), headers: phone.headers })).status, path).toBe(404);
    }
    expect(phone.commands).toEqual([]);
  });

  it('§4.1: an empty body is {}, anything but an object 400, over 2 MiB 413; refused bodies are not forwarded', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const send = (body: string) => target.fetch('/tap', { method: 'POST', body, headers: phone.headers });
    for (const body of ['[]', 'null', '1', '"x"', '{', '{"a":}', ' ', 'x=1', '{}{}']) {
      const response = await send(body);
      expect(response.status, body).toBe(400);
      expect((await response.json()).error).toBe('body must be a JSON object');
    }
    expect((await send(JSON.stringify({ text: 'x'.repeat(2 * 1024 * 1024) }))).status).toBe(413);
    expect(phone.commands).toEqual([]);
    const big = { text: 'x'.repeat(2 * 1024 * 1024 - 20) };
    expect((await (await send(JSON.stringify(big))).json()).body).toEqual(big);
    expect((await send('')).status).toBe(200);
  });

  it('§4.1: numbers and escapes pass unchanged in both directions', async () => {
    const target = await start();
    const phone = await startPhone(target, { script: () => undefined });
    const body = '{"big":12345678901234567890,"float":1.0,"tiny":1e-400,"e":"\\u00e9","__proto__":{"a":1}}';
    const pending = target.fetch('/tap', { method: 'POST', body, headers: phone.headers });
    const frame = new Promise<string>((resolve) =>
      phone.client.socket.once('message', (data) => resolve(String(data))),
    );
    expect(await frame).toContain(`"body":${body}`);
    const { request_id } = await phone.received();
    phone.client.raw(
      `{ "type":"bridge.response", "result":{"not":"this"}, "payload" : {"result":1,"x":"}{\\"", "result" : ${body} ,` +
        `"request_id":"${request_id}"},"channel":"bridge","id":"1"}`,
    );
    expect(await (await pending).text()).toBe(body);
  });

  it('§6: the activity records every member of the body, even one that would set a prototype', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const body = '{"x":1,"__proto__":{"y":2}}';
    await target.fetch('/tap?x=0&z=3', { method: 'POST', body, headers: phone.headers });
    const text = await (await target.operator('/bridge/activity?limit=1')).text();
    expect(text).toContain('"params":{"x":1,"z":"3","__proto__":{"y":2}}');
  });

  it('§4.3: status and body of the answer', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const cases: [payload: Record<string, unknown>, status: number, body: unknown][] = [
      [{ status: 201, result: { a: 1 } }, 201, { a: 1 }],
      [{ result: [1, null] }, 200, [1, null]],
      [{ status: '404', result: {} }, 200, {}],
      [{ status: 200.5, result: {} }, 200, {}],
      [{ status: 200, result: 'text' }, 200, { value: 'text' }],
      [{ status: 200, result: 0 }, 200, { value: 0 }],
      [{ status: 200, result: false }, 200, { value: false }],
      [{ status: 200, result: null }, 200, {}],
      [{ status: 500 }, 500, {}],
      [{ status: 500, error: 'broken' }, 500, { error: 'broken' }],
      [{ status: 500, error: 'broken', result: { error: 'other', n: null } }, 500, { error: 'other', n: null }],
      [
        { status: 423, result: { error_code: 'keyguard_blocked', final: true } },
        423,
        { error_code: 'keyguard_blocked', final: true },
      ],
      [{ status: 599, result: {} }, 599, {}],
      ...[0, -1, 100, 101, 199, 600, 1e21, 2 ** 53].map((status): [Record<string, unknown>, number, unknown] => [
        { status, result: { a: 1 } },
        502,
        { ok: false, error: 'invalid status from phone' },
      ]),
    ];
    for (const [payload, status, body] of cases) {
      phone.script = () => payload;
      const response = await target.fetch('/ping', { headers: phone.headers });
      expect(response.status, JSON.stringify(payload)).toBe(status);
      expect(await response.json()).toEqual(body);
    }
  });
});

describeMatrix('choosing the device (contract 03 §1.2, 3)', (start) => {
  /** Index of the phone that a call reached. */
  const askedOf = async (target: Target, caller: Phone, path: string, phones: Phone[]): Promise<number> => {
    const before = phones.map(({ commands }) => commands.length);
    expect((await target.fetch(path, { headers: caller.headers })).status).toBe(200);
    return phones.findIndex(({ commands }, at) => commands.length > (before[at] as number));
  };

  it('§3: the first phone is active; selectors find others by id, name, normalised form and kind', async () => {
    const target = await start();
    const fold = await named(target, 'id-1', 'My Pixel Fold');
    const note = await named(target, 'id-2', 'Boox Note');
    const phones = [fold, note];
    expect(await askedOf(target, note, '/ping', phones)).toBe(0);
    for (const [selector, at] of [
      ['id-1', 0],
      ['ID_1', 0],
      ['%20id2%20', 1],
      ['My%20Pixel%20Fold', 0],
      ['mypixelfold', 0],
      ['pixel', 0],
      ['Phone', 0],
      ['tablet', 1],
      ['BOOX!', 1],
    ] as const) {
      expect(await askedOf(target, fold, `/ping?device=${selector}`, phones), selector).toBe(at);
    }
    expect(await askedOf(target, fold, '/ping?device=%20&device_id=id-2', phones)).toBe(1);
    expect(await askedOf(target, fold, '/ping?deviceId=id-2&device_id=id-1', phones)).toBe(0);
    expect(await askedOf(target, fold, '/ping?device=id-1&device=id-2', phones)).toBe(1);
    expect(await askedOf(target, fold, '/ping?device=%20', phones)).toBe(0);
    const { activity } = await (await target.operator('/bridge/activity?limit=2')).json();
    expect(activity.map((record: { alias_used: unknown }) => record.alias_used)).toEqual([null, 'id-2']);
  });

  it('§3: selectors never reach the phone, not even unused ones', async () => {
    const target = await start();
    const phone = await named(target, 'id-1', 'One');
    await named(target, 'id-2', 'Two');
    await target.fetch('/events?device=id-1&device_id=zzz&deviceId=&limit=3', { headers: phone.headers });
    expect(phone.commands.at(-1)).toMatchObject({ params: { limit: '3' }, body: { limit: '3' } });
    const body = '{"x":1.50, "device":"id-1","device_id":7,"nested":{"device":"stays"},"deviceId":null,"y":"}"}';
    await target.fetch('/tap?device=one&q=1', { method: 'POST', body, headers: phone.headers });
    expect(phone.commands.at(-1)).toMatchObject({ params: { q: '1' } });
    expect(phone.commands.at(-1)?.body).toEqual({ x: 1.5, nested: { device: 'stays' }, y: '}' });
    await target.fetch('/tap', { ...post({ device: 'id-1' }), headers: phone.headers });
    expect(phone.commands.at(-1)?.body).toEqual({});
    const { activity } = await (await target.operator('/bridge/activity?limit=1')).json();
    expect(activity[0].params).toEqual({});
  });

  it('§3: an unknown selector is 404, an ambiguous one 409, a non-string 400; falsy ones do not count', async () => {
    const target = await start();
    const phone = await named(target, 'id-1', 'Same name');
    await named(target, 'id-2', 'Same name');
    const ask = async (path: string, body?: unknown) => {
      const response = await target.fetch(path, { ...(body ? post(body) : {}), headers: phone.headers });
      return [response.status, (await response.json()).error];
    };
    expect(await ask('/ping?device=nobody')).toEqual([404, 'Unknown bridge device selector: nobody']);
    expect(await ask('/ping?device=---')).toEqual([404, 'Unknown bridge device selector: ---']);
    expect(await ask('/tap', { deviceId: 'nobody' })).toEqual([404, 'Unknown bridge device selector: nobody']);
    expect(await ask('/ping?device=same-name')).toEqual([409, 'Ambiguous bridge device selector: same-name']);
    for (const device of [5, true, {}, [], ['id-1']]) {
      expect(await ask('/tap', { device })).toEqual([400, 'device selector must be a string']);
    }
    expect(phone.commands).toEqual([]);
    for (const device of [0, false, null, '', '  ']) expect((await ask('/tap', { device }))[0]).toBe(200);
    expect((await ask('/tap?device=id-1', { device: 5 }))[0]).toBe(200);
    const { activity } = await (await target.operator('/bridge/activity')).json();
    expect(activity).toHaveLength(6);
  });

  it('§3: without a phone 503, with a selector 404; a socket that never reported is not a phone', async () => {
    const target = await start();
    const silent = await startPhone(target, { status: null });
    const plain = await target.fetch('/ping', { headers: silent.headers });
    expect(plain.status).toBe(503);
    expect((await plain.json()).error).toMatch(/^No phone connected/);
    expect((await target.fetch('/ping?device=x', { headers: silent.headers })).status).toBe(404);
    expect(silent.commands).toEqual([]);
  });

  it('§3: when the active phone leaves, calls go to the one seen last', async () => {
    const target = await start();
    const one = await named(target, 'id-1', 'One');
    const two = await named(target, 'id-2', 'Two');
    const three = await named(target, 'id-3', 'Three');
    expect(await askedOf(target, two, '/ping', [one, two, three])).toBe(0);
    one.client.close();
    await expect.poll(async () => (await devices(target)).count).toBe(2);
    expect(await devices(target)).toMatchObject({ most_recent_device_id: 'id-3', active_device_id: 'id-3' });
    expect(await askedOf(target, two, '/ping', [one, two, three])).toBe(2);
  });

  it('§6: select-active holds until the phone leaves; bad selections are refused', async () => {
    const target = await start();
    const one = await named(target, 'id-1', 'One');
    const two = await named(target, 'id-2', 'Two');
    const select = async (body: string) => {
      const response = await target.operator('/bridge/select-active', { method: 'POST', body });
      return [response.status, await response.json()];
    };
    expect(await select('{"device_id":" TWO "}')).toEqual([
      200,
      {
        ok: true,
        active_device_id: 'id-2',
        device_id: 'id-2',
        device_name: 'Two',
        alias_used: 'TWO',
        aliases: ['Two', 'id-2', 'id2', 'two'],
      },
    ]);
    expect(await askedOf(target, one, '/ping', [one, two])).toBe(1);
    await one.report();
    expect(await askedOf(target, one, '/ping', [one, two])).toBe(1);
    for (const [body, status, error] of [
      ['{', 400, 'invalid JSON'],
      ['[]', 400, 'body must be a JSON object'],
      ['', 400, 'missing device or device_id'],
      ['{"device":5}', 400, 'missing device or device_id'],
      ['{"device":" "}', 400, 'missing device or device_id'],
      ['{"device":"zzz"}', 404, 'Unknown bridge device selector: zzz'],
    ] as const) {
      expect(await select(body)).toEqual([status, { ok: false, error }]);
    }
    await named(target, 'id-4', 'One');
    expect((await select('{"device":"one"}'))[0]).toBe(409);
    two.client.close();
    await expect.poll(async () => (await devices(target)).count).toBe(2);
    expect((await devices(target)).active_device_id).not.toBe('id-2');
  });

  it('§3: a store build gets only ping, setup and events; the rest is 403 without a frame', async () => {
    const target = await start();
    const phone = await startPhone(target, { status: { bridge: { device_control_supported: false } } });
    const refused = await target.fetch('/screen', { headers: phone.headers });
    expect(refused.status).toBe(403);
    expect(await refused.json()).toMatchObject({ ok: false, error_code: 'device_control_sideload_only' });
    expect((await target.fetch('/events/stream', { ...post({}), headers: phone.headers })).status).toBe(403);
    expect(phone.commands).toEqual([]);
    for (const [path, init] of [
      ['/ping', {}],
      ['/setup', { method: 'POST' }],
      ['/events', {}],
    ] as const) {
      expect((await target.fetch(path, { ...init, headers: phone.headers })).status, path).toBe(200);
    }
    await phone.report({ bridge: { device_control_supported: true, master_enabled: false } });
    expect((await target.fetch('/screen', { headers: phone.headers })).status).toBe(200);
    await phone.report({ ts: 1 });
    expect((await target.fetch('/screen', { headers: phone.headers })).status).toBe(200);
  });

  it('§1.2: a phone that lost its grant is absent', async () => {
    const target = await start();
    const one = await named(target, 'id-1', 'One');
    const two = await named(target, 'id-2', 'Two');
    await loseGrant(target, one);
    await expect.poll(async () => (await devices(target)).count).toBe(1);
    expect(await askedOf(target, two, '/ping', [one, two])).toBe(1);
    expect((await target.fetch('/ping?device=id-1', { headers: two.headers })).status).toBe(404);
    one.client.send('bridge', 'bridge.status', {}, 'late');
    const { payload } = await one.client.next({ channel: 'system', id: 'late' });
    expect(payload).toMatchObject({ message: 'Bridge grant expired for this device', error: 'permission_denied' });
    expect((await devices(target)).count).toBe(1);
  });

  it('§6: a phone that reports without the grant is no phone, and the operator is told what to do', async () => {
    const target = await start();
    const without = { without: ['bridge'] };
    const phone = await startPhone(target, { device: { device_name: 'Pixel' }, policy: without, status: null });
    const answer = async (path: string) => (await target.operator(path)).json();
    expect(await answer('/bridge/status')).not.toHaveProperty('advice');
    phone.client.send('bridge', 'bridge.status', {}, 'early');
    await phone.client.next({ channel: 'system', id: 'early' });
    const advice = '"Pixel" is paired without the bridge grant; pair it again with: svc pair';
    expect(await answer('/bridge/status')).toEqual({
      ok: false,
      phone_connected: false,
      last_seen_seconds_ago: null,
      error: 'no phone connected',
      advice,
    });
    expect(await answer('/bridge/devices')).toMatchObject({ count: 0 });
    const caller = await startPhone(target, { status: null });
    const refused = await target.fetch('/ping', { headers: caller.headers });
    expect([refused.status, (await refused.json()).error]).toEqual([503, `No phone connected: ${advice}`]);
    await phone.client.close();
    await expect.poll(() => answer('/bridge/status')).not.toHaveProperty('advice');
  });

  it('§1.2: a false id gains nothing; two phones without ids do not evict each other', async () => {
    const target = await start();
    const honest = await named(target, 'id-1', 'One');
    const liar = await startPhone(target, {
      device: { device_id: 'id-2', device_name: 'Liar' },
      status: { device: { device_id: 'id-1', name: 'One' }, device_id: 'id-1' },
    });
    const nameless = { device_id: 'unknown', device_name: 'Nameless' };
    const thief = await startPhone(target, { device: nameless, status: { device_id: 'id-1' } });
    await startPhone(target, { device: nameless, status: {} });
    await startPhone(target, { device: nameless, status: { device: { id: 'id-9' } } });
    const list = await devices(target);
    expect(list.count).toBe(5);
    const ids = list.devices.map(({ device_id }: { device_id: string }) => device_id);
    expect(ids).toEqual(expect.arrayContaining(['id-1', 'id-2', 'id-9']));
    expect(ids.filter((id: string) => id.startsWith('ws-'))).toHaveLength(2);
    expect(await askedOf(target, liar, '/ping?device=id-1', [honest, liar, thief])).toBe(0);
  });

  it('§1.2: on two sockets of one phone the newer one wins, however often the older one reports', async () => {
    const target = await start();
    const old = await named(target, 'id-1', 'One');
    await named(target, 'id-2', 'Two');
    const fresh = await reconnect(target, old);
    for (let round = 0; round < 3; round++) {
      await old.report();
      expect(await askedOf(target, fresh, '/ping', [old, fresh])).toBe(1);
      await fresh.report();
    }
    expect(await devices(target)).toMatchObject({ count: 2, active_device_id: 'id-1' });
    fresh.client.close();
    await expect.poll(async () => (await devices(target)).count).toBe(1);
    await old.report();
    expect(await askedOf(target, old, '/ping?device=one', [old, fresh])).toBe(0);
  });

  it('§1.2: a phone that reconnects is present before its next report, with its last state', async () => {
    const target = await start();
    const phone = await startPhone(target, { status: { battery: 7 } });
    phone.client.close();
    await expect.poll(async () => (await devices(target)).count).toBe(0);
    const back = await reconnect(target, phone, { status: null });
    await back.settled();
    expect(await askedOf(target, back, '/ping', [phone, back])).toBe(1);
    expect((await devices(target)).devices[0]).toMatchObject({ battery: 7, phone_connected: true });
  });
});
