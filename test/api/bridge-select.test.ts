import { expect, it } from 'vitest';
import { loseGrant, type Phone, reconnect, startPhone } from '../support/phone.ts';
import { bearer, describeMatrix, pair, post, type Target } from '../support/relay.ts';

const named = (target: Target, device_id: string, device_name: string, more: Record<string, unknown> = {}) =>
  startPhone(target, { device: { device_id, device_name, ...more } });

describeMatrix('choosing the device (contract 03 §1.2, 3)', (start) => {
  const askedOf = async (target: Target, caller: Phone, path: string, phones: Phone[]): Promise<number> => {
    const before = phones.map(({ commands }) => commands.length);
    expect((await target.fetch(path, { headers: caller.headers })).status).toBe(200);
    return phones.findIndex(({ commands }, at) => commands.length > (before[at] as number));
  };

  it('the first is active; selectors find any by id, name, normalised form and kind', async () => {
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

  it('selectors never reach the phone, not even those that lost', async () => {
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

  it('unknown 404, ambiguous 409, no string 400; falsy ones are none', async () => {
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

  it('no phone: 503 without a selector, 404 with one; a silent socket is no phone', async () => {
    const target = await start();
    const silent = await startPhone(target, { status: null });
    const plain = await target.fetch('/ping', { headers: silent.headers });
    expect(plain.status).toBe(503);
    expect((await plain.json()).error).toMatch(/^No phone connected/);
    expect((await target.fetch('/ping?device=x', { headers: silent.headers })).status).toBe(404);
    expect(silent.commands).toEqual([]);
  });

  it('the active phone leaves: calls go to the one seen last', async () => {
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

  it('select-active: until it leaves; what it refuses', async () => {
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

  it('store build: 403 without a frame, but for ping, setup and events', async () => {
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

  it('a phone without its grant is absent', async () => {
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

  it('lies about an id do not help; two phones without ids do not evict each other', async () => {
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

  it('on a new socket: the newer one wins and keeps it, however often the older reports', async () => {
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

  it('after a drop it is there again before its next report, as it was', async () => {
    const target = await start();
    const phone = await startPhone(target, { status: { battery: 7 } });
    phone.client.close();
    await expect.poll(async () => (await devices(target)).count).toBe(0);
    const back = await reconnect(target, phone, { status: null });
    await back.settled();
    expect(await askedOf(target, back, '/ping', [phone, back])).toBe(1);
    expect((await devices(target)).devices[0]).toMatchObject({ battery: 7, phone_connected: true });
  });

  it('a hundred phones', { timeout: 60_000 }, async () => {
    const target = await start();
    const phones: Phone[] = [];
    for (let at = 0; at < 100; at++) phones.push(await named(target, `many-${at}`, `Phone number ${at}`));
    expect((await devices(target)).count).toBe(100);
    const caller = await pair(target);
    const answers = await Promise.all(
      phones.map(async (_, at) => {
        const response = await target.fetch(`/events?limit=${at}&device=phonenumber${at}`, {
          headers: bearer(caller.token),
        });
        return (await response.json()).params.limit;
      }),
    );
    expect(answers).toEqual(phones.map((_, at) => String(at)));
    for (const { commands } of phones) expect(commands).toHaveLength(1);
  });
});

const devices = async (target: Target) => (await target.operator('/bridge/devices')).json();
