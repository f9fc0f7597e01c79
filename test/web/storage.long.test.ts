import type { WebSocket } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { appOf, connected, pairPage, webCode } from '../support/app.ts';
import { describeInBrowser } from '../support/browser.ts';
import { stored } from '../support/browser-storage.ts';
import { post, startNodeTarget, type Target } from '../support/relay.ts';

const REFUSE = `() => { throw new DOMException('refused', 'SecurityError'); }`;

describeInBrowser('a browser that keeps nothing (issue 17)', ({ open }) => {
  let relay: Target;
  let app: string;
  beforeAll(async () => {
    relay = await startNodeTarget();
    app = appOf(relay);
  });
  afterAll(() => relay?.stop());

  it.each([
    ['its databases', `IDBFactory.prototype.open = ${REFUSE}`],
    [
      'everything',
      `IDBFactory.prototype.open = globalThis.BroadcastChannel = ServiceWorkerContainer.prototype.register = ${REFUSE}`,
    ],
    ['every write', `IDBObjectStore.prototype.put = () => { throw new DOMException('full', 'QuotaExceededError'); }`],
  ])('pairs while it refuses %s, and says that the pairing ends with the page', async (_, script) => {
    const { page } = await open();
    await page.addInitScript(script);
    await page.goto(app);
    await page.getByText('This window keeps nothing').waitFor();
    await page.getByLabel('Pairing code').fill(await webCode(relay));
    await page.keyboard.press('Enter');
    await connected(page);
    for (const screen of ['inbox', 'chat', 'terminal', 'files', 'settings', 'home']) {
      await page.goto(`${app}#/${screen}`);
      await page.getByRole('heading', { level: 1 }).first().waitFor();
    }
    await connected(page);
  });

  it('erases nothing when its pairing cannot be read for once', async () => {
    const { page } = await open();
    await page.addInitScript(() => {
      if (sessionStorage.getItem('lost') === null) return;
      sessionStorage.removeItem('lost');
      const { get } = IDBObjectStore.prototype;
      IDBObjectStore.prototype.get = function (this: IDBObjectStore, key: string) {
        if (key.startsWith('pairing ')) throw new DOMException('Connection to Indexed Database server lost');
        return get.call(this, key);
      };
    });
    await pairPage(page, relay);
    await page.goto(`${app}#/inbox/phone`);
    await page.getByLabel('Reply').fill('Not sent yet');
    const drafts = async () => (await stored(page)).databases['svc kept']?.['drafts /'];
    await expect.poll(drafts).toEqual({ phone: 'Not sent yet' });
    await page.evaluate(() => sessionStorage.setItem('lost', ''));
    await page.reload();
    await page.getByText('This window keeps nothing').waitFor();
    await page.reload();
    await connected(page);
    await expect.poll(() => page.getByLabel('Reply').inputValue()).toBe('Not sent yet');
  });

  it('keeps its pairing, and the replies that wait, when the disk is full later', async () => {
    const { page, allow } = await open();
    allow(/WebSocket|ERR_INTERNET_DISCONNECTED|Failed to load resource/);
    const reply = async (text: string) => {
      await page.getByLabel('Reply').fill(text);
      await page.getByRole('button', { name: 'Send' }).click();
      await page.getByText(text, { exact: true }).waitFor();
    };
    const isOver = (socket: WebSocket) => socket.isClosed();
    const sockets: WebSocket[] = [];
    page.on('websocket', (socket) => sockets.push(socket));
    await pairPage(page, relay);
    const replies = async () => {
      const { items } = await (await relay.operator('/phone/history', { headers: { 'x-svc-operator': '1' } })).json();
      return items.flatMap(({ kind, text }: { kind: string; text: string }) => (kind === 'reply' ? [text] : []));
    };
    const message = { text: 'Deploy?', chat_id: 'c1', title: 'Talk', message_id: 'm1' };
    await relay.operator('/phone/message', { ...post(message), headers: { 'x-svc-operator': '1' } });
    await page.goto(`${app}#/inbox/c1`);
    await page.getByText('Deploy?').first().waitFor();
    await reply('one');
    await expect.poll(replies).toEqual(['one']);
    await page.evaluate(() => {
      IDBObjectStore.prototype.put = () => {
        throw new DOMException('full', 'QuotaExceededError');
      };
    });
    await page.context().setOffline(true);
    // The browser cuts no socket that is open.
    await relay.restart();
    await expect.poll(() => sockets.every(isOver)).toBe(true);
    await reply('two');
    await reply('three');
    await page.context().setOffline(false);
    await expect.poll(replies).toEqual(['one', 'two', 'three']);
    await connected(page);
  });
});
