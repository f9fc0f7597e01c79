import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { bearer, describeMatrix, pair, post, registerCode } from '../support/relay.ts';

const PNG = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex').toString('base64');

describeMatrix('HTTP rules (contract 01 §1)', (start, runtime) => {
  it('unknown paths 404, known paths with another method 405 and Allow', async () => {
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

  it('HEAD answers as GET, without a body', async () => {
    const target = await start();
    const response = await target.fetch('/health', { method: 'HEAD' });
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('application/json');
    expect(await response.text()).toBe('');
  });

  it('a plain GET on the socket paths is 426', async () => {
    const target = await start();
    for (const path of ['/', '/ws']) {
      const response = await target.fetch(path);
      expect(response.status).toBe(426);
      // The edge platform takes hop-by-hop headers out of answers.
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
  ])('body %.40s: 400 %s', async (body, error) => {
    const target = await start();
    const response = await target.operator('/pairing/register', { method: 'POST', body });
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({ ok: false, error });
    expect(response.headers.get('cache-control')).toBe('no-store');
  });

  it('bodies over 64 KiB are 413', async () => {
    const target = await start();
    const response = await target.operator('/pairing/register', post({ code: 'ABC123', filler: 'x'.repeat(65_536) }));
    expect(response.status).toBe(413);
    expect(await response.json()).toMatchObject({ ok: false });
  });

  it('health: fields, and no authentication', async () => {
    const target = await start();
    const { client } = await pair(target);
    const response = await target.fetch('/health');
    const health = await response.json();
    expect(health).toMatchObject({
      status: 'ok',
      version: '1.0.0',
      clients: 1,
      sessions: 1,
      readiness: { ready: true, state: 'ready', checks: { session_store: 'ok' } },
      secure_link: { enabled: false, status: 'disabled', reach: { state: 'disabled', status: 'disabled' } },
    });
    expect(health).not.toHaveProperty('secure_proxy');
    client.close();
  });

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
  ])('register refuses %s and registers nothing', async (_name, body, error) => {
    const target = await start();
    const response = await target.operator('/pairing/register', post(body));
    expect(response.status).toBe(400);
    expect((await response.json()).error).toMatch(error);
  });

  it('register and approve answer with the code in upper case', async () => {
    const target = await start();
    const registered = await target.operator(
      '/pairing/register',
      post({ code: ' abc123 ', endpoints: [], grants: null }),
    );
    expect(await registered.json()).toEqual({ ok: true, code: 'ABC123', endpoints: [] });
    const approved = await target.operator('/pairing/approve', post({ code: 'XYZ789' }));
    expect(await approved.json()).toEqual({ ok: true, code: 'XYZ789' });
  });

  it('mint: a code that pairs, in a signed payload', async () => {
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

  it('operator routes refuse everybody else', async () => {
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
    // A device is admitted to what phones read, and to nothing else.
    const paired = { ...stranger, ...bearer(token) };
    expect((await target.fetch('/relay/info', { headers: paired })).status).toBe(200);
    expect((await target.fetch('/relay/update-check', { headers: paired })).status).toBe(200);
    expect((await target.fetch('/relay/security', { headers: paired })).status).toBe(403);
    // A bad bearer is never downgraded to trust.
    const bad = bearer('nonsense');
    expect((await target.fetch('/relay/info', { headers: bad })).status).toBe(401);
    expect((await target.fetch('/sessions', { headers: { ...bad, 'x-svc-operator': '1' } })).status).toBe(401);
  });

  it('host tools list and revoke sessions, and never reduce', async () => {
    const target = await start();
    const { prefix, client } = await pair(target);
    const tool = { 'x-svc-operator': '1' };
    expect((await target.fetch('/sessions')).status).toBe(401);
    const { sessions } = await (await target.operator('/sessions', { headers: tool })).json();
    expect(sessions[0]).toMatchObject({ token_prefix: prefix, is_current: false });
    const patch = await target.operator(`/sessions/${prefix}`, {
      method: 'PATCH',
      headers: tool,
      body: '{"ttl_seconds":60}',
    });
    expect(patch.status).toBe(401);
    const revoked = await target.operator(`/sessions/${prefix}`, { method: 'DELETE', headers: tool });
    expect(await revoked.json()).toEqual({ ok: true, revoked: prefix, revoked_self: false });
    expect((await client.closed()).code).toBe(4401);
  });

  it('the security toggle holds until restart', async () => {
    const target = await start();
    const read = async () => (await target.operator('/relay/security')).json();
    expect(await read()).toEqual({
      ok: true,
      scope: 'runtime',
      allow_insecure_api_bearer: false,
      trust_proxy_headers: false,
    });
    for (const body of [{}, { allow_insecure_api_bearer: 1 }, { allow_insecure_api_bearer: null }]) {
      const refused = await target.operator('/relay/security', { ...post(body), method: 'PATCH' });
      expect(refused.status).toBe(400);
      expect((await refused.json()).error).toMatch(/allow_insecure_api_bearer.*boolean/);
    }
    await target.operator('/relay/security', { ...post({ allow_insecure_api_bearer: true }), method: 'PATCH' });
    expect((await read()).allow_insecure_api_bearer).toBe(true);
    await target.restart();
    // An object cannot tell a restart from a sleep, which the toggle outlasts (contract 00).
    expect((await read()).allow_insecure_api_bearer).toBe(runtime === 'edge');
  });

  it('info tells what this relay can do', async () => {
    const target = await start();
    const info = await (await target.operator('/relay/info')).json();
    expect(info).toMatchObject({
      version: '1.0.0',
      plugin_version: '1.0.0',
      protocol_version: 1,
      session_count: 0,
      paired_device_count: 0,
      pending_commands: 0,
      media_entry_count: 0,
      health: 'ok',
      gateway_heartbeat: { status: 'missing', supported: false },
      gateway_prior_exit: { prior_exit: 'unknown' },
    });
    expect(info.capabilities).toEqual([...info.capabilities].sort());
    expect(info.capabilities.includes('profiles')).toBe(runtime === 'node');
    expect(info.capabilities.includes('clipboard')).toBe(runtime === 'node');
  });

  it('clipboard inbox (contract 04 §6): a file on a host, 501 without one', async () => {
    const target = await start();
    const { token } = await pair(target);
    const put = (body: unknown) => target.fetch('/clipboard/inbox', { ...post(body), headers: bearer(token) });
    const response = await put({ format: 'PNG', bytes_base64: PNG, filename_hint: '../a b/..' });
    if (runtime === 'edge') {
      expect(response.status).toBe(501);
      return;
    }
    const { ok, path, size_bytes } = await response.json();
    expect(ok).toBe(true);
    expect(path).toMatch(/\/images\/inbox\/clip_\d{8}_\d{6}_\d+_ab_[a-z0-9]{6}\.png$/);
    expect((await readFile(path)).length).toBe(size_bytes);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    for (const bad of [
      {},
      { format: 'bmp', bytes_base64: PNG },
      { format: 'jpg', bytes_base64: PNG },
      { format: 'png', bytes_base64: '*' },
    ]) {
      expect((await put(bad)).status).toBe(400);
    }
    expect((await target.fetch('/clipboard/inbox', post({ format: 'png', bytes_base64: PNG }))).status).toBe(401);
  });
});

describeMatrix(
  'profiles (contract 01 §3.8, 07 §1.4)',
  (start) => {
    it('auth.ok carries the rows; a change on disk is pushed at both places', async () => {
      const target = await start();
      await writeFile(join(target.agentHome, 'config.yaml'), 'model: {default: m1}\ndescription: Home\n');
      await target.relay?.profiles.rescan();
      const { client, ok } = await pair(target);
      expect(ok.payload.profiles).toMatchObject([{ name: 'default', model: 'm1', description: 'Home' }]);
      await mkdir(join(target.agentHome, 'profiles', 'work'), { recursive: true });
      await writeFile(join(target.agentHome, 'profiles', 'work', 'config.yaml'), 'model: m2\n');
      await target.relay?.profiles.rescan();
      const pushed = await client.next({ channel: 'pairing', type: 'profiles.updated' });
      expect(pushed.payload.profiles).toEqual(pushed.profiles);
      expect(pushed.profiles).toMatchObject([{ name: 'default' }, { name: 'work', model: 'm2' }]);
      const other = await pair(target);
      expect(other.ok.payload.profiles).toEqual(pushed.profiles);
    });
  },
  ['node'],
);

describeMatrix(
  'pushes and pairings of a host',
  (start) => {
    it('a pairing code from RELAY_PAIRING_CODE is registered at start', async () => {
      const target = await start({ env: { RELAY_PAIRING_CODE: 'starts' } });
      await expect(registerCode(target, 'ANYONE')).resolves.toBeUndefined();
      const { authenticate } = await import('../support/relay.ts');
      expect((await authenticate(target, { pairing_code: 'STARTS' })).frame.type).toBe('auth.ok');
    });
  },
  ['node'],
);
