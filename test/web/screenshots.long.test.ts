import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { screens as appScreens } from '../../handlers/web/app/screens.ts';
import { screens as consoleScreens } from '../../handlers/web/console/screens.ts';
import { appOf, connected } from '../support/app.ts';
import { startFilledRelay } from '../support/app-scene.ts';
import { describeInBrowser } from '../support/browser.ts';
import { fillRelay } from '../support/console-scene.ts';
import { randomCode, registerCode, type Target } from '../support/relay.ts';

/** Pictures of every screen, to be looked at: `npm run screens` writes them into `SCREENS`. */
const folder = process.env.SCREENS;

describe.skipIf(!folder)('pictures of the screens', () => {
  describeInBrowser('in a browser', ({ open }) => {
    let relay: Target;
    const ends: (() => void)[] = [];
    beforeAll(async () => {
      await mkdir(folder as string, { recursive: true });
      relay = await startFilledRelay((end) => ends.push(end));
      await fillRelay(relay);
    });
    afterAll(() => {
      for (const end of ends.reverse()) end();
    });

    async function shoot(page: Page, name: string): Promise<void> {
      await expect.poll(() => page.locator('.spinner').count()).toBe(0);
      await page.screenshot({ path: join(folder as string, `${name}.png`) });
    }

    /** Brings a screen into use, where it shows nothing otherwise. */
    const USED: Record<string, (page: Page) => Promise<void>> = {
      async chat(page) {
        await page.getByRole('link', { name: 'New conversation' }).click();
        await page.getByRole('textbox', { name: 'Message' }).fill('How did the backup go?');
        await page.getByRole('button', { name: 'Send' }).click();
        await page.getByText('The next one starts at 02:00.').waitFor();
        await page.getByRole('button', { name: 'Send' }).waitFor();
      },
      async terminal(page) {
        await page.locator('.xterm-helper-textarea').focus();
        await page.keyboard.type('uname -o; seq 3\n');
        await expect.poll(() => page.locator('.xterm-rows').textContent()).toContain('GNU/Linux');
      },
      async tui(page) {
        await expect.poll(() => page.getByRole('button', { name: 'Send' }).isEnabled()).toBe(true);
        await page.getByLabel('Ask the agent').fill('hello');
        await page.keyboard.press('Enter');
        await expect.poll(() => page.locator('.xterm-rows').textContent()).toContain('you said');
      },
    };

    const LOOKS = [
      ['phone', 'light'],
      ['phone', 'dark'],
      ['desktop', 'light'],
      ['desktop', 'dark'],
    ] as const;

    it.each(LOOKS)('the app on a %s, %s', async (device, colorScheme) => {
      const { page, allow } = await open({ device, context: { colorScheme } });
      allow(/status of [45]/);
      const app = appOf(relay);
      await page.goto(app);
      await shoot(page, `app-unpaired-${device}-${colorScheme}`);
      const code = randomCode();
      await registerCode(relay, code);
      await page.goto(`${app}#code=${code}`);
      await connected(page);
      for (const { path } of appScreens) {
        await page.goto(`${app}#/${path}`);
        await USED[path]?.(page);
        await shoot(page, `app-${path}-${device}-${colorScheme}`);
      }
      for (const place of ['profiles/default', 'profiles/default%2Fsoul']) {
        await page.goto(`${app}#/${place}`);
        await shoot(page, `app-${place.replace(/\W+/g, '-')}-${device}-${colorScheme}`);
      }
      await page.goto(`${app}#/inbox`);
      await page.locator('a.item').first().click();
      await page.getByText('Dinner is ready').waitFor();
      await shoot(page, `app-inbox-thread-${device}-${colorScheme}`);
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
