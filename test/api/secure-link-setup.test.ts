import { once } from 'node:events';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createQrSecret } from '../../lib/pairing/secret.ts';
import { signPayload } from '../../lib/pairing/signature.ts';
import type { PreflightCheck, PreflightReport } from '../../lib/secure-link/preflight.ts';
import { createStores } from '../../storage/index.ts';
import { type BuiltTarget, startBuiltTarget } from '../support/built-relay.ts';
import { fakeRelay } from '../support/cli.ts';
import { bearer, describeMatrix, describeOnNode, pair, post } from '../support/relay.ts';

const HOST = '192.0.2.7';
const ORIGIN = `https://${HOST}:9443`;

/** A relay whose Secure Link counts as listening. The listener itself has tests of its own. */
async function startLinked(env: Record<string, string> = {}) {
  const settings = { RELAY_SECURE_LINK_ENABLED: '1', RELAY_SECURE_LINK_HOST: HOST, ...env };
  const target = await startBuiltTarget({ env: settings });
  onTestFinished(target.stop);
  // Where it listens for this machine alone, no code names the network's route.
  target.relay.listener = { ...target.relay.listener, host: '0.0.0.0' };
  expect(await target.relay.secureLink?.prepare()).not.toBeNull();
  target.relay.secureLink?.listening(9443);
  return target;
}

const healthOf = async (target: BuiltTarget, headers = {}) => (await target.fetch('/health', { headers })).json();

describeOnNode('/health with Secure Link (contract 08 §6.1, §6.3)', () => {
  it('has the pinned route while it is available', async () => {
    const target = await startLinked();
    const { secure_proxy: route, secure_link: link } = await healthOf(target);
    expect(route).toEqual({
      role: 'plugin_proxy',
      priority: 0,
      recommended: true,
      security: 'pinned_tls',
      display_name: 'Secure Link',
      description: expect.any(String),
      capabilities: ['relay', 'api', 'dashboard'],
      proxy: {
        url: ORIGIN,
        transport_hint: 'https',
        pin_sha256: target.relay.secureLink?.advertised?.pin,
        cert_der: target.relay.secureLink?.advertised?.certDer,
        surfaces: ['relay', 'api', 'dashboard'],
        services: link.services,
      },
    });
    expect(link).toMatchObject({ enabled: true, status: 'available', reach: { state: 'disabled' } });
    expect(link).not.toHaveProperty('reason');
  });

  it('says unavailable when it is, and why only to a caller on this host', async () => {
    const target = await startLinked();
    target.relay.secureLink?.failed('the port is in use');
    const health = await healthOf(target);
    expect(health).not.toHaveProperty('secure_proxy');
    expect(health.secure_link).toMatchObject({ enabled: true, status: 'unavailable', reason: 'the port is in use' });
    const { secure_link: seen } = await healthOf(target, { 'x-forwarded-for': '203.0.113.9' });
    expect(seen).toMatchObject({ status: 'unavailable' });
    expect(seen).not.toHaveProperty('reason');
  });
});

describeOnNode('mint with Secure Link (contract 08 §6.2)', () => {
  const mint = async (target: BuiltTarget, body: object = {}) =>
    (await target.operator('/pairing/mint', post({ host: '10.0.0.9', api_key: 'k'.repeat(32), ...body }))).json();

  it('adds the pinned route, signs the final order and mirrors it', async () => {
    const target = await startLinked();
    const endpoints = [
      { role: 'lan', priority: 0, relay: { url: 'ws://10.0.0.9:8767', transport_hint: 'ws' } },
      { role: 'Public', priority: 1, relay: { url: 'wss://relay.example', transport_hint: 'wss' } },
    ];
    const answer = await mint(target, { endpoints });
    const payload = JSON.parse(answer.qr_payload);
    expect(payload.svc).toBe(3);
    expect(payload.endpoints).toEqual(answer.endpoints);
    expect(answer.endpoints.map(({ role, priority }: { role: string; priority: number }) => [role, priority])).toEqual([
      ['Public', 0],
      ['plugin_proxy', 1],
      ['lan', 2],
    ]);
    const { advertised } = target.relay.secureLink ?? {};
    expect(payload.endpoints[1]).toEqual({
      role: 'plugin_proxy',
      priority: 1,
      recommended: true,
      security: 'pinned_tls',
      display_name: 'Secure Link',
      proxy: {
        url: ORIGIN,
        transport_hint: 'https',
        pin_sha256: advertised?.pin,
        cert_der: advertised?.certDer,
        surfaces: ['relay', 'api', 'dashboard'],
      },
    });
    const { relay } = target;
    const store = createStores('node').open('pairing');
    const secret = await createQrSecret({ host: relay.host, store, log: relay.log }).read();
    expect(payload.sig).toBe(signPayload(payload, secret as Uint8Array));
    expect(answer.qr_payload).not.toContain('PRIVATE');
  });

  it('makes the list when the caller gave none, small enough for a QR code', async () => {
    const target = await startLinked();
    const answer = await mint(target);
    expect(answer.endpoints).toHaveLength(1);
    // A version 25 code holds 1,273 bytes at level L, and a version 40 code 2,953.
    expect(Buffer.byteLength(answer.qr_payload)).toBeLessThan(1273);
  });

  it('offers nothing while it is unavailable, and leaves the order of the caller', async () => {
    const target = await startLinked();
    target.relay.secureLink?.failed('lost');
    const endpoints = [
      { role: 'lan', priority: 5 },
      { role: 'public', priority: 1 },
    ];
    expect((await mint(target, { endpoints })).endpoints).toEqual(endpoints);
    expect(await mint(target)).not.toHaveProperty('endpoints');
  });

  it('gives parallel mints a code each and the same route', async () => {
    const target = await startLinked();
    const answers = await Promise.all(Array.from({ length: 8 }, () => mint(target)));
    expect(new Set(answers.map(({ code }) => code)).size).toBe(8);
    expect(new Set(answers.map(({ endpoints }) => JSON.stringify(endpoints))).size).toBe(1);
  });
});

describeOnNode('GET /secure-link/preflight (contract 08 §5)', () => {
  let target: BuiltTarget;
  let api: Awaited<ReturnType<typeof fakeRelay>>;
  beforeAll(async () => {
    target = await startBuiltTarget({ env: { RELAY_WEBAPI_URL: 'http://localhost:1' } });
  });
  afterAll(() => target.stop());

  type Report = PreflightReport & { connected_clients: number };
  const ask = async (query: Record<string, string>, at = target): Promise<Report> => {
    const response = await at.operator(`/secure-link/preflight?${new URLSearchParams(query)}`);
    expect(response.status).toBe(200);
    return response.json();
  };
  const statusOf = ({ checks }: Report) =>
    Object.fromEntries(checks.map(({ id, status }: PreflightCheck) => [id, status]));

  it('has every member, and writes nothing', async () => {
    const report = await ask({ host: HOST, port: '9555' });
    expect(report).toEqual({
      schema_version: 1,
      state: 'needs_attention',
      read_only: true,
      url: `https://${HOST}:9555`,
      current_url: null,
      host: HOST,
      port: 9555,
      checks: [
        { id: 'address', label: 'Address', status: 'ok', detail: expect.any(String) },
        { id: 'listener', label: 'Listener', status: 'blocked', detail: expect.any(String) },
        { id: 'api', label: 'API server', status: 'warning', detail: expect.any(String) },
        { id: 'dashboard', label: 'Dashboard', status: 'blocked', detail: expect.any(String) },
        { id: 'certificate', label: 'Certificate', status: 'ok', detail: expect.any(String) },
      ],
      ready_to_enable: false,
      pairing_ready: false,
      requires_repair: false,
      connected_clients: 0,
      activation_mode: 'instructions',
      restart_notice: expect.any(String),
      configuration_note: expect.any(String),
      environment: {},
      start_arguments: [],
      disable_environment: { RELAY_SECURE_LINK_ENABLED: '0' },
      pair_command: null,
    });
    expect(await readdir(target.agentHome)).not.toContain('relay-secure-link');
  });

  it.each([
    [{ host: '' }, '', 9443],
    [{ host: '127.1' }, '', 9443],
    [{ host: 'https://relay.example' }, '', 9443],
    [{ host: 'fe80::1%eth0' }, '', 9443],
    [{ host: 'a;id', port: '9555' }, '', 9555],
    [{ host: HOST, port: '0' }, HOST, 9443],
    [{ host: HOST, port: '9443x' }, HOST, 9443],
    [{ host: HOST, port: '' }, HOST, 9443],
  ])('reports bad input as a blocked check: %j', async (query, host, port) => {
    const report = await ask(query as Record<string, string>);
    expect(report).toMatchObject({ url: null, host, port, state: 'needs_attention', environment: {} });
    expect(Object.keys(statusOf(report))).toEqual(['address', 'api', 'dashboard', 'certificate']);
    expect(statusOf(report).address).toBe('blocked');
  });

  it('calls loopback addresses unusable for a phone', async () => {
    for (const host of ['localhost', '127.0.0.1', '::1', '[::1]']) {
      expect(statusOf(await ask({ host }))).toMatchObject({ address: 'blocked', listener: 'blocked' });
    }
    expect((await ask({ host: '::1' })).url).toBe('https://[::1]:9443');
  });

  it('takes a wildcard for no host at all', async () => {
    const { host } = await ask({});
    expect(host).not.toMatch(/^0\.0\.0\.0$|^$/);
    for (const wildcard of ['0.0.0.0', '::', '[::]', ' 0.0.0.0 '])
      expect((await ask({ host: wildcard })).host).toBe(host);
  });

  it('is for a caller on this host only', async () => {
    for (const [name, value] of [
      ['x-forwarded-for', '10.0.0.9'],
      ['origin', 'https://evil.example'],
    ] as const) {
      const response = await target.fetch('/secure-link/preflight', { headers: { [name]: value } });
      expect(response.status).toBe(403);
    }
    expect((await target.fetch('/secure-link/preflight', { method: 'POST' })).status).toBe(405);
    const { client, token } = await pair(target);
    const forwarded = { ...bearer(token), 'x-forwarded-for': '10.0.0.9' };
    expect((await target.fetch('/secure-link/preflight', { headers: forwarded })).status).toBe(403);
    expect((await ask({})).connected_clients).toBe(1);
    client.terminate();
  });

  describe('on a machine that is ready', () => {
    /** An address of this machine that is not loopback, from the host interface of the relay. */
    async function ready(env: Record<string, string> = {}, gate: unknown = { auth_required: true }) {
      api = await fakeRelay(({ path }) =>
        path === '/health' || path === '/api/health' ? { body: gate } : { status: 404 },
      );
      const url = `http://127.0.0.1:${api.port}`;
      const built = await startBuiltTarget({
        env: { RELAY_WEBAPI_URL: url, RELAY_SECURE_LINK_DASHBOARD_URL: url, ...env },
      });
      onTestFinished(built.stop);
      const { network } = built.relay.host as NonNullable<typeof built.relay.host>;
      const tried: [string, number][] = [];
      network.resolve = async (name) => (name === 'nowhere.example' ? [] : [name]);
      network.canListen = async (address, port) => {
        tried.push([address, port]);
        return address === HOST && port !== 1000;
      };
      return { built, tried };
    }

    it('says how to enable it', async () => {
      const { built, tried } = await ready();
      const report = await ask({ host: HOST, port: '9555' }, built);
      expect(statusOf(report)).toEqual({
        address: 'ok',
        listener: 'ok',
        api: 'ok',
        dashboard: 'ok',
        certificate: 'ok',
      });
      expect(tried).toEqual([[HOST, 9555]]);
      expect(report).toMatchObject({
        state: 'ready_to_configure',
        ready_to_enable: true,
        pairing_ready: false,
        environment: {
          RELAY_SECURE_LINK_ENABLED: '1',
          RELAY_SECURE_LINK_HOST: HOST,
          RELAY_SECURE_LINK_PORT: '9555',
        },
        start_arguments: ['--secure-link', '--secure-link-host', HOST, '--secure-link-port', '9555'],
        pair_command: null,
      });
      expect(statusOf(await ask({ host: HOST, port: '1000' }, built)).listener).toBe('blocked');
      expect(statusOf(await ask({ host: 'nowhere.example' }, built)).listener).toBe('blocked');
      expect(statusOf(await ask({ host: '198.51.100.9' }, built)).listener).toBe('blocked');
    });

    it('knows the origin that it serves, and that another one needs new pairings', async () => {
      const { built, tried } = await ready({ RELAY_SECURE_LINK_ENABLED: '1', RELAY_SECURE_LINK_HOST: HOST });
      await built.relay.secureLink?.prepare();
      built.relay.secureLink?.listening(9443);
      const own = await ask({}, built);
      expect(own).toMatchObject({
        state: 'enabled',
        url: ORIGIN,
        current_url: ORIGIN,
        pairing_ready: true,
        requires_repair: false,
        pair_command: 'svc pair --png',
      });
      expect(tried).toEqual([]);
      const other = await ask({ port: '9555' }, built);
      expect(other).toMatchObject({
        state: 'ready_to_configure',
        requires_repair: true,
        pairing_ready: false,
        pair_command: null,
      });
      const moved = await ask({ host: '198.51.100.9' }, built);
      expect(statusOf(moved)).toMatchObject({ listener: 'blocked', certificate: 'blocked' });
      const text = JSON.stringify([own, other, moved]);
      for (const secret of [built.agentHome, built.relay.secureLink?.advertised?.pin, 'PRIVATE', 'cert.pem']) {
        expect(text).not.toContain(secret);
      }
    });

    it('judges the dashboard by its gate, and asks no upstream elsewhere', async () => {
      const { built } = await ready({}, { auth_required: 'yes' });
      expect(statusOf(await ask({ host: HOST }, built))).toMatchObject({ api: 'ok', dashboard: 'blocked' });
      const elsewhere = await ready({
        RELAY_WEBAPI_URL: 'https://api.example',
        RELAY_SECURE_LINK_DASHBOARD_URL: 'http://10.0.0.9:9119',
      });
      expect(statusOf(await ask({ host: HOST }, elsewhere.built))).toMatchObject({
        api: 'blocked',
        dashboard: 'blocked',
      });
      expect(api.seen).toEqual([]);
    });

    it('judges the files as they are', async () => {
      const { built } = await ready({ RELAY_SECURE_LINK_ENABLED: '1', RELAY_SECURE_LINK_HOST: HOST });
      await built.relay.secureLink?.prepare();
      const directory = join(built.agentHome, 'relay-secure-link');
      const { files } = built.relay.host as NonNullable<typeof built.relay.host>;
      const certificate = async () => (await ask({ host: HOST }, built)).checks.find(({ id }) => id === 'certificate');
      expect((await certificate())?.status).toBe('ok');
      const key = await readFile(join(directory, 'key.pem'));
      await writeFile(join(directory, 'key.pem'), 'nothing');
      expect(await certificate()).toMatchObject({
        status: 'blocked',
        detail: expect.stringContaining('not a PEM key'),
      });
      await files.remove(join(directory, 'key.pem'));
      expect(await certificate()).toMatchObject({
        status: 'blocked',
        detail: expect.stringContaining('without its private'),
      });
      await files.writeAtomic(join(directory, 'key.pem'), key, 0o644);
      expect(await certificate()).toMatchObject({ status: 'blocked', detail: expect.stringContaining('0600') });
      expect((await files.stat(join(directory, 'key.pem')))?.mode).toBe(0o644);
      files.isWritable = async () => false;
      await files.removeAll(directory);
      expect(await certificate()).toMatchObject({
        status: 'blocked',
        detail: expect.stringContaining('may not write'),
      });
    });
  });

  it('really tries to listen, and closes at once', async () => {
    const address = await target.relay.host?.network.lanAddress();
    if (!address) return;
    const trial = createServer().listen(0, address);
    await once(trial, 'listening');
    const { port } = trial.address() as AddressInfo;
    await new Promise((resolve) => trial.close(resolve));
    const query = { host: address, port: String(port) };
    const reports = await Promise.all(Array.from({ length: 5 }, () => ask(query)));
    expect(reports.map((report) => statusOf(report).listener)).toEqual(Array(5).fill('ok'));
    const holder = createServer().listen(port, address);
    onTestFinished(() => void holder.close());
    await once(holder, 'listening');
    expect(statusOf(await ask(query)).listener).toBe('blocked');
  });
});

describeMatrix(
  'Secure Link at the edge',
  (start) => {
    it('is disabled and has no report', async () => {
      const target = await start();
      expect((await (await target.fetch('/health')).json()).secure_link).toMatchObject({ status: 'disabled' });
      expect((await target.operator('/secure-link/preflight')).status).toBe(501);
    });
  },
  ['edge'],
);
