import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { MiniflareOptions } from 'miniflare';
import { afterAll, beforeAll, expect, it, onTestFinished, type TestContext } from 'vitest';
import { digestOf } from '../../lib/kit/sha256.ts';
import { labelOf } from '../../lib/reach/broker/label.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { encodeMessage } from '../../lib/reach/messages.ts';
import { privateAuthority } from '../support/certificate.ts';
import { bundle } from '../support/edge-bundle.ts';
import { startMiniflare } from '../support/miniflare.ts';
import { freePort, runSvc, temporaryHome } from '../support/process.ts';
import { authenticateThrough } from '../support/reach-client.ts';
import { startReachRelay } from '../support/reach-stack.ts';

const RELAY = { RELAY: { className: 'RelayObject', useSQLite: true } } as const;
const BROKER = {
  BROKER: { className: 'BrokerObject', useSQLite: true },
  COUNTER: { className: 'BrokerCounter', useSQLite: true },
} as const;

/** The entry that `wrangler.toml` names. */
let scriptPath: string;
beforeAll(async () => {
  scriptPath = await bundle('cli/runtime/edge/worker.ts', 'deployment');
});
afterAll(() => rm(scriptPath, { force: true }));

async function deploy(
  bindings: Record<string, string>,
  durableObjects: Record<string, { className: string; useSQLite: true }>,
  options: Partial<MiniflareOptions> = {},
) {
  const persist = await mkdtemp(join(tmpdir(), 'svc-relay-deployment-'));
  const { miniflare } = await startMiniflare({ scriptPath, bindings, durableObjects, persist, log: [], options });
  onTestFinished(async () => {
    await miniflare.dispose();
    await rm(persist, { recursive: true, force: true });
  });
  return {
    /** How many objects there are. */
    objects: async () =>
      (await readdir(persist, { recursive: true })).filter((path) => /[0-9a-f]{64}\.sqlite$/.test(path)).length,
    async ask(url: string, init: RequestInit = {}) {
      const response = await miniflare.dispatchFetch(url, { redirect: 'manual', ...init } as never);
      return { status: response.status, body: await response.text(), webSocket: response.webSocket };
    },
  };
}

const hostsOf = (...hosts: { id: string; token: string }[]) =>
  JSON.stringify({
    hosts: Object.fromEntries(hosts.map(({ id, token }) => [id, { host_token_sha256: digestOf(token) }])),
  });
const newHost = () => ({ id: newId(), token: newToken() });

it('12 §1: one name has the relay, its mirror and the broker: a tunnel, a link and a pairing', {
  timeout: 300_000,
}, async (context: TestContext) => {
  const host = newHost();
  const port = await freePort();
  const origin = `https://localhost:${port}`;
  const { ca, cert, key } = await privateAuthority(context, await temporaryHome());
  const stack = await startReachRelay({ brokerUrl: `wss://localhost:${port}`, host, ca });
  const { home } = stack.relay;
  const svc = (...words: string[]) =>
    runSvc(words, { home, env: { RELAY_PORT: String(stack.relay.port), NODE_EXTRA_CA_CERTS: ca } });
  const { stdout: publicKey } = await svc('relay', 'operator-token', '--public-key');
  await deploy(
    { RELAY_PUBLIC_URL: origin, RELAY_OPERATOR_PUBLIC_KEY: publicKey.trim(), REACH_HOSTS: hostsOf(host) },
    { ...RELAY, ...BROKER },
    { port, httpsKey: await readFile(key, 'utf8'), httpsCert: await readFile(cert, 'utf8') },
  );

  await stack.until('connected');
  const enabled = await svc('relay', 'mirror', 'enable', '--relay', origin);
  expect([enabled.code, enabled.stderr]).toEqual([0, '']);
  const mirror = async () => JSON.parse((await svc('relay', 'mirror', 'status', '--json')).stdout);
  await expect.poll(mirror).toMatchObject({ link: 'up', url: origin, waiting: { out: 0, in: 0 } });

  // A phone pairs at home, through the broker.
  const { code, route } = await stack.mint();
  expect(route.url).toBe(`wss://localhost:${port}/v1/connect`);
  const phone = await authenticateThrough(route, { pairing_code: code, device_id: 'phone', device_name: 'Phone' });
  expect(phone.frame.type).toBe('auth.ok');
  // The edge has its session by the link.
  const atEdge = async () => JSON.parse((await svc('devices', '--relay', origin, '--json')).stdout);
  await expect.poll(async () => (await atEdge()).devices).toMatchObject([{ device_name: 'Phone' }]);

  // Another one pairs at the edge itself.
  const paired = await svc('pair', '--relay', origin, '--token', '--name', 'Tablet');
  expect([paired.code, paired.stderr]).toEqual([0, '']);
  await expect.poll(async () => (await atEdge()).devices.length).toBe(2);
  phone.socket.terminate();
});

it('12 §1: the broker gets /v1/connect and the names of hosts, the relay everything else', async () => {
  const host = newHost();
  const { ask, objects } = await deploy(
    { RELAY_PUBLIC_URL: 'https://relay.test', REACH_HOSTS: hostsOf(host) },
    { ...RELAY, ...BROKER },
  );
  const own = `https://${labelOf(host.id)}.relay.test`;
  const json = async (url: string) => {
    const { status, body } = await ask(url);
    return [status, JSON.parse(body)];
  };
  const upgrade = { headers: { upgrade: 'websocket' } };

  expect(await json(`${own}/health`)).toEqual([200, expect.objectContaining({ service: 'svc_reach' })]);
  expect((await ask(`${own}/sessions`)).status).toBe(404);
  expect((await ask(`${own}/ws`, upgrade)).status).toBe(404);
  expect((await ask('https://relay.test/v1/connect')).status).toBe(426);
  expect((await ask('https://relay.test/v1/connect?x=1', upgrade)).status).toBe(400);
  expect((await ask('https://other.test/v1/connect', upgrade)).status).toBe(421);
  expect((await ask('http://relay.test/v1/connect', upgrade)).status).toBe(403);
  // The counter of `/health` alone.
  expect(await objects()).toBe(1);

  for (const name of [own, 'https://relay.test']) {
    const { webSocket } = await ask(`${name}/v1/connect`, upgrade);
    if (!webSocket) throw new Error('no socket');
    const message = new Promise<string>((resolve) =>
      webSocket.addEventListener('message', ({ data }) => resolve(String(data))),
    );
    webSocket.accept();
    const register = { type: 'register', role: 'host', credential_kind: 'host' } as const;
    webSocket.send(encodeMessage({ ...register, host_id: host.id, connection_id: newId(), token: newToken() }));
    expect(JSON.parse(await message)).toMatchObject({ type: 'error', code: 'unauthorized' });
  }

  expect(await json('https://relay.test/health')).toEqual([200, expect.objectContaining({ status: 'ok' })]);
  expect((await ask('https://relay.test/v1/home', upgrade)).status).toBe(404);
  expect((await ask('https://relay.test/v1/tunnel')).status).toBe(404);
});

it('12 §1: a deployment without the objects of the broker is the relay alone', async () => {
  const { ask, objects } = await deploy({ RELAY_PUBLIC_URL: 'https://relay.test' }, RELAY);
  expect((await ask('https://relay.test/v1/connect', { headers: { upgrade: 'websocket' } })).status).toBe(404);
  expect((await ask(`https://${labelOf(newId())}.relay.test/health`)).status).toBe(421);
  expect(await objects()).toBe(0);
  expect((await ask('https://relay.test/health')).status).toBe(200);
});
