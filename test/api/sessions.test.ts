import { expect, it } from 'vitest';
import { TIMED } from '../support/limits.ts';
import { startPhone } from '../support/phone.ts';
import { authenticate, bearer, describeMatrix, pair, randomCode, registerCode } from '../support/relay.ts';

describeMatrix('sessions over HTTP (contract 01 §6.3-6.4)', (start, runtime) => {
  it('lists rows without any whole token', async () => {
    const target = await start();
    const first = await pair(target, { device: { device_name: 'One' } });
    const second = await pair(target, { device: { device_name: 'Two' }, policy: { ttl_seconds: 0 } });
    const response = await target.fetch('/sessions', { headers: { authorization: `bearer   ${second.token} ` } });
    expect(response.headers.get('cache-control')).toBe('no-store');
    expect(response.headers.get('x-content-type-options')).toBe('nosniff');
    const text = await response.text();
    expect(text).not.toContain(first.token);
    expect(text).not.toContain(second.token);
    const { sessions } = JSON.parse(text);
    expect(sessions.map((row: { device_name: string }) => row.device_name)).toEqual(['Two', 'One']);
    expect(sessions[0]).toMatchObject({ token_prefix: second.prefix, is_current: true, expires_at: null });
    expect(sessions[0].grants.bridge).toBeNull();
    expect(Object.keys(sessions[1]).sort()).toEqual(
      [
        'token_prefix',
        'device_name',
        'device_id',
        'created_at',
        'first_seen',
        'last_seen',
        'expires_at',
        'grants',
        'transport_hint',
        'client_surface',
        'device_form_factor',
        'device_model',
        'device_platform',
        'is_current',
      ].sort(),
    );
  });

  it.each([
    ['no bearer', {}],
    ['another scheme', { authorization: 'Basic abc' }],
    ['an empty value', { authorization: 'Bearer ' }],
    ['an unknown token', { authorization: `Bearer ${crypto.randomUUID()}` }],
    ['the session header of the ingress', { 'x-svc-relay-session': 'TOKEN' }],
  ])('401 for %s', async (_name, headers: Record<string, string>) => {
    const target = await start();
    const { token } = await pair(target);
    const sent = Object.fromEntries(
      Object.entries(headers).map(([key, value]) => [key, value.replace('TOKEN', token)]),
    );
    const response = await target.fetch(`/sessions?token=${token}&session_token=${token}`, { headers: sent });
    expect(response.status).toBe(401);
    expect(response.headers.get('www-authenticate')).toBe('Bearer');
    expect(await response.json()).toMatchObject({ ok: false });
  });

  it('revokes another device: its socket closes, its credentials are dead', TIMED, async () => {
    const target = await start();
    const mine = await pair(target);
    const lost = await pair(target, { device: { device_id: 'lost' } });
    const began = Date.now();
    const response = await target.fetch(`/sessions/${lost.prefix}`, { method: 'DELETE', headers: bearer(mine.token) });
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({ ok: true, revoked: lost.prefix, revoked_self: false, shells_ended: 0 });
    expect(await lost.client.closed()).toEqual({ code: 4401, reason: 'session revoked' });
    expect(Date.now() - began).toBeLessThan(1000);
    expect((await target.fetch('/sessions', { headers: bearer(lost.token) })).status).toBe(401);
    const { frame } = await authenticate(target, {
      session_token: lost.token,
      refresh_token: lost.refreshToken,
      device_id: 'lost',
    });
    expect(frame.type).toBe('auth.fail');
    const again = await target.fetch(`/sessions/${lost.prefix}`, { method: 'DELETE', headers: bearer(mine.token) });
    expect(again.status).toBe(404);
  });

  it.each(['token', 'prefix'] as const)(
    '02 §10.12: revokes itself by its %s: the answer, then the close',
    async (by) => {
      const target = await start();
      const mine = await pair(target);
      const response = await target.fetch(`/sessions/${mine[by]}`, { method: 'DELETE', headers: bearer(mine.token) });
      expect(await response.json()).toEqual({ ok: true, revoked: mine.prefix, revoked_self: true });
      expect((await mine.client.closed()).code).toBe(4401);
    },
  );

  it('prefix rules', async () => {
    const target = await start();
    const mine = await pair(target);
    const del = async (prefix: string) =>
      (await target.fetch(`/sessions/${prefix}`, { method: 'DELETE', headers: bearer(mine.token) })).status;
    expect(await del(mine.prefix.slice(0, 3))).toBe(400);
    expect(await del('%20ab%20')).toBe(400);
    expect(await del('%zz%zz%zz')).toBe(400);
    expect(await del('zzzz')).toBe(404);
    expect(await del(`${mine.prefix}-wrong`)).toBe(404);
    expect(await del(mine.prefix.toUpperCase() === mine.prefix ? 'zzzzzzzz' : mine.prefix.toUpperCase())).toBe(404);
    expect(await del(`%20${mine.token.slice(0, 12)}%20`)).toBe(200);
  });

  it.each([
    ['{', 400, 'invalid JSON body'],
    ['[]', 400, 'body must be a JSON object'],
    ['{}', 400, /ttl_seconds.*grants/],
    ['{"ttl_seconds":null,"grants":null}', 400, /ttl_seconds.*grants/],
    ['{"ttl_seconds":true}', 400, /ttl_seconds/],
    ['{"ttl_seconds":"60"}', 400, /ttl_seconds/],
    ['{"ttl_seconds":1.5}', 400, /ttl_seconds/],
    ['{"ttl_seconds":-1}', 400, /ttl_seconds/],
    ['{"ttl_seconds":1e999}', 400, 'invalid JSON body'],
    ['{"ttl_seconds":NaN}', 400, 'invalid JSON body'],
    ['{"grants":[]}', 400, /grants/],
    ['{"grants":{"chat":"1"}}', 400, /grants/],
    ['{"grants":{"chat":-1}}', 400, /grants/],
    ['{"grants":{"nope":60}}', 400, /grants/],
    ['{"ttl_seconds":999999999}', 403, 'operator approval required to extend session'],
    ['{"ttl_seconds":0}', 403, 'operator approval required to extend session'],
    ['{"grants":{"chat":999999999}}', 403, /operator approval/],
    ['{"ttl_seconds":60,"grants":{"bridge":0}}', 403, /operator approval/],
  ])('PATCH %s: %i', async (body, status, error) => {
    const target = await start();
    const mine = await pair(target);
    const response = await target.fetch(`/sessions/${mine.prefix}`, {
      method: 'PATCH',
      body,
      headers: bearer(mine.token),
    });
    expect(response.status).toBe(status);
    const answer = await response.json();
    expect(answer.ok).toBe(false);
    expect(answer.error).toMatch(error);
    const { sessions } = await (await target.fetch('/sessions', { headers: bearer(mine.token) })).json();
    expect(sessions[0].expires_at).toBe(mine.ok.payload.expires_at);
    expect(sessions[0].grants).toEqual(mine.ok.payload.grants);
  });

  it('PATCH reduces: session, grants and refresh ceiling', async () => {
    const target = await start();
    const mine = await pair(target, { device: { device_id: 'me' } });
    const other = await pair(target);
    const foreign = await target.fetch(`/sessions/${other.prefix}`, {
      method: 'PATCH',
      body: '{"ttl_seconds":60}',
      headers: bearer(mine.token),
    });
    expect(foreign.status).toBe(403);
    expect((await foreign.json()).error).toBe('cannot modify another session');
    const response = await target.fetch(`/sessions/${mine.prefix}`, {
      method: 'PATCH',
      body: '{"ttl_seconds":600,"grants":{"terminal":60}}',
      headers: bearer(mine.token),
    });
    expect(response.status).toBe(200);
    const { expires_at, grants, token_prefix } = await response.json();
    expect(token_prefix).toBe(mine.prefix);
    expect(grants.terminal).toBeLessThan(expires_at);
    expect(grants.chat).toBe(expires_at);
    const { frame } = await authenticate(target, { refresh_token: mine.refreshToken, device_id: 'me' });
    expect(frame.payload.expires_at).toBe(expires_at);
    expect(frame.payload.grants).toEqual(grants);
  });

  it('a session that expires closes its socket', async () => {
    const target = await start();
    const mine = await pair(target);
    await target.fetch(`/sessions/${mine.prefix}`, {
      method: 'PATCH',
      body: '{"ttl_seconds":1}',
      headers: bearer(mine.token),
    });
    expect(await mine.client.closed()).toEqual({ code: 4401, reason: 'session expired' });
    expect((await target.fetch('/sessions', { headers: bearer(mine.token) })).status).toBe(401);
    const { frame } = await authenticate(target, { session_token: mine.token, refresh_token: mine.refreshToken });
    expect(frame.type).toBe('auth.fail');
  });

  it('state survives a restart: token, refresh token, reduction and revocation', async () => {
    const target = await start();
    const kept = await pair(target, { device: { device_id: 'kept' } });
    const gone = await pair(target, { device: { device_id: 'gone' } });
    await target.fetch(`/sessions/${kept.prefix}`, {
      method: 'PATCH',
      body: '{"grants":{"terminal":100}}',
      headers: bearer(kept.token),
    });
    await target.fetch(`/sessions/${gone.prefix}`, { method: 'DELETE', headers: bearer(kept.token) });
    const code = randomCode();
    await registerCode(target, code);
    await target.restart();
    const { frame } = await authenticate(target, { session_token: kept.token, refresh_token: kept.refreshToken });
    expect(frame.type).toBe('auth.ok');
    expect(frame.payload).not.toHaveProperty('refresh_token');
    const reduced = (frame.payload.grants as Record<string, number>).terminal as number;
    expect(reduced).toBeLessThan(Date.now() / 1000 + 101);
    for (const payload of [{ session_token: gone.token }, { refresh_token: gone.refreshToken, device_id: 'gone' }]) {
      expect((await authenticate(target, payload)).frame.type).toBe('auth.fail');
    }
    // An object cannot tell a restart from a sleep, which codes outlast (contract 00).
    const { frame: paired } = await authenticate(target, { pairing_code: code });
    expect(paired.type).toBe(runtime === 'node' ? 'auth.fail' : 'auth.ok');
  });

  it('09 §1: host tools list, reduce and revoke the sessions of any device', async () => {
    const target = await start();
    const { prefix, client, token, ok } = await pair(target);
    const tool = { 'x-svc-operator': '1' };
    expect((await target.fetch('/sessions')).status).toBe(401);
    const { sessions } = await (await target.operator('/sessions', { headers: tool })).json();
    expect(sessions[0]).toMatchObject({ token_prefix: prefix, is_current: false });
    const patch = async (body: unknown, at = prefix) => {
      const init = { method: 'PATCH', headers: tool, body: JSON.stringify(body) };
      const response = await target.operator(`/sessions/${at}`, init);
      return { status: response.status, body: await response.json() };
    };
    for (const [body, status] of [
      [{}, 400],
      [{ grants: { nope: 60 } }, 400],
      [{ ttl_seconds: 0 }, 403],
      [{ ttl_seconds: 60, grants: { bridge: 0 } }, 403],
    ] as const) {
      expect((await patch(body)).status, JSON.stringify(body)).toBe(status);
    }
    expect([
      (await patch({ ttl_seconds: 60 }, 'zzzz')).status,
      (await patch({ ttl_seconds: 60 }, 'abc')).status,
    ]).toEqual([404, 400]);
    const before = await (await target.fetch('/sessions', { headers: bearer(token) })).json();
    expect(before.sessions[0].grants).toEqual(ok.payload.grants);

    const reduced = await patch({ ttl_seconds: 600, grants: { terminal: 60 } });
    expect(reduced.status).toBe(200);
    expect(reduced.body).toMatchObject({ ok: true, token_prefix: prefix });
    expect(reduced.body.grants.terminal).toBeLessThan(reduced.body.expires_at);
    const after = await (await target.fetch('/sessions', { headers: bearer(token) })).json();
    expect(after.sessions[0]).toMatchObject({ grants: reduced.body.grants, expires_at: reduced.body.expires_at });
    const headers = { ...tool, via: '1.1 proxy' };
    const refused = await target.fetch(`/sessions/${prefix}`, { method: 'PATCH', headers, body: '{"ttl_seconds":9}' });
    expect(refused.status).toBe(401);

    const revoked = await target.operator(`/sessions/${prefix}`, { method: 'DELETE', headers: tool });
    expect(await revoked.json()).toEqual({ ok: true, revoked: prefix, revoked_self: false, shells_ended: 0 });
    expect((await client.closed()).code).toBe(4401);
  });

  it('§3.4: a device does not get the id of another one, nor what is meant for it', async () => {
    const target = await start();
    const victim = await startPhone(target, { device: { device_id: 'victim', device_name: 'Victim' } });
    const thief = await pair(target, { device: { device_id: 'thief', device_name: 'Thief' } });
    const nameless = await pair(target, { device: { device_id: 'unknown', device_name: 'Nameless' } });
    const rows = async () =>
      (await (await target.fetch('/sessions', { headers: bearer(victim.token) })).json()).sessions;
    const idOf = async (name: string) =>
      (await rows()).find(({ device_name }: { device_name: string }) => device_name === name)?.device_id;
    const stolen = await idOf('Victim');
    for (const { token } of [thief, nameless]) {
      const { client, frame } = await authenticate(target, { session_token: token, device_id: stolen });
      expect(frame.type).toBe('auth.ok');
      client.send('bridge', 'bridge.status', { device_id: stolen, bridge: { device_control_supported: true } });
      client.send('system', 'ping', {}, 'handled');
      await client.next({ id: 'handled' });
    }
    expect([await idOf('Thief'), await idOf('Nameless')]).toEqual(['thief', 'unknown']);
    const sent = await target.fetch(`/ping?device_id=${stolen}`, { headers: bearer(thief.token) });
    expect(sent.status).toBe(200);
    expect(victim.commands).toHaveLength(1);
    const refreshed = await authenticate(target, { refresh_token: thief.refreshToken, device_id: stolen });
    expect(refreshed.frame.type).toBe('auth.fail');
    if (target.runtime === 'node') {
      expect(target.log.filter((line) => line.includes('another device id (victim)'))).toHaveLength(2);
    }
  });

  it('§6.5: a dead refresh token that is shown again ends the family, also after a restart', async () => {
    const target = await start();
    const owner = await pair(target, { device: { device_id: 'me' } });
    const other = await pair(target);
    const use = (token: unknown) => authenticate(target, { refresh_token: token, device_id: 'me' });
    const second = await use(owner.refreshToken);
    const third = await use(second.frame.payload.refresh_token);
    await target.restart();
    const { client } = await authenticate(target, { session_token: third.frame.payload.session_token });
    expect((await use(owner.refreshToken)).frame).toMatchObject({
      type: 'auth.fail',
      payload: { reason: expect.stringMatching(/^session ended on \d{4}-\d\d-\d\d: pair again$/) },
    });
    expect(await client.closed()).toEqual({ code: 4401, reason: 'session revoked' });
    expect((await use(third.frame.payload.refresh_token)).frame.type).toBe('auth.fail');
    const { sessions } = await (await target.fetch('/sessions', { headers: bearer(other.token) })).json();
    expect(sessions.map((row: { token_prefix: string }) => row.token_prefix)).toEqual([other.prefix]);
    if (target.runtime === 'node') expect(target.log.join('\n')).toMatch(/\[WARNING\].*sign of theft/);
  });

  it('§3.3: knows the surface web', async () => {
    const target = await start();
    const { ok } = await pair(target, { device: { client_surface: 'web' } });
    expect(ok.payload.client_surface).toBe('web');
  });
});
