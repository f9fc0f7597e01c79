import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { appOf, pairPage } from '../support/app.ts';
import { startFilledRelay } from '../support/app-scene.ts';
import { describeInBrowser, expectUsable } from '../support/browser.ts';
import { fillRelay } from '../support/console-scene.ts';
import { pair, startNodeTarget, type Target } from '../support/relay.ts';

/** Opens a dialog by the buttons of these names, checks it, and leaves it by the keyboard. */
async function check(page: Page, ...buttons: (string | RegExp)[]): Promise<void> {
  for (const name of buttons) await page.getByRole('button', { name }).last().click();
  await page.getByRole('dialog').waitFor();
  await expect.poll(() => page.locator('.spinner').count()).toBe(0);
  await expectUsable(page);
  await page.keyboard.press('Escape');
  await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
}

describeInBrowser('dialogs under a finger (issue 17)', ({ open }) => {
  const ends: (() => unknown)[] = [];
  let filled: Target;
  let relay: Target;
  beforeAll(async () => {
    filled = await startFilledRelay((end) => ends.push(end));
    relay = await startNodeTarget();
    ends.push(() => relay.stop());
    const { phone } = await fillRelay(relay);
    ends.unshift(() => phone.client.terminate());
  });
  afterAll(async () => {
    for (const end of ends) await end();
  });

  it('all of the app', async () => {
    const { page, allow } = await open();
    // Profiles without a picture.
    allow(/404/);
    const app = appOf(filled);
    await pairPage(page, filled);
    await page.goto(`${app}#/devices`);
    await check(page, 'Sign out');
    await check(page, 'Reduce');
    await page.goto(`${app}#/files`);
    const file = { name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('text') };
    await page.getByLabel('Send files').setInputFiles(file);
    await page.getByRole('listitem').filter({ hasText: 'note.txt' }).waitFor();
    await page.getByRole('listitem').filter({ hasText: 'note.txt' }).getByRole('button', { name: 'Open' }).click();
    await check(page);
    await page.goto(`${app}#/profiles/default`);
    await check(page, 'New memory');
    await page.goto(`${app}#/terminal`);
    await check(page, 'More');
    await check(page, 'More', 'End the shell');
    await check(page, 'Paste');
    await page.goto(`${app}#/tui`);
    await check(page, 'Conversations');
  });

  it('all of the console', async () => {
    await pair(relay, { device: { device_name: 'Pixel 8', client_surface: 'android' } });
    const { page } = await open();
    const go = async (screen: string) => {
      await page.goto(`${relay.url}/console/#/${screen}`);
      await page.getByText('Live', { exact: true }).waitFor();
    };
    await go('devices');
    await check(page, 'Revoke');
    await check(page, 'Reduce');
    await go('pair');
    await check(page, /^Admit/);
    await go('messages');
    await check(page, 'Cancel all');
  });
});
