import { get } from 'node:http';
import { describe, expect, it } from 'vitest';
import { DEVICE_ROUTES } from '../../lib/bridge/device-routes.ts';
import { echo, loseGrant, startPhone } from '../support/phone.ts';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';

describe('the table (contract 03 §5)', () => {
  it('has 34 paths and 35 pairs', () => {
    expect(DEVICE_ROUTES).toHaveLength(35);
    expect(new Set(DEVICE_ROUTES.map(({ path }) => path)).size).toBe(34);
    expect(new Set(DEVICE_ROUTES.map(({ method, path }) => method + path)).size).toBe(35);
  });
});

/** `fetch` gives up on a 407. */
const plainGet = (url: string, headers: Record<string, string>) =>
  new Promise<{ status?: number; body: string }>((resolve, reject) => {
    get(url, { headers }, (response) => {
      let body = '';
      response.on('data', (chunk) => {
        body += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode, body }));
    }).on('error', reject);
  });

describeMatrix('Device Control (contract 03 §2, 4)', (start) => {
  it('carries every pair to the phone and its answer back', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const { token } = await pair(target, { device: { device_name: 'Host tool' } });
    const body = { a: 1, nested: { list: [null, 1.5, 'ü\u2028😀', {}], token: 'for the phone' }, empty: '' };
    for (const { method, path } of DEVICE_ROUTES) {
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

  it('an envelope has the id of its command, and params and body are always there', async () => {
    const target = await start();
    const phone = await startPhone(target);
    await target.fetch('/ping', { headers: phone.headers });
    const { id, payload } = await phone.client.next({ channel: 'bridge' });
    expect(payload).toEqual({ request_id: id, method: 'GET', path: '/ping', params: {}, body: {} });
    await target.fetch('/setup', { method: 'POST', headers: phone.headers });
    expect(phone.commands[1]).toMatchObject({ params: {}, body: {} });
  });

  it('methods first, then the bearer, then the grant', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const ungranted = await pair(target);
    await loseGrant(target, ungranted);
    for (const { path } of DEVICE_ROUTES) {
      const allow = DEVICE_ROUTES.filter((route) => route.path === path).map(({ method }) => method);
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

  it('a path is only itself', async () => {
    const target = await start();
    const phone = await startPhone(target);
    for (const path of ['/%74ap', '/ta', '/tapp', '/tap/x', '/x/tap', '/events/streams', '/constructor']) {
      expect((await target.fetch(path, { ...post({}), headers: phone.headers })).status, path).toBe(404);
    }
    expect(phone.commands).toEqual([]);
  });

  it('bodies: empty is {}, anything but an object 400, over 2 MiB 413, and nothing of that is forwarded', async () => {
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

  it('numbers and escapes go through as they were written, both ways', async () => {
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

  it('status and body of the answer (§4.3)', async () => {
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

  it('every status of 200..599 is the caller’s', async () => {
    const target = await start();
    const phone = await startPhone(target);
    for (let status = 200; status <= 599; status++) {
      phone.script = () => ({ status, result: { status } });
      const empty = [204, 205, 304].includes(status);
      const answer = await plainGet(`${target.url}/ping`, phone.headers);
      expect(answer).toEqual({ status, body: empty ? '' : JSON.stringify({ status }) });
    }
    phone.script = echo;
    expect((await target.fetch('/ping', { headers: phone.headers })).status).toBe(200);
  });
});
