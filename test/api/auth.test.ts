import { expect, it } from 'vitest';
import { connect } from '../support/client.ts';
import { authenticate, bearer, describeMatrix, pair, post, randomCode, registerCode } from '../support/relay.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

describeMatrix('first frame (contract 01 §3.3-3.6)', (start) => {
  it('a pairing code gives a session, once', async () => {
    const target = await start();
    await registerCode(target, 'ABC123', { ttl_seconds: 3600, grants: { bridge: 60 }, transport_hint: 'wss' });
    const before = Date.now() / 1000;
    const { client, frame } = await authenticate(target, {
      pairing_code: ' abc123 ',
      device_name: 'Pixel\u0007 10',
      device_id: 'd-1',
      client_surface: 'android',
      device_form_factor: 'phone',
      ttl_seconds: 999_999_999,
      grants: { terminal: 0 },
      supports: { typed_stream_events: true, event_schema_version: 1 },
    });
    expect(frame.type).toBe('auth.ok');
    expect(frame.id).toMatch(UUID);
    const ok = frame.payload as { expires_at: number; grants: Record<string, number> } & Record<string, unknown>;
    expect(ok.session_token).toMatch(UUID);
    expect(ok.refresh_token).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(ok.server_version).toBe('1.0.0');
    expect(ok.transport_hint).toBe('wss');
    expect(ok.client_surface).toBe('android');
    expect(ok.device_form_factor).toBe('phone');
    expect(ok.profiles).toEqual([]);
    expect(ok.expires_at).toBeGreaterThanOrEqual(before + 3600 - 5);
    expect(ok.expires_at).toBeLessThan(before + 3620);
    const { grants } = ok;
    expect(Object.keys(grants).sort()).toEqual(
      [
        'bridge',
        'chat',
        'desktop',
        'terminal',
        'tui',
        'voice:config',
        'voice:realtime',
        'voice:stt',
        'voice:tts',
      ].sort(),
    );
    expect(grants.bridge).toBeLessThan(before + 80);
    expect(grants.terminal).toBe(ok.expires_at);
    client.send('system', 'ping', { ts: 7 }, 'p1');
    expect(await client.next({ id: 'p1' })).toEqual({ channel: 'system', type: 'pong', id: 'p1', payload: { ts: 7 } });

    const second = await authenticate(target, { pairing_code: 'ABC123' });
    expect(second.frame).toMatchObject({
      type: 'auth.fail',
      payload: { reason: 'Invalid pairing code or session token' },
    });
    expect(await second.client.closed()).toEqual({ code: 1008, reason: 'Invalid pairing code or session token' });
  });

  it('a session token comes back with the same token and no needless refresh token', async () => {
    const target = await start();
    const device = await pair(target, { device: { device_name: 'Old name' } });
    const { frame } = await authenticate(target, {
      session_token: device.token,
      refresh_token: device.refreshToken,
      device_name: 'New name',
      device_model: 'unknown',
    });
    expect(frame.payload.session_token).toBe(device.token);
    expect(frame.payload).not.toHaveProperty('refresh_token');
    const rows = (await (await target.fetch('/sessions', { headers: bearer(device.token) })).json()).sessions;
    expect(rows).toHaveLength(1);
    expect(rows[0]).toMatchObject({ device_name: 'New name', device_model: '', is_current: true });
  });

  it('a wrong refresh token beside a good session token is replaced', async () => {
    const target = await start();
    const device = await pair(target);
    const { frame } = await authenticate(target, { session_token: device.token, refresh_token: 'nonsense' });
    expect(frame.payload.refresh_token).toMatch(/^[A-Za-z0-9_-]{43}$/);
  });

  it('a refresh token replaces a lost session: new token, same policy, old socket closed', async () => {
    const target = await start();
    const device = await pair(target, { policy: { ttl_seconds: 3600 }, device: { device_id: 'phone-7' } });
    const { frame } = await authenticate(target, {
      session_token: crypto.randomUUID(),
      refresh_token: device.refreshToken,
      device_id: 'phone-7',
    });
    expect(frame.type).toBe('auth.ok');
    expect(frame.payload.session_token).not.toBe(device.token);
    expect(frame.payload.refresh_token).not.toBe(device.refreshToken);
    expect(frame.payload.expires_at).toBe(device.ok.payload.expires_at);
    expect(frame.payload.grants).toEqual(device.ok.payload.grants);
    expect(await device.client.closed()).toEqual({ code: 4401, reason: 'session revoked' });
    expect((await target.fetch('/sessions', { headers: bearer(device.token) })).status).toBe(401);

    // The reply may have been lost: the token before the last works once more, for the same device.
    const again = await authenticate(target, { refresh_token: device.refreshToken, device_id: 'phone-7' });
    expect(again.frame.type).toBe('auth.ok');
  });

  it('a refresh token of another device is refused and disturbs nobody', async () => {
    const target = await start();
    const device = await pair(target, { device: { device_id: 'phone-7' } });
    const { frame } = await authenticate(target, { refresh_token: device.refreshToken, device_id: 'thief' });
    expect(frame).toMatchObject({ type: 'auth.fail', payload: { reason: 'Invalid session token' } });
    device.client.send('system', 'ping', {}, 'alive');
    await device.client.next({ id: 'alive' });
  });

  it.each([
    ['not json at all', 'Invalid message format'],
    ['[1,2]', 'Invalid message format'],
    ['"text"', 'Invalid message format'],
    ['{"channel":"system"}', 'First message must be system/auth'],
    ['{"channel":"system","type":"ping","id":"1","payload":{}}', 'First message must be system/auth'],
    ['{"channel":"chat","type":"auth","id":"1","payload":{}}', 'First message must be system/auth'],
    ['{"channel":"system","type":"auth","id":"1","payload":{}}', 'Missing pairing code or session token'],
    ['{"channel":"system","type":"auth","payload":null}', 'Missing pairing code or session token'],
    [
      '{"channel":"system","type":"auth","payload":{"pairing_code":7,"session_token":true}}',
      'Missing pairing code or session token',
    ],
    ['{"channel":"system","type":"auth","payload":{"session_token":"x"}}', 'Invalid session token'],
    ['{"channel":"system","type":"auth","payload":{"refresh_token":"x"}}', 'Invalid session token'],
    [
      '{"channel":"system","type":"auth","payload":{"pairing_code":"ZZZZZZ","session_token":"x"}}',
      'Invalid pairing code or session token',
    ],
  ])('%s: %s', async (text, reason) => {
    const target = await start();
    const client = await connect(target.wsUrl);
    client.raw(text);
    expect(await client.next()).toMatchObject({ channel: 'system', type: 'auth.fail', payload: { reason } });
    expect(await client.closed()).toEqual({ code: 1008, reason });
  });

  it('binary frames are ignored, before and after auth', async () => {
    const target = await start();
    await registerCode(target, 'BINARY');
    const client = await connect(target.wsUrl);
    client.raw(Buffer.from('{"channel":"system","type":"ping"}'));
    client.send('system', 'auth', { pairing_code: 'BINARY' });
    await client.next({ type: 'auth.ok' });
    client.raw(Buffer.from([1, 2, 3]));
    client.send('system', 'ping', {}, 'after');
    expect((await client.next()).id).toBe('after');
  });

  it('frames after the auth frame wait for auth.ok and keep their order', async () => {
    const target = await start();
    await registerCode(target, 'QUEUED');
    const client = await connect(target.wsUrl);
    client.send('system', 'auth', { pairing_code: 'QUEUED' });
    for (let index = 0; index < 20; index++) client.send('system', 'ping', { ts: index }, `q${index}`);
    expect((await client.next()).type).toBe('auth.ok');
    for (let index = 0; index < 20; index++) expect((await client.next()).id).toBe(`q${index}`);
  });

  it('of two sockets racing for one code exactly one gets in', async () => {
    const target = await start();
    await registerCode(target, 'RACING');
    const clients = await Promise.all(Array.from({ length: 8 }, () => connect(target.wsUrl)));
    for (const client of clients) client.send('system', 'auth', { pairing_code: 'RACING' });
    const types = await Promise.all(clients.map(async (client) => (await client.next({ channel: 'system' })).type));
    expect(types.filter((type) => type === 'auth.ok')).toHaveLength(1);
  });

  it('pairing the same device anew ends its old session; other devices stay', async () => {
    const target = await start();
    const old = await pair(target, { device: { device_id: 'Same-Device' } });
    const other = await pair(target, { device: { device_id: 'other' } });
    const anonymous = await pair(target, { device: { device_id: 'none' } });
    const fresh = await pair(target, { device: { device_id: 'same-device' } });
    await pair(target, { device: { device_id: 'None' } });
    expect(await old.client.closed()).toEqual({ code: 4401, reason: 'session revoked' });
    for (const device of [other, anonymous, fresh]) {
      expect((await target.fetch('/sessions', { headers: bearer(device.token) })).status).toBe(200);
    }
    const refreshed = await authenticate(target, { refresh_token: old.refreshToken, device_id: 'same-device' });
    expect(refreshed.frame.type).toBe('auth.fail');
  });

  it('more than 8 sockets of a session: the oldest gives way', async () => {
    const target = await start();
    const first = await pair(target);
    for (let count = 0; count < 8; count++) await authenticate(target, { session_token: first.token });
    expect(await first.client.closed()).toEqual({ code: 1008, reason: 'replaced' });
  });
});

describeMatrix('envelopes after auth (contract 01 §3.7, 02 §1.2-1.4)', (start) => {
  it('§10.2: answers each bad envelope and goes on', async () => {
    const target = await start();
    const { client } = await pair(target);
    for (const text of ['nope', '[]', '7', '{"channel":1,"type":"x"}', '{"channel":"system"}', '{"type":"x"}']) {
      client.raw(text);
      const frame = await client.next();
      expect(frame).toMatchObject({
        channel: 'system',
        type: 'error',
        payload: { message: 'Invalid envelope', error: 'invalid_request' },
      });
      expect(frame.id).toMatch(UUID);
    }
    client.send('nope', 'x', {}, 'u1');
    expect(await client.next()).toEqual({
      channel: 'system',
      type: 'error',
      id: 'u1',
      payload: { message: 'Unknown channel: nope', error: 'unknown_channel' },
    });
    client.send('pairing', 'x', {}, 'u2');
    expect((await client.next({ id: 'u2' })).payload.message).toBe('Unknown channel: pairing');
    for (const name of ['__proto__', 'constructor', 'toString', 'c'.repeat(500)]) {
      client.send(name, 'x', {}, 'u3');
      expect((await client.next({ id: 'u3' })).payload.message).toBe(`Unknown channel: ${name.slice(0, 64)}`);
    }
  });

  it('system: only ping is answered; a payload that is no object counts as empty', async () => {
    const target = await start();
    const { client } = await pair(target);
    client.send('system', 'auth', { pairing_code: 'AAAAAA' });
    client.send('system', 'pong', {});
    client.send('system', 'whatever', {});
    client.send('system', 'ping', [1], 'p1');
    const pong = await client.next();
    expect(pong.id).toBe('p1');
    expect(Math.abs((pong.payload.ts as number) - Date.now())).toBeLessThan(60_000);
  });

  it.each([[''], ['x'.repeat(257)], [7], [null], [{}]])(
    'an id that may not be echoed (%j) becomes a UUID',
    async (id) => {
      const target = await start();
      const { client } = await pair(target);
      client.send('system', 'ping', { ts: 1 }, id);
      expect((await client.next({ type: 'pong' })).id).toMatch(UUID);
    },
  );

  it('a message over 4 MiB on a channel that may not is dropped with an error', async () => {
    const target = await start();
    const { client } = await pair(target);
    client.send('system', 'ping', { filler: 'é'.repeat(2_200_000) }, 'big');
    expect((await client.next({ id: 'big' })).payload.error).toBe('message_too_large');
    client.send('system', 'ping', { filler: 'x'.repeat(4_000_000) }, 'fits');
    expect((await client.next({ id: 'fits' })).type).toBe('pong');
  });
});

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

  it('revokes another device: its socket closes, its credentials are dead', async () => {
    const target = await start();
    const mine = await pair(target);
    const lost = await pair(target, { device: { device_id: 'lost' } });
    const began = Date.now();
    const response = await target.fetch(`/sessions/${lost.prefix}`, { method: 'DELETE', headers: bearer(mine.token) });
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({ ok: true, revoked: lost.prefix, revoked_self: false });
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
});

describeMatrix('limits of unauthenticated peers (contract 01 §3.1, 4)', (start) => {
  it('more than 16 waiting sockets of a peer: 429, and room again when one goes', async () => {
    const target = await start();
    const clients = await Promise.all(Array.from({ length: 16 }, () => connect(target.wsUrl)));
    await expect(connect(target.wsUrl)).rejects.toMatchObject({ status: 429, headers: { 'retry-after': '5' } });
    clients[0]?.raw('[]');
    await clients[0]?.closed();
    await connect(target.wsUrl);
  });

  it('five failed tokens block the peer for five minutes; a registration lifts it', async () => {
    const target = await start();
    for (let count = 0; count < 5; count++) await authenticate(target, { session_token: 'wrong' });
    const refused = await connect(target.wsUrl).catch((error) => error);
    expect(refused.status).toBe(429);
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(290);
    expect(JSON.parse(refused.body).ok).toBe(false);
    expect((await target.fetch('/health')).status).toBe(200);
    await registerCode(target, 'LIFTED');
    expect((await authenticate(target, { pairing_code: 'LIFTED' })).frame.type).toBe('auth.ok');
  });

  it('ten failed codes block for two minutes; nine and a success do not', async () => {
    const target = await start();
    await registerCode(target, 'LETMEI');
    for (let count = 0; count < 9; count++) await authenticate(target, { pairing_code: 'WRONG1' });
    expect((await authenticate(target, { pairing_code: 'LETMEI' })).frame.type).toBe('auth.ok');
    for (let count = 0; count < 9; count++) await authenticate(target, { pairing_code: 'WRONG1' });
    await authenticate(target, { pairing_code: 'WRONG1' });
    const refused = await connect(target.wsUrl).catch((error) => error);
    expect(refused.status).toBe(429);
    expect(Number(refused.headers['retry-after'])).toBeLessThanOrEqual(120);
  });

  it('more than 64 KiB before auth ends the connection', async () => {
    const target = await start();
    const client = await connect(target.wsUrl);
    client.raw('x'.repeat(70_000));
    await client.closed();
    expect((await target.fetch('/health')).status).toBe(200);
  });

  it('POST /pairing: the code only for the operator; five a minute', async () => {
    const target = await start();
    const mine = await target.operator('/pairing', { method: 'POST', body: '{"ttl_seconds":0}' });
    expect(mine.status).toBe(200);
    const { code, expires_at } = await mine.json();
    expect(code).toMatch(/^[A-Z0-9]{6}$/);
    expect(Number.isInteger(expires_at)).toBe(true);
    const { frame } = await authenticate(target, { pairing_code: code });
    expect(frame.payload.expires_at).toBeLessThan(Date.now() / 1000 + 31 * 86_400);
    const stranger = await target.fetch('/pairing', { method: 'POST', headers: { 'x-forwarded-for': '10.1.2.3' } });
    expect(stranger.status).toBe(202);
    const pending = await stranger.json();
    expect(pending).toMatchObject({ ok: true, pending: true });
    expect(pending).not.toHaveProperty('code');
    for (let count = 0; count < 3; count++) await target.fetch('/pairing', { method: 'POST' });
    const sixth = await target.fetch('/pairing', { method: 'POST' });
    expect(sixth.status).toBe(429);
    expect(Number(sixth.headers.get('retry-after'))).toBeGreaterThan(0);
    await target.operator('/pairing/register', post({ code: 'CLEARS' }));
    expect((await target.fetch('/pairing', { method: 'POST' })).status).not.toBe(429);
  });
});
