import { createECDH, randomBytes } from 'node:crypto';
import { beforeEach, expect, it, vi } from 'vitest';
import { run } from '../support/companion-cli.ts';
import { authenticate, bearer, describeMatrix, pair, post, randomCode, registerCode } from '../support/relay.ts';

/** Whether the state file of this test's relays fails (Node). */
const disk = vi.hoisted(() => ({ isBroken: false }));
vi.mock('../../storage/sqlite.ts', async (original) => {
  const module = await original<typeof import('../../storage/sqlite.ts')>();
  const { breakable } = await import('../support/breakable.ts');
  const openStateFile: typeof module.openStateFile = (...args) =>
    breakable(module.openStateFile(...args), () => disk.isBroken);
  return { ...module, openStateFile };
});
beforeEach(() => {
  disk.isBroken = false;
});

const REFUSED = { type: 'auth.fail', payload: { reason: 'could not be stored: try again later' } };

describeMatrix('a store that cannot be written (contract 01 §6.7)', (begin, runtime) => {
  async function start() {
    const target = await begin();
    const setBroken = async (isBroken: boolean) => {
      disk.isBroken = isBroken;
      await target.breakStorage?.(isBroken);
    };
    const store = async () => (await (await target.fetch('/health')).json()).readiness.checks.session_store;
    const info = async () => (await target.operator('/relay/info')).json();
    return { target, setBroken, store, info };
  }

  it('refuses a pairing: the old session goes on, and the code stays good', async () => {
    const { target, setBroken, store } = await start();
    const device = { device_id: crypto.randomUUID() };
    const old = await pair(target, { device });
    const code = randomCode();
    await registerCode(target, code);
    await setBroken(true);
    for (let attempt = 0; attempt < 7; attempt++) {
      const { client, frame } = await authenticate(target, { pairing_code: code, ...device });
      expect(frame).toMatchObject(REFUSED);
      expect(await client.closed()).toMatchObject({ code: 1008, reason: REFUSED.payload.reason });
    }
    expect(await store()).toBe('degraded');
    expect((await target.fetch('/sessions', { headers: bearer(old.token) })).status).toBe(200);
    await setBroken(false);
    const { client, frame } = await authenticate(target, { pairing_code: code, ...device });
    expect(frame.type).toBe('auth.ok');
    expect(await old.client.closed()).toMatchObject({ code: 4401 });
    await vi.waitFor(async () => expect(await store()).toBe('ok'));
    client.close();
  });

  it('refuses a refresh: session and refresh token stay good, also after a restart', async () => {
    const { target, setBroken } = await start();
    const device_id = crypto.randomUUID();
    const { client, token, refreshToken } = await pair(target, { device: { device_id } });
    await setBroken(true);
    for (let attempt = 0; attempt < 7; attempt++) {
      const refused = await authenticate(target, { refresh_token: refreshToken, device_id });
      expect(refused.frame).toMatchObject(REFUSED);
      refused.client.terminate();
    }
    expect((await target.fetch('/sessions', { headers: bearer(token) })).status).toBe(200);
    client.terminate();
    await setBroken(false);
    await target.restart();
    const back = await authenticate(target, { refresh_token: refreshToken, device_id });
    expect(back.frame.type).toBe('auth.ok');
    back.client.close();
  });

  it('ends or reduces a session all the same, says that this is not stored, and stores it later', async () => {
    const { target, setBroken, store, info } = await start();
    const [revoked, reduced] = [await pair(target), await pair(target)];
    expect(await info()).not.toHaveProperty('failing_stores');
    await setBroken(true);
    const asOperator = { headers: { 'x-svc-operator': '1' } };
    const end = await target.operator(`/sessions/${revoked.prefix}`, { method: 'DELETE', ...asOperator });
    expect(end.status).toBe(503);
    expect(await end.json()).toEqual({ ok: false, error: expect.any(String), applied: true, stored: false });
    expect(await revoked.client.closed()).toMatchObject({ code: 4401 });
    const less = await target.fetch(`/sessions/${reduced.prefix}`, {
      ...post({ ttl_seconds: 600 }),
      method: 'PATCH',
      headers: bearer(reduced.token),
    });
    expect(less.status).toBe(503);
    expect(await less.json()).toMatchObject({ ok: false, applied: true, stored: false });
    expect(await store()).toBe('degraded');
    expect((await info()).failing_stores).toContainEqual({
      store: 'sessions',
      error: 'SQLITE_FULL: database or disk is full',
    });
    const seenByDevice = await target.fetch('/relay/info', { headers: bearer(reduced.token) });
    expect(await seenByDevice.json()).not.toHaveProperty('failing_stores');

    await setBroken(false);
    await vi.waitFor(async () => expect(await store()).toBe('ok'), 10_000);
    await target.restart();
    expect((await target.fetch('/sessions', { headers: bearer(revoked.token) })).status).toBe(401);
    const { sessions } = await (await target.operator('/sessions', asOperator)).json();
    expect(sessions).toHaveLength(1);
    expect(sessions[0].expires_at).toBeLessThan(Date.now() / 1000 + 601);
    reduced.client.terminate();
  });

  it('cancels a queued message all the same, says that this is not stored, and stores it later', async () => {
    const { target, setBroken, store } = await start();
    for (const message_id of ['a', 'b']) await target.operator('/phone/message', post({ text: 'hello', message_id }));
    await setBroken(true);
    const asOperator = { headers: { 'x-svc-operator': '1' } };
    const cancelled = await target.operator('/phone/outbound?message_id=a', { method: 'DELETE', ...asOperator });
    expect([cancelled.status, await cancelled.json()]).toEqual([
      503,
      { ok: false, error: expect.any(String), applied: true, stored: false },
    ]);
    const queued = async () => (await (await target.operator('/phone/outbound', asOperator)).json()).messages;
    expect(await queued()).toMatchObject([{ message_id: 'b' }]);
    await setBroken(false);
    await vi.waitFor(async () => expect(await store()).toBe('ok'), 10_000);
    await target.restart();
    expect(await queued()).toMatchObject([{ message_id: 'b' }]);
  });

  it('refuses a subscription to push messages, and says that the end of one is not stored', async () => {
    const { target, setBroken, store } = await start();
    const { token, client } = await pair(target);
    const endpoint = 'https://ntfy.sh/up1';
    const p256dh = createECDH('prime256v1').generateKeys('base64url');
    const keys = { p256dh, auth: randomBytes(16).toString('base64url') };
    const call = (method: string, endpoint: string) =>
      target.fetch('/push/subscribe', { ...post({ endpoint, keys }), method, headers: bearer(token) });
    expect((await call('POST', endpoint)).status).toBe(200);
    await setBroken(true);
    const refused = await call('POST', `${endpoint}2`);
    expect([refused.status, await refused.json()]).toEqual([
      503,
      { ok: false, error: 'could not be stored: try again later' },
    ]);
    const ended = await call('DELETE', endpoint);
    expect([ended.status, await ended.json()]).toEqual([
      503,
      { ok: false, error: expect.any(String), applied: true, stored: false },
    ]);
    await setBroken(false);
    await vi.waitFor(async () => expect(await store()).toBe('ok'), 10_000);
    await target.restart();
    const again = await call('DELETE', endpoint);
    expect(await again.json()).toEqual({ ok: true, removed: false });
    client.terminate();
  });

  // At home the switch is in memory only.
  if (runtime === 'edge') {
    it('forbids plain http for the API key all the same, and allows it only once that is stored', async () => {
      const { target, setBroken, store } = await start();
      const set = async (allow_insecure_api_bearer: boolean) => {
        const answer = await target.operator('/relay/security', {
          ...post({ allow_insecure_api_bearer }),
          method: 'PATCH',
        });
        return [answer.status, await answer.json()];
      };
      const isAllowed = async () => (await (await target.operator('/relay/security')).json()).allow_insecure_api_bearer;
      expect((await set(true))[0]).toBe(200);
      await setBroken(true);
      const applied = { ok: false, error: expect.any(String), applied: true, stored: false };
      expect(await set(false)).toEqual([503, applied]);
      expect(await isAllowed()).toBe(false);
      expect(await set(true)).toEqual([503, { ok: false, error: 'could not be stored: try again later' }]);
      expect(await isAllowed()).toBe(false);
      await setBroken(false);
      await vi.waitFor(async () => expect(await store()).toBe('ok'), 10_000);
      await target.restart();
      expect(await isAllowed()).toBe(false);
    });
  }

  it('is named by any store, not by that of sessions alone', async () => {
    const { target, setBroken, store, info } = await start();
    const { client } = await pair(target);
    await setBroken(true);
    await target.operator('/phone/message', post({ text: 'hello' }));
    await vi.waitFor(async () => expect(await store()).toBe('degraded'));
    expect((await info()).failing_stores.map((row: { store: string }) => row.store)).toContain('phone');
    client.terminate();
  });

  if (runtime === 'node') {
    it('is reported by svc status, svc relay doctor and svc devices', async () => {
      const { target, setBroken } = await start();
      const { client, prefix } = await pair(target, { device: { device_name: 'Pixel 9' } });
      const other = await pair(target, { device: { device_name: 'Tablet' } });
      const env = { RELAY_PORT: new URL(target.url).port };
      await setBroken(true);
      const revoked = await run(['devices', 'revoke', prefix, '--yes'], { env });
      expect(revoked).toMatchObject({ code: 1, stdout: '' });
      expect(revoked.stderr).toMatch(/Revoked Pixel 9 .*could not store that/);
      const reduced = await run(['devices', 'reduce', 'tablet', '--ttl', '10m'], { env });
      expect(reduced).toMatchObject({ code: 1, stdout: '' });
      expect(reduced.stderr).toMatch(/Reduced Tablet .*could not store that/);
      expect(reduced.stderr.trimEnd().split('\n').at(-1)).toMatch(/svc status$/);
      const status = await run(['status'], { env });
      expect(status.stdout).toMatch(/Storage +cannot store sessions: SQLITE_FULL: database or disk is full/);
      const doctor = await run(['relay', 'doctor'], { env });
      expect(doctor.stdout).toMatch(/relay-stores.*the relay cannot store .*sessions \(SQLITE_FULL/);
      client.terminate();
      other.client.terminate();
    });
  }
});
