import { afterAll, beforeAll, expect, it } from 'vitest';
import { type PushService, type Subscription, startPushService } from '../support/push-service.ts';
import { bearer, describeMatrix, type Paired, pair, post, type Target } from '../support/relay.ts';

let service: PushService;
const ends: (() => void)[] = [];
beforeAll(async () => {
  service = await startPushService((work) => ends.push(work));
});
afterAll(() => {
  for (const end of ends) end();
});

const call = (target: Target, token: string, method: string, body: unknown) =>
  target.fetch('/push/subscribe', { method, body: JSON.stringify(body), headers: bearer(token) });
const say = async (target: Target, body: unknown) => {
  const response = await target.operator('/phone/message', { ...post(body), headers: { 'x-svc-operator': '1' } });
  expect(response.status).toBe(200);
};

describeMatrix('web push (contract 09 §6)', (start) => {
  const started = async () => {
    const target = await start({ env: { RELAY_PUSH_HOSTS: service.host } });
    const phone = await pair(target);
    return { target, phone, ...phone };
  };
  const subscribed = async (target: Target, { token }: Paired, more = {}): Promise<Subscription> => {
    const subscription = service.subscription();
    // As a browser describes it, with a member that the relay does not know.
    const response = await call(target, token, 'POST', { ...subscription, expirationTime: null, ...more });
    expect([response.status, await response.json()]).toEqual([200, { ok: true }]);
    return subscription;
  };

  it('§6: a message that waits for a phone knocks at every device, signed with the key that devices subscribe with', async () => {
    const { target, phone, token } = await started();
    const keyOf = async () => (await (await target.fetch('/push/key', { headers: bearer(token) })).json()).key;
    const [key, again] = await Promise.all([keyOf(), keyOf()]);
    expect(Buffer.from(key, 'base64url')).toHaveLength(65);
    expect(again).toBe(key);
    const [plain, wordy] = [await subscribed(target, phone), await subscribed(target, phone, { content: true })];
    await say(target, { text: 'Deploy now?', title: 'Agent', chat_id: 't-1', message_id: 'm1' });
    const [[notice], [withContent]] = [await service.noticesOf(plain, 1), await service.noticesOf(wordy, 1)];
    const payload = { type: 'message', message_id: 'm1', chat_id: 't-1', question: true, sent_at: expect.any(Number) };
    expect(notice?.payload).toEqual(payload);
    expect(withContent?.payload).toEqual({ ...payload, title: 'Agent', answers: ['Yes', 'No'], text: 'Deploy now?' });
    expect(notice?.headers).toMatchObject({ urgency: 'high', 'content-encoding': 'aes128gcm' });
    expect(Number(notice?.headers.ttl)).toBeGreaterThan(86_000);
    expect(notice?.key).toBe(key);
    expect(service.faults).toEqual([]);

    // Shown on one device, it is taken back on another.
    const reader = await pair(target);
    reader.client.send('proactive', 'proactive.subscribe', { mirror: true });
    reader.client.send('proactive', 'proactive.shown', { message_id: 'm1' });
    expect((await service.noticesOf(plain, 2))[1]?.payload).toEqual({ type: 'read', message_id: 'm1' });
    expect((await reader.client.next({ type: 'proactive.history' })).payload).toMatchObject({ state: 'shown' });
  });

  it('§6: a device ends its subscription, or the push service does; the other ones stay', async () => {
    const { target, phone, token } = await started();
    const [ended, gone, stays] = [
      await subscribed(target, phone),
      await subscribed(target, phone),
      await subscribed(target, phone),
    ];
    const removal = await call(target, token, 'DELETE', { endpoint: ended.endpoint });
    expect(await removal.json()).toEqual({ ok: true, removed: true });
    expect(await (await call(target, token, 'DELETE', { endpoint: ended.endpoint })).json()).toMatchObject({
      removed: false,
    });
    service.answer(gone, { status: 410 });
    await say(target, { text: 'one', message_id: 'one' });
    await Promise.all([service.noticesOf(gone, 1), service.noticesOf(stays, 1)]);
    await say(target, { text: 'two', message_id: 'two' });
    await service.noticesOf(stays, 2);
    expect(await service.noticesOf(gone, 1)).toHaveLength(1);
    expect(await service.noticesOf(ended, 0)).toEqual([]);
  });

  it('§6: attacks: endpoints that lead elsewhere, wrong keys, the endpoint of another device, no session', async () => {
    const { target, phone, token } = await started();
    const { endpoint, keys } = service.subscription();
    for (const wrong of [
      'https://127.0.0.1/x',
      'http://127.0.0.1:1/x',
      'https://169.254.169.254/latest/meta-data',
      'https://[::ffff:169.254.169.254]/x',
      'https://user@fcm.googleapis.com/x',
      'https://fcm.googleapis.com:22/x',
      'https://fcm.googleapis.com.evil.example/x',
      `https://fcm.googleapis.com/${'x'.repeat(2100)}`,
      7,
    ]) {
      const response = await call(target, token, 'POST', { endpoint: wrong, keys });
      expect([wrong, response.status, (await response.json()).error]).toEqual([
        wrong,
        400,
        expect.stringMatching(/^endpoint /),
      ]);
    }
    expect((await call(target, token, 'POST', { endpoint, keys: { ...keys, auth: 'A'.repeat(7000) } })).status).toBe(
      400,
    );
    expect((await call(target, token, 'POST', { endpoint, keys: 'A'.repeat(9000) })).status).toBe(413);
    expect((await call(target, token, 'POST', { endpoint })).status).toBe(400);
    const device = await subscribed(target, phone);
    const attacker = await pair(target);
    const stolen = { endpoint: device.endpoint, keys };
    expect((await call(target, attacker.token, 'POST', stolen)).status).toBe(409);
    expect(await (await call(target, attacker.token, 'DELETE', stolen)).json()).toMatchObject({ removed: false });

    const without = await pair(target, { policy: { without: ['phone'] } });
    for (const method of ['POST', 'DELETE']) {
      expect((await call(target, 'wrong', method, device)).status).toBe(401);
      expect((await call(target, without.token, method, device)).status).toBe(403);
    }
    expect((await target.fetch('/push/key')).status).toBe(401);
  });

  it('tells the operator whether push services take what is sent', async () => {
    const { target, phone, token } = await started();
    const status = async () => (await target.operator('/push/status')).json();
    expect(await status()).toEqual({ subscriptions: 0, contact: null, services: [] });
    const device = await subscribed(target, phone);
    service.answer(device, { status: 403 });
    await say(target, { text: 'Look' });
    const failed = { host: service.host, at: expect.any(Number), result: 'refused', status: 403, error: null };
    await expect.poll(status).toEqual({ subscriptions: 1, contact: null, services: [failed] });
    await say(target, { text: 'Look again' });
    await expect.poll(status).toMatchObject({ services: [{ result: 'sent', status: 201 }] });
    // A service that nobody is subscribed to any more says nothing about the others.
    await call(target, token, 'DELETE', device);
    expect(await status()).toMatchObject({ subscriptions: 0, services: [] });
  });
});
