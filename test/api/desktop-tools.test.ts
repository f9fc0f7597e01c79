import { expect, it } from 'vitest';
import { loseGrant, STATUS, silent, startDesktop } from '../support/desktop.ts';
import { exchange, request } from '../support/raw-socket.ts';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';
import { call, health, newest, refusalOf } from './desktop-support.ts';

const LIMIT = 32 * 1024 * 1024;

describeMatrix('desktop tools over HTTP (contract 07 §2.3)', (start, runtime) => {
  it('401 without a bearer, 403 without the grant, OPTIONS 405; on every route', async () => {
    const target = await start();
    const paired = await pair(target);
    const { token } = paired;
    await loseGrant(target, paired);
    for (const path of ['_ping', 'health', 'desktop_terminal', 'desktop_health', 'nonsense']) {
      const url = `/desktop/${path}`;
      expect((await target.fetch(url)).status, path).toBe(401);
      expect((await target.fetch(url, { headers: bearer('none') })).status, path).toBe(401);
      expect((await target.operator(url)).status, path).toBe(401);
      const refused = await target.fetch(url, { headers: bearer(token) });
      expect(refused.status, path).toBe(403);
      expect(refused.headers.get('cache-control')).toBe('no-store');
      expect(await refused.json()).toEqual({ ok: false, error: 'desktop grant required' });
    }
    const preflight = await target.fetch('/desktop/desktop_terminal', { method: 'OPTIONS' });
    expect(preflight.status).toBe(405);
    expect(preflight.headers.get('allow')).toBe('DELETE, GET, HEAD, PATCH, POST, PUT');
  });

  it('a tool is carried to the desktop and its answer back, as both were written', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { script: silent });
    const asked = call(
      target,
      desktop,
      'desktop_terminal',
      {},
      {
        body: '{"n": 1.50, "device":"PC", "text":"\\u0041ü😀","control_session":{"id":"x"},"control_context":1,"deep":{"device":"stays"}}',
      },
    );
    const { id, payload } = await desktop.client.next({ channel: 'desktop', type: 'desktop.command' });
    expect(payload).toEqual({
      request_id: id,
      tool: 'desktop_terminal',
      args: { n: 1.5, text: 'Aü😀', deep: { device: 'stays' } },
      target_device_id: desktop.id,
    });
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4/);
    desktop.client.raw(
      `{"channel":"desktop","type":"desktop.response","payload":{"request_id":"${id}", "ok":true,"result":{"x":1.0,"y":"\\u00fc"}}}`,
    );
    const response = await asked;
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toMatch(/^application\/json/);
    expect(response.headers.get('cache-control')).toBe('no-store');
    expect(await response.text()).toBe(
      `{"request_id":"${id}", "ok":true,"result":{"x":1.0,"y":"\\u00fc"},"target":{"device_id":"${desktop.id}","device_name":"PC"}}`,
    );
  });

  it('ok:false and the older status are answers too; a target of the desktop stays', async () => {
    const target = await start();
    const desktop = await startDesktop(target);
    const answers: [answer: Record<string, unknown>, decision: string, status: number | null, error: string | null][] =
      [
        [{ ok: true, result: 1 }, 'executed', 200, null],
        [{ ok: false, error: 'denied by the user' }, 'error', null, 'denied by the user'],
        [{ ok: false, error: { code: 'x', token: 'hidden' } }, 'error', null, '{"code":"x","token":"[redacted]"}'],
        [{ status: 204, result: {} }, 'executed', 204, null],
        [{ status: 404, error: 'no file' }, 'error', 404, 'no file'],
        [{ result: {} }, 'error', null, null],
        [{ ok: true, target: { device_id: 'own' } }, 'executed', 200, null],
      ];
    for (const [answer, decision, status, error] of answers) {
      desktop.script = () => answer;
      const response = await call(target, desktop, 'desktop_terminal');
      expect(response.status).toBe(200);
      expect(await response.json()).toEqual({
        request_id: desktop.commands.at(-1)?.request_id,
        target: { device_id: desktop.id, device_name: 'PC' },
        ...answer,
      });
      expect(await newest(target, desktop)).toMatchObject({ decision, response_status: status, error });
    }
  });

  it('any method; GET, HEAD and a bare DELETE take their query as arguments', async () => {
    const target = await start();
    const desktop = await startDesktop(target);
    const ask = async (method: string, query: string, body?: string) => {
      const response = await target.fetch(`/desktop/desktop_terminal${query}`, {
        method,
        body,
        headers: desktop.headers,
      });
      expect(response.status, method).toBe(200);
      return [desktop.commands.length, desktop.commands.at(-1)?.args];
    };
    expect(await ask('POST', '', '{"a":1}')).toEqual([1, { a: 1 }]);
    expect(await ask('POST', '?a=2')).toEqual([2, {}]);
    expect(await ask('PUT', '', '{"a":1}')).toEqual([3, { a: 1 }]);
    expect(await ask('PATCH', '', '')).toEqual([4, {}]);
    expect(await ask('DELETE', '?a=2&device=PC', '{"a":1}')).toEqual([5, { a: 1 }]);
    expect(await ask('DELETE', '?a=2&a=3&device=PC&control_session=x')).toEqual([6, { a: '3' }]);
    expect(await ask('GET', '?path=%2Ftmp%2F%C3%BC&n=5')).toEqual([7, { path: '/tmp/ü', n: '5' }]);
    expect(await ask('HEAD', '?n=5')).toEqual([8, { n: '5' }]);
  });

  it('400, 413 and 404: nothing is sent', async () => {
    const target = await start();
    const desktop = await startDesktop(target);
    for (const body of ['{', 'nonsense', '[]', '5', 'null', '"text"', '{"a":1}x']) {
      const refused = await refusalOf(call(target, desktop, 'desktop_terminal', {}, { body }));
      expect(refused, body).toEqual([400, 'invalid_body']);
    }
    for (const name of [
      'terminal',
      'desktop_',
      'desktop_Terminal',
      'desktop_a-b',
      'desktop_%74erminal',
      `desktop_${'a'.repeat(65)}`,
      'Health',
    ]) {
      // Without a body: the local edge runtime drops a connection whose body nobody read.
      const refused = await refusalOf(target.fetch(`/desktop/${name}`, { headers: desktop.headers }));
      expect(refused, name).toEqual([404, 'unknown_tool']);
    }
    expect((await target.fetch('/desktop/desktop_terminal/more', { headers: desktop.headers })).status).toBe(404);
    // Refused by its announced length: nothing of the body need come.
    const announced = request('POST', '/desktop/desktop_terminal', {
      ...desktop.headers,
      host: new URL(target.url).host,
      'content-length': String(LIMIT + 1),
    });
    const large = await exchange(Number(new URL(target.url).port), announced);
    expect(large.status).toBe(413);
    expect(JSON.parse(large.body)).toMatchObject({ ok: false, error_code: 'payload_too_large' });
    if (runtime === 'node') {
      const body = new Uint8Array(LIMIT + 1).fill(32);
      const stream = { body: new Blob([body]).stream(), duplex: 'half' as const };
      const refused = await refusalOf(call(target, desktop, 'desktop_terminal', {}, stream));
      expect(refused).toEqual([413, 'payload_too_large']);
    }
    expect(desktop.commands).toEqual([]);
    expect((await health(target, desktop)).recent_commands).toEqual([]);
    const longest = `desktop_${'a'.repeat(64)}`;
    await desktop.report({ advertised_tools: [longest] });
    expect((await call(target, desktop, longest)).status).toBe(200);
  });

  it('arguments of 32 MiB and a screenshot of 30 MiB arrive whole', async () => {
    const target = await start();
    const size = LIMIT;
    const desktop = await startDesktop(target, {
      script: ({ args }) => ({ ok: true, result: { received: String(args.content).length } }),
    });
    const frame = '{"content":""}'.length;
    const body = JSON.stringify({ content: 'x'.repeat(size - frame) });
    expect(body.length).toBe(size);
    const stored = await call(target, desktop, 'desktop_terminal', {}, { body });
    expect((await stored.json()).result).toEqual({ received: size - frame });
    const image = 'aGVsbG8h'.repeat((30 * 1024 * 1024) / 8);
    await desktop.report({ advertised_tools: ['desktop_screenshot'] });
    desktop.script = () => ({ ok: true, result: { image } });
    const shown = await (await call(target, desktop, 'desktop_screenshot')).json();
    expect(shown.result.image === image).toBe(true);
    expect((await newest(target, desktop)).result_summary).toBe(`[${image.length + '{"image":""}'.length} bytes]`);
  });

  it('_ping: 200 or 503', async () => {
    const target = await start();
    const caller = await pair(target);
    const ping = async (query = '', method = 'GET') => {
      const response = await target.fetch(`/desktop/_ping${query}`, { method, headers: bearer(caller.token) });
      const body = method === 'HEAD' ? undefined : await response.json();
      if (response.status === 200) expect(body === undefined || (body.ok === true && !('error' in body))).toBe(true);
      else expect(body).toEqual({ ok: false, error: expect.any(String) });
      return response.status;
    };
    expect(await ping()).toBe(503);
    await startDesktop(target, { device: { device_name: 'Axiom' } });
    await startDesktop(target, { device: { device_name: 'Plain' }, status: { advertised_tools: [] } });
    expect(await ping()).toBe(200);
    expect(await ping('', 'HEAD')).toBe(200);
    expect(await ping('?tool=')).toBe(200);
    expect(await ping('?tool=desktop_computer_action')).toBe(200);
    expect(await ping('?tool=desktop_computer_status')).toBe(503);
    expect(await ping('?tool=desktop_zip')).toBe(200);
    expect(await ping('?tool=desktop_zip&device=axiom')).toBe(503);
    expect(await ping('?tool=desktop_terminal&device=axiom')).toBe(200);
    expect(await ping('?tool=desktop_computer_action&device=plain')).toBe(503);
    expect(await ping('?device=plain')).toBe(200);
    expect(await ping('?device=nobody')).toBe(503);
  });

  it('health: nobody, somebody, several; desktop_health is the same', async () => {
    const target = await start();
    const caller = await pair(target);
    const headers = bearer(caller.token);
    const nothing = {
      connected: false,
      advertised_tools: [],
      pending_commands: 0,
      last_seen_at: null,
      host: null,
      platform: null,
      arch: null,
      node: null,
      version: null,
      pid: null,
      uptime_ms: null,
      started_at_ms: null,
      interactive: null,
      last_error: null,
      computer_use: null,
      clients: [],
      recent_commands: [],
    };
    expect(await health(target, { headers })).toEqual(nothing);
    const last_error = { message: 'm', tool: 'desktop_zip', ts: 1 };
    const one = await startDesktop(target, { status: { last_error, computer_use: { available: true } } });
    const { advertised_tools, ...described } = STATUS;
    const client = {
      device_id: one.id,
      device_name: 'PC',
      advertised_tools: [...advertised_tools].sort(),
      last_seen_at: expect.any(Number),
    };
    expect(await health(target, { headers })).toEqual({
      ...nothing,
      ...described,
      connected: true,
      advertised_tools: [...advertised_tools].sort(),
      last_seen_at: expect.any(Number),
      last_error,
      computer_use: { available: true },
      clients: [client],
    });
    const other = await startDesktop(target, {
      script: silent,
      status: { host: 5, advertised_tools: ['desktop_zip', '', 7] },
    });
    const asked = call(target, { headers }, 'desktop_zip', { device: other.id });
    const command = await other.received();
    const body = await health(target, { headers });
    expect(body).toMatchObject({
      host: null,
      advertised_tools: ['desktop_zip'],
      pending_commands: 1,
      last_error: null,
    });
    expect(body.clients.map(({ device_id }: { device_id: string }) => device_id)).toEqual([other.id, one.id]);
    expect(body.last_seen_at).toBeGreaterThan(1_700_000_000);
    expect(body.recent_commands).toEqual([
      {
        request_id: command.request_id,
        tool: 'desktop_zip',
        device_id: other.id,
        args: {},
        sent_at: expect.any(Number),
        response_status: null,
        result_summary: null,
        error: null,
        decision: 'pending',
      },
    ]);
    expect(body.recent_commands[0].sent_at).toBeGreaterThan(1_700_000_000_000);
    await one.report();
    expect(await health(target, { headers })).toMatchObject({ host: 'box.local' });
    const same = await target.fetch('/desktop/desktop_health', { ...post({ any: 1 }), headers });
    expect(await same.json()).toMatchObject({ connected: true, host: 'box.local', pending_commands: 1 });
    other.answer(command, { ok: true });
    await asked;
    other.client.close();
    one.client.close();
    await expect.poll(async () => (await health(target, { headers })).connected).toBe(false);
    expect(await health(target, { headers })).toMatchObject({ host: null, clients: [], advertised_tools: [] });
  });

  it('the ring shows the 20 newest; no secret is in it, nor in the log', async () => {
    const target = await start();
    const desktop = await startDesktop(target);
    const secrets = {
      password: 'hidden-1',
      API_KEY: 'hidden-2',
      nested: [{ 'access-token': 'hidden-3', deeper: { privateKey: { a: 'hidden-4' } } }],
      authorization: ['hidden-5'],
      command: 'ls',
    };
    desktop.script = () => ({ ok: true, result: { refresh_token: 'hidden-6', out: 'fine' } });
    await call(target, desktop, 'desktop_terminal', secrets);
    expect(desktop.commands[0]?.args).toEqual(secrets);
    const record = await newest(target, desktop);
    expect(record.args).toEqual({
      password: '[redacted]',
      API_KEY: '[redacted]',
      nested: [{ 'access-token': '[redacted]', deeper: { privateKey: '[redacted]' } }],
      authorization: '[redacted]',
      command: 'ls',
    });
    expect(record.result_summary).toBe('{"refresh_token":"[redacted]","out":"fine"}');
    desktop.script = () => ({ ok: true, result: { content: 'hidden-7' } });
    await call(target, desktop, 'desktop_read_file');
    expect((await newest(target, desktop)).result_summary).toBe('[22 bytes]');
    expect(JSON.stringify(await health(target, desktop))).not.toContain('hidden');
    expect(target.log.join('\n')).not.toContain('hidden');
    if (runtime === 'node') expect(target.log.join('\n')).toContain('"command":"ls"');

    desktop.script = () => ({ ok: true, result: 'x'.repeat(1000) });
    for (let at = 0; at < 25; at++) await call(target, desktop, 'desktop_terminal', { at });
    const { recent_commands } = await health(target, desktop);
    expect(recent_commands.map(({ args }: { args: { at: number } }) => args.at)).toEqual(
      Array.from({ length: 20 }, (_, at) => 24 - at),
    );
    expect(recent_commands[0].result_summary).toHaveLength(500);
  });
});
