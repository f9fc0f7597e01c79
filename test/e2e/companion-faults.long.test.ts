import { describe, expect, it, vi } from 'vitest';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { createTestClock } from '../support/clock.ts';
import { fastClock, startCompanion } from '../support/companion.ts';
import { type FaultKind, startFlakyProxy } from '../support/flaky-proxy.ts';

const pending = cleanups();
const SMS = { to: '+15550100', body: 'hello' };
const AT_ONCE = 8;

/** A relay with a stopped clock, a companion behind a bad network, and a person who does not answer yet. */
async function start({ speed = 10 } = {}) {
  const clock = createTestClock();
  const relay = await startBuiltTarget({ clock });
  pending.push(() => relay.stop());
  const proxy = await startFlakyProxy({ port: relay.port, seed: 1, faults: ['none'] });
  pending.push(() => proxy.close());
  const companion = await startCompanion(relay, {
    wsUrl: `ws://127.0.0.1:${proxy.port}/ws`,
    // Ten times as fast, it reconnects within a tenth of a second, and notices silence after 1.4 s.
    clock: fastClock(speed),
    deps: { answer: 'later' },
  });
  pending.push(() => companion.stop());
  await vi.waitFor(async () => expect((await companion.call('GET', '/ping')).status).toBe(200));
  const records = async () =>
    (await (await relay.operator('/bridge/activity')).json()).activity as Record<string, unknown>[];

  return {
    clock,
    relay,
    proxy,
    companion,
    records,
    /** Makes calls that wait for the person at the phone. */
    async asked() {
      const { person } = companion.phone;
      const before = person.asked.length;
      const calls = Array.from({ length: AT_ONCE }, () => companion.call('POST', '/send_sms', SMS));
      await vi.waitFor(() => expect(person.asked.length - before).toBe(AT_ONCE));
      return { calls, answer: (yes: boolean) => person.open.splice(0).forEach((decide) => void decide(yes)) };
    },
    /** Asserts that the same device answers again, and nothing is left over. */
    async isWell() {
      await vi.waitFor(async () => {
        await companion.until('online');
        expect((await companion.call('GET', '/ping')).status).toBe(200);
      });
      expect(relay.relay.bridge.pendingCount()).toBe(0);
      const devices = await (await relay.operator('/bridge/devices')).json();
      expect(devices).toMatchObject({ count: 1, devices: [{ device_id: companion.deviceId }] });
      expect(await companion.call('GET', '/current_app')).toMatchObject({ status: 200 });
    },
  };
}

describe('every command is answered once and in time over a bad network (contract 03 §1.4, 8.1)', () => {
  it.each<FaultKind>(['cut', 'reset'])(
    '%s during a question: 502 at once, and a later yes has no effect',
    async (kind) => {
      const { proxy, companion, asked, records, isWell } = await start();
      const { calls, answer } = await asked();
      proxy.strike(kind);
      for (const call of await Promise.all(calls)) {
        expect(call).toEqual({ status: 502, body: { ok: false, error: 'Phone disconnected' } });
      }
      await vi.waitFor(() => expect(companion.phone.phone.activity()).toHaveLength(AT_ONCE));
      answer(true);
      await isWell();
      expect(companion.phone.system.outbox).toEqual([]);
      const sms = (await records()).filter(({ path }) => path === '/send_sms');
      expect(sms).toHaveLength(AT_ONCE);
      for (const record of sms) expect(record).toMatchObject({ decision: 'error', error: 'Phone disconnected' });
    },
  );

  it.each<[string, FaultKind, 'up' | 'down']>([
    ['stalled', 'stall', 'up'],
    ['half-open, answers lost', 'half-open', 'up'],
  ])(
    '%s during a question: the relay waits for the owner until it sees that the phone is gone',
    async (_, kind, swallowed) => {
      const { clock, proxy, companion, asked, records, isWell } = await start();
      const { calls, answer } = await asked();
      proxy.strike(kind, swallowed);
      // In time as far as the phone can tell: it cannot know that its answers are lost.
      answer(true);
      await vi.waitFor(() => expect(companion.phone.system.outbox).toHaveLength(AT_ONCE));
      clock.advance(45_000);
      for (const call of await Promise.all(calls)) {
        const error = expect.stringMatching(/^(?:Phone disconnected|Bridge device Phone reconnected)$/);
        expect(call).toEqual({ status: 502, body: { ok: false, error } });
      }
      proxy.dropClients();
      await isWell();
      for (const record of (await records()).filter(({ path }) => path === '/send_sms')) {
        expect(record).toMatchObject({ decision: 'error', response_status: null });
      }
    },
  );

  it('half-open, commands lost: open questions are answered, later commands get a 504', async () => {
    // At full speed, a busy machine lets it reconnect before the commands are lost.
    const { clock, relay, proxy, companion, asked, isWell } = await start({ speed: 2 });
    const { calls, answer } = await asked();
    proxy.strike('half-open', 'down');
    answer(true);
    for (const call of await Promise.all(calls)) expect(call).toMatchObject({ status: 200, body: { status: 'sent' } });
    const lost = companion.call('POST', '/send_sms', SMS);
    await vi.waitFor(() => expect(relay.relay.bridge.pendingCount()).toBe(1));
    clock.advance(30_000);
    expect((await lost).status).toBe(504);
    expect(companion.phone.person.asked).toHaveLength(AT_ONCE);
    proxy.dropClients();
    await isWell();
    expect(companion.phone.system.outbox).toHaveLength(AT_ONCE);
  });

  it('byte by byte: slow but complete', async () => {
    // On a busy machine, a frame takes longer than a fast clock waits for a sign of life.
    const { proxy, companion, isWell } = await start({ speed: 2 });
    proxy.plan(['trickle']);
    proxy.dropClients();
    await isWell();
    const screens = await Promise.all(Array.from({ length: 4 }, () => companion.call('GET', '/screen')));
    for (const screen of screens) expect(screen).toEqual(screens[0]);
    expect(screens[0]).toMatchObject({ status: 200, body: { packageName: 'com.android.launcher3' } });
  });
});

it('device revoked during a question: 502, a later yes has no effect, and the companion unpairs', async () => {
  const { relay, companion, asked } = await start();
  const { calls, answer } = await asked();
  const { devices } = await (await relay.operator('/bridge/devices')).json();
  const revoked = await relay.fetch(`/sessions/${devices[0].session_token_prefix}`, {
    method: 'DELETE',
    headers: companion.tool,
  });
  expect(revoked.status).toBe(200);
  for (const call of await Promise.all(calls)) expect(call.status).toBe(502);
  await companion.until('unpaired');
  answer(true);
  await vi.waitFor(() => expect(companion.phone.phone.activity()).toHaveLength(AT_ONCE));
  expect(companion.phone.system.outbox).toEqual([]);
});

it('64 commands wait for a person: the 65th gets 429 without a question, and more are accepted afterwards', async () => {
  const { companion, asked, isWell } = await start();
  const rounds = await Array.from({ length: 64 / AT_ONCE }).reduce<Promise<Awaited<ReturnType<typeof asked>>[]>>(
    async (before) => [...(await before), await asked()],
    Promise.resolve([]),
  );
  expect((await companion.call('GET', '/ping')).status).toBe(429);
  expect(companion.phone.person.asked).toHaveLength(64);
  rounds[0]?.answer(false);
  for (const call of await Promise.all(rounds.flatMap(({ calls }) => calls))) expect(call.status).toBe(403);
  await isWell();
});

it('an answer too large for a frame becomes an error, and the socket stays open', async () => {
  const { proxy, companion, isWell } = await start();
  const before = proxy.accepted();
  await companion.phone.device.writeClipboard('x'.repeat(3 * 1024 * 1024), 'test');
  expect((await companion.call('GET', '/clipboard')).body.text).toHaveLength(3 * 1024 * 1024);
  await companion.phone.device.writeClipboard('x'.repeat(4 * 1024 * 1024), 'test');
  expect(await companion.call('GET', '/clipboard')).toEqual({
    status: 500,
    body: { error: 'the answer is larger than 4 MiB' },
  });
  await isWell();
  expect(proxy.accepted()).toBe(before);
});

it('a tool that goes away during a question leaves nothing pending on the relay', async () => {
  const { relay, companion, isWell } = await start();
  const { person } = companion.phone;
  const abort = new AbortController();
  const given = relay.fetch('/send_sms', {
    method: 'POST',
    body: JSON.stringify(SMS),
    headers: companion.tool,
    signal: abort.signal,
  });
  given.catch(() => {});
  await vi.waitFor(() => expect(person.asked).toHaveLength(1));
  abort.abort();
  await vi.waitFor(() => expect(relay.relay.bridge.pendingCount()).toBe(0));
  person.open.splice(0).forEach((decide) => void decide(false));
  await isWell();
});
