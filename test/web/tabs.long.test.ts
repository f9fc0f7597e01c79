import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { appOf, connected, pairPage, webCode } from '../support/app.ts';
import { describeInBrowser } from '../support/browser.ts';
import { post, startNodeTarget, type Target } from '../support/relay.ts';

describeInBrowser('two tabs of one browser (issue 17)', ({ open }) => {
  let relay: Target;
  let app: string;
  beforeAll(async () => {
    relay = await startNodeTarget();
    app = appOf(relay);
  });
  afterAll(() => relay?.stop());

  it('pairing in one connects the other, which was not paired either', async () => {
    const { page, allow, tab } = await open();
    // One tab may be asking for something while the other ends the session.
    allow(/401/);
    await page.goto(app);
    await page.getByLabel('Pairing code').waitFor();
    const other = await tab();
    await pairPage(other, relay);
    await connected(page);

    // The same after the one has signed both out.
    await other.goto(`${app}#/devices`);
    await other.getByRole('button', { name: 'Sign out' }).click();
    await other.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Pair this browser' }).waitFor();
    await page.getByLabel('Pairing code').fill(await webCode(relay));
    await page.keyboard.press('Enter');
    await connected(page);
    await connected(other);
  });

  it('pairing anew in one leaves the other paired, whose token the relay refuses after that', async () => {
    const { page, tab } = await open();
    let cut = () => {};
    let letGo: (() => void) | undefined;
    let holds = false;
    await page.routeWebSocket(/\/ws$/, (socket) => {
      const server = socket.connectToServer();
      cut = () => void socket.close({ code: 1001 });
      socket.onMessage((message) => {
        if (!holds) return server.send(message);
        holds = false;
        letGo = () => server.send(message);
      });
    });
    await pairPage(page, relay);
    const other = await tab();
    await other.goto(app);
    await connected(other);

    const tokenIn = (from: Page) =>
      from.evaluate(
        () =>
          new Promise((resolve) => {
            const opening = indexedDB.open('svc');
            opening.onsuccess = () => {
              const store = opening.result.transaction('keep').objectStore('keep');
              const reading = store.get('pairing /');
              reading.onsuccess = () => resolve(reading.result.pairing?.session_token);
              opening.result.close();
            };
          }),
      );
    const old = await tokenIn(page);
    // Its next connection offers the token that the other tab is about to replace.
    holds = true;
    cut();
    await expect.poll(() => letGo !== undefined).toBe(true);
    await other.evaluate(
      (code) => {
        location.hash = `#code=${code}`;
      },
      await webCode(relay),
    );
    await expect.poll(() => tokenIn(page)).not.toBe(old);
    await connected(other);
    letGo?.();
    await connected(page);
    await connected(other);
  });

  it('each store the files that they send and the replies that they begin, and none of the other is lost', async () => {
    const { page, tab } = await open();
    await pairPage(page, relay);
    const other = await tab();
    for (const chat_id of ['a', 'b']) {
      const message = { text: `About ${chat_id}`, chat_id, title: `Thread ${chat_id}` };
      await relay.operator('/phone/message', { ...post(message), headers: { 'x-svc-operator': '1' } });
    }
    const screens: [Page, string][] = [
      [page, 'a'],
      [other, 'b'],
    ];
    const files = (shown: Page) => shown.locator('.list li', { hasText: /[ab]\.txt/ });
    for (const [shown] of screens) {
      await shown.goto(`${app}#/files`);
      await connected(shown);
      await shown.getByLabel('Send files').waitFor({ state: 'attached' });
    }
    for (const [shown, name] of screens) {
      const file = { name: `${name}.txt`, mimeType: 'text/plain', buffer: Buffer.from(name) };
      await shown.getByLabel('Send files').setInputFiles(file);
      await files(shown).filter({ hasText: file.name }).waitFor();
    }
    for (const [shown, name] of screens) await shown.goto(`${app}#/inbox/${name}`);
    for (const [shown, name] of screens) await shown.getByLabel('Reply').fill(`draft ${name}`);

    await page.goto(`${app}#/files`);
    await page.reload();
    await expect.poll(async () => (await files(page).allTextContents()).length).toBe(2);
    for (const name of ['a', 'b']) {
      await page.goto(`${app}#/inbox/${name}`);
      await expect.poll(() => page.getByLabel('Reply').inputValue()).toBe(`draft ${name}`);
    }
  });
});
