import { expect, it } from 'vitest';
import { connect } from '../support/client.ts';
import { describeMatrix, pair, post } from '../support/relay.ts';

describeMatrix('devices over years (contract 11 §2)', (start) => {
  const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

  it('§2: the operator extends a session, whose token stays; no device does', async () => {
    const target = await start();
    const { prefix, token } = await pair(target, { policy: { ttl_seconds: 1000, without: ['tui'] } });
    const path = `/sessions/${prefix}/extend`;
    const own = await target.fetch(path, { ...post({}), headers: { ...bearer(token), origin: 'https://a.example' } });
    expect(own.status).toBe(403);
    for (const ttl_seconds of [-1, 1.5, '1h', true, 10]) {
      expect((await target.operator(path, post({ ttl_seconds }))).status, String(ttl_seconds)).toBe(400);
    }
    const extended = await target.operator(path, post({ ttl_seconds: 500_000 }));
    const { expires_at, grants, ...rest } = await extended.json();
    expect(rest).toEqual({ ok: true, token_prefix: prefix });
    expect(expires_at - Date.now() / 1000).toBeGreaterThan(400_000);
    expect(grants).not.toHaveProperty('tui');
    const [row] = (await (await target.fetch('/sessions', { headers: bearer(token) })).json()).sessions;
    expect(row).toMatchObject({ token_prefix: prefix, expires_at });
    expect(row).not.toHaveProperty('ends_soon');
    expect((await target.operator('/sessions/ffffffff/extend', post({}))).status).toBe(404);
  });

  it("§2: the owner's name wins over that of the device, in the list and on the bridge", async () => {
    const target = await start();
    const { prefix } = await pair(target, { device: { device_name: 'Pixel 9' } });
    const put = (body: object) => target.operator(`/sessions/${prefix}/name`, { ...post(body), method: 'PUT' });
    for (const name of ['', '  ', 7, null]) expect((await put({ name })).status).toBe(400);
    expect(await (await put({ name: 'Phone of Ada\u202e' })).json()).toEqual({
      ok: true,
      token_prefix: prefix,
      device_name: 'Phone of Ada',
    });
    const { devices } = await (await target.operator('/relay/devices')).json();
    expect(devices).toMatchObject([{ device_name: 'Phone of Ada' }]);
  });

  it('§2: a session that ended is listed with why, and its device is told since when', async () => {
    const target = await start();
    const phone = await pair(target, { device: { device_name: 'Pixel 9' } });
    const tablet = await pair(target, { device: { device_name: 'Tablet' } });
    expect((await target.operator('/sessions/ended')).status).toBe(200);
    await target.fetch(`/sessions/${phone.prefix}`, { method: 'DELETE', headers: bearer(tablet.token) });
    const { sessions } = await (await target.operator('/sessions/ended')).json();
    expect(sessions).toMatchObject([
      { token_prefix: phone.prefix, device_name: 'Pixel 9', reason: 'revoked by Tablet', ended_at: expect.any(Number) },
    ]);
    const sentence = `session ended on ${new Date(sessions[0].ended_at * 1000).toISOString().slice(0, 10)}: pair again`;
    const refused = await target.fetch('/sessions', { headers: bearer(phone.token) });
    expect([refused.status, (await refused.json()).error]).toEqual([401, sentence]);
    const stranger = await target.fetch('/sessions', { headers: bearer(crypto.randomUUID()) });
    expect((await stranger.json()).error).not.toContain('session ended');
    const socket = await connect(target.wsUrl);
    socket.send('system', 'auth', { session_token: phone.token });
    expect((await socket.next({ type: 'auth.fail' })).payload).toEqual({ reason: sentence });
  });

  it('§2: a reduction takes grants away whole', async () => {
    const target = await start();
    const { prefix, token } = await pair(target);
    const patch = (body: object) => ({ ...post(body), method: 'PATCH', headers: bearer(token) });
    for (const without of ['files', [1], ['flying']]) {
      expect((await target.fetch(`/sessions/${prefix}`, patch({ without }))).status).toBe(400);
    }
    const reduced = await (await target.fetch(`/sessions/${prefix}`, patch({ without: ['files', 'chat'] }))).json();
    expect(Object.keys(reduced.grants)).not.toContain('files');
    const { sessions } = await (await target.fetch('/sessions', { headers: bearer(token) })).json();
    expect(Object.keys(sessions[0].grants)).not.toContain('chat');
    expect((await target.fetch('/clipboard/inbox', { ...post({ text: 'x' }), headers: bearer(token) })).status).toBe(
      403,
    );
  });
});
