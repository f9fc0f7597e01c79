import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { screens as appScreens } from '../../handlers/web/app/screens.ts';
import { screens as consoleScreens } from '../../handlers/web/console/screens.ts';
import { describeInBrowser } from '../support/browser.ts';
import { fillRelay } from '../support/console-scene.ts';
import { randomCode, registerCode, startNodeTarget, type Target } from '../support/relay.ts';

/** Pictures of every screen, to be looked at: `npm run screens` writes them into `SCREENS`. */
const folder = process.env.SCREENS;

describe.skipIf(!folder)('pictures of the screens', () => {
  describeInBrowser('in a browser', ({ open }) => {
    let relay: Target;
    beforeAll(async () => {
      await mkdir(folder as string, { recursive: true });
      // A tmux server would outlive the relay.
      relay = await startNodeTarget({ env: { RELAY_TERMINAL_TMUX: '0' } });
      await fillRelay(relay);
    });
    afterAll(() => relay?.stop());

    async function shoot(page: Page, name: string): Promise<void> {
      await expect.poll(() => page.locator('.spinner').count()).toBe(0);
      await page.screenshot({ path: join(folder as string, `${name}.png`) });
    }

    const LOOKS = [
      ['phone', 'light'],
      ['phone', 'dark'],
      ['desktop', 'light'],
      ['desktop', 'dark'],
    ] as const;

    it.each(LOOKS)('the app on a %s, %s', async (device, colorScheme) => {
      const { page, allow } = await open({ device, context: { colorScheme } });
      allow(/status of [45]/);
      const app = `${relay.url.replace('127.0.0.1', 'localhost')}/app/`;
      await page.goto(app);
      await shoot(page, `app-unpaired-${device}-${colorScheme}`);
      const code = randomCode();
      await registerCode(relay, code);
      await page.goto(`${app}#code=${code}`);
      await page
        .getByText(/^Connected/)
        .first()
        .waitFor();
      for (const { path } of appScreens) {
        await page.goto(`${app}#/${path}`);
        await shoot(page, `app-${path}-${device}-${colorScheme}`);
      }
    });

    it.each(LOOKS)('the console on a %s, %s', async (device, colorScheme) => {
      const { page, allow } = await open({ device, context: { colorScheme } });
      allow(/501|503/);
      for (const { path } of consoleScreens) {
        await page.goto(`${relay.url}/console/#/${path}`);
        if (path === 'overview') await page.getByText('As of').waitFor();
        await shoot(page, `console-${path}-${device}-${colorScheme}`);
        if (path === 'pair') {
          await page.getByLabel('Browser').check();
          await page.getByRole('button', { name: 'Show a code' }).click();
          await page.getByRole('timer').waitFor();
          await shoot(page, `console-code-${device}-${colorScheme}`);
          await page.getByRole('button', { name: 'Start over' }).click();
        }
        if (path === 'devices') {
          await page.getByRole('button', { name: 'Reduce' }).first().click();
          await shoot(page, `console-reduce-${device}-${colorScheme}`);
          await page.keyboard.press('Escape');
          await page.getByRole('button', { name: 'Revoke' }).first().click();
          await shoot(page, `console-revoke-${device}-${colorScheme}`);
          await page.keyboard.press('Escape');
        }
      }
    });
  });
});
