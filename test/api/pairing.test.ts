import { expect, it, vi } from 'vitest';
import {
  addressHeaders,
  authenticate,
  BEHIND_PROXY,
  bearer,
  describeMatrix,
  pair,
  post,
  registerCode,
} from '../support/relay.ts';

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

  it('§9.4: the addresses that a code may name are listed, with one where the relay is published', async () => {
    const target = await start();
    const list = async (query = '') => {
      const response = await target.operator(`/pairing/routes${query}`);
      return { status: response.status, ...(await response.json()) };
    };
    expect(await list()).toMatchObject({ status: 200, local: target.runtime === 'node' });
    const { endpoints } = await list('?public_url=https%3A%2F%2Frelay.example.com%2Fsvc%2F');
    const urls = endpoints.map(({ role, relay }: { role: string; relay: { url: string } }) => `${role} ${relay.url}`);
    if (target.runtime === 'edge') expect(urls).toEqual([]);
    else expect(urls).toContain('public wss://relay.example.com/svc');
    for (const wrong of ['ftp://a', 'https://a?b', 'https://a%23b', 'https://u:p@a', 'relay', '//a']) {
      expect([wrong, (await list(`?public_url=${encodeURIComponent(wrong)}`)).status]).toEqual([wrong, 400]);
    }
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

  it('§5.5: a stranger makes a request, which is no code until the operator admits it', async () => {
    const target = await start();
    const before = target.log.length;
    await registerCode(target, 'OTHERS', { grants: { chat: 60 }, transport_hint: 'wss' });
    const stranger = await target.fetch('/pairing', { method: 'POST', headers: { 'x-forwarded-for': '10.1.2.3' } });
    expect(stranger.status).toBe(202);
    const { expires_at: expiresAt, ...answer } = await stranger.json();
    expect(answer).toEqual({ ok: true, pending: true });
    // At the edge the lines of other relays come before this one.
    const isShown = (line: string) => line.includes('svc pair --register-code');
    const code = await vi.waitFor(() => {
      const [line] = target.log.slice(before).filter(isShown);
      if (!line) throw new Error('the console does not show the code yet');
      return line.slice(-6);
    });

    expect((await authenticate(target, { pairing_code: code })).frame).toMatchObject({
      type: 'auth.fail',
      payload: { reason: 'Invalid pairing code or session token' },
    });
    const listed = await target.operator('/pairing/pending');
    expect(await listed.json()).toMatchObject({
      codes: [{ masked: 'OT****', transport_hint: 'wss', grants: { chat: 60 }, anonymous: false }],
      requests: [{ masked: `${code.slice(0, 2)}****`, expires_at: expiresAt, peer: expect.any(String) }],
    });
    const device = await pair(target);
    const foreign = await target.fetch('/pairing/pending', { headers: { ...bearer(device.token), via: '1.1 proxy' } });
    expect(foreign.status).toBe(403);

    await target.operator('/pairing/approve', post({ code }));
    expect((await (await target.operator('/pairing/pending')).json()).requests).toEqual([]);
    expect((await authenticate(target, { pairing_code: code })).frame.type).toBe('auth.ok');
  });

  it('§5.5: strangers can make 32 requests at most, and none keeps the operator from a code', async () => {
    const target = await start(BEHIND_PROXY);
    const ask = async (index: number) => {
      const headers = addressHeaders(target, `192.0.2.${index}`);
      return (await target.fetch('/pairing', { method: 'POST', headers })).status;
    };
    for (let index = 0; index < 32; index++) expect(await ask(index)).toBe(202);
    expect(await ask(32)).toBe(429);
    expect((await target.operator('/pairing', { method: 'POST' })).status).toBe(200);
    const { codes, requests } = await (await target.operator('/pairing/pending')).json();
    expect([codes.length, requests.length]).toEqual([1, 32]);
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
