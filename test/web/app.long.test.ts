import { afterAll, beforeAll, expect, it } from 'vitest';
import { LANGUAGES } from '../../handlers/web/shared/i18n.ts';
import { appOf, connected, pairPage, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, smallTargets } from '../support/browser.ts';
import { startNodeTarget, type Target } from '../support/relay.ts';

describeInBrowser('the app in a browser (contract 09 §5)', ({ open }) => {
  let relay: Target;
  /** Where the app has its own origin. */
  let app: string;
  beforeAll(async () => {
    relay = await startNodeTarget();
    app = appOf(relay);
  });
  afterAll(() => relay?.stop());

  const devices = async () => (await (await relay.operator('/relay/devices')).json()) as { devices: unknown[] };

  it('pairs with the code of a link, which leaves the address at once, and stays paired', async () => {
    const { page } = await open();
    await pairPage(page, relay);
    expect(page.url()).toBe(app);
    expect(await page.evaluate(() => history.length)).toBe(2);
    expect((await devices()).devices).toContainEqual(expect.objectContaining({ client_surface: 'web' }));
    await page.reload();
    await connected(page);
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
  });

  it('shows every screen of the table by keyboard alone, on a desktop and a phone', async () => {
    for (const device of ['desktop', 'phone'] as const) {
      const { page } = await open({ device });
      await pairPage(page, relay);
      const path = device === 'phone' ? ['More', 'Settings'] : ['Settings'];
      for (const name of path) {
        await page.getByRole('link', { name }).focus();
        await page.keyboard.press('Enter');
        await page.getByRole('heading', { name, level: 1 }).waitFor();
        await expect.poll(() => page.evaluate(() => document.activeElement?.tagName)).toBe('H1');
      }
      await page.getByLabel('Theme').selectOption('dark');
      await page.getByLabel('Language').selectOption('de');
      await expect.poll(() => page.evaluate(() => document.documentElement.lang)).toBe('de');
      expect(await page.evaluate(() => document.documentElement.dataset.theme)).toBe('dark');
      await page.reload();
      await expect.poll(() => page.evaluate(() => document.documentElement.lang)).toBe('de');
      await page.getByRole('heading', { name: 'Einstellungen', level: 1 }).waitFor();
      await expectAccessible(page);
    }
  });

  it('specification 2.1: offers six languages, and follows the browser where another was stored', async () => {
    const { page } = await open({ context: { locale: 'pt-PT' } });
    const lang = () => page.evaluate(() => document.documentElement.lang);
    await page.goto(app);
    await expect.poll(lang).toBe('pt-BR');
    // An earlier version spoke French.
    await page.evaluate(() => localStorage.setItem('svc settings', JSON.stringify({ language: 'fr' })));
    await page.reload();
    await expect.poll(lang).toBe('pt-BR');
    await page.goto(`${app}#code=${await webCode(relay)}`);
    await page
      .getByText(/^Conectado/)
      .first()
      .waitFor();
    await page.goto(`${app}#settings`);
    const choice = page.getByLabel('Idioma');
    expect(await choice.inputValue()).toBe('system');
    expect((await choice.locator('option').allTextContents()).slice(1)).toEqual(Object.values(LANGUAGES));
    await choice.selectOption('zh');
    await expect.poll(lang).toBe('zh-Hans');
    await page.getByRole('heading', { name: '设置', level: 1 }).waitFor();
    await expectAccessible(page);
  });
});
