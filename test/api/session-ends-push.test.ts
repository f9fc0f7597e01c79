import { expect, it } from 'vitest';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { createTestClock } from '../support/clock.ts';
import { startPushService } from '../support/push-service.ts';
import { bearer, describeOnNode, pair, post } from '../support/relay.ts';

const pending = cleanups();
const DAY = 86_400_000;

describeOnNode('push about the end of a session (contract 11 §2)', () => {
  it('calls the devices of the session once, three days before', async () => {
    const [service, clock] = [await startPushService(), createTestClock()];
    const target = await startBuiltTarget({ clock, env: { RELAY_PUSH_HOSTS: service.host } });
    pending.push(target.stop);
    const subscribed = async (ttl_seconds: number) => {
      const { token, prefix } = await pair(target, { policy: { ttl_seconds } });
      const subscription = service.subscription();
      await target.fetch('/push/subscribe', { ...post(subscription), headers: bearer(token) });
      return { token, prefix, subscription };
    };
    const ending = await subscribed((30 * DAY) / 1000);
    await subscribed((90 * DAY) / 1000);
    const [session] = target.relay.sessions.find(ending.prefix);
    clock.set(clock.now() + 26 * DAY);
    await target.relay.endNotices.sweep();
    clock.set(clock.now() + 1.5 * DAY);
    for (let i = 0; i < 3; i++) await target.relay.endNotices.sweep();
    await clock.advanceAsync(0);
    const [push] = await service.noticesOf(ending.subscription, 1);
    expect(push?.payload).toEqual({
      type: 'ends',
      message_id: expect.stringContaining(ending.prefix),
      ends_at: session?.expiresAt,
    });
    expect(service.notices).toHaveLength(1);
    expect(service.faults).toEqual([]);
  });
});
