import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import table from '../../handlers/web/shared/locales/app.ts';
import { appOf, connected } from '../support/app.ts';
import { describeInBrowser, expectUsable } from '../support/browser.ts';
import { atMailbox, mirrored } from '../support/mirrored.ts';

/** Of a browser, in the order of the translations. */
const LOCALES = ['en-US', 'de-DE', 'es-ES', 'ja-JP', 'pt-BR', 'zh-CN'];
/** Of a window: a phone, a tablet, a desk and the smallest. */
const SIZES = [
  [390, 844],
  [820, 1180],
  [1440, 800],
  [320, 568],
] as const;

/** Pixels of the field for a reply, with its button, that are outside what shows the screen. */
const hiddenPart = (page: Page): Promise<number> =>
  page.locator('.thread .composer').evaluate((field) => {
    const { top, bottom } = field.getBoundingClientRect();
    const shown = (field.closest('main') as HTMLElement).getBoundingClientRect();
    return Math.round(Math.max(0, bottom - shown.bottom) + Math.max(0, shown.top - top));
  });
const inbox = async (page: Page): Promise<void> => {
  await page.getByRole('link', { name: 'Inbox' }).click();
  await page.getByRole('heading', { name: 'Inbox', level: 1 }).waitFor();
};

describeInBrowser('the app and its mailbox at the edge (contract 12 §3)', ({ open }) => {
  it('goes there by itself while home is killed, with messages and answers, and comes back to a home that has them', {
    timeout: 240_000,
  }, async () => {
    const { home, inStep, pair, say, history } = await mirrored();
    const { page, allow } = await pair(open, { device: 'desktop' });
    await connected(page);
    await inbox(page);
    await inStep();
    await home.kill();
    await atMailbox(page);
    await page.getByText(/^Home is off since \d\d:\d\d/).waitFor();
    await expectUsable(page);

    await say({ text: 'Shall I deploy?', title: 'Deploy', chat_id: 'c1', message_id: 'm1' });
    await page.getByRole('link', { name: /Deploy/ }).click();
    await page.getByRole('button', { name: 'Yes' }).click();
    await page.getByText('Answered').waitFor();
    await page.getByText(/^Home is off since/).waitFor();
    for (const [width, height] of SIZES) {
      await page.setViewportSize({ width, height });
      await expect.poll(() => hiddenPart(page)).toBe(0);
    }
    await page.setViewportSize({ width: 1280, height: 800 });
    await expect.poll(async () => (await history('edge')).find(({ kind }) => kind === 'reply')?.text).toBe('Yes');
    await page.getByLabel('Reply').fill('And say when it is done.');
    await page.keyboard.press('Enter');
    await expectUsable(page);

    // A start of the page while home is off, from what the browser has stored.
    await page.reload();
    await atMailbox(page);
    await expect
      .poll(() => page.locator('.bubble p').allTextContents())
      .toEqual(['Shall I deploy?', 'Yes', 'And say when it is done.']);
    await page.goto(`${appOf(home)}#/terminal`);
    await page.getByText('This screen works again when home is back.').waitFor();
    // Screens that only home serves cannot be tapped, whatever the mailbox has answered them.
    allow(/ 503 /);
    for (const screen of ['voice', 'profiles', 'usage']) {
      await page.goto(`${appOf(home)}#/${screen}`);
      await page.locator('.notice:has-text("Home is off since") ~ [inert]').first().waitFor();
      await expect.poll(() => page.locator('main > :not(.notice, [inert])').count()).toBe(0);
    }
    await expectUsable(page);

    await home.restart();
    await connected(page);
    await expect.poll(() => page.locator('[inert]').count()).toBe(0);
    await page.goto(`${appOf(home)}#/inbox/c1`);
    await expect.poll(() => page.getByText(/^Home is off/).count()).toBe(0);
    await inStep();
    const replies = async () =>
      (await history('home')).filter(({ kind }) => kind === 'reply').map(({ text, state }) => [text, state]);
    await expect.poll(replies).toEqual([
      ['Yes', 'waiting'],
      ['And say when it is done.', 'waiting'],
    ]);
    await expect
      .poll(() => page.locator('.bubble p').allTextContents())
      .toEqual(['Shall I deploy?', 'Yes', 'And say when it is done.']);
  });

  it('what is being typed goes on when home is killed, and when it is back', { timeout: 120_000 }, async () => {
    const { home, inStep, pair } = await mirrored();
    const { page: editor, allow } = await pair(open);
    const { page: devices, allow: allowThere } = await pair(open);
    // The home that is back challenges a proof for the former one once.
    allow(/ (?:401|503) /);
    allowThere(/ (?:401|503) /);
    await editor.goto(`${appOf(home)}#/profiles/default%2Fsoul`);
    await editor.getByLabel('Text').fill('She is kind');
    await devices.goto(`${appOf(home)}#/devices`);
    await devices.getByRole('button', { name: 'Rename' }).first().click();
    const owner = devices.getByLabel('Whose is it?');
    await owner.fill('Ada');
    await inStep();
    await home.kill();
    await Promise.all([editor, devices].map(atMailbox));
    // Nothing can be typed into this screen until home is back.
    await editor.locator('.screen:has(textarea)').and(editor.locator('[inert]')).waitFor();
    await devices.getByText('Home is off since').first().waitFor();
    await devices.keyboard.type(' and');
    expect(await owner.inputValue()).toBe('Ada and');
    await home.restart();
    await Promise.all([editor, devices].map(connected));
    await devices.keyboard.type(' Grace');
    expect(await owner.inputValue()).toBe('Ada and Grace');
    await expect.poll(() => editor.locator('[inert]').count()).toBe(0);
    await editor.keyboard.type(' and brief.');
    expect(await editor.getByLabel('Text').inputValue()).toBe('She is kind and brief.');
  });

  it('says so in every language', { timeout: 180_000 }, async () => {
    const { home, inStep, pair } = await mirrored();
    const pages: Page[] = [];
    for (const locale of LOCALES) pages.push((await pair(open, { context: { locale } })).page);
    for (const page of pages) await page.goto(`${appOf(home)}#/terminal`);
    await inStep();
    await home.kill();
    const sentence = 'This screen works again when home is back.';
    const said = (table as Record<string, string[]>)[sentence] ?? [];
    for (const [index, page] of pages.entries()) {
      await page.getByText(index === 0 ? sentence : (said[index - 1] ?? 'none')).waitFor();
    }
  });

  it('lets no page of another origin read from the edge or connect to it', async () => {
    const { edge, home, inStep, pair } = await mirrored();
    const { page, allow, tab } = await pair(open);
    await inStep();
    allow(/CORS|ERR_FAILED|40[34]|WebSocket/);
    const tries = (on: Page) =>
      on.evaluate(async (at) => {
        const read = await fetch(`${at}/sessions/nonce`).then(
          async (response) => typeof (await response.json()).nonce,
          () => 'refused',
        );
        const socket = await new Promise((resolve) => {
          const made = new WebSocket(`${at.replace('http', 'ws')}/ws`);
          made.onopen = () => resolve('open');
          made.onerror = () => resolve('refused');
        });
        return [read, socket];
      }, edge);
    expect(await tries(page)).toEqual(['string', 'open']);
    const foreign = await tab();
    allow(new RegExp(`^request to ${edge}$`));
    // The same home under another name is another page. It is on an address without a policy of its own.
    await foreign.goto(`http://127.0.0.1:${home.port}/health`);
    expect(await tries(foreign)).toEqual(['refused', 'refused']);
  });
});
