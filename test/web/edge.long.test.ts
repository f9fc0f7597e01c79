import type { Page } from 'playwright-core';
import { expect, it, onTestFinished } from 'vitest';
import { connected, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible } from '../support/browser.ts';
import { startEdgeTarget } from '../support/edge.ts';
import { TIMEOUT } from '../support/limits.ts';
import { pair, post } from '../support/relay.ts';

describeInBrowser('the pages at the edge (contract 09 §5, 01 §12)', ({ open }) => {
  it('the app pairs by its link, and shows a message as it comes', async () => {
    const relay = await startEdgeTarget();
    const { page } = await open();
    const code = await webCode(relay);
    await page.goto(`${relay.url}/app/#code=${code}`);
    await connected(page);
    expect(page.url()).not.toContain(code);
    await page.goto(`${relay.url}/app/#/inbox`);
    await relay.operator('/phone/message', post({ text: 'Dinner is ready' }));
    await page.getByText('Dinner is ready').first().waitFor();
    await expectAccessible(page);
  });

  it('a console whose operator token ends is locked, and goes on with another one', async () => {
    const relay = await startEdgeTarget();
    const { client } = await pair(relay, { device: { device_name: 'Pixel 9' } });
    onTestFinished(() => client.terminate());
    const { page, allow, tab } = await open({ device: 'desktop' });
    allow(/status of (?:40[13]|501)/);
    const unlock = async (page: Page, lifetime: string) => {
      await page.goto(`${relay.url}/console/#/devices`);
      await page.getByLabel('Operator token or key').fill((await relay.operatorTokenFor?.(lifetime)) ?? '');
      await page.keyboard.press('Enter');
      await page.getByText('Live', { exact: true }).waitFor();
      await page.getByRole('article', { name: 'Pixel 9' }).waitFor();
    };
    // The token has to last until the console is live, however busy the machine is: as one tab just did, and more.
    const begun = performance.now();
    const first = await tab();
    await unlock(first, '10m');
    await first.close();
    const seconds = 10 + Math.ceil((5 * (performance.now() - begun)) / 1000);
    await unlock(page, `${seconds}s`);
    // The list of devices is asked for every five seconds.
    await page.getByText('Locked', { exact: true }).waitFor({ timeout: seconds * 1000 + TIMEOUT });
    await expect.poll(() => page.getByRole('article', { name: 'Pixel 9' }).count()).toBe(0);
    await expectAccessible(page);
    await page.getByLabel('Operator token or key').fill((await relay.operatorTokenFor?.('10m')) ?? '');
    await page.keyboard.press('Enter');
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByRole('article', { name: 'Pixel 9' }).waitFor();
  });
});
