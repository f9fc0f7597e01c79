import { createStorage } from 'unstorage';
import { expect, it, onTestFinished } from 'vitest';
import { createNodeUpstream } from '../../../lib/host/node/upstream.ts';
import type { Upstream } from '../../../lib/host/upstream.ts';
import { sha256 } from '../../../lib/kit/sha256.ts';
import { createEndpointPolicy } from '../../../lib/push/endpoint.ts';
import { openPushNotices } from '../../../lib/push/notices.ts';
import type { PushPayload } from '../../../lib/push/payload.ts';
import { openSubscriptions, type SubscriptionsDeps } from '../../../lib/push/subscriptions.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import type { PushRecord, PushSubscriptionRecord } from '../../../storage/schema.ts';
import { createTestClock } from '../../support/clock.ts';
import { startEvictedRelay } from '../../support/evicted-relay.ts';
import { createTestLog } from '../../support/log.ts';
import { type Subscription, startPushService } from '../../support/push-service.ts';

const SHOW_TIMEOUT = 10_000;

/** A relay with a push service, and a paired device that has subscribed to both. */
async function start() {
  const service = await startPushService();
  let answers = 0;
  const calls: { url: string; at: number }[] = [];
  const call = createNodeUpstream();
  const upstream: Upstream = async (request) => {
    calls.push({ url: request.url, at: relay.clock.now() });
    const response = await call(request);
    answers++;
    return response;
  };
  const relay = await startEvictedRelay({ env: { RELAY_PUSH_HOSTS: service.host }, upstream });
  onTestFinished(() => relay.relay.stop());
  const client = await relay.connect();
  const sessionOf = (token: string) => relay.relay.sessions.authenticate(token) as Session;
  const subscribe = async (token = client.token, subscription = service.subscription(), more = {}) => {
    await relay.relay.push.subscribe(sessionOf(token), { ...subscription, ...more });
    return subscription;
  };
  const say = (text: string, more = {}) => relay.relay.phone.push({ text, message_id: text, ...more });
  /** Lets time pass in steps, as sends are answered at their own pace. */
  const pass = async (ms: number) => {
    await relay.clock.advanceAsync(ms);
  };
  /** `calls` are the times of all calls. Resolves once the relay has had that many answers of the push service. */
  const answered = (count: number) => expect.poll(() => pass(0).then(() => answers)).toBe(count);
  return { service, relay, client, subscribe, say, pass, answered, calls };
}

const ids = (service: { notices: { payload: PushPayload }[] }) =>
  service.notices.map(({ payload }) => `${payload.type} ${payload.message_id}`);

it('§6: a message that waits for a phone is knocked for at once, one that was sent when nobody has shown it in 10 s', async () => {
  const { service, client, subscribe, say, pass } = await start();
  const device = await subscribe();
  await say('waits');
  await pass(0);
  await service.noticesOf(device, 1);
  client.send('proactive', 'proactive.subscribe');
  await pass(0);
  await say('unseen');
  await say('seen');
  await pass(SHOW_TIMEOUT - 1);
  client.send('proactive', 'proactive.shown', { message_id: 'seen' });
  await pass(0);
  expect(ids(service)).toEqual(['message waits']);
  await pass(1);
  await service.noticesOf(device, 2);
  await pass(SHOW_TIMEOUT);
  expect(ids(service)).toEqual(['message waits', 'message unseen']);
  expect(service.faults).toEqual([]);
});

it('§6: a mirror that is connected has 10 s, too, and settles a message that waits by showing it', async () => {
  const { service, relay, client, subscribe, say, pass } = await start();
  const device = await subscribe();
  client.send('proactive', 'proactive.subscribe', { mirror: true });
  await pass(0);
  await say('shown');
  await say('not shown');
  client.send('proactive', 'proactive.shown', { message_id: 'shown' });
  await pass(SHOW_TIMEOUT);
  await service.noticesOf(device, 1);
  expect(ids(service)).toEqual(['message not shown']);
  expect(relay.relay.phone.history({ since: 0, limit: 9 }).items.map(({ state }) => state)).toEqual([
    'shown',
    'queued',
  ]);
  expect(client.received('proactive.history').at(-1)).toMatchObject({ seq: 1, kind: 'message', state: 'shown' });
});

it('§6: what was read on one device is taken back from the others, and from one whose knock is on its way', async () => {
  const { service, relay, client, subscribe, say, pass, answered } = await start();
  const [reader, other] = [client, await relay.connect()];
  const [own, others] = [await subscribe(reader.token), await subscribe(other.token)];
  await say('first');
  await pass(0);
  await Promise.all([service.noticesOf(own, 1), service.noticesOf(others, 1), answered(2)]);
  await pass(0);
  reader.send('proactive', 'proactive.shown', { message_id: 'first' });
  await pass(0);
  const notices = await service.noticesOf(others, 2);
  expect(notices[1]?.payload).toEqual({ type: 'read', message_id: 'first' });
  expect((await service.noticesOf(own, 1)).length).toBe(1);

  const release = service.hold();
  await say('second');
  await pass(0);
  await service.noticesOf(others, 3);
  reader.send('proactive', 'proactive.shown', { message_id: 'second' });
  await pass(0);
  release();
  expect((await service.noticesOf(others, 4)).at(-1)?.payload).toEqual({ type: 'read', message_id: 'second' });
});

it('§6: TTL is the rest of the message, a question is urgent, and content needs to be asked for', async () => {
  const { service, relay, client, subscribe, say, pass } = await start();
  const [plain, wordy] = [await subscribe(), await subscribe(client.token, undefined, { content: true })];
  const text = `Deploy ${'x'.repeat(200)} now?`;
  await relay.relay.phone.push({ text, title: 'Agent', chat_id: 't-1', message_id: 'q' });
  await pass(0);
  const [[notice], [wordyNotice]] = [await service.noticesOf(plain, 1), await service.noticesOf(wordy, 1)];
  const payload = { type: 'message', message_id: 'q', chat_id: 't-1', question: true, sent_at: relay.clock.now() };
  expect(notice?.payload).toEqual(payload);
  expect(wordyNotice?.payload).toEqual({
    ...payload,
    title: 'Agent',
    answers: ['Yes', 'No'],
    text: text.slice(0, 120),
  });
  expect(notice?.headers).toMatchObject({ ttl: '86400', urgency: 'high', 'content-encoding': 'aes128gcm' });
  await say('no question');
  await say('told?', { metadata: { question: false } });
  await say('said', { metadata: { question: true } });
  await say('quiet', { surfacing: 'inbox' });
  await pass(0);
  const urgencies = (await service.noticesOf(plain, 4)).map(({ headers }) => headers.urgency);
  expect(urgencies).toEqual(['high', 'normal', 'normal', 'high']);
});

it('§6: the largest message fits into what push services accept', async () => {
  const { service, relay, client, subscribe, pass } = await start();
  const device = await subscribe(client.token, undefined, { content: true });
  const lone = '\ud800';
  const wide = {
    text: '\u0001語'.repeat(80),
    title: '語'.repeat(256),
    chat_id: lone.repeat(256),
    message_id: lone.repeat(128),
    answers: ['一', '二', '三', '四'].map((digit) => digit.repeat(40)),
  };
  await relay.relay.phone.push(wide);
  await pass(0);
  const [notice] = await service.noticesOf(device, 1);
  expect(notice?.size).toBeLessThanOrEqual(4096);
  expect(notice?.payload).toMatchObject({ chat_id: wide.chat_id, message_id: wide.message_id, answers: wide.answers });
});

it('RFC 8030 §5, §7.3: 429 and 5xx are tried again after what they ask for, at most five times; 404 and 410 end it', async () => {
  const { service, relay, subscribe, say, pass, answered } = await start();
  const device = await subscribe();
  service.answer(device, { status: 429, headers: { 'retry-after': '120' } }, { status: 503 });
  await say('m');
  await pass(0);
  await service.noticesOf(device, 1);
  await answered(1);
  await pass(119_000);
  expect(service.notices).toHaveLength(1);
  await pass(1_000);
  await service.noticesOf(device, 2);
  await answered(2);
  await pass(30_000);
  await service.noticesOf(device, 3);
  await answered(3);
  await pass(3_600_000);
  expect(service.notices).toHaveLength(3);

  service.answer(device, ...Array.from({ length: 9 }, () => ({ status: 500 })));
  await say('hopeless');
  for (const [at, wait] of [0, 5_000, 30_000, 120_000, 600_000].entries()) {
    await pass(wait);
    await service.noticesOf(device, 4 + at);
    await answered(4 + at);
  }
  await pass(3_600_000);
  expect(service.notices).toHaveLength(8);

  for (const status of [404, 410]) {
    const gone = await subscribe();
    service.answer(gone, { status });
    await say(`gone ${status}`);
    await pass(0);
    await service.noticesOf(gone, 1);
    await expect.poll(() => pass(0).then(relay.relay.push.count)).toBe(1);
  }
});

it('RFC 8030 §8.4: Retry-After holds back other messages too, after the last attempt and for one that was read', async () => {
  const { service, client, subscribe, say, pass, answered, calls } = await start();
  const [busy, other] = [await subscribe(), await subscribe()];
  const wait = 900_000;
  service.answer(busy, ...Array.from({ length: 6 }, () => ({ status: 429, headers: { 'retry-after': '900' } })));
  await say('hopeless');
  for (let attempt = 1; attempt <= 5; attempt++) {
    await answered(attempt + 1);
    await pass(attempt < 5 ? wait : 0);
  }
  await say('read');
  // By then, the busy one would have had it.
  await service.noticesOf(other, 2);
  await answered(7);
  const release = service.hold();
  await pass(wait);
  await service.noticesOf(busy, 6);
  client.send('proactive', 'proactive.shown', { message_id: 'read' });
  await pass(0);
  release();
  await answered(8);
  await pass(0);
  await say('next');
  await service.noticesOf(other, 3);
  await pass(wait);
  expect((await service.noticesOf(busy, 7)).at(-1)?.payload).toMatchObject({ message_id: 'next' });
  const times = calls.flatMap(({ url, at }) => (url === busy.endpoint ? [at] : []));
  expect(times.slice(1).map((at, before) => at - (times[before] as number))).toEqual(Array(6).fill(wait));
});

it('§6: a session that is revoked while it subscribes leaves no subscription', async () => {
  const { service, relay, client } = await start();
  const session = relay.relay.sessions.authenticate(client.token) as Session;
  const subscribing = relay.relay.push.subscribe(session, { ...service.subscription() });
  const refused = expect(subscribing).rejects.toMatchObject({ kind: 'unauthorized' });
  await relay.relay.sessions.revoke(session);
  await refused;
  expect(relay.relay.push.count()).toBe(0);
});

it('§6: refuses to follow a redirect, and gives up at once what a push service refuses', async () => {
  const { service, relay, subscribe, say, pass } = await start();
  const device = await subscribe();
  service.answer(device, { status: 307, headers: { location: `${service.origin}/elsewhere` } }, { status: 403 });
  await say('one');
  await pass(0);
  await service.noticesOf(device, 1);
  await say('two');
  await pass(0);
  await service.noticesOf(device, 2);
  await pass(3_600_000);
  expect(ids(service)).toEqual(['message one', 'message two']);
  expect(service.faults).toEqual([]);
  expect(relay.relay.push.count()).toBe(1);
});

it('§6: at most one knock at a time is on its way to a device', async () => {
  const { service, subscribe, say, pass } = await start();
  const device = await subscribe();
  const release = service.hold();
  for (let n = 0; n < 5; n++) await say(`m${n}`);
  await pass(0);
  await service.noticesOf(device, 1);
  release();
  await expect.poll(() => pass(0).then(() => service.notices.length)).toBe(5);
  expect(service.mostInFlight()).toBe(1);
  expect(ids(service)).toEqual([0, 1, 2, 3, 4].map((n) => `message m${n}`));
});

it('contract 00: a knock that is due in 10 s survives a sleep of the object, and so do key and subscription', async () => {
  const { service, relay, client, subscribe, say, pass } = await start();
  const device = await subscribe();
  const key = await relay.relay.push.publicKey();
  client.send('proactive', 'proactive.subscribe');
  await pass(0);
  await say('m');
  await relay.evict();
  expect(await relay.relay.push.publicKey()).toBe(key);
  await pass(SHOW_TIMEOUT - 1_001);
  expect(service.notices).toEqual([]);
  await pass(1);
  const [notice] = await service.noticesOf(device, 1);
  expect(notice?.key).toBe(key);
});

it('§6: an alarm wakes the object for a knock whose timer went with its memory', async () => {
  const { relay, client, subscribe, say, pass } = await start();
  await subscribe();
  client.send('proactive', 'proactive.subscribe');
  await pass(0);
  const delays: number[] = [];
  const { after } = relay.clock;
  relay.clock.after = (delay, run) => {
    delays.push(delay);
    return after(delay, run);
  };
  await say('m');
  expect(delays).toContain(60_000);
});

it('§6: four subscriptions of a device, 64 in all; they end with its session, and stay when it is refreshed', async () => {
  const { service, relay, client, subscribe } = await start();
  const first = await subscribe();
  for (let n = 0; n < 4; n++) await subscribe();
  expect(relay.relay.push.count()).toBe(4);
  const session = relay.relay.sessions.authenticate(client.token) as Session;
  expect(await relay.relay.push.unsubscribe(session, first.endpoint)).toBe(false);

  const others = await Promise.all(Array.from({ length: 15 }, () => relay.connect()));
  for (const { token } of others) for (let n = 0; n < 4; n++) await subscribe(token);
  const last = await relay.connect();
  await expect(subscribe(last.token)).rejects.toMatchObject({ kind: 'unavailable' });

  const [other] = others;
  const { device } = relay.relay.sessions.authenticate(other?.token as string) as Session;
  const refreshToken = other?.frames[0]?.payload.refresh_token as string;
  expect((await relay.relay.sessions.refresh(refreshToken, device))?.token).toMatch(/./);
  expect(relay.relay.push.count()).toBe(64);
  await relay.relay.sessions.revoke(session);
  expect(relay.relay.push.count()).toBe(60);
  // What was stored ends with the session as well.
  await relay.evict();
  expect(relay.relay.push.count()).toBe(60);
  expect(service.notices).toEqual([]);
});

it('§6: refuses bad keys, and the endpoint of another device', async () => {
  const { service, relay, client, subscribe } = await start();
  const device = await subscribe();
  const bad: [string, Partial<Subscription['keys']>][] = [
    ['auth', { auth: 'AAAA' }],
    ['auth', { auth: 'A'.repeat(100_000) }],
    ['p256dh', { p256dh: device.keys.p256dh.slice(0, -4) }],
    ['p256dh', { p256dh: `${device.keys.p256dh}${'A'.repeat(1000)}` }],
    ['p256dh', { p256dh: `BA${'A'.repeat(85)}` }],
    ['p256dh', { p256dh: undefined }],
  ];
  for (const [name, keys] of bad) {
    const subscription = { ...device, keys: { ...device.keys, ...keys } };
    await expect(subscribe(client.token, subscription)).rejects.toThrow(`keys.${name}`);
  }
  await expect(subscribe(client.token, undefined, { content: 'yes' })).rejects.toThrow('content');

  const attacker = await relay.connect();
  const stolen = { ...service.subscription(), endpoint: device.endpoint };
  await expect(subscribe(attacker.token, stolen)).rejects.toMatchObject({ kind: 'conflict' });
  const session = relay.relay.sessions.authenticate(attacker.token) as Session;
  expect(await relay.relay.push.unsubscribe(session, device.endpoint)).toBe(false);
  // The browser itself, which was paired anew, knows its keys.
  await subscribe(attacker.token, device);
  expect(await relay.relay.push.unsubscribe(session, device.endpoint)).toBe(true);
});

/** Subscriptions of one session, in a store that a case may let fail. `open` reads them from it. */
async function subscriptionsOf(more: Partial<SubscriptionsDeps> = {}) {
  const service = await startPushService();
  const store = createStorage<PushRecord>();
  const session = { family: 'f', prefix: 'p' } as Session;
  const sessions = { byFamily: () => session, onEnd: () => {} };
  const policy = createEndpointPolicy([service.host]);
  const deps = { store, sessions, policy, grant: 'phone', now: () => 0, log: createTestLog(), ...more };
  return { service, store, session, open: () => openSubscriptions(deps) };
}

it('§6: a subscription that could not be stored is none, and ends no other', async () => {
  const changes: (string | null)[] = [];
  const changed = (_key: string, record: PushSubscriptionRecord | null) => void changes.push(record?.endpoint ?? null);
  const { service, store, session, open } = await subscriptionsOf({ changed });
  const subscriptions = await open();
  for (let n = 0; n < 4; n++) await subscriptions.add(session, { ...service.subscription() });
  const stored = subscriptions.entries();
  const [known] = stored.map(([, { endpoint, p256dh, auth }]) => ({ endpoint, keys: { p256dh, auth } }));
  const { setItem } = store;
  store.setItem = () => Promise.reject(new Error('disk full'));
  const added = { ...service.subscription() };
  await expect(subscriptions.add(session, added)).rejects.toThrow('disk full');
  await expect(subscriptions.add(session, { ...known, content: true })).rejects.toThrow('disk full');
  expect(Object.fromEntries(subscriptions.entries())).toEqual(Object.fromEntries(stored));
  // The other relay of the mirror learns that neither was subscribed.
  expect(changes.slice(4)).toEqual([added.endpoint, null, known?.endpoint, known?.endpoint]);
  store.setItem = setItem;
  expect(Object.fromEntries((await open()).entries())).toEqual(Object.fromEntries(stored));
});

it('12 §4: the edge cannot give home more subscriptions than devices may have, or one of nobody', async () => {
  const families = new Set<string>();
  const sessions = {
    byFamily: (family: string) => (families.has(family) ? ({ family } as Session) : undefined),
    onEnd: () => {},
  };
  const { service, open } = await subscriptionsOf({ sessions });
  const subscriptions = await open();
  const adopt = (family: string, { endpoint, keys } = service.subscription()) => {
    const { href } = new URL(endpoint);
    const record = { endpoint: href, ...keys, family, content: true, seq: 1 };
    return subscriptions.adopt(sha256(href), record, false).then(() => href);
  };
  await adopt('nobody');
  expect(subscriptions.keys()).toEqual([]);
  families.add('f0');
  const given: string[] = [];
  for (let n = 0; n < 5; n++) given.push(await adopt('f0'));
  expect(subscriptions.entries().map(([, { endpoint }]) => endpoint)).toEqual(given.slice(1));
  for (let n = 1; n < 20; n++) {
    families.add(`f${n}`);
    for (let m = 0; m < 4; m++) await adopt(`f${n}`);
  }
  expect(subscriptions.keys().length).toBe(64);
  expect((await open()).keys().length).toBe(64);
  // Nor can it keep a device from its own endpoint.
  const own = service.subscription();
  await subscriptions.add({ family: 'f1' } as Session, { ...own });
  await adopt('f2', { ...own, keys: service.subscription().keys });
  await subscriptions.add({ family: 'f1' } as Session, { ...own });
  expect(subscriptions.of({ family: 'f1' })).toContain(sha256(own.endpoint));
});

it('§6: a subscription whose end could not be stored stays over, and is removed when the device repeats it', async () => {
  const { service, store, session, open } = await subscriptionsOf();
  const subscriptions = await open();
  const { endpoint, ...device } = service.subscription();
  await subscriptions.add(session, { endpoint, ...device });
  const { removeItem } = store;
  store.removeItem = () => Promise.reject(new Error('disk full'));
  await expect(subscriptions.end(session, endpoint)).rejects.toThrow('disk full');
  expect(subscriptions.keys()).toEqual([]);
  store.removeItem = removeItem;
  expect(await subscriptions.end(session, endpoint)).toBe(true);
  expect((await open()).keys()).toEqual([]);
});

it('§6: a subscription counts although an older one over the four could not be removed from the store', async () => {
  const { service, store, session, open } = await subscriptionsOf();
  const subscriptions = await open();
  for (let n = 0; n < 4; n++) await subscriptions.add(session, { ...service.subscription() });
  const { removeItem } = store;
  store.removeItem = () => Promise.reject(new Error('disk full'));
  const added = { ...service.subscription() };
  await subscriptions.add(session, added);
  expect(subscriptions.entries().map(([, { endpoint }]) => endpoint)).toContain(added.endpoint);
  expect(subscriptions.keys()).toHaveLength(4);
  store.removeItem = removeItem;
  await subscriptions.end(session, added.endpoint);
  expect((await open()).keys()).toHaveLength(3);
});

it('§6: a notice whose end could not be stored is removed with the next change', async () => {
  const store = createStorage<PushRecord>();
  const clock = createTestClock();
  const device = { family: 'f' } as PushSubscriptionRecord;
  const sent: string[] = [];
  const open = () =>
    openPushNotices({
      store,
      clock,
      log: createTestLog(),
      subscriptions: { find: () => device, keys: () => ['device'], of: () => [], gone() {} },
      async send({ message_id: id }) {
        sent.push(id);
        return { result: 'refused' };
      },
      acceptsRead: () => false,
    });
  const notices = await open();
  notices.start();
  const notice = { chat_id: null, title: null, text: '', question: false, until: clock.now() + 60_000 };
  notices.add({ ...notice, message_id: 'read', due: clock.now() + 10_000 });
  await clock.advanceAsync(0);
  const { removeItem } = store;
  store.removeItem = () => Promise.reject(new Error('disk full'));
  notices.settled('read', []);
  await clock.advanceAsync(0);
  store.removeItem = removeItem;
  notices.add({ ...notice, message_id: 'next', due: clock.now() + 10_000 });
  await clock.advanceAsync(0);
  notices.stop();
  (await open()).start();
  await clock.advanceAsync(10_000);
  expect(sent).toEqual(['next']);
});

it('§6: a device without the grant is told nothing', async () => {
  const { service, relay, client, subscribe, say, pass } = await start();
  const other = await relay.connect();
  const [device, without] = [await subscribe(), await subscribe(other.token)];
  const session = relay.relay.sessions.authenticate(other.token) as Session;
  await relay.relay.sessions.reduce(session, { grants: { phone: 1 } });
  await pass(1_000);
  await say('m');
  await pass(0);
  await service.noticesOf(device, 1);
  expect(service.notices.filter(({ path }) => without.endpoint.endsWith(path))).toEqual([]);
  expect(client.isOpen).toBe(true);
});

it('§6: resolves a name only to addresses that may be reached', async () => {
  const upstream = createNodeUpstream();
  const call = (mayConnect: (address: string) => boolean) =>
    upstream({
      method: 'POST',
      url: 'http://localhost:1/x',
      headers: {},
      signal: AbortSignal.timeout(20_000),
      mayConnect,
    });
  await expect(call(() => false)).rejects.toThrow('not a public one');
  await expect(call(() => true)).rejects.toThrow(/ECONNREFUSED|connect/);
});
