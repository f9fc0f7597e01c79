import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { appOf, pairPage } from '../support/app.ts';
import { startFilledRelay } from '../support/app-scene.ts';
import { describeInBrowser } from '../support/browser.ts';
import { sentToken, stored } from '../support/browser-storage.ts';
import { post, type Target } from '../support/relay.ts';

const asTool = { 'x-svc-operator': '1' };

/** Texts that must be gone from this browser. */
const PRIVATE = ['a message', 'a draft', 'a draft of a document', 'a chat', 'a-file.txt', '12 minutes', 'a share'];

describeInBrowser('what stays in a browser whose pairing is over (issue 17)', ({ open }) => {
  let relay: Target;
  let app: string;
  const ends: (() => void)[] = [];
  beforeAll(async () => {
    relay = await startFilledRelay((end) => ends.push(end));
    app = appOf(relay);
  });
  afterAll(() => {
    for (const end of ends) end();
  });

  async function pairAgain(page: Page): Promise<void> {
    await pairPage(page, relay);
  }

  const privateTexts = async (page: Page) => {
    const text = JSON.stringify(await stored(page));
    return PRIVATE.filter((words) => text.includes(`"${words}`) || text.includes(`**${words}`));
  };

  /** The identity of the browser and the settings stay: they tell nothing of the agent. */
  async function expectErased(page: Page): Promise<void> {
    await page.getByRole('heading', { name: 'Pair this browser' }).waitFor();
    await expect.poll(() => privateTexts(page)).toEqual([]);
    // One place is erased after the other.
    await expect
      .poll(async () => (await stored(page)).databases)
      .toEqual({
        svc: { 'pairing /': { deviceId: expect.any(String), pairing: null } },
        'svc kept': {},
        'svc shares': {},
      });
    const { storage, cached } = await stored(page);
    expect(storage.filter((key) => key !== 'svc settings')).toEqual([]);
    // The files of the app, which everybody gets.
    expect(cached.length).toBeGreaterThan(0);
    expect(cached.filter((path) => !/^\/app\/(?:[\w.-]+\.\w+)?$/.test(path))).toEqual([]);
    const shown = () =>
      page.evaluate(async () =>
        (await (await navigator.serviceWorker.ready).getNotifications()).map(({ title }) => title),
      );
    await expect.poll(shown).toEqual([]);
  }

  it('signing out erases messages, drafts, conversations, files, shares and notifications; a revocation also the outbox', async () => {
    const { page, allow } = await open({ context: { permissions: ['notifications'] } });
    allow(/WebSocket|401|ERR_INTERNET_DISCONNECTED|Failed to load resource/);
    await pairAgain(page);
    const message = { text: 'a message', chat_id: 'c1', title: 'Talk', message_id: 'm1' };
    const said = await relay.operator('/phone/message', { ...post(message), headers: asTool });
    expect(said.status).toBe(200);
    await page.goto(`${app}#/inbox/c1`);
    await page.getByLabel('Reply').fill('a draft');
    await page.goto(`${app}#/profiles/default%2Fsoul`);
    await page.getByLabel('Text').fill('a draft of a document');
    await page.goto(`${app}#/files`);
    await page
      .getByLabel('Send files')
      .setInputFiles({ name: 'a-file.txt', mimeType: 'text/plain', buffer: Buffer.from('text') });
    // A reload would cut the file and the answer.
    await sentToken(page, 'a-file.txt');
    await page.goto(`${app}#/chat/new`);
    await page.getByRole('textbox', { name: 'Message' }).fill('a chat');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('The next one starts at 02:00.').waitFor();
    await page.goto(`${app}#/home`);
    await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
    await page.evaluate(async () => {
      const form = new FormData();
      form.append('text', 'a share');
      await fetch('share', { method: 'POST', body: form });
    });
    await page.reload();
    await page.getByText('What another app has shared waits here.').waitFor();
    await page.evaluate(async () => {
      const registration = await navigator.serviceWorker.ready;
      await registration.showNotification('Talk', { body: 'a message', data: { messageId: 'm9' } });
    });
    await expect.poll(() => privateTexts(page)).toEqual(PRIVATE);
    await expect.poll(async () => (await stored(page)).databases['svc kept']).toHaveProperty(['overview /']);

    await page.goto(`${app}#/devices`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click();
    await expectErased(page);

    // The page itself has forgotten it, too.
    await pairAgain(page);
    await page.goto(`${app}#/files`);
    await page.getByText('Nothing yet.').waitFor();
    await page.goto(`${app}#/profiles/default%2Fsoul`);
    await expect.poll(() => page.getByLabel('Text').inputValue()).toContain('# Ada');
    await page.goto(`${app}#/inbox/c1`);
    await page.getByText('a message').waitFor();
    await expect.poll(() => page.getByLabel('Reply').inputValue()).toBe('');

    // A reply that waits for a network is nobody's any more once this browser was revoked.
    await page.context().setOffline(true);
    await page.getByLabel('Reply').fill('a reply');
    await page.getByRole('button', { name: 'Send' }).click();
    const waiting = async () => (await stored(page)).databases['svc kept']?.['outbox /'];
    await expect.poll(waiting).toMatchObject([{ text: 'a reply' }]);
    const { sessions } = (await (await relay.operator('/sessions', { headers: asTool })).json()) as {
      sessions: { token_prefix: string; client_surface: string }[];
    };
    const own = sessions.find(({ client_surface }) => client_surface === 'web');
    const revoked = await relay.operator(`/sessions/${own?.token_prefix}`, { method: 'DELETE', headers: asTool });
    expect(revoked.status).toBe(200);
    expect(await waiting()).toMatchObject([{ text: 'a reply' }]);
    await page.context().setOffline(false);
    await expectErased(page);
  });
});
