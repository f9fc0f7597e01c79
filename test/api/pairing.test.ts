import { expect, it } from 'vitest';
import { authenticate, describeMatrix, post, registerCode } from '../support/relay.ts';

describeMatrix('pairing over HTTP (contract 01 §5)', (start) => {
  it.each([
    ['missing', {}, /code/],
    ['not a string', { code: 123456 }, /code/],
    ['too short', { code: 'ABC12' }, /code/],
    ['another alphabet', { code: 'ABC-12' }, /code/],
    ['negative ttl', { code: 'ABC123', ttl_seconds: -1 }, /ttl_seconds/],
    ['boolean ttl', { code: 'ABC123', ttl_seconds: true }, /ttl_seconds/],
    ['endless ttl', { code: 'ABC123', ttl_seconds: 3_153_600_001 }, /ttl_seconds/],
    ['grants array', { code: 'ABC123', grants: [] }, /grants/],
    ['grant name', { code: 'ABC123', grants: { 'No Name': 1 } }, /grants/],
    [
      '33 grants',
      { code: 'ABC123', grants: Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`g${i}`, 1])) },
      /grants/,
    ],
    ['transport', { code: 'ABC123', transport_hint: 'http' }, /transport_hint/],
    ['endpoints', { code: 'ABC123', endpoints: {} }, /endpoints/],
  ])('§5.2: register refuses %s', async (_name, body, error) => {
    const target = await start();
    const response = await target.operator('/pairing/register', post(body));
    expect(response.status).toBe(400);
    expect((await response.json()).error).toMatch(error);
  });

  it('§5.2: register and approve answer with the code in upper case', async () => {
    const target = await start();
    const registered = await target.operator(
      '/pairing/register',
      post({ code: ' abc123 ', endpoints: [], grants: null }),
    );
    expect(await registered.json()).toEqual({ ok: true, code: 'ABC123', endpoints: [] });
    const approved = await target.operator('/pairing/approve', post({ code: 'XYZ789' }));
    expect(await approved.json()).toEqual({ ok: true, code: 'XYZ789' });
  });

  it('§5.3: mint answers with a code in a signed payload', async () => {
    const target = await start();
    const response = await target.operator(
      '/pairing/mint',
      post({ host: '192.168.1.20', port: 8642, tls: false, api_key: 'k', ttl_seconds: 3600, grants: { chat: 60.5 } }),
    );
    expect(response.status).toBe(200);
    const answer = await response.json();
    const payload = JSON.parse(answer.qr_payload);
    expect(payload).toMatchObject({ host: '192.168.1.20', port: 8642, key: 'k', tls: false });
    expect(payload.relay).toMatchObject({
      code: answer.code,
      url: answer.relay_url,
      ttl_seconds: 3600,
      grants: { chat: 61 },
    });
    expect(payload.sig).toMatch(/^[A-Za-z0-9+/]{43}=$/);
    const encoded = answer.pairing_url.replace('svc-relay://pair?payload=', '');
    expect(Buffer.from(encoded, 'base64url').toString()).toBe(answer.qr_payload);
    expect(Number.isInteger(answer.expires_at)).toBe(true);
  });

  it('§5.5: POST /pairing shows the code to the operator only, five times a minute', async () => {
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

describeMatrix(
  'RELAY_PAIRING_CODE (contract 01 §9.1)',
  (start) => {
    it('is registered at start, beside any other code', async () => {
      const target = await start({ env: { RELAY_PAIRING_CODE: 'starts' } });
      await expect(registerCode(target, 'ANYONE')).resolves.toBeUndefined();
      expect((await authenticate(target, { pairing_code: 'STARTS' })).frame.type).toBe('auth.ok');
    });
  },
  ['node'],
);
