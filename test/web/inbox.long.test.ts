import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connected, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, smallTargets, type TestBrowser } from '../support/browser.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { type Paired, pair, post, startNodeTarget, type Target } from '../support/relay.ts';

const asTool = { 'x-svc-operator': '1' };

describeInBrowser('the inbox in a browser (contract 09 §1, §6)', ({ open }) => {
  let relay: Target;
  beforeAll(async () => {
    relay = await startNodeTarget();
  });
  const closings: (() => Promise<void>)[] = [];
  afterAll(async () => {
    await Promise.all(closings.map((close) => close()));
    await relay?.stop();
  });

  /** Opens the inbox of a browser that is paired just now. `origin` is another way to the relay. */
  async function openInbox(options: Parameters<TestBrowser['open']>[0] = {}, origin = relay.url) {
    const opened = await open(options);
    const code = await webCode(relay);
    await opened.page.goto(`${origin.replace('127.0.0.1', 'localhost')}/app/#code=${code}`);
    await connected(opened.page);
    await opened.page.getByRole('link', { name: 'Inbox' }).click();
    await opened.page.getByRole('heading', { name: 'Inbox', level: 1 }).waitFor();
    return opened;
  }

  const say = async (body: Record<string, unknown>) => {
    const response = await relay.operator('/phone/message', { ...post(body), headers: asTool });
    expect(response.status).toBe(200);
  };
  const stateOf = async (id: string) => {
    const { items } = (await (await relay.operator('/phone/history?limit=200', { headers: asTool })).json()) as {
      items: { message_id: string; state: string; kind: string }[];
    };
    return items.findLast(({ message_id }) => message_id === id)?.state;
  };
  const repliesTo = async (chatId: string, timeout: number) =>
    (await (await relay.operator(`/phone/replies?chat_id=${chatId}&timeout=${timeout}`)).json()).replies as {
      text: string;
      reply_to: string | null;
    }[];
  const texts = (page: Page) => page.locator('.bubble p').allTextContents();

  it('shows a message as it arrives, counts it as unread, and reports it as shown only once it is in sight', async () => {
    const { page } = await openInbox();
    await page.getByText('No messages yet').waitFor();
    await expectAccessible(page);
    await say({ text: 'The build is green.', title: 'Build', chat_id: 'c1', message_id: 'c1-m1' });
    const row = page.getByRole('link', { name: /Build/ });
    await row.getByText('The build is green.').waitFor();
    await page.getByRole('navigation').getByText('1', { exact: true }).waitFor();
    expect(await stateOf('c1-m1')).toBe('queued');
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    await row.click();
    await expect.poll(() => stateOf('c1-m1')).toBe('shown');
    await page.getByText('Seen').waitFor();
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);

    // Another tab is in front of this one: the next message is not seen here.
    await page.evaluate(() => {
      Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => 'hidden' });
    });
    await say({
      text: 'And it is deployed: https://example.org/x.',
      title: 'Build',
      chat_id: 'c1',
      message_id: 'c1-m2',
    });
    expect(await page.getByRole('link', { name: 'https://example.org/x' }).getAttribute('href')).toBe(
      'https://example.org/x',
    );
    expect(await stateOf('c1-m2')).toBe('queued');
    await page.evaluate(() => {
      Reflect.deleteProperty(document, 'visibilityState');
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await expect.poll(() => stateOf('c1-m2')).toBe('shown');
  });

  it('answers a question with one tap, and says what became of a reply', async () => {
    const { page } = await openInbox({ device: 'desktop' });
    await say({ text: 'Shall I deploy?', chat_id: 'c2', title: 'Deploy', message_id: 'c2-m1' });
    await page.getByRole('link', { name: /Deploy/ }).click();
    await page.getByRole('button', { name: 'Yes' }).evaluate((button: HTMLElement) => {
      // A second tap answers nothing.
      button.click();
      button.click();
    });
    await page.getByText('Sent, not read yet').waitFor();
    await page.getByText('Answered').waitFor();
    await expect.poll(() => page.getByRole('button', { name: 'Yes' }).count()).toBe(0);
    expect(await repliesTo('c2', 0)).toMatchObject([{ text: 'Yes', reply_to: 'c2-m1', answer_index: 0 }]);
    await page.getByText('Read by the agent').waitFor();
    await page.getByLabel('Reply').fill('And tell me when it is done.');
    await page.keyboard.press('Enter');
    await expect.poll(() => texts(page)).toEqual(['Shall I deploy?', 'Yes', 'And tell me when it is done.']);
    expect(await repliesTo('c2', 20)).toMatchObject([{ text: 'And tell me when it is done.' }]);
    await expectAccessible(page);

    await page.getByRole('link', { name: 'All threads' }).click();
    await page.getByLabel('Search messages').fill('tell ME');
    await page.getByRole('link', { name: /You: And tell me/ }).click();
    await page.locator('.bubble.found').waitFor();
  });

  it('09 §10: shows the answers that the relay names, closes a question that is withdrawn, and says what came too late', async () => {
    const { page } = await openInbox();
    const buttons = () => page.getByRole('group', { name: 'Answers' }).getByRole('button').allTextContents();
    await say({
      text: 'Which?',
      answers: ['red', 'blue', 'green'],
      chat_id: 'c9',
      title: 'Colours',
      message_id: 'c9-m1',
    });
    await page.getByRole('link', { name: /Colours/ }).click();
    await expect.poll(buttons).toEqual(['red', 'blue', 'green']);
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    // What was read from the history shows the same.
    await page.reload();
    await expect.poll(buttons).toEqual(['red', 'blue', 'green']);
    await page.getByRole('button', { name: 'blue' }).click();
    await expect.poll(buttons).toEqual([]);
    expect(await repliesTo('c9', 20)).toMatchObject([{ text: 'blue', reply_to: 'c9-m1', answer_index: 1 }]);
    await say({ text: 'Pick one: 1. now 2. later', chat_id: 'c9', message_id: 'c9-m2' });
    await expect.poll(buttons).toEqual(['now', 'later']);
    await relay.operator('/phone/outbound?message_id=c9-m2', { method: 'DELETE', headers: asTool });
    await expect.poll(buttons).toEqual([]);
    await page.getByText('Cancelled').waitFor();
    await page.getByLabel('Reply').fill('Why not?');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('Too late: the question was withdrawn').waitFor();
    await expectAccessible(page);
  });

  /** A way to the relay that can be broken. */
  async function openThroughProxy() {
    const proxy = await startFlakyProxy({ port: Number(new URL(relay.url).port), seed: 17, faults: ['none'] });
    closings.push(proxy.close);
    const opened = await openInbox({}, `http://127.0.0.1:${proxy.port}`);
    opened.allow(/WebSocket|ERR_|Failed to load/);
    return { ...opened, proxy };
  }
  /** Does not wait until the page tries to connect by itself. */
  const isBack = async (page: Page) => {
    await page.evaluate(() => void dispatchEvent(new Event('online')));
    return (await page.getByText(/^Connected · /).count()) > 0;
  };
  const collect = async (chatId: string, count: number) => {
    const found: string[] = [];
    await expect.poll(async () => found.push(...(await repliesTo(chatId, 1)).map(({ text }) => text))).toBe(count);
    return found;
  };

  it('keeps drafts and replies that wait for the network over a reload, and sends each reply once', async () => {
    const { page, proxy } = await openThroughProxy();
    await say({ text: 'Which colour?', chat_id: 'c3', title: 'Paint', message_id: 'c3-m1' });
    await page.getByRole('link', { name: /Paint/ }).click();
    await expect.poll(() => stateOf('c3-m1')).toBe('shown');
    // Replies still leave, but nothing comes back: the relay has the first one, and the page does not know.
    proxy.strike('half-open', 'down');
    const field = page.getByLabel('Reply');
    for (const text of ['Blue', 'No, green']) {
      await field.fill(text);
      await page.getByRole('button', { name: 'Send' }).click();
      await page.locator('.bubble', { hasText: text }).getByText('Waits for the relay').waitFor();
    }
    await field.fill('A thought that is not finished');
    const taken = await collect('c3', 2);
    proxy.strike('cut');
    await page.reload();
    await expect.poll(() => page.getByText('Waits for the relay').count()).toBe(0);
    await expect.poll(() => texts(page)).toEqual(['Which colour?', 'Blue', 'No, green']);
    await expect.poll(() => field.inputValue()).toBe('A thought that is not finished');
    expect([taken, await repliesTo('c3', 0)]).toEqual([['Blue', 'No, green'], []]);

    // And one that never left before the page was closed.
    proxy.block('cut');
    await page
      .getByText(/^Offline/)
      .first()
      .waitFor();
    await field.fill('Red');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.locator('.bubble', { hasText: 'Red' }).getByText('Waits for the relay').waitFor();
    proxy.plan(['none']);
    await page.reload();
    expect(await collect('c3', 1)).toEqual(['Red']);
    await expect.poll(() => texts(page)).toEqual(['Which colour?', 'Blue', 'No, green', 'Red']);
  });

  it('keeps what is typed while a reply is being stored', async () => {
    const { page } = await openInbox();
    await say({ text: 'How is it?', chat_id: 'c7', message_id: 'c7-m1' });
    await page.getByRole('link', { name: /How is it/ }).click();
    const field = page.getByLabel('Reply');
    await field.fill('Fine.');
    await field.evaluate((field: HTMLTextAreaElement) => {
      field.form?.requestSubmit();
      field.value = 'And you?';
      field.dispatchEvent(new Event('input', { bubbles: true }));
    });
    expect(await repliesTo('c7', 20)).toMatchObject([{ text: 'Fine.' }]);
    await expect.poll(() => texts(page)).toEqual(['How is it?', 'Fine.']);
    expect(await field.inputValue()).toBe('And you?');
    await page.getByRole('button', { name: 'Send' }).click();
    await expect.poll(() => field.inputValue()).toBe('');
    await expect.poll(() => texts(page)).toEqual(['How is it?', 'Fine.', 'And you?']);
  });

  it('loses and doubles none of 100 messages and 10 replies over a bad network', async () => {
    const { page, proxy } = await openThroughProxy();
    await say({ text: 'n0', chat_id: 'c4', title: 'Numbers' });
    await page.getByRole('link', { name: /Numbers/ }).click();
    await page.getByText('n0', { exact: true }).waitFor();
    proxy.plan(['cut', 'reset', 'none', 'trickle', 'none', 'none']);
    for (let n = 1; n <= 100; n++) {
      await say({ text: `n${n}`, chat_id: 'c4' });
      if (n % 10 === 0) {
        await page.getByLabel('Reply').fill(`r${n}`);
        await page.getByRole('button', { name: 'Send' }).click();
        proxy.strike((['cut', 'reset', 'half-open'] as const)[(n / 10) % 3] as 'cut', n % 20 === 0 ? 'up' : 'down');
        // Some of these connections break as well, on the way or soon after.
        await expect.poll(() => isBack(page)).toBe(true);
      }
    }
    expect(proxy.strikes.length).toBeGreaterThanOrEqual(10);
    proxy.plan(['none']);
    proxy.strike('cut');
    await expect.poll(() => isBack(page)).toBe(true);
    const numbers = Array.from({ length: 101 }, (_, n) => `n${n}`);
    const messages = () => page.locator('.bubble:not(.own) p').allTextContents();
    await expect.poll(messages).toEqual(numbers);
    const replies = Array.from({ length: 10 }, (_, n) => `r${(n + 1) * 10}`);
    expect((await collect('c4', 10)).sort()).toEqual(replies.sort());
    await expect.poll(() => page.locator('.bubble.own').count()).toBe(10);
    await expect.poll(() => page.getByText('Waits for the relay').count()).toBe(0);
    expect(await repliesTo('c4', 0)).toEqual([]);
    expect(await messages()).toEqual(numbers);
  });

  it('what was seen on the phone is not unread here', async () => {
    const { page } = await openInbox();
    const phone: Paired = await pair(relay);
    phone.client.send('proactive', 'proactive.subscribe');
    await phone.client.next({ type: 'proactive.subscribed' });
    await say({ text: 'Seen elsewhere', chat_id: 'c5', title: 'Phone', message_id: 'c5-m1' });
    const row = page.getByRole('link', { name: /Phone/ });
    await row.getByText('unread').waitFor({ state: 'attached' });
    phone.client.send('proactive', 'proactive.shown', { message_id: 'c5-m1' });
    await expect.poll(() => row.getByText('unread').count()).toBe(0);
    phone.client.terminate();
  });
});
