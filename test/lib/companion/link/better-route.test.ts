import { describe, expect, it, vi } from 'vitest';
import { createBetterRouteWatch, FIRST_PROBE, SETTLED_AFTER } from '../../../../lib/companion/link/better-route.ts';
import type { Endpoint } from '../../../../lib/companion/link/endpoints.ts';
import { OtherPeer, type RelayCall } from '../../../../lib/host/dial.ts';
import { utf8ToBytes } from '../../../../lib/kit/bytes.ts';
import { createTestClock } from '../../../support/clock.ts';
import { PAIRING, REACH, SECURE_LINK, settle, setup } from './support.ts';

const LAN: Endpoint = { role: 'lan', url: 'ws://192.0.2.9:8767/ws', priority: 1 };
const TLS: Endpoint = { role: 'public', url: 'wss://relay.example/ws', priority: 3 };
const ENDPOINTS = [{ ...SECURE_LINK, priority: 2 }, LAN, TLS, { ...REACH, priority: 0 }];
const pairing = { ...PAIRING, endpoints: ENDPOINTS, tofu_pins: { 'relay.example:443': 'a'.repeat(64) } };

function watching(answers: (call: RelayCall) => unknown) {
  const clock = createTestClock();
  const calls: RelayCall[] = [];
  const found: string[] = [];
  const others: string[] = [];
  const state = { idle: true, isHomeOn: true };
  const watch = createBetterRouteWatch({
    async callRelay(call) {
      calls.push(call);
      const answer = await answers(call);
      if (answer === null) throw new Error('nothing there');
      if (answer instanceof Error) throw answer;
      return { status: 200, headers: {}, bytes: utf8ToBytes(JSON.stringify(answer)) };
    },
    clock,
    pairing: () => pairing,
    isIdle: () => state.idle,
    isHomeOn: () => state.isHomeOn,
    onBetter: ({ url }) => found.push(url),
    onOtherPeer: ({ url }, reason) => others.push(`${url}: ${reason}`),
  });
  return { clock, calls, found, others, watch, state };
}

describe('the way back to a better route', () => {
  it('from Reach asks every protected route, with its pin and without a credential, and less often each time', async () => {
    const { clock, calls, found, watch } = watching(() => null);
    watch(REACH);
    const times: number[] = [];
    for (let minute = 1; minute <= 60; minute++) {
      const before = calls.length;
      await clock.advanceAsync(60_000);
      if (calls.length > before) times.push(minute);
    }
    expect(times).toEqual([1, 3, 7, 15, 30, 45, 60]);
    expect(found).toEqual([]);
    expect(calls.slice(0, 2)).toMatchObject([
      { socketUrl: SECURE_LINK.url, path: '/health', headers: {}, route: { origin: SECURE_LINK.pinned } },
      { socketUrl: TLS.url, path: '/health', headers: {} },
    ]);
    // The plain address is no way back from TLS, and no tunnel is opened to ask.
    expect(calls.filter(({ socketUrl, route }) => socketUrl === LAN.url || route?.tunnel)).toEqual([]);
    expect(calls.find(({ socketUrl }) => socketUrl === TLS.url)?.refuse('b'.repeat(64))).toMatch(/changed/);
  });

  it('is taken when it answers as a relay, and not while a command is under way', async () => {
    const { clock, found, watch, state } = watching(({ socketUrl }) =>
      socketUrl === TLS.url ? { status: 'ok' } : { status: 'router' },
    );
    state.idle = false;
    watch(REACH);
    await clock.advanceAsync(FIRST_PROBE);
    expect(found).toEqual([]);
    state.idle = true;
    await clock.advanceAsync(2 * FIRST_PROBE);
    expect(found).toEqual([TLS.url]);
  });

  it('says once when somebody else answers at a pinned one', async () => {
    const { clock, found, others, watch } = watching(({ route }) => (route ? new OtherPeer('another key') : null));
    const stop = watch(REACH);
    await clock.advanceAsync(8 * FIRST_PROBE);
    expect([found, others]).toEqual([[], [`${SECURE_LINK.url}: another key`]]);
    stop();
    watch(REACH);
    await clock.advanceAsync(20 * FIRST_PROBE);
    expect(others).toHaveLength(2);
  });

  it('is given up after four seconds, and when the link ends', async () => {
    const never = (call: RelayCall) =>
      new Promise((_, reject) => call.signal?.addEventListener('abort', () => reject(new Error('aborted'))));
    const { clock, calls, watch, found } = watching(never);
    const stop = watch(REACH);
    await clock.advanceAsync(FIRST_PROBE);
    expect(calls).toHaveLength(1);
    await clock.advanceAsync(4000);
    expect(calls).toHaveLength(2);
    stop();
    await settle();
    expect([calls[1]?.signal?.aborted, clock.pending, found]).toEqual([true, 0, []]);
  });

  it('waits longer when the better route did not last, and starts again once the best one has', async () => {
    const { clock, calls, watch } = watching(() => ({ status: 'ok' }));
    watch(REACH)();
    const stop = watch(REACH);
    await clock.advanceAsync(FIRST_PROBE);
    expect(calls).toHaveLength(1);
    stop();
    // Back on Reach at once: the first route did not last.
    const second = watch(REACH);
    await clock.advanceAsync(FIRST_PROBE);
    expect(calls).toHaveLength(1);
    second();
    const best = watch(LAN);
    await clock.advanceAsync(SETTLED_AFTER);
    best();
    watch(REACH);
    await clock.advanceAsync(FIRST_PROBE);
    expect(calls).toHaveLength(2);
  });

  it('moves the link: the old socket is closed, the better route tried first, and then all others', async () => {
    const callRelay = vi.fn(async () => ({ status: 200, headers: {}, bytes: utf8ToBytes('{"status":"ok"}') }));
    const { link, sockets, socket, clock, admit, written } = setup({
      pairing: { ...pairing, endpoints: [SECURE_LINK, REACH] },
      parts: { callRelay },
    });
    link.start();
    // Away from home.
    expect(socket().route).toEqual({ origin: SECURE_LINK.pinned });
    socket().end();
    expect(socket().route?.tunnel?.url).toBe(REACH.broker.url);
    const key = Buffer.from(SECURE_LINK.pinned.pin.slice(7), 'base64').toString('hex');
    await admit({}, key);
    expect(link.state).toMatchObject({ name: 'online', endpoint: { role: 'outbound_broker' } });
    expect(written.at(-1)?.last_good).toBe(`${REACH.broker.url}#${REACH.broker.hostId}`);
    // Pinned routes leave no pin of their own.
    expect(written.at(-1)?.tofu_pins).toEqual(pairing.tofu_pins);
    await clock.advanceAsync(FIRST_PROBE);
    expect(sockets).toHaveLength(3);
    expect(sockets[1]?.letGo).toBe(1000);
    // A route that answers the probe may still fail: then it is Reach again.
    socket().end();
    expect(socket().route?.tunnel).toBeDefined();
    await admit({}, key);
    await clock.advanceAsync(2 * FIRST_PROBE);
    expect(socket().route).toEqual({ origin: SECURE_LINK.pinned });
    await admit({}, key);
    expect(link.state).toMatchObject({ name: 'online', endpoint: { role: 'plugin_proxy' } });
    await link.stop();
    expect(clock.pending).toBe(0);
  });
});
