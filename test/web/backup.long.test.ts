import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { appOf, webCode } from '../support/app.ts';
import { describeInBrowser } from '../support/browser.ts';
import { stored } from '../support/browser-storage.ts';
import { agentHome } from '../support/cli.ts';
import { begin, paired, run } from '../support/companion-cli.ts';
import { bearer, startNodeTarget, type Target } from '../support/relay.ts';

const PASSPHRASE = 'correct horse battery';

describeInBrowser('a backup moves between the app and the companion (issue 17)', ({ open }) => {
  let relay: Target;
  let app: string;
  beforeAll(async () => {
    relay = await startNodeTarget({ env: { RELAY_TERMINAL_TMUX: '0' } });
    app = appOf(relay);
  });
  afterAll(() => relay?.stop());

  async function openSettings() {
    const { page } = await open();
    const code = await webCode(relay);
    await page.goto(`${app}#code=${code}`);
    const online = page.getByText(/^Connected/).first();
    await online.waitFor();
    await page.goto(`${app}#/settings`);
    await page.getByLabel('Passphrase').fill(PASSPHRASE);
    return { page, online };
  }

  /** Runs a command of the companion with the passphrase on stdin. */
  const withPassphrase = async (home: string, ...words: string[]) => {
    const input = `${PASSPHRASE}\n`;
    const { code, stdout, stderr } = await run(['companion', ...words, '--passphrase-stdin', '--json'], {
      home,
      input,
    });
    expect([code, stderr]).toEqual([0, '']);
    return JSON.parse(stdout);
  };
  const settingsOf = async (home: string) => JSON.parse(await readFile(join(home, 'companion/settings.json'), 'utf8'));
  const currentOf = async (token: string) => {
    const { sessions } = await (await relay.fetch('/sessions', { headers: bearer(token) })).json();
    return sessions.find((row: { is_current: boolean }) => row.is_current);
  };

  it('from the app to the companion, which goes on as that browser', async () => {
    const { page } = await openSettings();
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Export' }).click();
    const home = agentHome();
    const imported = await withPassphrase(home, 'import', await (await download).path());
    expect(imported).toMatchObject({ paired: true, pairing: true, settings: [] });
    expect(imported.ignored).toEqual(expect.arrayContaining(['theme', 'language']));
    await page.close();
    const companion = begin(['companion', 'run', '--json'], { home });
    await companion.prints(/"state":"online"/);
    const { pairing, device_id: deviceId } = await settingsOf(home);
    // The relay renews tokens for the device id of the session only.
    expect(await currentOf(pairing.session_token)).toMatchObject({ device_id: deviceId });
  });

  it('from the companion to the app, with the device id that the relay knows', async () => {
    const home = await paired(Number(new URL(relay.url).port));
    const { pairing, device_id: deviceId } = await settingsOf(home);
    const file = join(home, 'backup.json');
    await withPassphrase(home, 'export', file);
    const { page, online } = await openSettings();
    await page.getByLabel('Import').setInputFiles(file);
    // The companion pairs with another address of the same relay.
    await page.getByText(/^The pairing was made at ws:/).waitFor();
    await page.getByRole('button', { name: 'Replace' }).click();
    await page.getByText('Restored.').waitFor();
    await page.reload();
    await online.waitFor();
    const stored = await page.evaluate(
      () =>
        new Promise<{ deviceId: string; pairing: { session_token: string } }>((resolve, reject) => {
          const opening = indexedDB.open('svc');
          opening.onerror = () => reject(opening.error);
          opening.onsuccess = () => {
            const all = opening.result.transaction('keep').objectStore('keep').getAll();
            all.onsuccess = () => resolve(all.result.find((row) => row?.pairing));
          };
        }),
    );
    expect(stored.deviceId).toBe(deviceId);
    expect(stored.pairing.session_token).toBe(pairing.session_token);
    expect(await currentOf(pairing.session_token)).toMatchObject({ device_id: deviceId });
  });

  it('a session stays bound to its key when its page is closed before the backup is sealed', async () => {
    const { page, online } = await openSettings();
    const tokenIn = async () => {
      const row = (await stored(page)).databases.svc?.['pairing /'] as { pairing: { session_token: string } };
      return row.pairing.session_token;
    };
    const statusOf = async (token: string) => (await relay.fetch('/sessions', { headers: bearer(token) })).status;
    const token = await tokenIn();
    expect(await statusOf(token)).toBe(401);
    // A slow phone takes seconds to seal.
    await page.evaluate(() => {
      SubtleCrypto.prototype.encrypt = () => {
        document.documentElement.classList.add('sealing');
        return new Promise(() => {});
      };
    });
    await page.getByRole('button', { name: 'Export' }).click();
    await page.locator('html.sealing').waitFor();
    expect(await statusOf(token)).toBe(401);
    await page.goto(`${app}#/home`);
    await page.reload();
    await online.waitFor();
    await page.getByText(/bound to a key of this browser: a copy/).waitFor();
    expect(await statusOf(await tokenIn())).toBe(401);
  });

  it('a file larger than any backup is refused without being read to its end', async () => {
    const { page } = await openSettings();
    const buffer = Buffer.alloc(8 * 1024 * 1024, 'x');
    await page.getByLabel('Import').setInputFiles({ name: 'large.json', mimeType: 'application/json', buffer });
    await page.getByText('This file is larger than any backup.').waitFor();
  });
});
