import { expect, it } from 'vitest';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';

describeMatrix('HTTP rules (contract 01 §1)', (start, runtime) => {
  it('§1.1: 404 for an unknown path, 405 with Allow for a wrong method, no CORS headers', async () => {
    const target = await start();
    const missing = await target.fetch('/nothing/here');
    expect(missing.status).toBe(404);
    expect(await missing.json()).toEqual({ ok: false, error: 'not found' });
    for (const [path, allow] of [
      ['/health', 'GET, HEAD'],
      ['/pairing', 'POST'],
      ['/sessions/abcd', 'DELETE, PATCH'],
      ['/relay/security', 'GET, HEAD, PATCH'],
    ] as const) {
      const response = await target.fetch(path, { method: 'OPTIONS', headers: { origin: 'https://evil.example' } });
      expect(response.status).toBe(405);
      expect(response.headers.get('allow')).toBe(allow);
      expect(response.headers.get('x-content-type-options')).toBe('nosniff');
      expect([...response.headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([]);
    }
  });

  it('HEAD answers like GET, without a body', async () => {
    const target = await start();
    const response = await target.fetch('/health', { method: 'HEAD' });
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('application/json');
    expect(await response.text()).toBe('');
  });

  it('§3.1: a plain GET on a socket path is 426', async () => {
    const target = await start();
    for (const path of ['/', '/ws']) {
      const response = await target.fetch(path);
      expect(response.status).toBe(426);
      // The edge platform strips hop-by-hop headers from responses.
      if (runtime === 'node') expect(response.headers.get('upgrade')).toBe('websocket');
      expect((await response.json()).ok).toBe(false);
    }
  });

  it.each([
    ['{', 'invalid JSON body'],
    ['', 'invalid JSON body'],
    ['"text"', 'body must be a JSON object'],
    ['null', 'body must be a JSON object'],
    ['{"code":"ABC123","ttl_seconds":1e400}', 'invalid JSON body'],
    [`{"code":"ABC123","endpoints":${'['.repeat(200)}${']'.repeat(200)}}`, 'invalid JSON body'],
  ])('body %.40s is 400 %s', async (body, error) => {
    const target = await start();
    const response = await target.operator('/pairing/register', { method: 'POST', body });
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({ ok: false, error });
    expect(response.headers.get('cache-control')).toBe('no-store');
  });

  it('a body over 64 KiB is 413', async () => {
    const target = await start();
    const response = await target.operator('/pairing/register', post({ code: 'ABC123', filler: 'x'.repeat(65_536) }));
    expect(response.status).toBe(413);
    expect(await response.json()).toMatchObject({ ok: false });
  });

  it('§1.3: operator routes refuse everyone else, and a bad bearer is never downgraded to trust', async () => {
    const target = await start();
    const { token } = await pair(target);
    const stranger = { 'x-forwarded-for': '192.0.2.9' };
    for (const [method, path] of [
      ['POST', '/pairing/register'],
      ['POST', '/pairing/approve'],
      ['POST', '/pairing/mint'],
      ['GET', '/relay/security'],
      ['PATCH', '/relay/security'],
      ['GET', '/relay/info'],
      ['GET', '/relay/update-check'],
    ] as const) {
      const response = await target.fetch(path, {
        method,
        headers: stranger,
        body: method === 'GET' ? undefined : '{}',
      });
      expect([path, response.status]).toEqual([path, 403]);
      expect(response.headers.get('cache-control')).toBe('no-store');
    }
    for (const [method, path, status] of [
      ['GET', '/pairing', 405],
      ['GET', '/pairing/x', 404],
      ['PUT', '/sessions', 405],
      ['GET', '/relay/x', 404],
      ['GET', '/nowhere', 404],
    ] as const) {
      const response = await target.fetch(path, { method });
      expect([path, response.status, response.headers.get('cache-control')]).toEqual([path, status, 'no-store']);
    }
    // A paired device may read what phones show, and nothing else.
    const paired = { ...stranger, ...bearer(token) };
    expect((await target.fetch('/relay/info', { headers: paired })).status).toBe(200);
    const update = await target.fetch('/relay/update-check', { headers: paired });
    expect(update.status).toBe(200);
    // Without a feed: an `error` would be a warning on every phone for ever.
    expect(await update.json()).toEqual({
      current: expect.any(String),
      latest: null,
      update_available: false,
      update_command: null,
    });
    expect((await target.fetch('/relay/security', { headers: paired })).status).toBe(403);
    const bad = bearer('nonsense');
    expect((await target.fetch('/relay/info', { headers: bad })).status).toBe(401);
    expect((await target.fetch('/sessions', { headers: { ...bad, 'x-svc-operator': '1' } })).status).toBe(401);
  });
});
