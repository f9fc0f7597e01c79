import { expect, it } from 'vitest';
import {
  call,
  type DesktopClient,
  health,
  loseGrant,
  newest,
  reconnect,
  refusalOf,
  STATUS,
  silent,
  startDesktop,
} from '../support/desktop.ts';
import { exchange, request } from '../support/raw-socket.ts';
import { bearer, describeMatrix, pair, post, type Target } from '../support/relay.ts';

const LIMIT = 32 * 1024 * 1024;

describeMatrix('desktop tools over HTTP (contract 07 §2.3)', (start, runtime) => {
  it('401 without a bearer, 403 without the grant and 405 for OPTIONS on every route', async () => {
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

  it('carries a call to the desktop and its answer back, both unchanged', async () => {
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

  it('accepts ok:false and the older status as answers, and keeps a target that the desktop set', async () => {
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

  it('accepts any method; GET, HEAD and a bare DELETE take their query as arguments', async () => {
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

  it('sends nothing to the desktop for 400, 404 and 413', async () => {
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
      // Without a body, because the local edge runtime drops a connection whose body was not read.
      const refused = await refusalOf(target.fetch(`/desktop/${name}`, { headers: desktop.headers }));
      expect(refused, name).toEqual([404, 'unknown_tool']);
    }
    expect((await target.fetch('/desktop/desktop_terminal/more', { headers: desktop.headers })).status).toBe(404);
    // Refused by its announced length, before any of the body arrives.
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

  it('_ping answers 200 or 503', async () => {
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

  it('health shows no desktop, one and several; desktop_health is the same', async () => {
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
        device_name: 'PC',
        args: {},
        sent_at: expect.any(Number),
        response_status: null,
        result_summary: null,
        error: null,
        decision: 'pending',
        actor: { kind: 'session', name: 'Phone', prefix: expect.any(String) },
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

  it('the ring shows the 20 newest commands, and no secret reaches it or the log', async () => {
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
    await expect.poll(() => target.log.join('\n')).toContain('"command":"ls"');
    expect(target.log.join('\n')).not.toContain('hidden');

    desktop.script = () => ({ ok: true, result: 'x'.repeat(1000) });
    for (let at = 0; at < 25; at++) await call(target, desktop, 'desktop_terminal', { at });
    const { recent_commands } = await health(target, desktop);
    expect(recent_commands.map(({ args }: { args: { at: number } }) => args.at)).toEqual(
      Array.from({ length: 20 }, (_, at) => 24 - at),
    );
    expect(recent_commands[0].result_summary).toHaveLength(500);
  });
});

const named = (target: Target, device_id: string, device_name: string, status: Record<string, unknown> = {}) =>
  startDesktop(target, { device: { device_id, device_name }, status });

const toolsOf = (target: Target, caller: DesktopClient): Promise<string[][]> =>
  health(target, caller).then(({ clients }) =>
    clients.map(({ advertised_tools }: { advertised_tools: string[] }) => advertised_tools),
  );

describeMatrix('choosing the desktop (contract 07 §2.2, 2.3)', (start) => {
  it('502 without a desktop, also with a selector; hints and phones do not count as one', async () => {
    const target = await start();
    const quiet = await startDesktop(target, { status: null });
    quiet.client.send('desktop', 'active_editor', { version: 1, ts: 1, source: 'none' });
    quiet.client.send('desktop', 'desktop.status', 'no object');
    await quiet.settled();
    expect(await refusalOf(call(target, quiet, 'desktop_terminal'))).toEqual([502, 'no_desktop']);
    expect(await refusalOf(call(target, quiet, 'desktop_terminal', { device: 'PC' }))).toEqual([502, 'no_desktop']);
    expect(quiet.commands).toEqual([]);
    quiet.client.send('desktop', 'status', {});
    await quiet.settled();
    expect((await call(target, quiet, 'desktop_terminal')).status).toBe(200);
  });

  it('selects by id, name and host, ignoring case and separators', async () => {
    const target = await start();
    const axiom = await named(target, 'id-1', 'AXIOM-DESKTOP', { host: 'axiom.local' });
    const büro = await named(target, 'id-2', 'Büro', { host: 'office' });
    for (const [args, who] of [
      [{ device: 'axiom desktop' }, axiom],
      [{ device: ' Axiom-Desktop ' }, axiom],
      [{ device_id: 'ID 1' }, axiom],
      [{ device: 'AXIOM.LOCAL' }, axiom],
      [{ device: '', device_id: 'id-1' }, axiom],
      [{ device: 5, device_id: 'id-1' }, axiom],
      [{ device: 'office', device_id: 'id-1' }, büro],
      [{ device: 'BÜRO' }, büro],
      [{ device: 'bü-ro' }, büro],
    ] as const) {
      const response = await call(target, axiom, 'desktop_terminal', { ...args, x: 1 });
      expect(await response.json(), JSON.stringify(args)).toMatchObject({
        ok: true,
        result: { args: { x: 1 } },
        target: { device_id: who.id },
      });
    }
    const byQuery = await target.fetch('/desktop/desktop_terminal?device=office&x=1', { headers: axiom.headers });
    expect(await byQuery.json()).toMatchObject({ result: { args: { x: '1' } }, target: { device_name: 'Büro' } });
    const posted = await target.fetch('/desktop/desktop_terminal?device=office', {
      method: 'POST',
      headers: axiom.headers,
    });
    expect((await posted.json()).target.device_name).toBe('Büro');
  });

  it('never guesses: several, unknown and ambiguous are 502 and list the choices', async () => {
    const target = await start();
    const one = await named(target, 'id-1', 'Same name');
    const two = await named(target, 'id-2', 'Same name');
    const text = async (args: unknown) => (await (await call(target, one, 'desktop_terminal', args)).json()).error;
    for (const [args, code] of [
      [{}, 'ambiguous_device'],
      [{ device: ' ' }, 'ambiguous_device'],
      [{ device: ['id-1'] }, 'ambiguous_device'],
      [{ device: 'same-name' }, 'ambiguous_device'],
      [{ device: 'nobody' }, 'unknown_device'],
      [{ device: '???' }, 'unknown_device'],
    ] as const) {
      expect(await refusalOf(call(target, one, 'desktop_terminal', args))).toEqual([502, code]);
    }
    expect(await text({})).toContain('device or device_id');
    expect(await text({})).toContain('Same name (id-2), Same name (id-1)');
    expect(await text({ device: 'nobody' })).toContain('Same name (id-1)');
    expect([...one.commands, ...two.commands]).toEqual([]);
    two.client.close();
    await expect.poll(async () => (await health(target, one)).clients.length).toBe(1);
    expect((await call(target, one, 'desktop_terminal')).status).toBe(200);
  });

  it('does not send a tool that the desktop does not offer', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { status: { advertised_tools: ['desktop_zip'] } });
    expect(await refusalOf(call(target, desktop, 'desktop_terminal'))).toEqual([502, 'tool_not_advertised']);
    expect(await refusalOf(call(target, desktop, 'desktop_computer_status'))).toEqual([502, 'tool_not_advertised']);
    expect((await call(target, desktop, 'desktop_zip')).status).toBe(200);
    await desktop.report({ advertised_tools: [] });
    expect((await call(target, desktop, 'desktop_terminal')).status).toBe(200);
    expect(await refusalOf(call(target, desktop, 'desktop_computer_status'))).toEqual([502, 'tool_not_advertised']);
    await desktop.report({ advertised_tools: ['desktop_computer_status'] });
    expect((await call(target, desktop, 'desktop_computer_status')).status).toBe(200);
    await desktop.report({ advertised_tools: 'all' });
    expect((await call(target, desktop, 'desktop_computer_status')).status, 'kept').toBe(200);
  });

  it('of two sockets of one desktop picks the newer that offers the tool', async () => {
    const target = await start();
    const daemon = await startDesktop(target, { status: { advertised_tools: ['desktop_zip', 'desktop_terminal'] } });
    const shell = await reconnect(target, daemon, { status: { advertised_tools: ['desktop_terminal'] } });
    const bare = await reconnect(target, daemon, { status: { advertised_tools: [] } });
    await daemon.report({ advertised_tools: ['desktop_zip', 'desktop_terminal'] });
    expect((await toolsOf(target, daemon)).sort()).toEqual([
      [],
      ['desktop_terminal'],
      ['desktop_terminal', 'desktop_zip'],
    ]);
    expect((await call(target, daemon, 'desktop_zip')).status).toBe(200);
    expect((await call(target, daemon, 'desktop_terminal')).status).toBe(200);
    expect(await refusalOf(call(target, daemon, 'desktop_unzip'))).toEqual([502, 'tool_not_advertised']);
    expect([daemon, shell, bare].map(({ commands }) => commands.map(({ tool }) => tool))).toEqual([
      ['desktop_zip'],
      ['desktop_terminal'],
      [],
    ]);
  });

  it('identifies a desktop by its session, else its first status, else its socket', async () => {
    const target = await start();
    const nobody = { device_id: 'unknown', device_name: '' };
    const claimed = await startDesktop(target, { device: nobody, status: { device_id: 'own-id', device_name: 'Own' } });
    await claimed.report({ device_id: 'another', host: 'elsewhere' });
    const byHost = await startDesktop(target, { device: { ...nobody, device_id: 'none' }, status: { host: 'hosty' } });
    const proven = await named(target, 'id-1', 'Proven', { device_id: 'own-id', device_name: 'Liar' });
    const { clients } = await health(target, proven);
    expect(clients).toMatchObject([
      { device_id: 'id-1', device_name: 'Proven' },
      { device_id: expect.stringMatching(/^ws-./), device_name: 'hosty' },
      { device_id: 'own-id', device_name: 'elsewhere' },
    ]);
    expect((await call(target, proven, 'desktop_terminal', { device: 'own-id' })).status).toBe(200);
    expect((await call(target, proven, 'desktop_terminal', { device: clients[1].device_id })).status).toBe(200);
    expect(claimed.commands[0]?.target_device_id).toBe('own-id');
    expect(byHost.commands[0]?.target_device_id).toBe(clients[1].device_id);
  });

  it('a desktop without the grant may only describe itself and is not a target', async () => {
    const target = await start();
    const caller = await pair(target);
    const desktop = await startDesktop(target, { status: null });
    await loseGrant(target, desktop);
    await desktop.report();
    desktop.client.send('desktop', 'desktop.active_editor', { version: 1 });
    await desktop.settled();
    const asked = call(target, { headers: bearer(caller.token) }, 'desktop_terminal');
    expect(await refusalOf(asked)).toEqual([502, 'no_desktop']);
    for (const type of ['response', 'desktop.response', 'desktop.command', 'unknown']) {
      desktop.client.send('desktop', type, { request_id: 'x' }, `id-${type}`);
      expect((await desktop.client.next({ channel: 'system', type: 'error' })).payload, type).toMatchObject({
        message: 'Desktop grant expired for this device',
        error: 'permission_denied',
      });
    }
    expect(desktop.client.frames.filter(({ channel }) => channel !== 'pairing')).toEqual([]);
  });

  it('drops a description over 64 KiB and keeps the previous one', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { script: silent });
    await desktop.report({ host: 'large', filler: 'x'.repeat(70_000) });
    desktop.client.send('desktop', 'workspace', { filler: 'ü'.repeat(40_000) });
    await desktop.settled();
    expect((await health(target, desktop)).host).toBe('box.local');
    const first = await startDesktop(target, { status: { filler: 'x'.repeat(70_000) } });
    expect((await health(target, first)).clients).toHaveLength(1);
  });
});
