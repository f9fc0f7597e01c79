import { describe, expect, it, vi } from 'vitest';
import { createTestPhone } from './support.ts';

const MINUTE = 60_000;

async function leased(change = {}) {
  const phone = createTestPhone({ ...change });
  const now = phone.clock.now();
  await phone.settings.update({
    capabilities: {
      ...phone.settings.get().capabilities,
      screen_inspection: now + 10 * MINUTE,
      screen_control: now + 20 * MINUTE,
    },
  });
  const ends = () => {
    const { screen_inspection, screen_control } = phone.settings.get().capabilities;
    return [screen_inspection, screen_control].map((end) => (typeof end === 'number' ? (end - now) / MINUTE : end));
  };
  const safety = () => phone.phone.status().safety as { auto_disable_at_ms: number | null };
  return { ...phone, now, ends, safety };
}

describe('auto-disable (contract 03 §8.5)', () => {
  it.each([
    [30, 30],
    [1, 5],
    [500, 120],
  ])(
    'a setting of %i minutes renews the leases to %i minutes on an accepted timed command',
    async (autoDisableMinutes, after) => {
      const phone = await leased({ autoDisableMinutes });
      expect(phone.safety().auto_disable_at_ms).toBe(phone.now + 20 * MINUTE);
      await phone.ok('GET', '/screen_hash');
      expect(phone.ends()).toEqual([after, after]);
      expect(phone.safety().auto_disable_at_ms).toBe(phone.now + after * MINUTE);
    },
  );

  it.each([
    ['GET', '/ping'],
    ['GET', '/current_app'],
    ['GET', '/clipboard'],
  ])('%s %s renews nothing', async (method, path) => {
    const phone = await leased();
    await phone.ok(method, path);
    expect(phone.ends()).toEqual([10, 20]);
  });

  it('a refused command renews nothing', async () => {
    const phone = await leased();
    phone.person.answer = false;
    await phone.call('POST', '/tap_text', { text: 'Buy' });
    expect(phone.ends()).toEqual([10, 20]);
  });

  it('unlimited and expired leases are not changed', async () => {
    const phone = await leased();
    await phone.settings.update({ capabilities: { screen_inspection: null, screen_control: phone.now + MINUTE } });
    phone.clock.advance(MINUTE - 1);
    await phone.settings.update({ masterEnabled: false });
    phone.clock.advance(1);
    await phone.settings.update({
      masterEnabled: true,
      capabilities: { screen_inspection: null, screen_control: phone.now },
    });
    await phone.call('GET', '/screen');
    expect(phone.settings.get().capabilities.screen_inspection).toBeNull();
    expect((await phone.call('POST', '/tap')).result.error_code).toMatch(/^bridge_capability_/);
  });

  it('on expiry drops the leases, switches unattended off, notifies once and reports', async () => {
    const phone = await leased({ unattended: true });
    const pushed = vi.fn();
    phone.phone.onStatusChange(pushed);
    const notify = vi.spyOn(phone.device, 'notify');
    phone.clock.advance(20 * MINUTE - 1);
    expect(pushed).not.toHaveBeenCalled();
    expect((await phone.call('GET', '/screen')).result.error_code).toBe('bridge_capability_expired');
    phone.clock.advance(1);
    expect(phone.settings.get().unattended).toBe(false);
    expect(phone.ends()).toEqual([undefined, undefined]);
    expect(phone.settings.get().capabilities.device_info).toBeNull();
    expect(notify).toHaveBeenCalledTimes(1);
    expect(pushed).toHaveBeenCalled();
    expect(phone.safety().auto_disable_at_ms).toBeNull();
    expect((await phone.call('GET', '/screen')).result.error_code).toBe('bridge_capability_denied');
    phone.clock.advance(1000 * MINUTE);
    expect(notify).toHaveBeenCalledTimes(1);
  });

  it('is enforced at gate 3 even if the timer never ran', async () => {
    const phone = await leased();
    const ahead = { ...phone.clock, now: () => phone.clock.now() + 60 * MINUTE, after: () => () => {} };
    const other = createTestPhone({ capabilities: phone.settings.get().capabilities }, { clock: ahead });
    expect((await other.call('GET', '/screen')).result.error_code).toBe('bridge_capability_expired');
  });

  it('the master toggle cancels and arms the timer', async () => {
    const phone = await leased();
    expect(phone.clock.pending).toBe(1);
    await phone.settings.update({ masterEnabled: false });
    expect(phone.clock.pending).toBe(0);
    expect(phone.safety().auto_disable_at_ms).toBeNull();
    await phone.settings.update({ masterEnabled: true });
    expect(phone.clock.pending).toBe(1);
    phone.phone.close();
    expect(phone.clock.pending).toBe(0);
  });
});
