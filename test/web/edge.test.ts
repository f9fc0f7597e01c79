import { expect, it, onTestFinished } from 'vitest';
import { describeInBrowser, expectAccessible } from '../support/browser.ts';
import { startEdgeTarget } from '../support/edge.ts';
import { pair, post, randomCode, registerCode } from '../support/relay.ts';

describeInBrowser('the pages at the edge (contract 09 §5, 01 §12)', ({ open }) => {
  it('the app pairs by its link, and shows a message as it comes', async () => {
    const relay = await startEdgeTarget();
    const { page } = await open();
    const code = randomCode();
    await registerCode(relay, code, { without: ['bridge', 'desktop'] });
    await page.goto(`${relay.url}/app/#code=${code}`);
    await page
      .getByText(/^Connected/)
      .first()
      .waitFor();
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
    const { page, allow } = await open({ device: 'desktop' });
    allow(/status of (?:40[13]|501)/);
    await page.goto(`${relay.url}/console/#/devices`);
    const unlock = async (token = '') => {
      await page.getByLabel('Operator token or key').fill(token);
      await page.keyboard.press('Enter');
    };
    await unlock(await relay.operatorTokenFor?.('8s'));
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByRole('article', { name: 'Pixel 9' }).waitFor();
    // The list of devices is asked for every five seconds.
    await page.getByText('Locked', { exact: true }).waitFor();
    expect(await page.getByRole('article', { name: 'Pixel 9' }).isVisible()).toBe(false);
    await expectAccessible(page);
    await unlock(await relay.operatorTokenFor?.('10m'));
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByRole('article', { name: 'Pixel 9' }).waitFor();
  });
});
