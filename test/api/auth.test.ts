import { expect, it, vi } from 'vitest';
import { RelayError } from '../../lib/errors.ts';
import { connect } from '../support/client.ts';
import { authenticate, bearer, describeMatrix, pair, randomCode, registerCode } from '../support/relay.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

describeMatrix('first frame (contract 01 §3.3-3.6)', (start) => {
  it('a pairing code yields a session, once', async () => {
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
        'devices',
        'files',
        'phone',
        'profiles',
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

  it('a good code that the relay has no room for is refused in words, and counts as no failed attempt', async ({
    skip,
  }) => {
    const target = await start();
    if (!target.relay) return skip('the sessions of an object are not within reach');
    const reason = 'This relay has 4096 paired devices: remove one, then pair again';
    const create = vi.spyOn(target.relay.sessions, 'create').mockRejectedValue(new RelayError('unavailable', reason));
    for (let attempt = 0; attempt < 20; attempt++) {
      const code = randomCode();
      await registerCode(target, code, {});
      const { client, frame } = await authenticate(target, { pairing_code: code });
      expect(frame).toMatchObject({ type: 'auth.fail', payload: { reason } });
      expect(await client.closed()).toEqual({ code: 1008, reason });
    }
    create.mockRestore();
    await pair(target);
  });

  it('a session token is answered with the same token and no new refresh token', async () => {
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

  it('a wrong refresh token beside a valid session token is replaced', async () => {
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

    // The reply may have been lost: the previous token works once more, for the same device.
    const again = await authenticate(target, { refresh_token: device.refreshToken, device_id: 'phone-7' });
    expect(again.frame.type).toBe('auth.ok');
  });

  it('a refresh token used by another device is refused and disturbs nobody', async () => {
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

  it('frames sent behind the auth frame wait for auth.ok and keep their order', async () => {
    const target = await start();
    await registerCode(target, 'QUEUED');
    const client = await connect(target.wsUrl);
    client.send('system', 'auth', { pairing_code: 'QUEUED' });
    for (let index = 0; index < 20; index++) client.send('system', 'ping', { ts: index }, `q${index}`);
    expect((await client.next()).type).toBe('auth.ok');
    for (let index = 0; index < 20; index++) expect((await client.next()).id).toBe(`q${index}`);
  });

  it('of eight sockets racing for one code exactly one gets in', async () => {
    const target = await start();
    await registerCode(target, 'RACING');
    const clients = await Promise.all(Array.from({ length: 8 }, () => connect(target.wsUrl)));
    for (const client of clients) client.send('system', 'auth', { pairing_code: 'RACING' });
    const types = await Promise.all(clients.map(async (client) => (await client.next({ channel: 'system' })).type));
    expect(types.filter((type) => type === 'auth.ok')).toHaveLength(1);
  });

  it('pairing a device again ends its old session; other devices keep theirs', async () => {
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

  it('the ninth socket of a session replaces the oldest', async () => {
    const target = await start();
    const first = await pair(target);
    for (let count = 0; count < 8; count++) await authenticate(target, { session_token: first.token });
    expect(await first.client.closed()).toEqual({ code: 1008, reason: 'replaced' });
  });
});

describeMatrix('envelopes after auth (contract 01 §3.7, 02 §1.2-1.4)', (start) => {
  it('§10.2: each bad envelope is answered, and the socket stays', async () => {
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

  it('system: only ping is answered; a payload that is not an object counts as empty', async () => {
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
    'an id that must not be echoed (%j) becomes a UUID',
    async (id) => {
      const target = await start();
      const { client } = await pair(target);
      client.send('system', 'ping', { ts: 1 }, id);
      expect((await client.next({ type: 'pong' })).id).toMatch(UUID);
    },
  );

  it('02 §1.1: a message over 4 MiB on a small channel is dropped with an error', async () => {
    const target = await start();
    const { client } = await pair(target);
    client.send('system', 'ping', { filler: 'é'.repeat(2_200_000) }, 'big');
    expect((await client.next({ id: 'big' })).payload.error).toBe('message_too_large');
    client.send('system', 'ping', { filler: 'x'.repeat(4_000_000) }, 'fits');
    expect((await client.next({ id: 'fits' })).type).toBe('pong');
  });
});

describeMatrix('limits of unauthenticated peers (contract 01 §3.1, 4)', (start) => {
  it('a 17th unauthenticated socket of a peer is 429 until one of them closes', async () => {
    const target = await start();
    const clients = await Promise.all(Array.from({ length: 16 }, () => connect(target.wsUrl)));
    await expect(connect(target.wsUrl)).rejects.toMatchObject({ status: 429, headers: { 'retry-after': '5' } });
    clients[0]?.raw('[]');
    await clients[0]?.closed();
    await connect(target.wsUrl);
  });

  it('five failed tokens block the peer for five minutes; registering a code lifts the block', async () => {
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

  it('ten failed codes block the peer for two minutes; nine and a success do not', async () => {
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
});

/** Overrides, isolates, marks, zero-width and blank characters, line ends and a terminal escape. */
const HIDDEN = '\u202e\u2066\u200f\u200b\u00ad\ufeff\u3164\u{e0041}\u2028\n\u001b[2J';
const hides = (text: string): boolean => [...HIDDEN.replace('[2J', '')].some((character) => text.includes(character));

describeMatrix('names of devices (contract 01 §3.3)', (start) => {
  it('have no invisible characters, whatever way they come in, nor has the log', async () => {
    const target = await start();
    const trick = (text: string) => `${HIDDEN}${text.slice(0, 2)}${HIDDEN}${text.slice(2)}`;
    const shown = (text: string) => `[2J${text.slice(0, 2)}[2J${text.slice(2)}`;
    const described = await pair(target, {
      device: {
        device_id: trick('d-1'),
        device_name: trick('Pixel'),
        device_model: trick('Model'),
        device_platform: trick('Android'),
      },
    });
    const nameless = { device_id: 'unknown', device_name: 'Unknown device' };
    const [phone, desktop] = [await pair(target, { device: nameless }), await pair(target, { device: nameless })];
    phone.client.send('bridge', 'bridge.status', { device: { name: trick('Phone'), device_id: trick('p-1') } });
    phone.client.send('bridge', trick('bridge.odd'), {});
    desktop.client.send('desktop', 'desktop.status', { device_name: trick('Desktop'), device_id: trick('pc-1') });
    for (const { client } of [phone, desktop]) {
      client.send('system', 'ping', {}, 'handled');
      await client.next({ id: 'handled' });
    }

    const get = async (path: string) => (await target.fetch(path, { headers: bearer(described.token) })).json();
    const { sessions } = await get('/sessions');
    expect(sessions.find(({ is_current }: { is_current: boolean }) => is_current)).toMatchObject({
      device_id: shown('d-1'),
      device_name: shown('Pixel'),
      device_model: shown('Model'),
      device_platform: shown('Android'),
    });
    const { devices } = await (await target.operator('/bridge/devices')).json();
    expect(devices).toMatchObject([{ device_name: shown('Phone'), device_id: shown('p-1') }]);
    expect(devices[0].aliases.filter(hides)).toEqual([]);
    const { clients } = await get('/desktop/health');
    expect(clients).toMatchObject([{ device_name: shown('Desktop'), device_id: shown('pc-1') }]);
    await expect.poll(() => target.log.some((line) => line.includes(shown('pc-1')))).toBe(true);
    expect(target.log.some((line) => line.includes(shown('Pixel')))).toBe(true);
    expect(target.log.filter(hides)).toEqual([]);
  });
});
