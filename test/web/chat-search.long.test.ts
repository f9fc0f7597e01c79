import type { Page } from 'playwright-core';
import { beforeAll, expect, it } from 'vitest';
import { appOf } from '../support/app.ts';
import { describeInBrowser, expectUsable, type PageOptions, ROUTED } from '../support/browser.ts';
import { useChat } from '../support/chat-page.ts';

describeInBrowser('finding conversations (contract 10 §3)', ({ open }) => {
  const chat = useChat({ open });
  beforeAll(() => {
    chat.api.onAny(async (exchange) => {
      const sessions = [
        { id: 's1', title: 'Weather', model: 'm', updated_at: 2 },
        { id: 's2', title: 'Taxes', model: 'm', updated_at: 1 },
      ];
      if (exchange.method === 'GET') return exchange.answer(200, { sessions });
      if (!exchange.path.endsWith('/chat/stream')) return exchange.answer(201, { session: { id: 's1', title: 'T' } });
      exchange.open();
      await exchange.event({ type: 'assistant.delta', delta: 'It is <b>sunny</b> in Bern.' });
      await exchange.event({ type: 'run.completed' });
      exchange.end();
    });
  });

  // Of these conversations, the relay has no history.
  const openTabs = (place: string, options: PageOptions & { allowed?: RegExp } = {}) =>
    chat.open(place, { allowed: /status of 404/, ...options });
  const openChat = async (...of: Parameters<typeof openTabs>): Promise<Page> => (await openTabs(...of)).page;
  const field = (page: Page) => page.getByRole('searchbox', { name: 'Search conversations' });
  const hits = (page: Page) => page.getByRole('list', { name: 'Found conversations' }).getByRole('link');
  const item = (page: Page, name: string) => page.locator('.list').getByRole('link', { name });
  const focused = (page: Page) =>
    page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.tagName);

  it('issue 25: finds a conversation by what was said in it, and leads to it', async () => {
    const page = await openChat('new');
    await page.getByRole('textbox', { name: 'Message' }).fill('What is the weather?');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('It is <b>sunny</b> in Bern.').waitFor();
    await page.getByText('The agent is at work').waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'All conversations' }).click();
    await item(page, 'Taxes').waitFor();
    const asked: (string | null)[] = [];
    page.on('request', (request) => {
      const url = new URL(request.url());
      if (url.pathname === '/chat/search') asked.push(url.searchParams.get('q'));
    });
    await field(page).pressSequentially('b');
    await item(page, 'Taxes').waitFor();
    await field(page).pressSequentially('ERN sunny');
    // Somebody who types slowly is shown what the first words find.
    await expect.poll(() => asked.at(-1)).toBe('bERN sunny');
    await expect.poll(() => hits(page).count()).toBe(1);
    // One letter is no search.
    expect(asked.filter((q) => q?.length === 1)).toEqual([]);
    // The relay alone has no title for it; the agent's list had one.
    await hits(page).getByText('Weather').waitFor();
    await hits(page).getByText('It is <b>sunny</b> in Bern.').waitFor();
    await hits(page)
      .getByText(/\d\d:\d\d/)
      .waitFor();
    await expectUsable(page);
    await hits(page).click();
    await expect.poll(() => page.url()).toMatch(/#\/chat\/s1$/);
    await page.getByRole('article', { name: 'Agent' }).getByText('It is <b>sunny</b> in Bern.').waitFor();
    await page.goBack();
    await hits(page).waitFor();
    await field(page).fill('no such words');
    await page.getByText('No conversation has these words.').waitFor();
    await field(page).fill('');
    await item(page, 'Taxes').waitFor();
  });

  it('drops a search that is under way when other words are typed', async () => {
    const page = await openChat('', ROUTED);
    let arrived = () => {};
    const first = new Promise<void>((resolve) => {
      arrived = resolve;
    });
    const hit = (title: string) => ({ hits: [{ session_id: title, title, id: null, ts: null, excerpt: 'Words' }] });
    await page.route(/chat\/search/, async (route) => {
      const isFirst = route.request().url().endsWith('q=slow');
      // The first one is never answered.
      if (isFirst) return arrived();
      await route.fulfill({ json: hit('Fast one') });
    });
    const failed = page.waitForEvent('requestfailed', (request) => request.url().endsWith('q=slow'));
    await field(page).fill('slow');
    await first;
    await field(page).fill('fast');
    await failed;
    await hits(page).getByText('Fast one').waitFor();
  });

  it('an older relay: says that it cannot search, and lists conversations as before', async () => {
    const page = await openChat('', ROUTED);
    await page.route(/chat\/search/, (route) => route.fulfill({ status: 404, json: { error: 'not found' } }));
    await field(page).fill('taxes');
    await page.getByText('This relay is too old to search.').waitFor();
    await field(page).fill('');
    await item(page, 'Taxes').waitFor();
  });

  it('issue 25.10: conversations are beside the one that is open on a desktop', async () => {
    const page = await openChat('', { device: 'desktop' });
    await page.getByText('Choose a conversation.').waitFor();
    await item(page, 'Taxes').click();
    await page.getByRole('heading', { name: 'Taxes' }).waitFor();
    const current = () => page.locator('.list a[aria-current]').allTextContents();
    await expect.poll(current).toEqual([expect.stringContaining('Taxes')]);
    await item(page, 'Weather').click();
    await page.getByRole('heading', { name: 'Weather' }).waitFor();
    await expect.poll(current).toEqual([expect.stringContaining('Weather')]);
    await page.getByRole('textbox', { name: 'Message' }).fill('What is the weather?');
    await expectUsable(page);
    // On a phone, one of the two, with what was typed.
    await page.setViewportSize({ width: 390, height: 844 });
    await expect.poll(() => page.locator('.panes').count()).toBe(0);
    await expect.poll(() => page.getByRole('textbox', { name: 'Message' }).inputValue()).toBe('What is the weather?');
    await expect.poll(() => item(page, 'Taxes').count()).toBe(0);
  });

  it('issue 25: other tabs see at once what a conversation is called, and that it is hidden', async () => {
    const { page, tab } = await openTabs('');
    await item(page, 'Taxes').waitFor();
    const other = await tab();
    await other.goto(chat.at(''));
    await item(other, 'Taxes').click();
    await other.getByRole('button', { name: 'Rename or hide' }).click();
    await other.getByRole('textbox', { name: 'Name' }).fill('Money');
    await other.getByRole('button', { name: 'Save' }).click();
    await item(page, 'Money').waitFor();
    await other.getByRole('button', { name: 'Rename or hide' }).click();
    await other.getByRole('switch', { name: 'Hide in the list' }).click();
    await other.getByRole('button', { name: 'Save' }).click();
    await item(page, 'Money').waitFor({ state: 'detached' });
    await item(page, 'Weather').waitFor();
    await page.getByRole('button', { name: 'Show hidden conversations (1)' }).waitFor();
  });

  it('issue 25: renames and hides a conversation on this device, until it signs out', async () => {
    const page = await openChat('', { allowed: /WebSocket|status of 40[14]/ });
    const mark = () => page.getByRole('button', { name: 'Rename or hide' }).click();
    await item(page, 'Taxes').click();
    await mark();
    await expectUsable(page);
    await page.getByRole('textbox', { name: 'Name' }).fill('Money');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('heading', { name: 'Money' }).waitFor();
    await page.reload();
    await page.getByRole('heading', { name: 'Money' }).waitFor();
    await page.getByRole('link', { name: 'All conversations' }).click();
    await item(page, 'Money').click();
    await mark();
    await page.getByRole('switch', { name: 'Hide in the list' }).click();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('link', { name: 'All conversations' }).click();
    await item(page, 'Weather').waitFor();
    await expect.poll(() => item(page, 'Money').count()).toBe(0);
    await page.reload();
    await page.getByRole('button', { name: 'Show hidden conversations (1)' }).click();
    await expectUsable(page);
    await item(page, 'Money').click();
    await mark();
    await page.getByRole('switch', { name: 'Hide in the list' }).click();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('link', { name: 'All conversations' }).click();
    await item(page, 'Money').waitFor();
    await expect.poll(() => page.getByRole('button', { name: /Show hidden/ }).count()).toBe(0);
    const stored = () =>
      page.evaluate(async () => {
        const settled = <T>(request: IDBRequest<T>) =>
          new Promise<T>((resolve) => {
            request.onsuccess = () => resolve(request.result);
          });
        const database = await settled(indexedDB.open('svc kept'));
        const keys = await settled(database.transaction('keep').objectStore('keep').getAllKeys());
        database.close();
        return keys.filter((key) => String(key).startsWith('chat'));
      });
    await expect.poll(stored).toContain('chat marks /');
    await page.goto(`${appOf(chat.relay)}#/devices`);
    // The relay closes the socket and refuses what is under way: that is allowed above.
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click();
    await expect.poll(stored).toEqual([]);
  });

  it.each([
    ['desktop', 'Message'],
    ['phone', 'H2'],
  ] as const)('issue 25.6: on a %s, the focus of a conversation begins at %s', async (device, place) => {
    const page = await openChat('', { device });
    await item(page, 'Taxes').click();
    await page.getByRole('heading', { name: 'Taxes' }).waitFor();
    await expect.poll(() => focused(page)).toBe(place);
    await page.getByRole('link', { name: 'New conversation' }).click();
    await page.getByText('Ask the agent something.').waitFor();
    await expect.poll(() => focused(page)).toBe(place);
    await page.reload();
    await page.getByText('Ask the agent something.').waitFor();
    await expect.poll(() => focused(page)).toBe(place);
    await page.goto(chat.at('s1'));
    await page.getByRole('heading', { name: 'Weather' }).waitFor();
    await expect.poll(() => focused(page)).toBe(place);
  });
});
