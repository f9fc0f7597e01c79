import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { screens as appScreens } from '../../handlers/web/app/screens.ts';
import { screens as consoleScreens } from '../../handlers/web/console/screens.ts';
import { appOf, pairPage, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, smallTargets } from '../support/browser.ts';
import { bearer, pair, post, startNodeTarget, type Target } from '../support/relay.ts';

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
const banner = (page: Page) => page.getByRole('banner').getByText(/^Frozen by /);
const FREEZE = 'Freeze the agent on every device';
const END = 'End the freeze';

describeInBrowser('freeze in the pages (contract 09 §3)', ({ open }) => {
  let relay: Target;
  beforeAll(async () => {
    relay = await startNodeTarget();
  });
  afterAll(() => relay?.stop());
  beforeEach(async () => {
    await relay.operator('/relay/freeze', { method: 'DELETE' });
  });

  const isFrozen = async () => (await (await relay.fetch('/health')).json()).frozen === true;

  it('the app: one tap begins it, two end it where the grant bridge allows; every screen says it', async () => {
    const { page, allow } = await open();
    // Screens ask for what this relay has no agent for.
    allow(/status of 404/);
    await pairPage(page, relay, { policy: { without: ['desktop'] } });
    await button(page, FREEZE).click();
    await banner(page).waitFor();
    expect(await isFrozen()).toBe(true);
    await expect.poll(() => button(page, FREEZE).count()).toBe(0);
    expect(await smallTargets(page)).toEqual([]);
    await expectAccessible(page);
    await page.reload();
    await banner(page).waitFor();
    for (const { path } of appScreens.filter(({ place }) => place !== 'hidden')) {
      await page.goto(`${appOf(relay)}#/${path}`);
      await page.locator('main .screen').first().waitFor();
      await expect.poll(async () => [path, await banner(page).isVisible()]).toEqual([path, true]);
    }

    // Another session, without the grant, is told live and offers no way to end it.
    const other = await open({ context: { locale: 'de-DE' } });
    await other.page.goto(`${appOf(relay)}#code=${await webCode(relay)}`);
    await other.page.getByText(/^Eingefroren von /).waitFor();
    await other.page.getByText(/auf einem Gerät mit dem Recht bridge/).waitFor();
    await expect.poll(() => button(other.page, 'Einfrieren beenden').count()).toBe(0);

    await button(page, END).click();
    expect(await isFrozen()).toBe(true);
    await page.getByRole('dialog').getByRole('button', { name: END }).click();
    await banner(page).waitFor({ state: 'detached' });
    await other.page.getByText(/^Eingefroren von /).waitFor({ state: 'detached' });
    expect(await isFrozen()).toBe(false);

    await relay.operator('/relay/freeze', post({ reason: 'lost my phone' }));
    await page.getByText(/^Frozen by the operator since .+: lost my phone$/).waitFor();
  });

  it('§9: the console shows it live on every screen, ends it, and revokes whoever sent a command', async () => {
    const { page } = await open({ device: 'desktop' });
    await page.goto(`${relay.url}/console/#/commands`);
    await page.getByText('Live', { exact: true }).waitFor();
    const { token, client } = await pair(relay, { device: { device_name: 'codex' } });
    await relay.operator('/relay/freeze', post({ reason: 'wait' }));
    await page.getByText(/^Frozen by the operator since .+: wait$/).waitFor();
    expect((await relay.fetch('/screen', { headers: bearer(token) })).status).toBe(423);
    const row = page.getByRole('listitem').filter({ hasText: 'GET /screen' });
    await row.getByText('by codex (Device)').waitFor();
    await row.getByText('Frozen', { exact: true }).waitFor();
    const desktopCall = { ...post({}), headers: bearer(token) };
    expect((await relay.fetch('/desktop/desktop_terminal', desktopCall)).status).toBe(423);
    const ofDesktop = page.getByRole('listitem').filter({ hasText: 'desktop_terminal' });
    await ofDesktop.getByText('by codex (Device)').waitFor();
    await page.reload();
    await ofDesktop.getByText('by codex (Device)').waitFor();
    await expectAccessible(page);
    await row.getByRole('button', { name: 'Revoke this one' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke', exact: true }).click();
    expect(await client.closed()).toMatchObject({ code: 4401 });
    await expect.poll(() => button(page, 'Revoke this one').count()).toBe(0);

    await page.reload();
    for (const { path, title } of consoleScreens) {
      await page.goto(`${relay.url}/console/#/${path}`);
      await page.getByRole('heading', { name: title, level: 1 }).waitFor();
      await banner(page).waitFor();
    }
    await button(page, END).click();
    await expectAccessible(page);
    await page.getByRole('dialog').getByRole('button', { name: END }).click();
    await banner(page).waitFor({ state: 'detached' });
    expect(await isFrozen()).toBe(false);
    await page.goto(`${relay.url}/console/#/security`);
    await page.locator('main').getByRole('button', { name: FREEZE }).click();
    await banner(page).waitFor();
    expect(await isFrozen()).toBe(true);
  });
});
