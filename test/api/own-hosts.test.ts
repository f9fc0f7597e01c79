import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
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
  const { createOwnHosts } = await import('../../lib/access/own-hosts.ts');
  const { host, config, clock, log } = target.relay;
  const again = createOwnHosts({ config, host, clock, log, urls: async () => [] });
  const headers = (name: string) => new Headers({ host: name, origin: 'http://x' });
  const peer = { address: '127.0.0.1', tls: false, via: 'direct' } as const;
  expect(await again.isForeign(peer, headers('home.test'))).toBe(false);
  expect(await again.isForeign(peer, headers('other.test'))).toBe(true);
});
