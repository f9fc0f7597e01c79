import type { Page } from 'playwright-core';
import { expect, it, onTestFinished } from 'vitest';
import { appOf, connected, pairPage, webCode } from '../support/app.ts';
import { describeInBrowser, expectUsable, ROUTED } from '../support/browser.ts';
import { useChat } from '../support/chat-page.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';

describeInBrowser('conversations that last (contract 10 §3)', ({ open }) => {
  const chat = useChat({ open });
  const { answers, questions, say, answering, halting } = chat;

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

  it('issue 25.1: a reload while the agent answers loses neither question nor answer, and goes on live', async () => {
    const { page } = await chat.open();
    const before = chat.api.requests.length;
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
    expect(chat.api.requests.slice(before).filter(({ path }) => path.endsWith('/chat/stream'))).toHaveLength(1);
    await page.reload();
    await answers(page).getByText('Half of it.').waitFor();
    await expectUsable(page);
  });

  it('issue 25.1: a draft survives a reload', async () => {
    const { page } = await chat.open();
    const field = page.getByRole('textbox', { name: 'Message' });
    // The page goes before its database could write.
    await field.evaluate((element: HTMLTextAreaElement) => {
      element.value = 'Not sent yet';
      element.dispatchEvent(new InputEvent('input', { bubbles: true }));
      location.reload();
    });
    await expect.poll(() => field.inputValue().catch(() => '')).toBe('Not sent yet');
    await page.reload();
    await expect.poll(() => field.inputValue()).toBe('Not sent yet');
    await connected(page);
    answering('Now it is.');
    await page.getByRole('button', { name: 'Send' }).click();
    await answers(page).getByText('Now it is.').waitFor();
    await page.goto(chat.at('new'));
    await page.getByText('Ask the agent something.').waitFor();
    await expect.poll(() => field.inputValue()).toBe('');
  });

  it('issue 25.1: a draft survives that the agent names the conversation meanwhile', async () => {
    const { page } = await chat.open();
    const field = page.getByRole('textbox', { name: 'Message' });
    let create: (() => void) | undefined;
    chat.api.onAny((exchange) => {
      if (exchange.path.endsWith('/chat/stream')) return exchange.open();
      if (exchange.method !== 'POST') return exchange.answer(200, []);
      create = () => exchange.answer(201, { session: { id: 'late', title: 'T', model: 'm' } });
    });
    onTestFinished(() => chat.api.onAny(undefined));
    await say(page, 'First?');
    await expect.poll(() => page.url()).toMatch(/#\/chat\/~/);
    await field.fill('The next one');
    // The page has its address before the agent is asked.
    await expect.poll(() => create).toBeDefined();
    create?.();
    await expect.poll(() => page.url()).toMatch(/#\/chat\/late$/);
    await page.reload();
    await expect.poll(() => field.inputValue().catch(() => '')).toBe('The next one');
  });

  it('issue 25.2: two tabs of one conversation see what either asks, and erase nothing', async () => {
    const { page, tab } = await chat.open();
    answering('One.');
    await say(page, 'First?');
    await answers(page).getByText('One.').waitFor();
    await expect.poll(() => page.url()).toMatch(/#\/chat\/s1$/);
    const other = await tab();
    await other.goto(chat.at('s1'));
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
    const { port } = new URL(chat.relay.url);
    const proxy = await startFlakyProxy({ port: Number(port), seed: 25, faults: ['none'] });
    onTestFinished(() => proxy.close());
    const { page, allow } = await open();
    allow(/WebSocket|Failed to load resource|ERR_/);
    await page.goto(`http://localhost:${proxy.port}/app/#code=${await webCode(chat.relay)}`);
    await connected(page);
    await page.goto(`http://localhost:${proxy.port}/app/#/chat/new`);
    const before = chat.api.requests.length;
    const agent = halting('Before the cut');
    await say(page, 'Are you there?');
    await answers(page).getByText('Before the cut').waitFor();
    proxy.strike('reset');
    await agent.goOn(', and after it.');
    await answers(page).getByText('Before the cut, and after it.').waitFor();
    await page.getByText('The agent is at work').waitFor({ state: 'detached' });
    expect(await answers(page).getByText('Before the cut').count()).toBe(1);
    expect(chat.api.requests.slice(before).filter(({ path }) => path.endsWith('/chat/stream'))).toHaveLength(1);
  });

  it('contract 10 §3: another device of the same pairing shows the turn, follows it live, and can stop it', async () => {
    const { page, allow } = await chat.open('new', { allowed: /WebSocket/ });
    answering('One.');
    await say(page, 'First?');
    await answers(page).getByText('One.').waitFor();
    // A backup takes the pairing to another browser.
    await page.goto(`${appOf(chat.relay)}#/settings`);
    await page.getByLabel('Passphrase').fill('correct horse');
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Export' }).click();
    const file = await (await download).path();
    const { page: other, allow: allowOther } = await open({ device: 'desktop' });
    for (const let_ of [allow, allowOther]) let_(/WebSocket|status of 40[14]/);
    await pairPage(other, chat.relay);
    await other.goto(`${appOf(chat.relay)}#/settings`);
    await other.getByLabel('Passphrase').fill('correct horse');
    await other.getByLabel('Import').setInputFiles(file);
    await other.getByRole('button', { name: 'Replace' }).click();
    await other.getByText('Restored.').waitFor();
    await connected(other);

    await other.goto(chat.at('s1'));
    await answers(other).getByText('One.').waitFor();
    await page.goto(chat.at('s1'));
    const agent = halting('Half');
    await say(page, 'Second?');
    await questions(other).getByText('Second?').waitFor();
    await answers(other).getByText('Half').waitFor();
    await agent.goOn(' and whole.');
    await answers(other).getByText('Half and whole.').waitFor();
    await answers(page).getByText('Half and whole.').waitFor();
    const before = chat.api.requests.length;
    halting('Too long');
    await say(other, 'Third?');
    await answers(page).getByText('Too long').waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await other.getByText('Stopped.').waitFor();
    await page.getByText('Stopped.').waitFor();
    const streams = chat.api.requests.slice(before).filter(({ path }) => path.endsWith('/chat/stream'));
    expect(streams).toHaveLength(1);
    await expect.poll(() => streams[0]?.abandoned).toBe(true);
    for (const device of [page, other]) {
      expect(await questions(device).allTextContents()).toEqual(['First?', 'Second?', 'Third?']);
    }
  });

  it('contract 10 §3: an hour offline costs nothing: the answer is there, and nothing is asked twice', async () => {
    const { page, allow } = await open(ROUTED);
    allow(/WebSocket|Failed to load resource|ERR_/);
    let isAway = false;
    let cut = () => {};
    await page.routeWebSocket(/\/ws$/, (socket) => {
      if (isAway) return void socket.close();
      const server = socket.connectToServer();
      cut = () => {
        void server.close();
        void socket.close();
      };
    });
    await page.clock.install();
    await pairPage(page, chat.relay);
    await page.goto(chat.at('new'));
    const before = chat.api.requests.length;
    const agent = halting('Before');
    await say(page, 'A long one?');
    await answers(page).getByText('Before').waitFor();
    isAway = true;
    await page.context().setOffline(true);
    cut();
    await page
      .getByText(/^Offline/)
      .first()
      .waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('Not stopped: the relay does not answer.').waitFor();
    await agent.goOn(' and after.');
    for (let minute = 0; minute < 60; minute++) await page.clock.runFor(60_000);
    expect(await page.locator('header .chip-button').innerText()).toMatch(/^Offline for 1 h/);
    await answers(page).getByText('Before').waitFor();
    await page.getByRole('textbox', { name: 'Message' }).fill('Typed while away');
    isAway = false;
    await page.context().setOffline(false);
    await page.locator('header .chip-button').click();
    await connected(page);
    await answers(page).getByText('Before and after.').waitFor();
    await page.getByText('The agent is at work').waitFor({ state: 'detached' });
    await expect.poll(() => page.getByRole('textbox', { name: 'Message' }).inputValue()).toBe('Typed while away');
    expect(await questions(page).count()).toBe(1);
    expect(chat.api.requests.slice(before).filter(({ path }) => path.endsWith('/chat/stream'))).toHaveLength(1);
  });

  it('issue 25.5: a new conversation from one that has just begun is a new one', async () => {
    const { page } = await chat.open();
    answering('Here.');
    await say(page, 'Hello?');
    await answers(page).getByText('Here.').waitFor();
    await page.getByRole('link', { name: 'New conversation' }).click();
    await page.getByText('Ask the agent something.').waitFor();
    const before = chat.api.requests.length;
    await say(page, 'Something else?');
    const paths = () => chat.api.requests.slice(before).map(({ path }) => path);
    await expect.poll(paths).toEqual(['/api/sessions', '/api/sessions/s1/chat/stream']);
    await expect.poll(() => page.title()).toBe('T · Chat · svc');
  });

  it('issue 25.3: follows the end past pictures, stays where somebody reads, and leads back', async () => {
    const { page } = await chat.open();
    const icon = Buffer.from(await (await chat.relay.fetch('/app/icon-512.png')).arrayBuffer()).toString('base64');
    const distance = () =>
      page
        .locator('.log')
        .evaluate(({ scrollHeight, scrollTop, clientHeight }) => Math.round(scrollHeight - scrollTop - clientHeight));
    answering(
      `${'A line.\n\n'.repeat(40)}![Icon](data:image/png;base64,${icon})\n\n![Icon](data:image/png;base64,${icon})`,
    );
    await say(page, 'Pictures, please.');
    // A picture that loads later would lead to the end once more.
    const widths = () =>
      page
        .getByRole('img', { name: 'Icon' })
        .evaluateAll((images) => images.map((image) => (image as HTMLImageElement).naturalWidth));
    await expect.poll(widths).toEqual([512, 512]);
    await expect.poll(distance).toBeLessThan(80);
    /** Scrolls to the beginning as a person does: by the wheel, and again if the view was just growing. */
    const readUp = () =>
      expect
        .poll(async () => {
          await page.locator('.log').evaluate((log) => {
            log.dispatchEvent(new WheelEvent('wheel'));
            log.scrollTo(0, 0);
          });
          return page.getByRole('button', { name: 'To the end' }).isVisible();
        })
        .toBe(true);
    await readUp();
    await expect.poll(distance).toBeGreaterThan(300);
    await page.getByRole('button', { name: 'To the end' }).click();
    await expect.poll(distance).toBeLessThan(80);
    await readUp();
    answering('At the end.');
    await say(page, 'Where am I?');
    await answers(page).getByText('At the end.').waitFor();
    await expect.poll(distance).toBeLessThan(80);
    await expectUsable(page);
  });

  it('contract 10 §2: an existing conversation opens with what was said, and scrolls back to its beginning', async () => {
    const phone = await chat.open('new', ROUTED);
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
    await pairPage(page, chat.relay);
    await page.goto(chat.at('new'));
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
    const { page } = await chat.open('new', { context: { permissions: ['clipboard-read', 'clipboard-write'] } });
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
    await expect.poll(() => field.inputValue()).toBe('A colour?');
    await expect.poll(() => field.evaluate((element) => element === document.activeElement)).toBe(true);
  });
});
