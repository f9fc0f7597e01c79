import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { appOf, connected, pairPage, webCode } from '../support/app.ts';
import { describeInBrowser, expectUsable } from '../support/browser.ts';
import { type Exchange, type FakeApi, startFakeApi } from '../support/fake-api-server.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { startNodeTarget, type Target } from '../support/relay.ts';

describeInBrowser('conversations that last (contract 10 §3)', ({ open }) => {
  let relay: Target;
  let api: FakeApi;
  const ends: (() => void)[] = [];
  beforeAll(async () => {
    api = await startFakeApi((end) => ends.push(end));
    relay = await startNodeTarget({ env: { RELAY_WEBAPI_URL: api.url } });
  });
  afterAll(async () => {
    await relay?.stop();
    for (const end of ends) end();
  });

  const answers = (page: Page) => page.getByRole('article', { name: 'Agent' });
  const questions = (page: Page) => page.getByRole('article', { name: 'You' });
  const delta = (text: string) => ({ type: 'assistant.delta', delta: text });

  async function say(page: Page, text: string): Promise<void> {
    await page.getByRole('textbox', { name: 'Message' }).fill(text);
    await page.getByRole('button', { name: 'Send' }).click();
  }

  /** What the browser has stored of a conversation. */
  const stored = (page: Page, key: string): Promise<string> =>
    page.evaluate(async (name) => {
      const settled = <T>(request: IDBRequest<T>) =>
        new Promise<T>((resolve) => {
          request.onsuccess = () => resolve(request.result);
        });
      const database = await settled(indexedDB.open('svc kept'));
      const turns = await settled(database.transaction('keep').objectStore('keep').get(`chat ${name} /`));
      database.close();
      return JSON.stringify(turns);
    }, key);

  /** The agent says a beginning, and the rest when it is told to. */
  function halting(beginning: string): { goOn(rest: string): Promise<void> } {
    let exchange: Exchange | undefined;
    api.onStream(async (opened) => {
      exchange = opened;
      opened.open();
      await opened.event(delta(beginning));
    });
    return {
      async goOn(rest) {
        await expect.poll(() => exchange !== undefined).toBe(true);
        await exchange?.event(delta(rest));
        await exchange?.event({ type: 'run.completed' });
        exchange?.end();
      },
    };
  }

  /** Answers a question at once. */
  const answering = (text: string) =>
    api.onStream(async (exchange) => {
      exchange.open();
      await exchange.event(delta(text));
      await exchange.event({ type: 'run.completed' });
      exchange.end();
    });

  it('issue 25.1: a reload while the agent answers loses neither question nor answer, and goes on live', async () => {
    const { page } = await open();
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/chat/new`);
    const before = api.requests.length;
    const agent = halting('Half of');
    await say(page, 'A long story?');
    await answers(page).getByText('Half of').waitFor();
    await page.reload();
    await answers(page).getByText('Half of').waitFor();
    await questions(page).getByText('A long story?').waitFor();
    await agent.goOn(' it.');
    await answers(page).getByText('Half of it.').waitFor();
    await page.getByText('The agent is at work').waitFor({ state: 'detached' });
    expect(await answers(page).count()).toBe(1);
    expect(api.requests.slice(before).filter(({ path }) => path.endsWith('/chat/stream'))).toHaveLength(1);
    await page.reload();
    await answers(page).getByText('Half of it.').waitFor();
    await expectUsable(page);
  });

  it('issue 25.1: a draft survives a reload', async () => {
    const { page } = await open();
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/chat/new`);
    const field = page.getByRole('textbox', { name: 'Message' });
    await field.fill('Not sent yet');
    await page.reload();
    await expect.poll(() => field.inputValue()).toBe('Not sent yet');
    answering('Now it is.');
    await page.getByRole('button', { name: 'Send' }).click();
    await answers(page).getByText('Now it is.').waitFor();
    await page.goto(`${appOf(relay)}#/chat/new`);
    await page.getByText('Ask the agent something.').waitFor();
    expect(await field.inputValue()).toBe('');
  });

  it('issue 25.2: two tabs of one conversation see what either asks, and erase nothing', async () => {
    const { page, tab } = await open();
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/chat/new`);
    answering('One.');
    await say(page, 'First?');
    await answers(page).getByText('One.').waitFor();
    await expect.poll(() => page.url()).toMatch(/#\/chat\/s1$/);
    const other = await tab();
    await other.goto(`${appOf(relay)}#/chat/s1`);
    await answers(other).getByText('One.').waitFor();
    const agent = halting('Tw');
    await say(page, 'Second?');
    await answers(other).getByText('Tw').waitFor();
    await agent.goOn('o.');
    await answers(other).getByText('Two.').waitFor();
    answering('Three.');
    await say(other, 'Third?');
    await answers(page).getByText('Three.').waitFor();
    await page.reload();
    await answers(page).getByText('Three.').waitFor();
    for (const text of ['First?', 'Second?', 'Third?']) await questions(page).getByText(text).waitFor();
    for (const text of ['One.', 'Two.', 'Three.']) await answers(page).getByText(text).waitFor();
  });

  it('goes on after the connection was cut, without a second question', async () => {
    const { port } = new URL(relay.url);
    const proxy = await startFlakyProxy({ port: Number(port), seed: 25, faults: ['none'] });
    onTestFinished(() => proxy.close());
    const { page, allow } = await open();
    allow(/WebSocket|Failed to load resource|ERR_/);
    await page.goto(`http://localhost:${proxy.port}/app/#code=${await webCode(relay)}`);
    await connected(page);
    await page.goto(`http://localhost:${proxy.port}/app/#/chat/new`);
    const before = api.requests.length;
    const agent = halting('Before the cut');
    await say(page, 'Are you there?');
    await answers(page).getByText('Before the cut').waitFor();
    proxy.strike('reset');
    await agent.goOn(', and after it.');
    await answers(page).getByText('Before the cut, and after it.').waitFor();
    await page.getByText('The agent is at work').waitFor({ state: 'detached' });
    expect(await answers(page).getByText('Before the cut').count()).toBe(1);
    expect(api.requests.slice(before).filter(({ path }) => path.endsWith('/chat/stream'))).toHaveLength(1);
  });

  it('issue 25.5: a new conversation from one that has just begun is a new one', async () => {
    const { page } = await open();
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/chat/new`);
    answering('Here.');
    await say(page, 'Hello?');
    await answers(page).getByText('Here.').waitFor();
    await page.getByRole('link', { name: 'New conversation' }).click();
    await page.getByText('Ask the agent something.').waitFor();
    const before = api.requests.length;
    await say(page, 'Something else?');
    const paths = () => api.requests.slice(before).map(({ path }) => path);
    await expect.poll(paths).toEqual(['/api/sessions', '/api/sessions/s1/chat/stream']);
    await expect.poll(() => page.title()).toBe('T · Chat · svc');
  });

  it('issue 25.3: follows the end past pictures, stays where somebody reads, and leads back', async () => {
    const { page } = await open();
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/chat/new`);
    const icon = Buffer.from(await (await relay.fetch('/app/icon-512.png')).arrayBuffer()).toString('base64');
    const distance = () =>
      page
        .locator('.log')
        .evaluate(({ scrollHeight, scrollTop, clientHeight }) => Math.round(scrollHeight - scrollTop - clientHeight));
    answering(
      `${'A line.\n\n'.repeat(40)}![Icon](data:image/png;base64,${icon})\n\n![Icon](data:image/png;base64,${icon})`,
    );
    await say(page, 'Pictures, please.');
    await expect.poll(() => page.getByRole('img', { name: 'Icon' }).count()).toBe(2);
    await expect.poll(distance).toBeLessThan(80);
    await page.locator('.log').evaluate((log) => log.scrollTo(0, 0));
    await page.getByRole('button', { name: 'To the end' }).waitFor();
    expect(await distance()).toBeGreaterThan(300);
    await page.getByRole('button', { name: 'To the end' }).click();
    await expect.poll(distance).toBeLessThan(80);
    await page.locator('.log').evaluate((log) => log.scrollTo(0, 0));
    await page.getByRole('button', { name: 'To the end' }).waitFor();
    answering('At the end.');
    await say(page, 'Where am I?');
    await answers(page).getByText('At the end.').waitFor();
    await expect.poll(distance).toBeLessThan(80);
    await expectUsable(page);
  });

  it('contract 10 §2: an existing conversation opens with what was said, and scrolls back to its beginning', async () => {
    const phone = await open();
    await pairPage(phone.page, relay);
    await phone.page.goto(`${appOf(relay)}#/chat/new`);
    for (let at = 0; at < 3; at++) {
      answering(`Answer ${at}.\n\n${'More.\n\n'.repeat(10)}`);
      await say(phone.page, `Question ${at}?`);
      await answers(phone.page).getByText(`Answer ${at}.`).waitFor();
      await phone.page.getByRole('button', { name: 'Send' }).waitFor();
    }
    // This browser has lost what it had stored; the relay has not.
    await phone.page.evaluate(async () => {
      const opening = indexedDB.open('svc kept');
      const database = await new Promise<IDBDatabase>((resolve) => {
        opening.onsuccess = () => resolve(opening.result);
      });
      const transaction = database.transaction('keep', 'readwrite');
      transaction.objectStore('keep').delete('chat s1 /');
      await new Promise((resolve) => {
        transaction.oncomplete = resolve;
      });
      database.close();
    });
    // Pages of two messages.
    await phone.page.route(/chat\/history/, (route) =>
      route.continue({ url: route.request().url().replace('limit=50', 'limit=2') }),
    );
    await phone.page.reload();
    await questions(phone.page).getByText('Question 2?').waitFor();
    for (let at = 1; at >= 0; at--) {
      await phone.page.locator('.log').evaluate((log) => log.scrollTo(0, 0));
      await questions(phone.page).getByText(`Question ${at}?`).waitFor();
    }
    expect((await questions(phone.page).allTextContents()).slice(-3)).toEqual([
      'Question 0?',
      'Question 1?',
      'Question 2?',
    ]);
  });

  it('works as before at a relay that keeps no turns', async () => {
    const { page } = await open();
    await page.routeWebSocket(/\/ws$/, (socket) => {
      const server = socket.connectToServer();
      socket.onMessage((data) => {
        const message = JSON.parse(String(data));
        if (message.type === 'chat.follow') {
          const payload = { message: 'Unknown chat message type: chat.follow', error: 'invalid_request' };
          socket.send(JSON.stringify({ channel: 'chat', type: 'chat.error', id: message.id, payload }));
          return;
        }
        delete message.payload?.keep;
        delete message.payload?.client_turn_id;
        server.send(JSON.stringify(message));
      });
    });
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/chat/new`);
    halting('A part');
    await say(page, 'An old one?');
    await answers(page).getByText('A part').waitFor();
    // It is written once a second.
    await expect.poll(() => stored(page, 's1')).toContain('A part');
    await page.reload();
    await questions(page).getByText('An old one?').waitFor();
    await page.getByText('The connection broke. The agent has stopped; what it had said is here.').waitFor();
    await answers(page).getByText('A part').waitFor();
    answering('Whole.');
    await answers(page).getByRole('button', { name: 'Ask again' }).click();
    await answers(page).getByText('Whole.').waitFor();
    await page.getByRole('button', { name: 'Send' }).waitFor();
  });

  it('copies an answer, asks again, and edits a question', async () => {
    const { page } = await open({ context: { permissions: ['clipboard-read', 'clipboard-write'] } });
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/chat/new`);
    answering('**Blue**');
    await say(page, 'A colour?');
    await answers(page).getByRole('button', { name: 'Copy' }).click();
    await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe('**Blue**');
    answering('Red');
    await answers(page).getByRole('button', { name: 'Ask again' }).click();
    await answers(page).getByText('Red').waitFor();
    expect(await questions(page).getByText('A colour?').count()).toBe(2);
    await questions(page).first().getByRole('button', { name: 'Edit and ask again' }).click();
    const field = page.getByRole('textbox', { name: 'Message' });
    expect(await field.inputValue()).toBe('A colour?');
    expect(await field.evaluate((element) => element === document.activeElement)).toBe(true);
  });
});
