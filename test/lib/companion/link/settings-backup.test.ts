import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Backup } from '../../../../lib/companion/backup.ts';
import { openSettings } from '../../../../lib/companion/link/settings.ts';
import { defaultSettings } from '../../../../lib/companion/safety-settings.ts';
import { createFiles } from '../../../../lib/host/node/files.ts';
import { createTestClock } from '../../../support/clock.ts';
import { temporaryDirectory } from '../../../support/temp.ts';
import { PAIRING } from './support.ts';

async function open() {
  const path = join(await temporaryDirectory(), 'settings.json');
  const settings = await openSettings({ files: createFiles(), path, clock: createTestClock() });
  return { settings, text: () => readFile(path, 'utf8') };
}

describe('backup and restore of the settings', () => {
  it('move settings, pairing and device id, but neither toggles of control nor grants (03 §8.2)', async () => {
    const { settings: old } = await open();
    await old.replacePairing(PAIRING);
    const changed = { blocklist: [], trustedVerbs: ['buy'], messagesEnabled: true, autoDisableMinutes: 5 };
    await old.update({ ...changed, masterEnabled: true, unattended: true, capabilities: { device_info: null } });
    const backup: Backup = JSON.parse(JSON.stringify(old.backup()));
    expect(backup.settings).toMatchObject({ bridge_trusted_destructive_verbs: ['buy'], blocklist: [] });

    const { settings, text } = await open();
    const restored = await settings.restore(backup);
    expect(restored).toEqual({ settings: Object.keys(backup.settings), ignored: [], pairing: true });
    expect(settings.get()).toEqual({ ...defaultSettings(), ...changed, policy: 'bound' });
    expect([settings.pairing(), settings.deviceId]).toEqual([PAIRING, old.deviceId]);
    expect(JSON.parse(await text()).device_id).toBe(old.deviceId);
  });

  it('move the rules of the triggers, and leave the log of what they did where it is (specification 2.1)', async () => {
    const rule = {
      id: 'a',
      label: 'A',
      enabled: true,
      app_package: 'a.b',
      action: 'ask_me',
      require_confirmation: false,
    };
    const { settings: old } = await open();
    const rules = JSON.stringify([rule]);
    const log = '[{"id":"old"}]';
    await old.update({
      triggers: { notification_trigger_rules_json: rules, notification_trigger_activity_log_json: log },
    });
    const { settings } = await open();
    await settings.update({ triggers: { notification_trigger_activity_log_json: '[{"id":"own"}]' } });
    await settings.restore(JSON.parse(JSON.stringify(old.backup())));
    expect(settings.get().triggers).toEqual({
      notification_triggers_enabled: false,
      notification_triggers_kill_switch: false,
      notification_trigger_rules_json: rules,
      notification_trigger_activity_log_json: '[{"id":"own"}]',
    });
  });

  it('name the keys of others as ignored, and keep the pairing when the backup has none', async () => {
    const { settings } = await open();
    await settings.replacePairing(PAIRING);
    const { deviceId } = settings;
    const foreign = { settings: { theme: 'dark', blocklist: ['a.b'], toString: 1 }, pairing: null, deviceId: null };
    expect(await settings.restore(foreign)).toEqual({
      settings: ['blocklist'],
      ignored: ['theme', 'toString'],
      pairing: false,
    });
    expect([settings.pairing(), settings.deviceId, settings.get().blocklist]).toEqual([PAIRING, deviceId, ['a.b']]);
  });

  it.each([
    [{ settings: { blocklist: 'all' } }, /blocklist has no usable value/],
    [{ settings: { auto_disable_minutes: 1e9, blocklist: [] } }, /auto_disable_minutes/],
    [{ settings: { bridge_trusted_destructive_verbs: null } }, /bridge_trusted/],
    [{ settings: { notification_triggers: { notification_trigger_rules_json: '[{}]' } } }, /notification_triggers/],
    [{ settings: { blocklist: [] }, pairing: { session_token: 'x' } }, /pairing/],
    [
      { settings: {}, pairing: { ...PAIRING, endpoints: [{ role: 'x', url: 'javascript:0', priority: 0 }] } },
      /pairing/,
    ],
  ])('refuse %j as a whole', async (bad, error) => {
    const { settings, text } = await open();
    await settings.replacePairing(PAIRING);
    const before = await text();
    await expect(settings.restore({ pairing: null, deviceId: null, ...bad })).rejects.toThrow(error);
    expect(await text()).toBe(before);
  });

  it('keep the own device id when that of the backup is none', async () => {
    const { settings } = await open();
    const { deviceId } = settings;
    await settings.restore({ settings: {}, pairing: { ...PAIRING }, deviceId: '../x' });
    expect(settings.deviceId).toBe(deviceId);
  });
});
