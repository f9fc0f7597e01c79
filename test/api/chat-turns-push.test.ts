import { expect, it } from 'vitest';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { TYPED } from '../support/chat.ts';
import { again, keep, nextEvent, resume } from '../support/chat-turns.ts';
import { createTestClock } from '../support/clock.ts';
import { startFakeApi } from '../support/fake-api-server.ts';
import { startPushService } from '../support/push-service.ts';
import { bearer, describeOnNode, type Paired, pair, post } from '../support/relay.ts';

const pending = cleanups();

async function setUp() {
  const [service, api, clock] = [await startPushService(), await startFakeApi(), createTestClock()];
  const env = { RELAY_PUSH_HOSTS: service.host, RELAY_WEBAPI_URL: api.url };
  const target = await startBuiltTarget({ clock, env });
  pending.push(target.stop);
  api.onStream((exchange) => exchange.open());
  /** A device with a subscription. */
  const device = async (content = false) => {
    const paired = await pair(target, { device: TYPED });
    const subscription = service.subscription();
    const headers = bearer(paired.token);
    await target.fetch('/push/subscribe', { ...post({ ...subscription, content }), headers });
    return { ...paired, subscription };
  };
  /** Asks, and has the agent answer; `before` comes between. */
  const ask = async ({ client }: Pick<Paired, 'client'>, before: (turnId: string) => unknown = () => {}) => {
    const id = crypto.randomUUID();
    keep(client, id, { message: 'What is\nthe answer?' });
    const exchange = await api.request(api.requests.length);
    await exchange.event({ type: 'assistant.delta', delta: 'It is 42.' });
    const { turn_id } = await nextEvent(client, id);
    await before(turn_id);
    exchange.end();
    await expect.poll(() => target.relay.chatTurns.running()).toBe(0);
    return turn_id;
  };
  return { service, api, clock, target, device, ask };
}

describeOnNode('push for an answer that nobody gets (contract 10 §1, 09 §6)', () => {
  it('calls the devices of the pairing after ten seconds, with content where that was asked for', async () => {
    const { service, clock, device, ask } = await setUp();
    const stranger = await device(true);
    const plain = await device();
    const sentAt = clock.now();
    const turn_id = await ask(plain, () => plain.client.terminate());
    await clock.advanceAsync(9_999);
    expect(service.notices).toEqual([]);
    await clock.advanceAsync(1);
    const [notice] = await service.noticesOf(plain.subscription, 1);
    const call = { type: 'answer', message_id: turn_id, turn_id, session_id: 's9', state: 'done', sent_at: sentAt };
    expect(notice?.payload).toEqual(call);

    const wordy = await device(true);
    await ask(wordy, () => wordy.client.terminate());
    await clock.advanceAsync(10_000);
    const [, payload] = [notice, (await service.noticesOf(wordy.subscription, 1))[0]?.payload];
    expect(payload).toMatchObject({ type: 'answer', title: 'What is the answer?', text: 'It is 42.' });
    expect(service.notices.filter(({ path }) => stranger.subscription.endpoint.endsWith(path))).toEqual([]);
    expect(service.faults).toEqual([]);
  });

  it('calls nobody to an answer that a socket got, that was read in time, or that was cancelled', async () => {
    const { service, clock, target, device, ask } = await setUp();
    const owner = await device();
    const isWaiting = (turnId: string) => target.relay.push.turns.isWaiting(turnId);
    const got = await ask(owner);
    await expect.poll(() => isWaiting(got)).toBe(false);
    const later = await again(target, owner);
    const read = await ask(owner, () => owner.client.terminate());
    expect(isWaiting(read)).toBe(true);
    await resume(later, { turn_id: read });
    await expect.poll(() => isWaiting(read)).toBe(false);
    const cancelled = await ask({ client: later }, (turn_id) => later.send('chat', 'chat.cancel', { turn_id }));
    expect(isWaiting(cancelled)).toBe(false);
    await clock.advanceAsync(60_000);
    expect(service.notices).toEqual([]);
  });

  it('calls to a failure too, until it is read elsewhere', async () => {
    const { service, api, clock, target, device, ask } = await setUp();
    const owner = await device();
    const turn_id = await ask(owner, () => {
      owner.client.terminate();
      api.requests.at(-1)?.cut();
    });
    await clock.advanceAsync(10_000);
    expect((await service.noticesOf(owner.subscription, 1))[0]?.payload).toMatchObject({ turn_id, state: 'failed' });
    const later = await again(target, owner);
    await resume(later, { turn_id });
    await expect.poll(() => target.relay.push.turns.isWaiting(turn_id)).toBe(false);
  });

  it('tells a device without the chat grant nothing', async () => {
    const { service, clock, target, device, ask } = await setUp();
    const owner = await device();
    const turn_id = await ask(owner, () => owner.client.terminate());
    const headers = bearer(owner.token);
    await target.fetch(`/sessions/${owner.prefix}`, { ...post({ grants: { chat: 1 } }), method: 'PATCH', headers });
    await clock.advanceAsync(10_000);
    await expect.poll(() => target.relay.push.turns.isWaiting(turn_id)).toBe(false);
    expect(service.notices).toEqual([]);
  });
});
