import { expect, it, vi } from 'vitest';
import { createLink, type LinkDeps } from '../../lib/companion/link/link.ts';
import { parsePairing } from '../../lib/companion/link/pairing-url.ts';
import { openSettings } from '../../lib/companion/link/settings.ts';
import { createMessages } from '../../lib/companion/messages.ts';
import { dial } from '../../lib/host/node/dial.ts';
import { createFiles } from '../../lib/host/node/files.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { connect, type Frame } from '../support/client.ts';
import { type FaultKind, startFlakyProxy } from '../support/flaky-proxy.ts';
import { createTestLog } from '../support/log.ts';
import { startRelayProcess } from '../support/process.ts';
import { post, randomCode } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

const pending = cleanups();
const numbered = (count: number, prefix: string) => Array.from({ length: count }, (_, at) => `${prefix}${at + 1}`);

it('keeps fifty queued messages and unread replies over kill -9, in order, and delivers each once', async () => {
  const relay = await startRelayProcess();
  const code = randomCode();
  await relay.ask('/pairing/register', { method: 'POST', body: { code } });
  /** Connects the phone on a new socket. */
  const enter = async (credentials: Record<string, unknown>) => {
    const client = await connect(relay.wsUrl);
    client.send('system', 'auth', { ...credentials, device_id: 'phone-1', device_name: 'Phone' });
    return { client, ok: await client.next({ type: 'auth.ok' }) };
  };
  const before = await enter({ pairing_code: code });
  const session = { session_token: before.ok.payload.session_token };
  for (const id of numbered(30, 'r')) {
    before.client.send('proactive', 'proactive.reply', { text: `secret ${id}`, message_id: id }, id);
  }
  // Unacknowledged messages may be lost, acknowledged ones must not.
  await before.client.next({ id: 'r30' });
  for (const id of numbered(50, 'm')) {
    const answer = await relay.ask('/phone/message', {
      method: 'POST',
      body: { text: `secret ${id}`, message_id: id },
    });
    expect(answer.json).toMatchObject({ queued: true });
  }
  await relay.restart();

  const outbound = async () =>
    (await relay.ask('/phone/outbound', { headers: { 'x-svc-operator': '1' } })).json.messages.map(
      ({ message_id: id }: { message_id: string }) => id,
    );
  expect(await outbound()).toEqual(numbered(50, 'm'));
  const after = await enter(session);
  // Sent again, as after a broken connection, it is recognized as a duplicate.
  after.client.send('proactive', 'proactive.reply', { text: 'secret r30', message_id: 'r30' }, 'again');
  await after.client.next({ id: 'again' });
  const replies = async () =>
    (await relay.ask('/phone/replies?timeout=0')).json.replies.map(({ message_id: id }: { message_id: string }) => id);
  expect(await replies()).toEqual(numbered(30, 'r'));
  after.client.send('proactive', 'proactive.subscribe');
  await after.client.next({ type: 'proactive.backlog.complete' });
  const flushed = after.client.frames.filter(({ type }) => type === 'phone.message');
  expect(flushed.map(({ id }) => id)).toEqual(numbered(50, 'm'));
  expect(flushed.every(({ payload }) => payload.queued_delivery === true)).toBe(true);
  // Messages have arrived with the pong (§5.4a). One ping is for the first of them and the next, after its pong, for the rest.
  // A pong is ahead of what is sent once an answer has come, since the ping was ahead of that answer.
  for (const id of ['pinged', 'pinged again', 'arrived']) {
    after.client.send('system', 'ping', {}, id);
    await after.client.next({ id });
  }
  expect(await outbound()).toEqual([]);
  // Nobody waits for this to be stored. It is, once a later change is: a reply is acknowledged when it is durable.
  after.client.send('proactive', 'proactive.reply', { text: 'secret r31', message_id: 'r31' }, 'last');
  await after.client.next({ id: 'last' });

  await relay.restart();
  const third = await enter(session);
  third.client.send('proactive', 'proactive.subscribe');
  await third.client.next({ type: 'proactive.subscribed' });
  expect(await outbound()).toEqual([]);
  expect(await replies()).toEqual(['r31']);
  expect(third.client.frames.filter(({ channel }: Frame) => channel === 'proactive')).toEqual([]);
  expect(relay.output).not.toContain('secret');
});

it('keeps everything acknowledged, in order, over kill -9 in the middle of a storm', async () => {
  const relay = await startRelayProcess();
  const answered: string[] = [];
  const sending = numbered(50, 'm').map((id) =>
    relay.ask('/phone/message', { method: 'POST', body: { text: 'x', message_id: id } }).then(
      (answer) => answered.push(answer.json.message_id),
      () => {},
    ),
  );
  await expect.poll(() => answered.length, { interval: 1 }).toBeGreaterThan(9);
  await relay.kill('SIGKILL');
  await Promise.all(sending);
  await relay.restart();
  const { json } = await relay.ask('/phone/outbound', { headers: { 'x-svc-operator': '1' } });
  const kept = json.messages.map(({ message_id: id }: { message_id: string }) => id);
  expect(new Set(kept).size).toBe(kept.length);
  expect(answered.filter((id) => !kept.includes(id))).toEqual([]);
  const times = json.messages.map(({ sent_at: at }: { sent_at: number }) => at);
  expect(times).toEqual([...times].sort((a, b) => a - b));
});

const SPEED = 40;
/** A clock for the phone whose delays take a fortieth of their time. */
const fastClock = {
  now: systemClock.now,
  monotonic: () => systemClock.monotonic() * SPEED,
  after: (delay: number, run: () => void) => systemClock.after(delay / SPEED, run),
};

it.each<[number, FaultKind[]]>([
  [11, ['cut', 'reset']],
  [13, ['half-open', 'reset', 'cut']],
])(
  'through a bad network (seed %d, %j): every reply arrives, once, in order; no message twice',
  { timeout: 300_000 },
  async (seed, faults) => {
    const relay = await startBuiltTarget();
    pending.push(() => relay.stop());
    const proxy = await startFlakyProxy({ port: relay.port, seed, faults: ['none'], after: [1500, 3500] });
    pending.push(() => proxy.close());
    const code = randomCode();
    await relay.operator('/pairing/register', post({ code }));
    const path = `${await temporaryDirectory()}/settings.json`;
    const store = await openSettings({ files: createFiles(), path, clock: systemClock });
    await store.update({ messagesEnabled: true });
    const log = createTestLog();
    const got: string[] = [];
    const acknowledged = new Set<string>();
    const messages = createMessages({
      settings: store,
      clock: systemClock,
      log,
      onMessage({ messageId }) {
        got.push(messageId);
        return false;
      },
      onBacklog: () => {},
      onAcknowledged: ({ text }) => acknowledged.add(text),
      onClosed: () => {},
      onSubscribed: () => {},
    });
    const online = async (deps: Partial<LinkDeps>) => {
      const link = createLink({ dial, store, clock: fastClock, log, device: { name: 'Phone' }, ...deps });
      pending.push(() => link.stop());
      link.start();
      await vi.waitFor(() => expect(link.state.name).toBe('online'));
      return link;
    };
    // In real time: a code works once, and an answer that the fast clock calls late would waste it.
    const offer = parsePairing(JSON.stringify({ svc: 1, relay: { url: `ws://127.0.0.1:${proxy.port}`, code } }));
    await (await online({ clock: systemClock, offer })).stop();
    await online({ channels: { proactive: messages.channel } });

    proxy.plan(faults);
    proxy.dropClients();
    const delivered = new Set<string>();
    const texts: string[] = [];
    // On a busy machine the first fault takes longer.
    for (let n = 1; (n <= 400 && proxy.strikes.length < 3) || (n <= 4_000 && proxy.strikes.length === 0); n++) {
      const answer = await (
        await relay.operator('/phone/message', post({ text: 'x'.repeat(100), message_id: `m${n}` }))
      ).json();
      if (answer.delivered) delivered.add(`m${n}`);
      if (texts.length < 40) {
        const text = `reply ${n}`;
        texts.push(text);
        messages.reply({ text, chatId: 'c' });
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect(proxy.strikes.length).toBeGreaterThan(0);
    proxy.plan(['none']);
    proxy.dropClients();
    await vi.waitFor(() => expect([...acknowledged].sort()).toEqual([...texts].sort()));
    await vi.waitFor(async () =>
      expect((await (await relay.fetch('/phone/outbound', { headers: { 'x-svc-operator': '1' } })).json()).queued).toBe(
        0,
      ),
    );
    const { replies } = await (await relay.operator('/phone/replies?timeout=0')).json();
    expect(replies.map(({ text }: { text: string }) => text)).toEqual(texts);
    expect(new Set(got).size).toBe(got.length);
    const order = got.map((id) => Number(id.slice(1)));
    expect(order).toEqual([...order].sort((a, b) => a - b));
  },
);
