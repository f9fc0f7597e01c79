import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { appOf, connected, PLAIN } from '../support/app.ts';
import { describeInBrowser, KILLED, type TestPage } from '../support/browser.ts';
import { stored } from '../support/browser-storage.ts';
import { atMailbox, mailboxOf, mirrored } from '../support/mirrored.ts';
import { tapNotification } from '../support/notification-tap.ts';
import { post, randomCode } from '../support/relay.ts';

const MARKS = ['QmarkText', 'QmarkTitle', 'QmarkOption', 'QmarkNote', 'QmarkReply'];
const UNOPENED = /^This is sealed, and this browser cannot open it/;
const UNSEALED = 'It came through the edge without a seal: anybody there may have written it.';

const question = {
  message_id: 'message-one',
  chat_id: 'c1',
  text: 'May I, QmarkText?',
  title: 'QmarkTitle',
  answers: ['QmarkOption', 'No'],
  metadata: { note: 'QmarkNote' },
};

type World = Awaited<ReturnType<typeof mirrored>>;

async function atHome({ home }: World, body: Record<string, unknown>): Promise<void> {
  expect((await fetch(`${home.url}/phone/message`, post(body))).status).toBe(200);
}

/** Replies as home reads them, once there are `count`. */
async function repliesAt({ home }: World, count: number): Promise<Record<string, unknown>[]> {
  const replies: Record<string, unknown>[] = [];
  await expect
    .poll(async () => replies.push(...(await (await fetch(`${home.url}/phone/replies?timeout=1`)).json()).replies))
    .toBe(count);
  return replies;
}

const bubbles = (page: Page): Promise<string[]> => page.locator('.bubble p').allTextContents();

/** A page of the same origin without the app. */
const leave = (page: Page, { home }: World) => page.goto(`${appOf(home)}icon.svg`);

/** Public half of the key that the browser has, base64url, and what its database gives a script of the private half. */
async function boxOf(page: Page): Promise<{ point: string; privateKey: string }> {
  const { databases } = await stored(page);
  const row = databases.svc?.['pairing /'] as { pairing: { box?: { public_key: string } } } | undefined;
  return { point: row?.pairing.box?.public_key ?? '', privateKey: await exported(page) };
}

/** What a script gets that exports the private key. */
const exported = (page: Page): Promise<string> =>
  page.evaluate(async () => {
    const done = <T>(request: IDBRequest<T>) =>
      new Promise<T>((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
      });
    const database = await done(indexedDB.open('svc'));
    const { privateKey } = await done<{ privateKey: CryptoKey }>(
      database.transaction('keep').objectStore('keep').get('box /'),
    );
    database.close();
    return crypto.subtle.exportKey('pkcs8', privateKey).then(
      () => 'exported',
      () => 'refused',
    );
  });

/** Forgets the messages that this browser has, so that all come from the relay. */
const forgetItems = (page: Page): Promise<void> =>
  page.evaluate(
    () =>
      new Promise<void>((resolve, reject) => {
        const opening = indexedDB.open('svc kept');
        opening.onerror = () => reject(opening.error);
        opening.onsuccess = () => {
          const change = opening.result.transaction('keep', 'readwrite');
          change.objectStore('keep').delete('items /');
          change.oncomplete = () => resolve();
        };
      }),
  );

describeInBrowser('the app and its sealed mailbox (contract 12 §4)', ({ open }) => {
  /** A page that is paired at home, whose mailbox is sealed. */
  async function paired(world: World): Promise<TestPage> {
    const opened = await world.pair(open, { device: 'desktop' });
    // The page without the app has no icon of its own.
    opened.allow(/404/);
    await connected(opened.page);
    await world.sealed();
    return opened;
  }

  it('reads what home sealed, answers and writes sealed, also over a reload, and the edge has no word of it', {
    timeout: 180_000,
  }, async () => {
    const world = await mirrored();
    const { home, runtime, inStep, history } = world;
    const { page } = await paired(world);
    const { point, privateKey } = await boxOf(page);
    expect([point.length, privateKey]).toEqual([87, 'refused']);
    await page.goto(`${appOf(home)}#/settings`);
    await page.getByText(/This browser can open sealed ones/).waitFor();
    await leave(page, world);
    await atHome(world, question);
    await inStep();
    await expect.poll(() => runtime.found(['message-one'])).toEqual(['message-one']);
    await home.kill();

    await page.goto(`${appOf(home)}#/inbox/c1`);
    await atMailbox(page);
    await expect.poll(() => bubbles(page)).toEqual(['May I, QmarkText?']);
    await page.getByRole('heading', { name: 'QmarkTitle' }).waitFor();
    await page.getByRole('button', { name: 'QmarkOption' }).click();
    await page.getByText('Answered').waitFor();
    await page.getByLabel('Reply').fill('QmarkReply');
    await page.keyboard.press('Enter');
    const said = ['May I, QmarkText?', 'QmarkOption', 'QmarkReply'];
    await expect.poll(() => bubbles(page)).toEqual(said);
    await expect.poll(async () => (await history('edge')).filter(({ kind }) => kind === 'reply').length).toBe(2);
    await page.getByText('Waits for the relay').waitFor({ state: 'detached' });

    await forgetItems(page);
    await page.reload();
    await atMailbox(page);
    await expect.poll(() => bubbles(page)).toEqual(said);
    expect(await page.getByText(UNSEALED).count()).toBe(0);
    expect(await runtime.found(MARKS)).toEqual([]);

    await home.restart();
    await connected(page);
    await inStep();
    expect(await repliesAt(world, 2)).toMatchObject([
      { text: 'QmarkOption', reply_to: 'message-one', answer_index: 0, chat_id: 'c1' },
      { text: 'QmarkReply', reply_to: 'message-one', chat_id: 'c1' },
    ]);
    await expect.poll(() => bubbles(page)).toEqual(said);
    expect((await boxOf(page)).point).toBe(point);
    expect(await runtime.found(MARKS)).toEqual([]);
  });

  it('shows what comes while it is at the mailbox; without a seal it says so, and is answered as plainly', {
    timeout: 180_000,
  }, async () => {
    const world = await mirrored();
    const { home, inStep, say, history } = world;
    const { page } = await paired(world);
    await inStep();
    await home.kill();
    await page.goto(`${appOf(home)}#/inbox/c1`);
    await atMailbox(page);
    await say({ text: 'From a webhook?', chat_id: 'c1', message_id: 'm1' });
    await page.getByText(UNSEALED).waitFor();
    await page.getByRole('button', { name: 'Yes' }).click();
    await expect.poll(async () => (await history('edge')).find(({ kind }) => kind === 'reply')?.text).toBe('Yes');
    await page.reload();
    await atMailbox(page);
    await page.getByLabel('Reply').fill('As plainly.');
    await page.keyboard.press('Enter');
    await expect
      .poll(async () => (await history('edge')).filter(({ kind }) => kind === 'reply').map(({ text }) => text))
      .toEqual(['Yes', 'As plainly.']);
    await home.restart();
    await connected(page);
  });

  it('says of what it cannot open that it is unreadable, and shows it once home is back', {
    timeout: 180_000,
  }, async () => {
    const world = await mirrored();
    const { home, inStep, history } = world;
    const { page } = await paired(world);
    await leave(page, world);
    await atHome(world, question);
    await inStep();
    await home.kill();
    // As after the browser has lost its key.
    await page.evaluate(async () => {
      const curve = { name: 'ECDH', namedCurve: 'P-256' };
      const { privateKey, publicKey } = await crypto.subtle.generateKey(curve, false, ['deriveBits']);
      const point = new Uint8Array(await crypto.subtle.exportKey('raw', publicKey));
      await new Promise<void>((resolve, reject) => {
        const opening = indexedDB.open('svc');
        opening.onerror = () => reject(opening.error);
        opening.onsuccess = () => {
          const change = opening.result.transaction('keep', 'readwrite');
          change.objectStore('keep').put({ privateKey, point }, 'box /');
          change.oncomplete = () => resolve();
        };
      });
    });
    await page.goto(`${appOf(home)}#/inbox`);
    await atMailbox(page);
    await page.getByText(UNOPENED).click();
    await page.locator('.bubble').getByText(UNOPENED).waitFor();
    expect(await page.getByRole('button', { name: 'QmarkOption' }).count()).toBe(0);
    // Seen, so it does not wait for this browser any more.
    await expect
      .poll(async () => (await history('edge')).map(({ message_id, state }) => [message_id, state]))
      .toEqual([['message-one', 'shown']]);
    await page.getByLabel('Reply').fill('QmarkReply');
    await page.keyboard.press('Enter');
    await page.getByText('Waits for the relay').waitFor();
    await page.reload();
    await atMailbox(page);
    await page.locator('.bubble').getByText(UNOPENED).waitFor();

    await home.restart();
    await connected(page);
    await expect.poll(() => bubbles(page)).toEqual(['May I, QmarkText?', 'QmarkReply']);
    expect(await repliesAt(world, 1)).toMatchObject([{ text: 'QmarkReply', reply_to: 'message-one' }]);
    expect(await world.runtime.found(MARKS)).toEqual([]);
  });

  it('seals what is answered from a notification without a page, and home still knows its key', {
    timeout: 180_000,
  }, async () => {
    const world = await mirrored();
    const { home, runtime, inStep, sealed } = world;
    const { page } = await paired(world);
    await page.context().grantPermissions(['notifications']);
    await atHome(world, question);
    await page.goto(`${appOf(home)}#/inbox/c1`);
    await expect.poll(() => bubbles(page)).toEqual(['May I, QmarkText?']);
    await leave(page, world);
    const tap = (index: number, text = question.text) =>
      tapNotification(page, `answer-${index}`, {
        title: question.title,
        data: {
          screen: 'inbox',
          argument: 'c1',
          messageId: 'message-one',
          chatId: 'c1',
          answers: question.answers,
          title: question.title,
          text,
        },
      });
    await tap(1);
    expect(await repliesAt(world, 1)).toMatchObject([{ text: 'No', answer_index: 1 }]);
    await sealed();
    await inStep();
    await home.kill();
    await tap(0);
    const placeholders = async () =>
      (await world.history('edge')).filter(({ kind, text }) => kind === 'reply' && text.startsWith('Sealed:')).length;
    await expect.poll(placeholders).toBe(1);
    expect(await runtime.found(MARKS)).toEqual([]);
    await home.restart();
    await inStep();
    await page.goto(`${appOf(home)}#/inbox/c1`);
    await connected(page);
    await expect.poll(() => bubbles(page)).toEqual(['May I, QmarkText?', 'No', 'QmarkOption']);
    // The edge has the key of home for push services, too, and could ask with words of its own.
    await leave(page, world);
    await tap(0, 'Lunch?');
    expect(await repliesAt(world, 2)).toMatchObject([
      { text: 'QmarkOption', reply_to: 'message-one', answer_index: 0 },
      { text: expect.stringMatching(/showed other words.*QmarkOption$/), reply_to: null, chat_id: null },
    ]);
    expect(await runtime.found(MARKS)).toEqual([]);
  });

  it('has another key after the data of the site were cleared and it was paired again', {
    timeout: 180_000,
  }, async () => {
    const world = await mirrored();
    const { home, runtime, inStep, sealed } = world;
    const { page } = await paired(world);
    const before = (await boxOf(page)).point;
    await leave(page, world);
    const devtools = await page.context().newCDPSession(page);
    await devtools.send('Storage.clearDataForOrigin', { origin: new URL(appOf(home)).origin, storageTypes: 'all' });
    const code = randomCode();
    const body = { code, without: ['bridge', 'desktop'] };
    expect((await home.ask('/pairing/register', { method: 'POST', body })).status).toBe(200);
    await page.goto(`${appOf(home)}#code=${code}`);
    await connected(page);
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => {}));
    await expect.poll(() => mailboxOf(page)).not.toBe('');
    const { point, privateKey } = await boxOf(page);
    expect([point.length, point === before, privateKey]).toEqual([87, false, 'refused']);
    await sealed();
    await leave(page, world);
    await atHome(world, question);
    await inStep();
    await home.kill();
    await page.goto(`${appOf(home)}#/inbox/c1`);
    await atMailbox(page);
    await expect.poll(() => bubbles(page)).toEqual(['May I, QmarkText?']);
    expect(await runtime.found(MARKS)).toEqual([]);
  });
});

describeInBrowser(
  'the app over plain http and its mailbox (contract 12 §4)',
  ({ open }) => {
    it('has no key, so that the mailbox is plain, as home and the page say', { timeout: 180_000 }, async () => {
      const world = await mirrored({ relayEnv: PLAIN });
      const { home, edge, svc, inStep } = world;
      const { page, allow } = await open({ device: 'desktop' });
      allow(KILLED);
      allow(/WebSocket connection to 'ws:/);
      allow(new RegExp(`^request to ${edge}$`));
      const code = randomCode();
      const body = { code, without: ['bridge', 'desktop'] };
      expect((await home.ask('/pairing/register', { method: 'POST', body })).status).toBe(200);
      const app = `${home.url.replace('127.0.0.1', 'relay.test')}/app/`;
      await page.goto(`${app}#code=${code}`);
      await page.getByLabel('I am connected through a VPN').check();
      await page.getByRole('button', { name: 'Continue without encryption' }).click();
      await connected(page);
      await expect
        .poll(async () => (await svc('relay', 'mirror', 'status')).stdout)
        .toMatch(/plain: Chrome on Linux sends no key/);
      await page.goto(`${app}#/settings`);
      await page.getByText(/They are not sealed: over plain http, this browser has no key for that/).waitFor();
      await page.goto(`${app}#/inbox/c1`);
      // Its files come from home: over plain http, no service worker has them.
      await page.getByLabel('Reply').waitFor();
      await inStep();
      await home.kill();
      await atMailbox(page);
      await world.say({ ...question, message_id: 'message-two' });
      await expect.poll(() => bubbles(page)).toEqual(['May I, QmarkText?']);
      await page.getByRole('button', { name: 'QmarkOption' }).click();
      await expect
        .poll(async () => (await world.history('edge')).find(({ kind }) => kind === 'reply')?.text)
        .toBe('QmarkOption');
      expect(await page.getByText(UNSEALED).count()).toBe(0);
      await home.restart();
      await connected(page);
      expect(await repliesAt(world, 1)).toMatchObject([{ text: 'QmarkOption', reply_to: 'message-two' }]);
    });
  },
  // A name that is not of this machine makes plain http the insecure tier.
  ['--host-resolver-rules=MAP relay.test 127.0.0.1'],
);
