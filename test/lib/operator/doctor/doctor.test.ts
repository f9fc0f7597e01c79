import { describe, expect, it } from 'vitest';
import type { Host, HostFiles } from '../../../../lib/host/index.ts';
import { apiBase, type Check, dashboardBase } from '../../../../lib/operator/doctor/check.ts';
import { componentHealth } from '../../../../lib/operator/doctor/dashboard.ts';
import { type DoctorDeps, diagnose, hasProblems } from '../../../../lib/operator/doctor/doctor.ts';
import { createTestClock } from '../../../support/clock.ts';
import { createTestHost } from '../../../support/host.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

const never = () => new Promise<never>(() => {});

async function deps(given: Partial<DoctorDeps> = {}): Promise<DoctorDeps> {
  const host = given.host ?? createTestHost({ agentHome: await temporaryDirectory(), env: {} });
  return {
    version: '1.0.0',
    host,
    clock: createTestClock(),
    probe: async (method, url) => ({ ok: true, exists: true, status: 200, method, url }),
    modules: { relay: async () => {}, terminal: async () => {} },
    compat: { host, pluginDirectory: null, root: host.agentHome, load: never },
    service: { host, port: 8767, home: host.agentHome, unit: { node: '/n', script: '/s', agentHome: '/h' } },
    api: { url: 'http://api', source: null },
    dashboard: { url: 'http://dashboard', source: null },
    relay: { port: 8767, tls: false },
    operator: { requireKey: false, uids: [], hasKey: false, hasDesktopToken: false },
    process: async () => null,
    timeout: 2000,
    ...given,
  };
}

const check = (checks: Check[], id: string) => checks.find((one) => one.id === id);

describe('diagnose (07 §5.2)', () => {
  it('never exceeds its timeout, whatever hangs: services, modules, files, systemd', async () => {
    const files = new Proxy({} as HostFiles, { get: () => never });
    const host = {
      ...createTestHost({ agentHome: '/h', env: {} }),
      files,
      children: { find: never, run: never, spawn: never },
    };
    const clock = createTestClock();
    const running = diagnose(
      await deps({ host: host as Host, clock, probe: never, modules: { relay: never, terminal: never } }),
    );
    let done = false;
    void running.then(() => {
      done = true;
    });
    clock.advance(1999);
    await new Promise((resolve) => setImmediate(resolve));
    expect(done).toBe(false);
    clock.advance(1);
    const { checks, lifecycle, relay } = await running;
    expect(lifecycle.service.systemd).toBe('unknown');
    expect(relay.import_chain).toEqual({ ok: false, module: 'relay', error: 'nothing within 2 s' });
    expect(check(checks, 'api-capabilities')).toMatchObject({
      status: 'warn',
      summary: expect.stringMatching(/nothing within 2 s/),
    });
    // Slow is not broken: the verdict must not be that it does not load.
    for (const id of ['plugin-root', 'relay-import-chain']) {
      expect(check(checks, id)).toMatchObject({ status: 'warn', next: expect.stringContaining('--timeout') });
    }
    expect([hasProblems(checks, false), hasProblems(checks, true)]).toEqual([false, true]);
  });

  it('distinguishes a relay that does not load from a terminal module that does not', async () => {
    const broken = async () => {
      throw new Error('wrong ELF class\nat somewhere');
    };
    const relay = await diagnose(await deps({ modules: { relay: broken, terminal: async () => {} } }));
    expect(relay.relay.import_chain).toEqual({ ok: false, module: 'relay', error: 'wrong ELF class' });
    expect(check(relay.checks, 'relay-import-chain')).toMatchObject({
      status: 'error',
      next: expect.stringContaining('npm install'),
    });
    const terminal = await diagnose(await deps({ modules: { relay: async () => {}, terminal: broken } }));
    expect(check(terminal.checks, 'relay-import-chain')).toMatchObject({
      status: 'warn',
      next: expect.stringContaining('terminal'),
    });
  });

  it('09 §3: reports the freeze that the relay names', async () => {
    const probe =
      (freeze?: unknown, ok = true): DoctorDeps['probe'] =>
      async (method, url) => ({ ok, exists: true, status: 200, method, url, json: { version: '1.0.0', freeze } });
    const freeze = { frozen: true, since: 5, by: 'Pixel 9', reason: 'lost' };
    const frozenIn = async (answer: DoctorDeps['probe']) => (await diagnose(await deps({ probe: answer }))).frozen;
    expect(await frozenIn(probe(freeze))).toEqual({ since: 5, by: 'Pixel 9', reason: 'lost' });
    expect(await frozenIn(probe())).toBeNull();
    expect(await frozenIn(probe(freeze, false))).toBeNull();
  });

  it('probes over https when the relay has a certificate', async () => {
    const asked: string[] = [];
    const probe: DoctorDeps['probe'] = async (method, url) => {
      asked.push(url);
      return { ok: true, exists: true, status: 200, method, url, json: { version: '0.9.0' } };
    };
    const { checks } = await diagnose(await deps({ probe, relay: { port: 9000, tls: true } }));
    expect(asked).toContain('https://127.0.0.1:9000/relay/info');
    expect(check(checks, 'relay-loopback')).toMatchObject({
      status: 'ok',
      summary: expect.stringMatching(/0\.9\.0 answers.*1\.0\.0 is installed/),
    });
  });

  it('reads answers of any shape: members that have no text, and times that no date can hold', async () => {
    const odd = { toString: 1, valueOf: 1 };
    const probe: DoctorDeps['probe'] = async (method, url) => ({
      ...{ ok: true, exists: true, status: 200, method, url },
      json: {
        ...{ components: [{ name: odd, status: odd }], failing_stores: [{ store: odd, error: odd }] },
        clock_problem: { state: 'ahead', reads_at: 1, last_write: 1, kept_aside: odd },
        ...{ enabled: true, link: 'down', since: 1e300, waiting: { out: odd } },
        mailbox: { sealed: false, plain: [{ name: odd, reason: odd }], plain_count: odd },
        ...{ devices: [{ device_name: odd, ends_soon: true }], subscriptions: 1 },
        services: [{ host: odd, at: odd, result: 'later', error: odd }],
      },
    });
    const { checks } = await diagnose(await deps({ probe }));
    expect(check(checks, 'dashboard-component-health')?.summary).toBe('0 is unknown');
    expect(check(checks, 'relay-clock')?.summary).toContain('0 sessions');
    expect(check(checks, 'relay-mirror')?.summary).toMatch(/^home is off since 2/);
    expect(check(checks, 'relay-mailbox')?.summary).toContain('a device cannot open what is sealed');
    expect(check(checks, 'relay-stores')).toBeUndefined();
  });

  it.each([
    [['a', 'b'], '2 profiles'],
    [['a'], '1 profile'],
  ])('shows the layout of the agent when the dashboard reports it: %j', async (profiles, counted) => {
    const probe: DoctorDeps['probe'] = async (method, url) => ({
      ...{ ok: true, exists: true, status: 200, method, url },
      json: { gateway_mode: 'shared', profiles },
    });
    const { checks } = await diagnose(await deps({ probe }));
    expect(check(checks, 'dashboard-topology')).toMatchObject({
      status: 'ok',
      summary: `gateway mode: shared, ${counted}`,
    });
    expect(checks.findIndex(({ id }) => id === 'dashboard-topology')).toBe(
      checks.findIndex(({ id }) => id === 'gateway-heartbeat') - 1,
    );
  });
});

describe('component health', () => {
  it.each([
    [undefined, false, []],
    [{}, false, []],
    [{ components: 'ok' }, false, []],
    [{ components: {} }, true, []],
    [{ components: { a: 'OK', b: { status: 'ready' }, c: { state: 'healthy' } } }, true, [true, true, true]],
    [{ components: [{ id: 'a', health: 'ok' }, 'down', null, { name: 'n' }] }, true, [true, false, false, false]],
  ])('%j', (status, supported, healthy) => {
    const found = componentHealth(status);
    expect([found.supported, found.components.map((component) => component.healthy)]).toEqual([supported, healthy]);
    expect(found.overall).toBe(!supported ? 'unknown' : healthy.every(Boolean) ? 'ok' : 'degraded');
  });

  it('is bounded', () => {
    expect(componentHealth({ components: Array(5000).fill('x'.repeat(5000)) }).components).toHaveLength(100);
  });
});

describe('addresses of the services', () => {
  it('flag, variables in order, default', () => {
    const env = { SVC_API_URL: '', RELAY_WEBAPI_URL: 'http://b/', WEBAPI_URL: 'http://c' };
    expect(apiBase('http://a//', env)).toEqual({ url: 'http://a', source: '--api-url' });
    expect(apiBase(undefined, env)).toEqual({ url: 'http://b', source: 'RELAY_WEBAPI_URL' });
    expect(apiBase(undefined, { WEBAPI_URL: 'http://c/v2/' })).toEqual({ url: 'http://c/v2', source: 'WEBAPI_URL' });
    expect(apiBase(undefined, {})).toEqual({ url: 'http://127.0.0.1:8642', source: null });
    expect(dashboardBase(undefined, { DASHBOARD_URL: 'x', SVC_WEB_URL: 'ftp://y' })).toEqual({
      url: '',
      source: 'SVC_WEB_URL',
    });
    expect(dashboardBase(undefined, {})).toEqual({ url: 'http://127.0.0.1:9119', source: null });
  });
});
