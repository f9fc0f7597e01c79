import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { createLink } from '../../lib/companion/link/link.ts';
import { withRoutes } from '../../lib/companion/link/new-routes.ts';
import { parsePairing } from '../../lib/companion/link/pairing-url.ts';
import { openSettings } from '../../lib/companion/link/settings.ts';
import { dial } from '../../lib/host/node/dial.ts';
import { createFiles } from '../../lib/host/node/files.ts';
import { nextTurn, systemClock } from '../../lib/kit/clock.ts';
import { deferred } from '../../lib/kit/deferred.ts';
import { createAddresses } from '../../lib/pairing/addresses.ts';
import { createTestClock } from '../support/clock.ts';
import { closedPort } from '../support/closed-port.ts';
import { createTestLog } from '../support/log.ts';
import { authenticate, describeOnNode, pair, post, startNodeTarget, type Target } from '../support/relay.ts';

/** A real relay whose list of interfaces the test gives. */
async function startMovable(first: string) {
  const target: Target = await startNodeTarget({ env: { RELAY_HOST: '0.0.0.0' } });
  onTestFinished(() => target.stop());
  const relay = target.relay as NonNullable<Target['relay']>;
  const network = (relay.host as NonNullable<typeof relay.host>).network;
  let address = first;
  network.addresses = () => ['127.0.0.1', address];
  network.lanAddress = async () => address;
  network.tailnet = async () => null;
  await relay.addresses?.update();
  return {
    target,
    relay,
    move: async (to: string) => {
      address = to;
      await relay.addresses?.update();
    },
    info: async () => (await target.operator('/relay/info')).json(),
  };
}

/** A code of the relay that names the routes of now, as `svc pair` makes it. */
async function mint(target: Target, endpoints?: object[]) {
  const routes = await (await target.operator('/pairing/routes')).json();
  const answer = await target.operator('/pairing/mint', post({ endpoints: endpoints ?? routes.endpoints }));
  return (await answer.json()) as { code: string; qr_payload: string };
}

it('11 §2: routes that are found late do not replace those of a later change', async () => {
  const routesTo = (address: string) => [{ role: 'lan', priority: 0, relay: { url: `ws://${address}:8767` } }];
  let [address, hold]: [string, Promise<void> | undefined] = ['192.0.2.7', undefined];
  const addresses = createAddresses({
    network: { addresses: () => [address] },
    async candidates() {
      const found = routesTo(address);
      await hold;
      return found;
    },
    port: () => 8767,
    linkUrl: () => undefined,
    mailboxUrl: () => undefined,
    mailbox: () => undefined,
    sessions: { list: () => [], setRoutes() {} },
    isConnected: () => false,
    send() {},
    clock: createTestClock(),
    log: createTestLog(),
  });
  const { promise, resolve } = deferred();
  hold = promise;
  const first = addresses.update();
  [address, hold] = ['192.0.2.8', undefined];
  const second = addresses.update();
  await nextTurn();
  resolve();
  await Promise.all([first, second]);
  expect(await addresses.endpoints()).toEqual(routesTo('192.0.2.8'));
});

describeOnNode('the address of the machine changes (contract 11 §2)', () => {
  it('a connected device gets the routes of now, and one that was away as soon as it is back; none gets them twice', async () => {
    const { target, move } = await startMovable('192.0.2.7');
    const here = await pair(target);
    const away = await pair(target);
    away.client.terminate();
    await move('192.0.2.8');
    const { payload } = await here.client.next({ channel: 'pairing', type: 'routes.updated' });
    const port = new URL(target.url).port;
    expect(payload).toMatchObject({
      endpoints: [{ role: 'lan', priority: 0, relay: { url: `ws://192.0.2.8:${port}`, transport_hint: 'ws' } }],
    });
    const back = await authenticate(target, { session_token: away.token, refresh_token: away.refreshToken });
    expect((await back.client.next({ channel: 'pairing', type: 'routes.updated' })).payload).toEqual(payload);
    back.client.terminate();
    // What counts as known is what a device has answered for.
    const known = () => target.relay?.sessions.find(here.prefix)[0]?.routes?.own;
    await vi.waitFor(() => expect(known()).toEqual([`ws://192.0.2.8:${port}`]));
    await target.relay?.addresses?.update();
    const again = await authenticate(target, { session_token: here.token, refresh_token: here.refreshToken });
    again.client.send('system', 'ping', {}, 'p');
    expect((await again.client.next({})).type).toBe('pong');
  });

  it('says which devices know only an address that is gone; those with a name or the tailnet go on', async () => {
    const { target, relay, move, info } = await startMovable('192.0.2.7');
    const port = new URL(target.url).port;
    const onTailnet = {
      role: 'tailscale',
      relay: { url: `wss://home.example.ts.net:${port}`, transport_hint: 'wss' },
      api: { host: 'home.example.ts.net', port: 443, tls: true },
    };
    const { endpoints } = await (await target.operator('/pairing/routes')).json();
    for (const [name, routes] of [
      ['Pixel 9', endpoints],
      ['Tablet', [onTailnet, ...endpoints]],
    ] as const) {
      const { code } = await mint(target, routes as object[]);
      const device = { pairing_code: code, device_id: crypto.randomUUID(), device_name: name };
      const { client, frame } = await authenticate(target, device);
      expect(frame.type).toBe('auth.ok');
      client.terminate();
    }
    await vi.waitFor(() => expect(relay.sockets.count()).toBe(0));
    expect(await info()).not.toHaveProperty('gone_addresses');
    await move('192.0.2.8');
    expect((await info()).gone_addresses).toEqual([
      {
        urls: [`ws://192.0.2.7:${port}`],
        devices: [{ token_prefix: expect.stringMatching(/^[0-9a-f]{8}$/), device_name: 'Pixel 9' }],
      },
    ]);
    expect(target.log.filter((line) => line.includes('192.0.2.7')).join('\n')).toMatch(
      /WARNING.*192\.0\.2\.7:\d+ is no address of this machine any more, and Pixel 9 knows no other/,
    );
    // No network at all is no change of address: it may be back in a moment.
    await move('127.0.0.1');
    expect(await info()).not.toHaveProperty('gone_addresses');
    // The old address makes it good.
    await move('192.0.2.7');
    expect(await info()).not.toHaveProperty('gone_addresses');
  });

  it('a companion keeps the new routes, and comes back by them when its old one is gone', async () => {
    const { target, move } = await startMovable('192.0.2.7');
    const folder = await mkdtemp(join(tmpdir(), 'svc-relay-test-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const path = join(folder, 'settings.json');
    const open = () => openSettings({ files: createFiles(), path, clock: systemClock });
    const store = await open();
    const { code } = await mint(target);
    const old = `ws://127.0.0.1:${new URL(target.url).port}`;
    const offer = parsePairing(
      JSON.stringify({
        svc: 3,
        relay: { url: old, code },
        endpoints: [{ role: 'lan', priority: 0, relay: { url: old } }],
      }),
    );
    const deps = { dial, withRoutes, clock: systemClock, log: createTestLog(), device: { name: 'Phone' } };
    const online = (link: { state: { name: string } }) =>
      vi.waitFor(() => expect(link.state.name).toBe('online'), { timeout: 10_000 });
    const link = createLink({ ...deps, store, offer });
    link.start();
    await online(link);
    // Loopback stands for the new address, at which the test can reach the relay.
    await move('127.0.0.2');
    await vi.waitFor(() => expect(store.pairing()?.endpoints[0]?.url).toContain('127.0.0.2'));
    await link.stop();
    // What is stored is what a later start reads; the old address answers no more.
    const later = await open();
    const stored = later.pairing();
    const gone = `ws://127.0.0.1:${await closedPort()}/ws`;
    await later.updatePairing({
      endpoints: [{ role: 'direct', url: gone, priority: 0 }, ...(stored?.endpoints.slice(0, 1) ?? [])],
      last_good: gone,
    });
    const next = createLink({ ...deps, store: later });
    next.start();
    await online(next);
    expect(next.state).toMatchObject({ endpoint: { role: 'lan', url: expect.stringContaining('127.0.0.2') } });
    await next.stop();
  });
});
