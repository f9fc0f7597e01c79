import { expect, it, vi } from 'vitest';
import { bearer, describeMatrix, type Paired, pair, type Target } from '../support/relay.ts';

interface Recent {
  ok: boolean;
  notifications: Record<string, unknown>[];
  count: number;
}

const recent = async (target: Target, query = ''): Promise<Recent> => {
  const response = await target.operator(`/notifications/recent${query}`);
  expect(response.status).toBe(200);
  return (await response.json()) as Recent;
};

/** Waits until the relay has handled everything sent so far. Only the same channel keeps the order. */
async function posted(target: Target, { client }: Paired): Promise<void> {
  const key = crypto.randomUUID();
  client.send('notifications', 'notification.posted', { key });
  await vi.waitFor(async () => expect((await recent(target, '?limit=1')).notifications[0]).toEqual({ key }));
}

describeMatrix('notifications (contract 02 §6)', (start, runtime) => {
  it('a posted notification comes back whole, and the phone gets no answer', async () => {
    const target = await start();
    const phone = await pair(target);
    const notification = {
      package_name: 'org.example.mail',
      title: 'Subject',
      text: null,
      sub_text: 'x'.repeat(5000),
      posted_at: 1_790_000_000_000,
      key: '0|org.example.mail|1',
      extra: { kept: [true] },
    };
    phone.client.send('notifications', 'notification.posted', notification, 'n1');
    await vi.waitFor(async () => expect((await recent(target)).count).toBe(1));
    const answer = await recent(target);
    expect(answer).toEqual({
      ok: true,
      notifications: [{ ...notification, sub_text: 'x'.repeat(4096) }],
      count: 1,
    });
    phone.client.send('system', 'ping', {}, 'p1');
    await phone.client.next({ id: 'p1' });
    expect(phone.client.frames).toEqual([]);
    await expect.poll(() => target.log.join('\n')).toMatch(/\[DEBUG\] notifications: .*org\.example\.mail/);
    expect(target.log.filter((line) => /Subject|xxx/.test(line))).toEqual([]);
  });

  it('drops other types, payloads that are not objects and large entries silently', async () => {
    const target = await start();
    const phone = await pair(target);
    for (const payload of [[], 'text', 5, true]) phone.client.send('notifications', 'notification.posted', payload);
    phone.client.send('notifications', 'notification.removed', { key: 'a' });
    phone.client.send('notifications', 'notification.posted', { key: 'b', list: ['x'.repeat(33_000)] });
    await posted(target, phone);
    expect((await recent(target)).count).toBe(1);
    expect(phone.client.frames).toEqual([]);
  });

  it('§10.11: of 105 notifications limit=1000 returns 100', async () => {
    const target = await start();
    const phone = await pair(target);
    for (let n = 1; n <= 104; n++) phone.client.send('notifications', 'notification.posted', { n });
    await posted(target, phone);
    const all = await recent(target, '?limit=1000');
    expect(all.count).toBe(100);
    expect(all.notifications).toHaveLength(100);
    expect(all.notifications[1]).toEqual({ n: 104 });
    expect(all.notifications[99]).toEqual({ n: 6 });
    expect((await recent(target)).count).toBe(20);
    expect((await recent(target, '?limit=1')).notifications).toHaveLength(1);
    expect((await recent(target, '?limit=%2B7')).count).toBe(7);
    expect((await recent(target, '?limit=99999999999999999999999')).count).toBe(100);
  });

  it.each([
    ['abc', 'limit must be an integer'],
    ['', 'limit must be an integer'],
    ['1.5', 'limit must be an integer'],
    ['1e1', 'limit must be an integer'],
    ['0x10', 'limit must be an integer'],
    ['0', 'limit must be >= 1'],
    ['-3', 'limit must be >= 1'],
  ])('refuses limit=%s: %s', async (limit, error) => {
    const target = await start();
    const response = await target.operator(`/notifications/recent?limit=${limit}`);
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({ ok: false, error });
  });

  it('any paired device may read, and nobody else', async () => {
    const target = await start();
    const phone = await pair(target, { policy: { grants: { chat: 1, terminal: 1, tui: 1, bridge: 1 } } });
    const status = async (headers: Record<string, string>) =>
      (await target.fetch('/notifications/recent', { headers })).status;
    expect(await status(bearer(phone.token))).toBe(200);
    expect(await status(bearer(crypto.randomUUID()))).toBe(401);
    expect(await status({ authorization: 'Basic eDp5' })).toBe(401);
    // Strict loopback excludes proxies and browsers (contract 01 §1.3), and does not exist at the edge.
    expect(await status({})).toBe(runtime === 'node' ? 200 : 401);
    expect(await status({ 'x-forwarded-for': '192.0.2.1' })).toBe(401);
    expect(await status({ origin: 'https://evil.example' })).toBe(401);
  });

  it('00: phones share one ring, which a restart of the process empties', async () => {
    const target = await start();
    const [one, two] = [await pair(target), await pair(target)];
    await posted(target, one);
    await posted(target, two);
    expect((await recent(target)).count).toBe(2);
    // A Durable Object cannot tell a restart from a sleep, which the ring outlasts (contract 00).
    if (runtime === 'edge') return;
    await target.restart();
    expect((await recent(target)).count).toBe(0);
  });
});
