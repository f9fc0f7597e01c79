import { existsSync } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';

describeMatrix('operator routes (contract 01 §8)', (start, runtime) => {
  it('§8.2: the security toggle holds until restart', async () => {
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

  it('11 §5: the operator, and nobody else, is told what is wrong with the disk of the relay', async () => {
    const target = await start();
    const info = async (headers = {}) => (await target.fetch('/relay/info', { headers })).json();
    const { token } = await pair(target);
    const machine = target.relay?.host?.machine;
    if (machine) machine.space = async () => ({ free: 5e9, total: 1e12 });
    expect(await (await target.operator('/relay/info')).json()).not.toHaveProperty('disk_problem');
    // An object at the edge has no disk.
    if (!machine) return;
    machine.space = async () => ({ free: 0, total: 1e12 });
    expect((await info()).disk_problem).toMatchObject({
      status: 'error',
      problem: expect.stringContaining('0 MB free for the state in'),
      next: expect.stringContaining('df -h'),
    });
    expect(await info(bearer(token))).not.toHaveProperty('disk_problem');
    machine.space = () => Promise.reject(Object.assign(new Error('EIO: i/o error'), { code: 'EIO' }));
    expect((await info()).disk_problem).toMatchObject({ status: 'error', problem: 'EIO: i/o error' });
  });

  it('§8.1: info names what this relay can do', async () => {
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
    // Both runtimes hear and speak; only what is written to files, settings and recordings, needs a host.
    expect(info.capabilities).toContain('relay_voice');
  });

  it('11 §3: a snapshot of the state is for the user of the relay alone, and old ones go', async () => {
    const target = await start();
    const ask = () => target.operator('/relay/snapshot', { method: 'POST' });
    const foreign = { origin: 'https://elsewhere.example', 'x-svc-operator': '1' };
    expect((await target.fetch('/relay/snapshot', { method: 'POST', headers: foreign })).status).toBe(403);
    if (runtime === 'edge') {
      const refused = await ask();
      expect([refused.status, (await refused.json()).error]).toEqual([501, expect.stringContaining('without a host')]);
      return;
    }
    const paths: string[] = [];
    for (let count = 0; count < 5; count++) {
      const { ok, path } = await (await ask()).json();
      expect([ok, path]).toEqual([true, expect.stringMatching(/state\.db-snapshot-\d+-[0-9a-f]{16}$/)]);
      expect((await stat(path)).mode & 0o777).toBe(0o600);
      paths.push(path);
    }
    expect(paths.map((path) => existsSync(path))).toEqual([false, false, true, true, true]);
    for (const path of paths) await rm(path, { force: true });
  });

  it('09 §4: the doctor has the checks of the command, and callers during a run share it', async () => {
    // Nothing listens there.
    const silent = { SVC_API_URL: 'http://127.0.0.1:1', SVC_DASHBOARD_URL: 'http://127.0.0.1:1' };
    const target = await start({ env: silent });
    const ask = () => target.operator('/relay/doctor', { method: 'POST' });
    const foreign = { origin: 'https://elsewhere.example', 'x-svc-operator': '1' };
    expect((await target.fetch('/relay/doctor', { method: 'POST', headers: foreign })).status).toBe(403);
    if (runtime === 'edge') {
      const refused = await ask();
      expect([refused.status, (await refused.json()).error]).toEqual([501, expect.stringContaining('without a host')]);
      return;
    }
    const [first, second] = await Promise.all([ask(), ask()].map(async (answer) => (await answer).json()));
    expect(second).toEqual(first);
    expect(first).toMatchObject({ schema_version: 1, relay: { port: Number(new URL(target.url).port) } });
    const statusOf = (id: string) => first.checks.find((check: { id: string }) => check.id === id)?.status;
    for (const id of ['plugin-root', 'relay-import-chain', 'relay-loopback']) {
      expect([id, statusOf(id)]).toEqual([id, 'ok']);
    }
    expect(statusOf('api-capabilities')).toBe('warn');
    for (const check of first.checks) expect(Object.keys(check).sort()).toEqual(['id', 'status', 'summary']);
  });
});
