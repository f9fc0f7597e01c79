import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { appOf, pairPage } from '../support/app.ts';
import { describeInBrowser, expectUsable } from '../support/browser.ts';
import { sentToken } from '../support/browser-storage.ts';
import { post, startNodeTarget, type Target } from '../support/relay.ts';

describeInBrowser('the screens of the app (issue 17)', ({ open }) => {
  let relay: Target;
  let app: string;
  beforeAll(async () => {
    // A tmux server would outlive the relay.
    relay = await startNodeTarget({ env: { RELAY_TERMINAL_TMUX: '0' } });
    app = appOf(relay);
  });
  afterAll(() => relay?.stop());

  /** A paired page at a screen. */
  async function openAt(screen: string, policy: Record<string, unknown> = {}, allowed?: RegExp): Promise<Page> {
    const { page, allow } = await open();
    if (allowed) allow(allowed);
    await pairPage(page, relay, { policy });
    await page.goto(`${app}#/${screen}`);
    return page;
  }

  it('home counts what waits, and offers only what the session may do', async () => {
    const sent = await relay.operator('/phone/message', post({ text: 'Buy milk?', chat_id: 'c' }));
    expect(sent.status).toBeLessThan(300);
    const page = await openAt('home');
    await page.getByRole('link', { name: '1 unread message' }).waitFor();
    await page.getByRole('listitem').filter({ hasText: 'Open shells' }).getByText('0', { exact: true }).waitFor();
    await expectUsable(page);
    const narrow = await openAt('home', { without: ['chat', 'terminal', 'phone', 'bridge', 'desktop'] });
    await narrow.getByText('Files on the relay').waitFor();
    expect(await narrow.getByText(/unread message/).count()).toBe(0);
    expect(await narrow.getByRole('link', { name: 'Chat' }).count()).toBe(0);
  });

  it('files are sent with progress, cancelled, opened again, and blurred when they are sensitive', async () => {
    const page = await openAt('files', {}, /ERR_ABORTED|Failed to load resource/);
    await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
    const note = await readFile(new URL('../../handlers/web/shared/icon.svg', import.meta.url));
    await page.getByLabel('Send files').setInputFiles({ name: 'note <b>.txt', mimeType: 'text/plain', buffer: note });
    const row = page.getByRole('listitem').filter({ hasText: 'note <b>.txt' });
    await row.waitFor();
    await expectUsable(page);
    await row.getByRole('button', { name: 'Open' }).click();
    await page.getByRole('dialog').getByText('text/plain').waitFor();
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Download' }).click();
    expect(await readFile(await (await download).path())).toEqual(note);
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();

    const token = await sentToken(page, 'note <b>.txt');
    expect((await relay.operator(`/media/${token}/sensitive`, { method: 'POST' })).status).toBe(200);
    await row.getByRole('button', { name: 'Open' }).click();
    await page.getByText('The agent has marked this file as sensitive.').waitFor();
    await expectUsable(page);
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();

    const network = await page.context().newCDPSession(page);
    await network.send('Network.emulateNetworkConditions', {
      offline: false,
      latency: 0,
      downloadThroughput: -1,
      uploadThroughput: 50_000,
    });
    const large = Buffer.alloc(4 * 1024 * 1024, 7);
    await page.getByLabel('Send files').setInputFiles({ name: 'film.mp4', mimeType: 'video/mp4', buffer: large });
    await page.getByRole('progressbar', { name: 'film.mp4' }).waitFor();
    await expectUsable(page);
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('film.mp4 was not sent: you cancelled it.').waitFor();
  });

  it('01 §5: a file that is sent with a token that has ended arrives with the next one', async () => {
    const page = await openAt('home', {}, /401|WebSocket/);
    // The lists of this screen would find out before the upload does.
    const lists = ['media/folder', 'media/recent'].map((path) =>
      page.waitForResponse((response) => response.url().endsWith(path) && response.ok()),
    );
    await page.goto(`${app}#/files`);
    await Promise.all(lists);
    // The socket stays, as it does when a token ends under it: only the next request finds out.
    await page.evaluate(async () => {
      const key = 'pairing /';
      const done = <T>(request: IDBRequest<T>) =>
        new Promise<T>((resolve) => {
          request.onsuccess = () => resolve(request.result);
        });
      const database = await done(indexedDB.open('svc'));
      const keep = (mode: IDBTransactionMode) => database.transaction('keep', mode).objectStore('keep');
      const stored = await done(keep('readonly').get(key));
      await done(keep('readwrite').put({ ...stored, pairing: { ...stored.pairing, session_token: 'ended' } }, key));
      // As another tab says that it has changed the pairing. The page hears it before this listener does.
      const heard = new BroadcastChannel(key);
      const told = new Promise((resolve) => {
        heard.onmessage = resolve;
      });
      new BroadcastChannel(key).postMessage(null);
      await told;
      await done(keep('readonly').get(key));
    });
    const statuses: number[] = [];
    page.on('response', (response) => response.url().endsWith('/media/upload') && statuses.push(response.status()));
    const film = { name: 'film.mp4', mimeType: 'video/mp4', buffer: Buffer.alloc(4 * 1024 * 1024, 7) };
    await page.getByLabel('Send files').setInputFiles(film);
    await page.getByRole('listitem').filter({ hasText: 'film.mp4' }).getByText('4.0 MB').waitFor();
    await expect.poll(() => statuses).toEqual([401, 200]);
  });

  it('settings check numbers and are kept', async () => {
    const page = await openAt('settings');
    const size = page.getByLabel('Largest file to load, MB');
    await size.fill('500');
    await page.getByText('A whole number from 5 to 100.').waitFor();
    await size.fill('50');
    await page.getByLabel('Tool calls').selectOption('off');
    await page.getByText('What only the app of a phone can set').click();
    await page.getByText('tofu_pins').waitFor();
    await expectUsable(page);
    await page.reload();
    expect(await page.getByLabel('Tool calls').inputValue()).toBe('off');
    expect(await page.getByLabel('Largest file to load, MB').inputValue()).toBe('50');
  });
});
