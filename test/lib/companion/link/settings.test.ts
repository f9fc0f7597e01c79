import { chmod, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openSettings } from '../../../../lib/companion/link/settings.ts';
import { createFiles } from '../../../../lib/host/node/files.ts';
import { createTestClock } from '../../../support/clock.ts';
import { temporaryDirectory } from '../../../support/temp.ts';
import { PAIRING } from './support.ts';

const clock = createTestClock();

async function place() {
  const path = join(await temporaryDirectory(), 'companion', 'settings.json');
  return { path, open: (files = createFiles()) => openSettings({ files, path, clock }) };
}

const fileOf = async (path: string) => JSON.parse(await readFile(path, 'utf8'));

describe('the settings file', () => {
  it('is created at once, 0600 in a directory of 0700, and keeps the device id', async () => {
    const { path, open } = await place();
    const first = await open();
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await stat(join(path, '..'))).mode & 0o777).toBe(0o700);
    expect((await open()).deviceId).toBe(first.deviceId);
    expect(first.pairing()).toBeNull();
    expect(first.get()).toMatchObject({ masterEnabled: false, policy: 'unbound', capabilities: {} });
    expect(first.get().blocklist).toHaveLength(28);
  });

  it('keeps the pairing and the owner’s settings over a restart', async () => {
    const { path, open } = await place();
    const settings = await open();
    await settings.replacePairing(PAIRING);
    await settings.update({
      masterEnabled: true,
      blocklist: [],
      capabilities: { screen_control: 5, device_info: null },
    });
    const again = await open();
    expect(again.pairing()).toEqual(PAIRING);
    expect(again.get()).toMatchObject({
      masterEnabled: true,
      blocklist: [],
      policy: 'bound',
      capabilities: { screen_control: 5, device_info: null },
    });
    expect((await fileOf(path)).safety).not.toHaveProperty('policy');
  });

  it('a new pairing grants nothing (03 §8.2), and unpairing keeps only the id and the owner’s settings', async () => {
    const { open } = await place();
    const settings = await open();
    await settings.replacePairing(PAIRING);
    await settings.update({ masterEnabled: true, capabilities: { device_info: null } });
    await settings.replacePairing({ ...PAIRING, session_token: 'other' });
    expect(settings.get()).toMatchObject({ masterEnabled: true, policy: 'bound', capabilities: {} });
    await settings.removePairing();
    const again = await open();
    expect(again.pairing()).toBeNull();
    expect(again.get()).toMatchObject({ masterEnabled: true, policy: 'unbound' });
    expect(again.deviceId).toBe(settings.deviceId);
    // There is no relay to grant anything to.
    await again.update({ capabilities: { device_info: null } });
    expect(again.get()).toMatchObject({ policy: 'unbound', capabilities: {} });
  });

  it.each([
    ['no policy', undefined, 'unbound'],
    ['a later schema', { schema_version: 2, device_id: 'OWN', capabilities: { device_info: null } }, 'invalid'],
    ['another install', { schema_version: 1, device_id: 'x', capabilities: { device_info: null } }, 'invalid'],
    ['a malformed policy', { schema_version: 1, device_id: 'OWN', capabilities: { device_info: 5 } }, 'invalid'],
    ['text', 'all', 'invalid'],
  ])('%s denies everything', async (_name, policy, state) => {
    const { path, open } = await place();
    const first = await open();
    await first.replacePairing(PAIRING);
    const own = JSON.parse(JSON.stringify(policy ?? null).replace('OWN', first.deviceId));
    await writeFile(path, JSON.stringify({ ...(await fileOf(path)), policy: policy === undefined ? undefined : own }));
    expect((await open()).get()).toMatchObject({ policy: state, capabilities: {} });
  });

  it.each([
    ['garbage', 'not json'],
    ['cut off', '{"version":1,"device_'],
    ['an empty file', ''],
    ['another shape', '{"version":1,"device_id":7}'],
    [
      'a malformed blocklist',
      '{"version":1,"device_id":"b1f4c1d2-0000-4000-8000-000000000001","pairing":null,"safety":{"blocklist":7}}',
    ],
  ])('%s is set aside unchanged, never overwritten', async (_name, text) => {
    const { path, open } = await place();
    await open();
    await writeFile(path, text);
    const settings = await open();
    expect(settings.setAside).toMatch(/settings\.json\.corrupt-\d+-[0-9a-f]{8}$/);
    expect(await readFile(settings.setAside as string, 'utf8')).toBe(text);
    expect((await stat(settings.setAside as string)).mode & 0o777).toBe(0o600);
    expect(settings.pairing()).toBeNull();
    expect((await open()).setAside).toBeUndefined();
  });

  it('a damaged file that cannot be set aside is not changed', async () => {
    const { path, open } = await place();
    await open();
    await writeFile(path, 'not json');
    const files = { ...createFiles(), createExclusive: () => Promise.reject(new Error('no space left')) };
    await expect(open(files)).rejects.toThrow('no space left');
    expect(await readFile(path, 'utf8')).toBe('not json');
  });

  it('a file of a newer version is refused and not changed', async () => {
    const { path, open } = await place();
    await open();
    await writeFile(path, '{"version":2}');
    await expect(open()).rejects.toThrow('newer version');
    expect(await readFile(path, 'utf8')).toBe('{"version":2}');
  });

  it('a setting takes effect at once and many share few writes; a credential takes effect once it is written', async () => {
    const { path, open } = await place();
    let writes = 0;
    const files = createFiles();
    const settings = await open({
      ...files,
      writeAtomic: (...args) => {
        writes++;
        return files.writeAtomic(...args);
      },
    });
    writes = 0;
    const done = [];
    for (let count = 0; count < 50; count++) {
      done.push(settings.update({ autoDisableMinutes: 5 + count }));
      expect(settings.get().autoDisableMinutes).toBe(5 + count);
    }
    const paired = settings.replacePairing(PAIRING);
    expect(settings.pairing()).toBeNull();
    done.push(settings.update({ masterEnabled: true }));
    await Promise.all([...done, paired]);
    expect(writes).toBeLessThanOrEqual(4);
    expect(settings.pairing()).toEqual(PAIRING);
    expect(await fileOf(path)).toMatchObject({
      pairing: PAIRING,
      safety: { autoDisableMinutes: 54, masterEnabled: true },
    });
  });

  it('a credential that cannot be written has no effect, and later changes are written again', async () => {
    const { open } = await place();
    let broken = false;
    const files = createFiles();
    const settings = await open({
      ...files,
      writeAtomic: (...args) => (broken ? Promise.reject(new Error('EIO')) : files.writeAtomic(...args)),
    });
    await settings.replacePairing(PAIRING);
    broken = true;
    await expect(settings.updatePairing({ session_token: 'lost' })).rejects.toThrow('EIO');
    expect(settings.pairing()?.session_token).toBe('token-1');
    await expect(settings.update({ masterEnabled: true })).rejects.toThrow('EIO');
    broken = false;
    await settings.updatePairing({ session_token: 'kept' });
    const again = await open();
    expect(again.pairing()?.session_token).toBe('kept');
    expect(again.get().masterEnabled).toBe(true);
  });

  it('settled waits for changes that were not awaited, and tolerates one that failed', async () => {
    const { path, open } = await place();
    const files = createFiles();
    let isFull = false;
    const writeAtomic: typeof files.writeAtomic = async (...write) => {
      if (isFull) throw new Error('the disk is full');
      return files.writeAtomic(...write);
    };
    const settings = await open({ ...files, writeAtomic });
    void settings.update({ masterEnabled: true });
    void settings.updatePairing({});
    void settings.update({ blocklist: ['com.example.bank'] });
    await settings.settled();
    expect((await fileOf(path)).safety).toMatchObject({ masterEnabled: true, blocklist: ['com.example.bank'] });
    isFull = true;
    const lost = settings.update({ masterEnabled: false });
    await Promise.all([expect(lost).rejects.toThrow('full'), settings.settled()]);
  });

  it('notifies listeners until they unsubscribe, and leaves no temporary file', async () => {
    const { path, open } = await place();
    const settings = await open();
    const heard: boolean[] = [];
    const end = settings.onChange(({ masterEnabled }) => heard.push(masterEnabled));
    await settings.update({ masterEnabled: true });
    end();
    await settings.update({ masterEnabled: false });
    expect(heard).toEqual([true]);
    expect(await readdir(join(path, '..'))).toEqual(['settings.json']);
  });

  it.skipIf(process.getuid?.() === 0)('an unwritable place is detected on opening', async () => {
    const { path, open } = await place();
    await open();
    await chmod(join(path, '..'), 0o500);
    await expect(openSettings({ files: createFiles(), path: join(path, '..', 'other.json'), clock })).rejects.toThrow(
      /EACCES/,
    );
    await chmod(join(path, '..'), 0o700);
  });
});
