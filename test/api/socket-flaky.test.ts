import { expect, it, vi } from 'vitest';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { type Client, connect } from '../support/client.ts';
import { createTestClock, type TestClock } from '../support/clock.ts';
import { type FaultKind, type FlakyProxy, startFlakyProxy } from '../support/flaky-proxy.ts';
import { openRaw } from '../support/raw-socket.ts';
import { authenticate, pair, randomCode, registerCode } from '../support/relay.ts';

const pending = cleanups();

/** A relay with a test clock behind a flaky proxy that is faultless until told otherwise, and a well-behaved device. */
async function start(seed: number, after?: [number, number]) {
  const clock = createTestClock();
  const target = await startBuiltTarget({ clock });
  pending.push(target.stop);
  const proxy = await startFlakyProxy({ port: target.port, seed, faults: ['none'], after });
  pending.push(proxy.close);
  const { client } = await pair(target);
  pending.push(() => client.terminate());
  return { clock, target, proxy, honest: client, through: through(target, proxy) };
}

/** The relay as reached through the proxy. */
const through = (target: BuiltTarget, proxy: FlakyProxy): BuiltTarget => ({
  ...target,
  wsUrl: `ws://127.0.0.1:${proxy.port}/ws`,
});

/** The next frame that matches; an error once the socket has ended. */
const receive = (client: Client, match: Parameters<Client['next']>[0]) =>
  Promise.race([client.next(match), client.closed().then(() => Promise.reject(new Error('the socket ended')))]);

async function ping(client: Client): Promise<void> {
  const id = crypto.randomUUID();
  client.send('system', 'ping', {}, id);
  expect((await receive(client, { id })).type).toBe('pong');
}

/** Runs keep-alive periods of the relay, in each of which the well-behaved client answers. */
async function passTime(clock: TestClock, honest: Client): Promise<void> {
  for (let period = 0; period < 5; period++) {
    await ping(honest);
    await clock.advanceAsync(15_000);
  }
  await ping(honest);
}

/** Checks that the flaky clients left neither a socket nor a slot. */
async function expectClean({ relay, port }: BuiltTarget, open: number): Promise<void> {
  await vi.waitFor(() => expect(relay.sockets.count()).toBe(open));
  await vi.waitFor(async () => {
    const slots = await Promise.allSettled(Array.from({ length: 16 }, () => openRaw(port)));
    for (const slot of slots) if (slot.status === 'fulfilled') slot.value.destroy();
    expect(slots.filter((slot) => slot.status === 'fulfilled')).toHaveLength(16);
    // A socket that does not answer its close keeps its slot until it is dropped after two seconds.
  });
}

/**
 * One connection of a client that comes back with its token and pings until the fault strikes. It gives up when it
 * is told that its connection stands still, as its own time-outs would tell it. Returns how many pongs it got.
 */
async function visit(proxy: FlakyProxy, url: string, token: string): Promise<number> {
  const struck = proxy.struck(proxy.strikes.length + 1);
  let pongs = 0;
  let client: Client | undefined;
  const use = async () => {
    client = await connect(url);
    client.send('system', 'auth', { session_token: token });
    expect((await receive(client, { channel: 'system' })).type).toBe('auth.ok');
    for (;;) {
      await ping(client);
      pongs++;
    }
  };
  const used = use().catch(() => {});
  await struck;
  const { kind } = proxy.strikes.at(-1) ?? {};
  if (kind === 'stall' || kind === 'half-open') proxy.dropClients();
  client?.terminate();
  await used;
  return pongs;
}

it.each([
  ['cut', 1],
  ['cut', 2],
  ['reset', 1],
  ['reset', 2],
  ['stall', 1],
  ['stall', 2],
  ['half-open', 1],
  ['half-open', 2],
] as [FaultKind, number][])(
  'contract 01 §3.7: %s (seed %i): a device comes back each time, and nothing of it is left behind',
  async (fault, seed) => {
    // From the first byte of the handshake to well past `auth.ok`.
    const { clock, target, proxy, honest, through } = await start(seed, [0, 6000]);
    const { client, token } = await pair(through);
    await ping(client);
    client.terminate();
    await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(1));
    proxy.plan([fault]);
    let pongs = 0;
    for (let round = 0; round < 12; round++) {
      pongs += await visit(proxy, through.wsUrl, token);
      await ping(honest);
      // At most what one session may have, however many are dead.
      expect(target.relay.sockets.count()).toBeLessThanOrEqual(1 + 8);
    }
    expect(proxy.strikes).toHaveLength(12);
    expect(pongs, 'some of the connections must have got past the authentication').toBeGreaterThan(0);
    await passTime(clock, honest);
    await expectClean(target, 1);
    proxy.plan(['none']);
    const back = await authenticate(through, { session_token: token });
    expect(back.frame.type).toBe('auth.ok');
    await ping(back.client);
    back.client.terminate();
    await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(1));
    expect(target.relay.sessions.count()).toBe(2);
    await proxy.close();
    await vi.waitFor(() => expect(proxy.open()).toBe(0));
  },
);

it('contract 01 §3.3: traffic of one byte at a time is merely slow', async () => {
  const { target, proxy, honest, through } = await start(7);
  proxy.plan(['trickle']);
  const { client, token } = await pair(through, { device: { device_name: 'Trickle 😀' } });
  for (let round = 0; round < 5; round++) await ping(client);
  const again = await authenticate(through, { session_token: token });
  await ping(again.client);
  await ping(honest);
  expect(target.relay.sockets.count()).toBe(3);
  client.close();
  again.client.terminate();
  await client.closed();
  await expectClean(target, 1);
});

it('contract 01 §3.7: with all faults at once and many devices, the relay and the well-behaved device go on', async () => {
  const { clock, target, proxy, honest, through } = await start(42, [0, 3000]);
  proxy.plan(['cut', 'reset', 'stall', 'half-open', 'trickle', 'none']);
  const clients: Client[] = [];
  // Codes are registered directly; the devices connect through the proxy.
  const attempts = Array.from({ length: 30 }, async () => {
    const code = randomCode();
    await registerCode(target, code);
    const client = await connect(through.wsUrl);
    clients.push(client);
    client.send('system', 'auth', { pairing_code: code });
    await receive(client, { type: 'auth.ok' });
    for (let round = 0; round < 30; round++) await ping(client);
  });
  const settled = Promise.allSettled(attempts);
  await proxy.struck(8);
  for (let round = 0; round < 20; round++) await ping(honest);
  proxy.dropClients();
  for (const client of clients) client.terminate();
  await passTime(clock, honest);
  await proxy.close();
  await settled;
  await expectClean(target, 1);
  expect(target.log.join('\n')).not.toContain('[ERROR]');
});

it('contract 01 §3.4: a code sent into a broken connection is either used up or still valid', async () => {
  const { target, proxy, through } = await start(3, [200, 1000]);
  for (let round = 0; round < 15; round++) {
    const before = target.relay.sessions.count();
    const code = randomCode();
    await registerCode(target, code);
    proxy.plan(['cut']);
    const struck = proxy.struck(proxy.strikes.length + 1);
    const broken = await connect(through.wsUrl).catch(() => undefined);
    broken?.send('system', 'auth', { pairing_code: code });
    await struck;
    broken?.terminate();
    await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(1));
    proxy.plan(['none']);
    const { client, frame } = await authenticate(through, { pairing_code: code });
    client.terminate();
    // Either way one code yields exactly one session.
    expect(target.relay.sessions.count(), frame.type).toBe(before + 1);
    target.relay.limiter.clear();
    await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(1));
  }
});

it('contract 01 §3.7: a silent socket is dropped within 45 s, one that answers pings is not', async () => {
  const { clock, target, proxy, honest, through } = await start(5, [5000, 5000]);
  const quiet = await pair(through);
  proxy.plan(['stall']);
  const { client } = await pair(through);
  client.send('system', 'ping', { ts: 'x'.repeat(6000) });
  await proxy.struck(1);
  expect(target.relay.sockets.count()).toBe(3);
  for (let period = 0; period < 3; period++) {
    // A round trip shows that the answer to the relay's ping has arrived before the clock moves on.
    await ping(honest);
    await ping(quiet.client);
    await clock.advanceAsync(15_000);
  }
  await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(2));
  await ping(quiet.client);
  await ping(honest);
});

it('the flaky proxy repeats its faults for the same seed', async () => {
  const target = await startBuiltTarget();
  pending.push(target.stop);
  const run = async (seed: number) => {
    const proxy = await startFlakyProxy({
      port: target.port,
      seed,
      faults: ['cut', 'reset', 'half-open', 'stall'],
      after: [0, 150],
    });
    for (let round = 0; round < 10; round++) {
      const struck = proxy.struck(round + 1);
      const tried = connect(`ws://127.0.0.1:${proxy.port}/ws`).catch(() => {});
      await struck;
      proxy.dropClients();
      await tried;
    }
    await proxy.close();
    return proxy.strikes.map((strike) => ({ ...strike }));
  };
  const first = await run(11);
  expect(await run(11)).toEqual(first);
  expect(await run(12)).not.toEqual(first);
  expect(new Set(first.map(({ kind }) => kind)).size).toBeGreaterThan(1);
});
