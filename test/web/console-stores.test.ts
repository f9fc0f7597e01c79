import { expect, it } from 'vitest';
import { createFeed } from '../../handlers/web/console/stores/feed.ts';
import { createPairingStore } from '../../handlers/web/console/stores/pairing.ts';
import { createRelayStore } from '../../handlers/web/console/stores/relay.ts';
import { createResource } from '../../handlers/web/console/stores/resource.ts';
import { createTail } from '../../handlers/web/console/stores/tail.ts';
import { type Api, ApiError } from '../../handlers/web/shared/api.ts';
import { createTestClock } from '../support/clock.ts';

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Loads that a test ends itself, in their order. */
function createLoads<T>() {
  const waiting: { resolve(value: T): void; reject(error: Error): void }[] = [];
  let count = 0;
  return {
    load: () => {
      count++;
      return new Promise<T>((resolve, reject) => waiting.push({ resolve, reject }));
    },
    count: () => count,
    async end(outcome: T | Error): Promise<void> {
      const one = waiting.shift();
      if (outcome instanceof Error) one?.reject(outcome);
      else one?.resolve(outcome);
      await settle();
    },
  };
}

it('a resource is read when it is watched, once at a time, and again after what changed meanwhile', async () => {
  const loads = createLoads<string>();
  const resource = createResource({ load: loads.load, now: () => 7 });
  resource.invalidate();
  expect(loads.count()).toBe(0);
  const unwatch = resource.watch();
  resource.watch()();
  expect(loads.count()).toBe(1);
  resource.invalidate();
  resource.invalidate();
  await loads.end('first');
  expect(resource.state.value).toEqual({ value: 'first', at: 7 });
  expect(loads.count()).toBe(2);
  await loads.end('second');
  expect(loads.count()).toBe(2);
  // A failure keeps the last answer.
  resource.invalidate();
  await loads.end(new Error('away'));
  expect(resource.state.value).toEqual({ value: 'second', at: 7, error: 'away' });
  unwatch();
  unwatch();
  resource.invalidate();
  expect(loads.count()).toBe(3);
  resource.watch();
  expect(loads.count()).toBe(4);
});

it('a flood of invalidations asks four times a second, and once more after the last', async () => {
  const clock = createTestClock();
  let count = 0;
  const resource = createResource({ load: async () => ++count, now: clock.now, clock });
  resource.watch();
  await settle();
  for (let passed = 0; passed < 1000; passed += 5) {
    await clock.advanceAsync(5);
    resource.invalidate();
  }
  expect(count).toBeLessThanOrEqual(5);
  await clock.advanceAsync(250);
  const last = count;
  await clock.advanceAsync(5000);
  expect([count, resource.state.value.value]).toEqual([last, last]);
  // What comes alone is not kept waiting.
  resource.invalidate();
  await settle();
  expect(count).toBe(last + 1);
});

it('a tail adds what is new in batches, replaces what has changed, and loses nothing while it is read anew', async () => {
  const clock = createTestClock();
  const loads = createLoads<{ id: string; state: string }[]>();
  const tail = createTail({ load: loads.load, keyOf: ({ id }) => id, inPlace: true, max: 3, clock });
  const shown = () => tail.state.value.value?.map(({ id, state }) => `${id}:${state}`);
  tail.watch();
  tail.add({ id: 'b', state: 'done' });
  await loads.end([
    { id: 'a', state: 'done' },
    { id: 'b', state: 'pending' },
  ]);
  expect(shown()).toEqual(['a:done', 'b:done']);
  tail.add({ id: 'c', state: 'pending' });
  tail.add({ id: 'c', state: 'done' });
  tail.add({ id: 'd', state: 'pending' });
  expect(shown()).toEqual(['a:done', 'b:done']);
  clock.advance(100);
  expect(shown()).toEqual(['b:done', 'c:done', 'd:pending']);
  tail.invalidate();
  await loads.end([{ id: 'e', state: 'done' }]);
  expect(shown()).toEqual(['e:done']);
});

it('a tail keeps what it has shown, and what arrives, when it cannot be read anew', async () => {
  const clock = createTestClock();
  const loads = createLoads<number[]>();
  const tail = createTail({ load: loads.load, keyOf: String, max: 9, clock });
  tail.watch();
  await loads.end([1]);
  tail.add(2);
  clock.advance(100);
  tail.add(3);
  tail.invalidate();
  tail.add(4);
  await loads.end(new Error('The relay does not answer.'));
  expect(tail.state.value).toMatchObject({ value: [1, 2, 3, 4], error: 'The relay does not answer.' });
  tail.add(5);
  clock.advance(100);
  expect(tail.state.value.value).toEqual([1, 2, 3, 4, 5]);
});

it('a tail whose list is newer than the events that still arrive ends with the last items, in their order', async () => {
  const clock = createTestClock();
  const loads = createLoads<number[]>();
  const tail = createTail({ load: loads.load, keyOf: String, max: 3, clock });
  tail.watch();
  for (let item = 1; item <= 5; item++) tail.add(item);
  await loads.end([7, 8, 9]);
  for (let item = 6; item <= 9; item++) tail.add(item);
  clock.advance(100);
  expect(tail.state.value.value).toEqual([7, 8, 9]);
});

/** An event stream that a test writes, one for each time it is opened. */
function createStreams() {
  const opened: { lastId: string | undefined; put(text: string): void; end(): void; break(): void }[] = [];
  let answer: ApiError | undefined;
  return {
    opened,
    refuse(error: ApiError | undefined) {
      answer = error;
    },
    async open(
      _path: string,
      { headers = {}, signal }: { headers?: Record<string, string>; signal?: AbortSignal } = {},
    ) {
      if (answer) throw answer;
      const encoder = new TextEncoder();
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          signal?.addEventListener('abort', () => controller.error(new Error('aborted')));
          opened.push({
            lastId: headers['last-event-id'],
            put: (text) => controller.enqueue(encoder.encode(text)),
            end: () => controller.close(),
            break: () => controller.error(new Error('cut')),
          });
        },
      });
      return new Response(body);
    },
  };
}

it('the feed resumes, says when it is lost, gives silence up, and waits for other credentials', async () => {
  const clock = createTestClock();
  const streams = createStreams();
  const seen: string[] = [];
  const feed = createFeed({ api: streams, clock, onEvent: (event, data) => seen.push(`${event} ${data}`) });
  feed.start();
  feed.start();
  expect(feed.state.value).toEqual({ kind: 'connecting' });
  await settle();
  streams.opened[0]?.put('id: 5\nevent: queue\ndata: {}\n\n');
  await expect.poll(() => feed.state.value.kind).toBe('live');
  expect(seen).toEqual(['queue {}']);
  streams.opened[0]?.break();
  await expect.poll(() => feed.state.value).toEqual({ kind: 'lost', since: clock.now() });
  expect(streams.opened).toHaveLength(1);
  feed.wake();
  await expect.poll(() => streams.opened.length).toBe(2);
  expect(streams.opened[1]?.lastId).toBe('5');
  streams.opened[1]?.put(': \n\n');
  await expect.poll(() => feed.state.value.kind).toBe('live');
  await clock.advanceAsync(45_000);
  await expect.poll(() => feed.state.value.kind).toBe('lost');
  streams.refuse(new ApiError('Only a process on this host may call this.', 403));
  feed.wake();
  await expect
    .poll(() => feed.state.value)
    .toEqual({ kind: 'refused', reason: 'Only a process on this host may call this.' });
  streams.refuse(undefined);
  feed.start();
  await expect.poll(() => streams.opened.length).toBe(3);
  feed.stop();
  await settle();
  expect(clock.pending).toBe(0);
});

/** An API of fixed answers, which counts its calls. */
function createAnswers(answers: Record<string, unknown>) {
  const calls: string[] = [];
  const streams = createStreams();
  const api = {
    base: 'http://127.0.0.1:8767/',
    open: streams.open,
    fetchRaw: streams.open,
    async call(path: string, { method = 'GET', body }: { method?: string; body?: unknown } = {}) {
      calls.push(`${method} ${path}${body === undefined ? '' : ` ${JSON.stringify(body)}`}`);
      const answer = answers[path];
      if (answer instanceof Error) throw answer;
      return answer;
    },
  } as Api;
  return { api, calls, streams };
}

it('events bring up to date what is watched, and nothing else; a reset everything', async () => {
  const clock = createTestClock();
  const { api, calls, streams } = createAnswers({
    'relay/devices': { devices: [] },
    'phone/outbound': { queued: 0, messages: [] },
    'relay/log?limit=500': { lines: [{ ts: 1, level: 'INFO', name: 'relay', text: 'up' }] },
  });
  const relay = createRelayStore({ api, clock });
  relay.devices.watch();
  relay.log.watch();
  relay.feed.start();
  await settle();
  // What was just read is not asked for again at once.
  clock.advance(250);
  calls.length = 0;
  streams.opened[0]?.put('id: 1\nevent: device\ndata: {}\n\nid: 2\nevent: queue\ndata: {}\n\n');
  await expect.poll(() => calls).toEqual(['GET relay/devices']);
  streams.opened[0]?.put('id: 3\nevent: log\ndata: {"ts":2,"level":"INFO","name":"relay","text":"more"}\n\n');
  await expect.poll(() => clock.pending).toBeGreaterThan(1);
  clock.advance(100);
  expect(relay.log.state.value.value?.map(({ text }) => text)).toEqual(['up', 'more']);
  clock.advance(250);
  calls.length = 0;
  streams.opened[0]?.put('id: 4\nevent: reset\ndata: {}\n\nid: 5\nevent: unheard-of\ndata: {}\n\n');
  await expect.poll(() => calls.toSorted()).toEqual(['GET relay/devices', 'GET relay/log?limit=500']);
  relay.feed.stop();
});

it('contract 09 §3: a freeze is read when the page opens, and again with each event about it', async () => {
  const clock = createTestClock();
  const answers: Record<string, object> = { 'relay/info': { version: '1.0.0' } };
  const { api, streams } = createAnswers(answers);
  const relay = createRelayStore({ api, clock });
  relay.freeze.watch();
  relay.feed.start();
  await settle();
  expect(relay.freeze.state.value.value).toBeNull();
  clock.advance(250);
  answers['relay/info'] = { version: '1.0.0', freeze: { frozen: true, since: 5, by: 'Pixel 9', reason: null } };
  streams.opened[0]?.put('id: 1\nevent: freeze\ndata: {"frozen":true}\n\n');
  await expect.poll(() => relay.freeze.state.value.value).toEqual({ since: 5, by: 'Pixel 9', reason: null });
  clock.advance(250);
  answers['relay/info'] = { version: '1.0.0' };
  streams.opened[0]?.put('id: 2\nevent: freeze\ndata: {"frozen":false}\n\n');
  await expect.poll(() => relay.freeze.state.value.value).toBeNull();
  relay.feed.stop();
});

it('a refusal of former credentials locks nobody out: the call is made again', async () => {
  const { api } = createAnswers({});
  let asked = 0;
  let refuse: () => void = () => {};
  const first = new Promise((_, reject) => {
    refuse = () => reject(new ApiError('Only the operator may call this.', 403));
  });
  const call = () => (++asked === 1 ? first : Promise.resolve({ devices: [] }));
  const relay = createRelayStore({ api: { ...api, call } as typeof api, clock: createTestClock() });
  relay.devices.watch();
  await expect.poll(() => asked).toBe(1);
  relay.restart();
  refuse();
  await expect.poll(() => relay.devices.state.value.value).toEqual([]);
  expect([asked, relay.refusal.value]).toEqual([2, undefined]);
  relay.feed.stop();
});

it('the doctor runs once at a time, and may be absent', async () => {
  const report = { groups: [{ title: 'Relay', checks: [{ id: 'relay-loopback', status: 'ok', summary: 'answers' }] }] };
  const answers: Record<string, unknown> = { 'relay/doctor': report };
  const { api, calls } = createAnswers(answers);
  const { doctor } = createRelayStore({ api, clock: createTestClock() });
  await Promise.all([doctor.run(), doctor.run()]);
  expect(calls).toEqual(['POST relay/doctor']);
  expect(doctor.state.value).toMatchObject({ isRunning: false, report });
  answers['relay/doctor'] = new ApiError('This relay runs without a host.', 501);
  await doctor.run();
  expect(doctor.state.value).toMatchObject({ isRunning: false, isAbsent: true, error: undefined });
});

it('contract 09 §5: a code for a browser is a link, and is over once the relay lists it no longer', async () => {
  const clock = createTestClock();
  const now = () => clock.now() / 1000;
  const expiresAt = Math.floor(now()) + 600;
  const row = { masked: 'AB****', expires_at: expiresAt, without: [], grants: null };
  const payload = JSON.stringify({ svc: 1, relay: { url: 'ws://192.0.2.1:8767', code: 'ABC123' } });
  const answers: Record<string, unknown> = {
    'pairing/mint': { code: 'ABC123', expires_at: expiresAt, qr_payload: payload, relay_url: 'ws://192.0.2.1:8767' },
    'pairing/routes': { endpoints: [], local: false },
    'pairing/pending': { codes: [row], requests: [] },
    'relay/devices': { devices: [] },
  };
  const { api, calls } = createAnswers(answers);
  const relay = createRelayStore({ api, clock });
  const pairing = createPairingStore(api, relay);
  await pairing.mint({ kind: 'web', ttl: 86_400, without: ['bridge'] });
  expect(calls.slice(0, 2)).toEqual([
    'GET pairing/routes',
    'POST pairing/mint {"ttl_seconds":86400,"without":["bridge"]}',
  ]);
  expect(pairing.code.value).toMatchObject({ qr: 'http://192.0.2.1:8767/app/#code=ABC123' });
  expect(pairing.stateAt(now())).toEqual({ kind: 'waiting' });

  answers['pairing/pending'] = { codes: [{ ...row, expires_at: expiresAt + 1 }], requests: [] };
  const device = { device_name: 'Pixel 9', created_at: now() };
  answers['relay/devices'] = { devices: [{ device_name: 'Old', created_at: now() - 3600 }, device] };
  await Promise.all([relay.pending.refresh(), relay.devices.refresh()]);
  expect(pairing.stateAt(now())).toEqual({ kind: 'used', device });

  answers['relay/devices'] = { devices: [] };
  await relay.devices.refresh();
  expect(pairing.stateAt(expiresAt)).toEqual({ kind: 'expired' });
  pairing.forget();
  expect(pairing.code.value).toBeUndefined();
});

it('contract 01 §9.4: a code names the chosen ways, and holds single grants to their durations', async () => {
  const lan = { role: 'lan', priority: 1, relay: { url: 'ws://192.0.2.1:8767' } };
  const published = { role: 'public', priority: 0, relay: { url: 'wss://relay.example.com:443' } };
  const payload = (key: string) =>
    JSON.stringify({ key, relay: { url: lan.relay.url, code: 'ABC123' }, endpoints: [published] });
  const answers: Record<string, unknown> = {
    'pairing/mint': {
      code: 'ABC123',
      expires_at: 1,
      qr_payload: payload('k'),
      relay_url: lan.relay.url,
      endpoints: [lan],
    },
    'pairing/routes': { endpoints: [published, lan], local: false },
    'pairing/routes?public_url=https%3A%2F%2Frelay.example.com': { endpoints: [published, lan], local: false },
    'pairing/pending': { codes: [], requests: [] },
  };
  const { api, calls } = createAnswers(answers);
  const pairing = createPairingStore(api, createRelayStore({ api, clock: createTestClock() }));
  const policy = { ttl: 0, without: [], grants: { terminal: 3600 } };
  const minted = () => JSON.parse((calls.findLast((call) => call.startsWith('POST')) ?? '').split(' ')[2] ?? '');

  await pairing.mint({ kind: 'app', ...policy, role: 'lan' });
  expect(minted()).toEqual({ ttl_seconds: 0, without: [], grants: { terminal: 3600 }, endpoints: [lan] });
  expect(pairing.code.value).toMatchObject({ routes: [{ role: 'lan', url: lan.relay.url }], holdsKey: true });
  await pairing.mint({ kind: 'app', ...policy, publicUrl: 'https://relay.example.com' });
  expect(minted().endpoints).toEqual([published, lan]);
  // A browser goes to the address that was given.
  await pairing.mint({ kind: 'web', ...policy, publicUrl: 'https://relay.example.com' });
  expect(pairing.code.value?.link).toBe('https://relay.example.com/app/#code=ABC123');
  await pairing.mint({ kind: 'web', ...policy });
  expect(pairing.code.value?.link).toBe('https://relay.example.com:443/app/#code=ABC123');
  await expect(pairing.mint({ kind: 'app', ...policy, role: 'tailscale' })).rejects.toThrow('lost that way');

  // A relay for its own machine alone is reached from there.
  answers['pairing/routes'] = { endpoints: [lan], local: true };
  answers['pairing/mint'] = { ...(answers['pairing/mint'] as object), qr_payload: payload('').replace('wss:', 'ws:') };
  await pairing.mint({ kind: 'web', ...policy });
  expect(pairing.code.value?.link).toBe('http://localhost:8767/app/#code=ABC123');
});
