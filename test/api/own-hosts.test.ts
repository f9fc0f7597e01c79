import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createOwnHosts } from '../../lib/access/own-hosts.ts';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { createTestClock } from '../support/clock.ts';
import { exchange, handshakeHeaders, openRaw, request } from '../support/raw-socket.ts';
import { post } from '../support/relay.ts';

const pending = cleanups();

async function start(env: Record<string, string> = {}) {
  const clock = createTestClock();
  const target = await startBuiltTarget({ env, clock, hostEnv: () => ({ PATH: '/nowhere' }) });
  pending.push(target.stop);
  return { ...target, clock };
}

/** The status of a request by a page under this host name and port, whose name resolves to the relay. */
async function asPage({ port }: BuiltTarget, host: string, path = '/health', method = 'GET'): Promise<number> {
  const headers = { host, origin: `http://${host}`, 'content-length': '0' };
  return (await exchange(port, request(method, path, headers), method)).status;
}

it('contract 01 §9.1a: a browser that calls the relay by a name of somebody else gets 421', async () => {
  const target = await start();
  const { port } = target;
  const evil = `evil.test:${port}`;
  for (const [method, path] of [
    ['GET', '/health'],
    ['GET', '/app/'],
    ['POST', '/pairing'],
    ['GET', '/nothing'],
    ['GET', '/ws'],
    ['GET', '/voice/config'],
  ] as const) {
    expect([path, await asPage(target, evil, path, method)]).toEqual([path, 421]);
  }
  const fetched = request('GET', '/app/', { host: evil, 'sec-fetch-site': 'none' });
  expect((await exchange(port, fetched)).status).toBe(421);
  // Only browsers are kept to the list.
  expect((await exchange(port, request('GET', '/health', { host: evil }))).status).toBe(200);
  for (const own of [
    `127.0.0.1:${port}`,
    `localhost:${port}`,
    `192.168.1.5:${port}`,
    `[::1]:${port}`,
    `[fd00::5]:${port}`,
  ]) {
    expect([own, await asPage(target, own)]).toEqual([own, 200]);
  }
});

it('contract 01 §9.1a: a page that rebinds its name locks out nobody', async () => {
  const target = await start();
  const host = `evil.test:${target.port}`;
  for (let count = 0; count < 20; count++) {
    expect(await asPage(target, host, '/pairing', 'POST')).toBe(421);
    const headers = { ...handshakeHeaders(), host, origin: `http://${host}` };
    await expect(openRaw(target.port, { path: '/ws', headers })).rejects.toMatchObject({ status: 421 });
  }
  expect(target.relay.limiter.blockedFor('127.0.0.1')).toBe(0);
  const own = await exchange(target.port, request('POST', '/pairing', { 'content-length': '0' }), 'POST');
  expect(own.status).toBe(200);
});

it('contract 01 §9.1a: a browser may use the names that the relay knows', async () => {
  const target = await start({ RELAY_HOSTS: 'a.test,b.test=second', RELAY_PUBLIC_URL: 'https://c.test:444' });
  for (const name of ['a.test', 'b.test', 'C.TEST', 'c.test.:8767']) {
    expect([name, await asPage(target, name)]).toEqual([name, 200]);
  }
  expect(await asPage(target, 'd.test')).toBe(421);
  await writeFile(join(target.agentHome, 'relay-remote.json'), '{"url":"https://d.test"}');
  target.clock.advance(61_000);
  expect(await asPage(target, 'd.test')).toBe(200);
});

it('contract 01 §9.1a: a name in a pairing code is known at once, and after a restart', async () => {
  const target = await start();
  expect(await asPage(target, 'home.test')).toBe(421);
  const endpoints = [
    { role: 'public', relay: { url: 'wss://home.test/relay', transport_hint: 'wss' } },
    { role: 'lan', relay: { url: 'ws://192.168.1.5:8767' } },
  ];
  expect((await target.operator('/pairing/mint', post({ host: '192.168.1.5', endpoints }))).status).toBe(200);
  expect(await asPage(target, 'home.test')).toBe(200);
  const { host, config, clock, log } = target.relay;
  const again = createOwnHosts({ config, host, clock, log, urls: async () => [] });
  const headers = (name: string) => new Headers({ host: name, origin: 'http://x' });
  const peer = { address: '127.0.0.1', tls: false, via: 'direct' } as const;
  expect(await again.isForeign(peer, headers('home.test'))).toBe(false);
  expect(await again.isForeign(peer, headers('other.test'))).toBe(true);
});

describe('while the names of a code are being written', () => {
  /** Own hosts whose list of names is written when the case says so. */
  async function setUp() {
    const { relay } = await start();
    const { host, config, clock, log } = relay as Required<typeof relay>;
    const writes: (() => void)[] = [];
    const files = {
      ...host.files,
      async writeAtomic(...given: Parameters<typeof host.files.writeAtomic>) {
        await new Promise<void>((resolve) => writes.push(resolve));
        return host.files.writeAtomic(...given);
      },
    };
    const network = { ...host.network, addresses: () => ['192.168.1.5'], resolve: async () => ['192.168.1.5'] };
    const deps = { config, host: { ...host, files, network }, clock, log, urls: async () => [] };
    const hosts = createOwnHosts(deps);
    const peer = { address: '127.0.0.1', tls: false, via: 'direct' } as const;
    const isForeign = (name: string) => hosts.isForeign(peer, new Headers({ host: name, origin: 'http://x' }));
    const begun = (count: number) => expect.poll(() => writes.length).toBeGreaterThanOrEqual(count);
    return { hosts, isForeign, begun, writes };
  }

  it('a browser that asks meanwhile keeps them unknown no longer than that', async () => {
    const { hosts, isForeign, begun, writes } = await setUp();
    const advertised = hosts.advertise(['wss://home.test']);
    await begun(1);
    expect(await isForeign('home.test')).toBe(true);
    writes[0]?.();
    await advertised;
    expect(await isForeign('home.test')).toBe(false);
  });

  it('a call of the operator that comes meanwhile keeps a proxy unknown no longer than that', async () => {
    const { hosts, begun, writes } = await setUp();
    const advertised = hosts.advertise([], ['wss://home.test']);
    await begun(1);
    expect(await hosts.isBehindProxy()).toBe(false);
    writes[0]?.();
    await advertised;
    expect(await hosts.isBehindProxy()).toBe(true);
  });

  it('those of another code made meanwhile are kept too', async () => {
    const { hosts, isForeign, begun, writes } = await setUp();
    const advertised = [hosts.advertise(['wss://a.test']), hosts.advertise(['wss://b.test'])];
    for (const count of [1, 2]) {
      await begun(count);
      writes[count - 1]?.();
    }
    await Promise.all(advertised);
    expect(await Promise.all(['a.test', 'b.test'].map(isForeign))).toEqual([false, false]);
  });
});

describe('a name that leads to a proxy on this machine (contract 01 §1.3 rule 6)', () => {
  const mint = (target: BuiltTarget, url: string, headers: Record<string, string> = {}) =>
    target.operator('/pairing/mint', {
      ...post({ host: '192.168.1.5', endpoints: [{ role: 'public', relay: { url } }] }),
      headers,
    });

  it('requires the operator key from the code on that names it, and after a restart', async () => {
    const target = await start();
    expect((await target.operator('/relay/security')).status).toBe(200);
    expect((await mint(target, 'wss://localhost/relay')).status).toBe(200);
    expect((await target.operator('/relay/security')).status).toBe(403);
    expect(target.log.filter((line) => line.includes('RELAY_REQUIRE_OPERATOR_KEY'))).toHaveLength(1);
    const key = await readFile(join(target.agentHome, 'svc-relay/operator-key'), 'utf8');
    expect((await target.operator('/relay/security', { headers: { 'x-svc-operator-key': key } })).status).toBe(200);
    const { host, config, clock, log } = target.relay;
    const again = createOwnHosts({ config, host, clock, log, urls: async () => [] });
    expect(await again.isBehindProxy()).toBe(true);
  });

  it('requires no key where the owner has said so, whatever name is published', async () => {
    const target = await start({ RELAY_REQUIRE_OPERATOR_KEY: '0', RELAY_PUBLIC_URL: 'https://localhost:444' });
    expect((await mint(target, 'wss://localhost/relay')).status).toBe(200);
    expect((await target.operator('/relay/security')).status).toBe(200);
    const unset = await start({ RELAY_PUBLIC_URL: 'https://localhost:444' });
    expect((await unset.operator('/relay/security')).status).toBe(403);
  });

  /** A look that sees nothing of this machine but this address, and no name but one of it. */
  async function judge(url: string, listen: string, secureLink?: string): Promise<boolean> {
    const { relay } = await start();
    const { host, config, clock, log } = relay as Required<typeof relay>;
    const network = {
      ...host.network,
      addresses: () => ['192.168.1.5', '127.0.0.1'],
      resolve: async () => ['192.168.1.5'],
    };
    const hosts = createOwnHosts({
      config: { ...config, host: listen, port: 8767 },
      host: { ...host, network },
      ...{ clock, log, urls: async () => [], secureLink: () => secureLink },
    });
    await hosts.advertise([], [url]);
    return hosts.isBehindProxy();
  }

  it.each<[url: string, listen: string, isProxy: boolean, secureLink?: string]>([
    ['wss://home.test/relay', '0.0.0.0', true],
    ['ws://home.test:8767', '0.0.0.0', false],
    ['ws://home.test:8767', '127.0.0.1', true],
    ['https://home.test:9443', '0.0.0.0', true],
    ['https://home.test:9443', '0.0.0.0', false, 'https://home.test:9443'],
    ['ws://192.168.1.5:8080', '0.0.0.0', true],
    ['ws://192.168.1.5:8767', '0.0.0.0', false],
    ['ws://192.168.1.5:8767', '127.0.0.1', true],
    ['ws://192.168.1.6:8080', '0.0.0.0', false],
    ['wss://127.0.0.1:444', '0.0.0.0', false],
  ])('%s, while the relay listens on %s: %s', async (url, listen, isProxy, secureLink) => {
    expect(await judge(url, listen, secureLink)).toBe(isProxy);
  });

  it('of an address, asks only about what the operator publishes', async () => {
    const target = await start();
    const addresses = () => ['192.168.1.5'];
    Object.assign(target.relay.host?.network ?? {}, { addresses });
    const lan = { role: 'lan', relay: { url: 'ws://192.168.1.5:8080' } };
    const named = (endpoints: unknown[]) => target.operator('/pairing/mint', post({ host: '192.168.1.5', endpoints }));
    expect((await named([lan])).status).toBe(200);
    expect((await target.operator('/relay/security')).status).toBe(200);
    expect((await named([{ ...lan, role: 'Public' }])).status).toBe(200);
    expect((await target.operator('/relay/security')).status).toBe(403);
  });

  it('asks about the API server beside the relay too, but not at its own port', async () => {
    const target = await start();
    const named = async (port: number) => {
      const endpoints = [
        { role: 'public', api: { host: 'localhost', port, tls: false }, relay: { url: 'ws://192.0.2.7:8767' } },
      ];
      expect((await target.operator('/pairing/mint', post({ host: '192.168.1.5', endpoints }))).status).toBe(200);
      return (await target.operator('/relay/security')).status;
    };
    expect(await named(8642)).toBe(200);
    expect(await named(8080)).toBe(403);
  });

  it('changes nothing for the relay’s own port, another machine, and an address of loopback', async () => {
    const target = await start({ RELAY_HOST: '0.0.0.0', RELAY_PORT: '8767' });
    const resolve = async (name: string) => (name === 'localhost' ? ['127.0.0.1'] : []);
    Object.assign(target.relay.host?.network ?? {}, { resolve });
    for (const url of ['wss://localhost:8767', 'wss://no-such-host.invalid/relay', 'wss://127.0.0.1:444/relay']) {
      expect((await mint(target, url)).status).toBe(200);
      expect([url, (await target.operator('/relay/security')).status]).toEqual([url, 200]);
    }
  });

  it('requires it where the look fails', async () => {
    const { relay } = await start();
    const { host, config, clock, log } = relay as Required<typeof relay>;
    const files = { ...host.files, readText: () => Promise.reject(new Error('EMFILE')) };
    const hosts = createOwnHosts({ config, host: { ...host, files }, clock, log, urls: async () => [] });
    expect(await hosts.isBehindProxy()).toBe(true);
  });

  it('requires it while a name cannot be looked up, and looks again a minute later', async () => {
    const target = await start({ RELAY_PUBLIC_URL: 'https://home.test' });
    let isDown = true;
    const resolve = async () => {
      if (isDown) throw Object.assign(new Error('EAI_AGAIN'), { code: 'EAI_AGAIN' });
      return ['192.0.2.7'];
    };
    Object.assign(target.relay.host?.network ?? {}, { resolve });
    const status = async () => (await target.operator('/relay/security')).status;
    expect(await status()).toBe(403);
    isDown = false;
    expect(await status()).toBe(403);
    target.clock.advance(60_000);
    expect(await status()).toBe(200);
  });
});
