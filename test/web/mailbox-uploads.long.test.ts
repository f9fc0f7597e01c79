import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { appOf, connected } from '../support/app.ts';
import { describeInBrowser, expectAccessible, type TestPage } from '../support/browser.ts';
import { sentToken, stored } from '../support/browser-storage.ts';
import { atMailbox, mirrored } from '../support/mirrored.ts';

/** The name of the relay at the edge, as nothing names another one. */
const RELAY = 'svc-relay';
const MARKS = ['QmarkName', 'QmarkBytes', 'QmarkReply'];
const MiB = 1024 * 1024;
const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
/** A picture that browsers show, with marks in its name and behind its last block. */
const picture = (size: number) => ({
  name: 'QmarkName.png',
  mimeType: 'image/png',
  buffer: Buffer.concat([PNG, Buffer.alloc(size, 'QmarkBytes')]),
});
const UNSEALED = /^QmarkName\.png: It was not sent: this browser cannot seal it for home/;
const AT_HOME = 'This file is at home, and home cannot be reached now.';

type World = Awaited<ReturnType<typeof mirrored>>;

const digestOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const row = (page: Page, name = 'QmarkName.png') => page.getByRole('listitem').filter({ hasText: name });
const choose = (page: Page, file: ReturnType<typeof picture>) => page.getByLabel('Send files').setInputFiles(file);
/** Waits until the page really shows a picture. */
const isShown = (page: Page) =>
  expect
    .poll(() =>
      page
        .locator('img.shown')
        .evaluateAll((all) =>
          all.map((image) => (image as HTMLImageElement).complete && (image as HTMLImageElement).naturalWidth),
        ),
    )
    .toEqual([1]);

/** Rows of what the app keeps, by their names. */
const kept = async (page: Page): Promise<Record<string, unknown>> => (await stored(page)).databases['svc kept'] ?? {};

/** Changes a store of the app in the browser: removes the rows whose keys begin so. */
const removeRows = (page: Page, prefix: string): Promise<void> =>
  page.evaluate(
    (prefix) =>
      new Promise<void>((resolve, reject) => {
        const opening = indexedDB.open('svc kept');
        opening.onerror = () => reject(opening.error);
        opening.onsuccess = () => {
          const change = opening.result.transaction('keep', 'readwrite');
          change.objectStore('keep').delete(IDBKeyRange.bound(prefix, `${prefix}\uffff`));
          change.oncomplete = () => {
            opening.result.close();
            resolve();
          };
        };
      }),
    prefix,
  );

/** As after the browser has lost its key for what is sealed. */
const loseKey = (page: Page): Promise<void> =>
  page.evaluate(async () => {
    await new Promise<void>((resolve, reject) => {
      const opening = indexedDB.open('svc');
      opening.onerror = () => reject(opening.error);
      opening.onsuccess = () => {
        const change = opening.result.transaction('keep', 'readwrite');
        change.objectStore('keep').delete('box /');
        change.oncomplete = () => resolve();
      };
    });
  });

/** Slows the page's uploads down to bytes per second, -1 for not at all. */
async function throttle(page: Page, uploadThroughput: number): Promise<void> {
  const network = await page.context().newCDPSession(page);
  const conditions = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput };
  await network.send('Network.emulateNetworkConditions', conditions);
}

async function uploadsAt({ svc }: World): Promise<Record<string, unknown>> {
  return JSON.parse((await svc('relay', 'mirror', 'status', '--json')).stdout).uploads;
}

describeInBrowser('uploads of the app at its sealed mailbox (contract 12 §4)', ({ open }) => {
  /** A page that is paired at home, at its files at the sealed mailbox, because home was killed. */
  async function atFiles(world: World): Promise<TestPage> {
    const opened = await world.pair(open, { device: 'desktop' });
    const { page, allow } = opened;
    // The mailbox refuses what only home has.
    allow(/status of (?:404|410|503)/);
    await connected(page);
    await world.sealed();
    await world.inStep();
    await world.home.kill();
    await page.goto(`${appOf(world.home)}#/files`);
    await atMailbox(page);
    return opened;
  }

  it('go sealed, and are shown before and after home has them; the edge has no byte of them', {
    timeout: 240_000,
  }, async () => {
    const world = await mirrored();
    const { home, runtime, inStep } = world;
    const { page } = await atFiles(world);
    const file = picture(3 * MiB);
    await choose(page, file);
    await row(page).waitFor();
    const token = await sentToken(page, file.name);
    expect([token.length, (await runtime.objects(RELAY)).length]).toEqual([43, 1]);
    await expect.poll(() => runtime.found([token])).toEqual([token]);
    expect(await runtime.found(MARKS)).toEqual([]);
    // Nothing of the draft stays beside the copy.
    await expect.poll(async () => Object.keys(await kept(page)).filter((key) => key.startsWith('upload '))).toEqual([]);

    await page.goto(`${appOf(home)}#/inbox/c1`);
    await page.getByLabel('Reply').fill(`QmarkReply MEDIA:svc-relay://${token}`);
    await page.keyboard.press('Enter');
    await isShown(page);
    // Without the copy, it is opened from the sealed file.
    await removeRows(page, 'copy ');
    await page.reload();
    await atMailbox(page);
    // One of that size is loaded on a tap.
    await page.getByRole('button', { name: 'Load', exact: true }).click();
    await isShown(page);
    await page.getByText('QmarkReply').first().waitFor();
    await page.goto(`${appOf(home)}#/files`);
    await row(page).getByRole('button', { name: 'Open' }).click();
    await isShown(page);
    const saving = page.waitForEvent('download');
    await page.getByRole('dialog').getByRole('link', { name: 'Download' }).click();
    const saved = await saving;
    expect([saved.suggestedFilename(), digestOf(await readFile(await saved.path()))]).toEqual([
      file.name,
      digestOf(file.buffer),
    ]);
    expect(await runtime.found(MARKS)).toEqual([]);

    await home.restart();
    await expect.poll(() => runtime.objects(RELAY)).toEqual([]);
    await page.reload();
    await connected(page);
    await row(page).getByRole('button', { name: 'Open' }).click();
    await isShown(page);
    const again = page.waitForEvent('download');
    await page.getByRole('dialog').getByRole('button', { name: 'Download' }).click();
    expect(digestOf(await readFile(await (await again).path()))).toBe(digestOf(file.buffer));
    const { media } = (await home.ask('/media/inspect')).json as { media: Record<string, unknown>[] };
    expect(media).toMatchObject([{ token, file_name: file.name, content_type: 'image/png', size: file.buffer.length }]);

    await inStep();
    await home.kill();
    await page.reload();
    await atMailbox(page);
    await row(page).getByRole('button', { name: 'Open' }).click();
    await page.getByRole('dialog').getByText(AT_HOME).waitFor();
    expect(await page.locator('img.shown').count()).toBe(0);
    expect(await runtime.found(MARKS)).toEqual([]);
  });

  it('go on after a reload under the same seal; damaged at the edge, they come home once they are right again', {
    timeout: 240_000,
  }, async () => {
    const world = await mirrored();
    const { home, runtime } = world;
    const { page } = await atFiles(world);
    const file = picture(2 * MiB);
    await throttle(page, 100_000);
    await choose(page, file);
    const sent = page.getByRole('progressbar', { name: file.name });
    await expect.poll(() => sent.evaluate((bar) => (bar as HTMLProgressElement).value)).toBeGreaterThan(50_000);
    const draftToken = async () => {
      const rows = Object.entries(await kept(page)).filter(([key]) => key.startsWith('upload '));
      return rows.map(([, draft]) => (draft as { sealed?: { token: string } }).sealed?.token);
    };
    const [token] = await draftToken();
    expect(await runtime.objects(RELAY)).toEqual([]);
    await throttle(page, -1);
    await page.reload();
    await atMailbox(page);
    await row(page).waitFor();
    expect([token?.length, await sentToken(page, file.name)]).toEqual([43, token]);
    expect(await runtime.found(MARKS)).toEqual([]);

    const [key = '', ...others] = await runtime.objects(RELAY);
    expect(others).toEqual([]);
    const repair = await runtime.damageObject(key);
    await home.restart();
    await expect
      .poll(() => uploadsAt(world))
      .toMatchObject({
        count: 1,
        error: 'its bytes are not those of its SHA-256',
      });
    await connected(page);
    // This browser has a copy, whatever is at the edge.
    await row(page).getByRole('button', { name: 'Open' }).click();
    await isShown(page);
    await repair();
    await expect.poll(() => runtime.objects(RELAY)).toEqual([]);
    const { media } = (await home.ask('/media/inspect')).json as { media: Record<string, unknown>[] };
    expect(media).toMatchObject([{ token, size: file.buffer.length }]);
  });

  it('that cannot be sealed are not sent: they wait here, also over a reload, and go home when it is back', {
    timeout: 240_000,
  }, async () => {
    const world = await mirrored();
    const { home, runtime } = world;
    const { page } = await atFiles(world);
    await loseKey(page);
    await choose(page, picture(1000));
    const alert = page.getByRole('alert').filter({ hasText: UNSEALED });
    await alert.waitFor();
    await expectAccessible(page);
    await page.reload();
    await atMailbox(page);
    await alert.waitFor();
    await page.getByRole('button', { name: 'Send QmarkName.png again' }).click();
    await alert.waitFor();
    expect([await runtime.objects(RELAY), await runtime.found(MARKS)]).toEqual([[], []]);
    await home.restart();
    await connected(page);
    await row(page).waitFor();
    const { media } = (await home.ask('/media/inspect')).json as { media: Record<string, unknown>[] };
    expect(media).toMatchObject([{ file_name: 'QmarkName.png' }]);
    expect([await runtime.objects(RELAY), await runtime.found(MARKS)]).toEqual([[], []]);
  });

  it('wait here, too, when the key was found lost on a connection with home', { timeout: 240_000 }, async () => {
    const world = await mirrored();
    const { home, runtime } = world;
    const { page, allow } = await world.pair(open, { device: 'desktop' });
    allow(/status of (?:404|410|503)/);
    // A relay asks anew for a proof with a nonce of its own.
    allow(/status of 401/);
    await connected(page);
    await world.sealed();
    await world.inStep();
    await loseKey(page);
    await page.goto(`${appOf(home)}#/files`);
    await page.reload();
    await connected(page);
    const box = async () => {
      const found = (await stored(page)).databases.svc?.['pairing /'] as { pairing: { box?: Record<string, unknown> } };
      return found.pairing.box;
    };
    await expect.poll(box).toEqual({ home: expect.any(String), uploads: true });
    await home.kill();
    await atMailbox(page);
    await choose(page, picture(1000));
    await page.getByRole('alert').filter({ hasText: UNSEALED }).waitFor();
    expect([await runtime.objects(RELAY), await runtime.found(MARKS)]).toEqual([[], []]);
    await home.restart();
    await connected(page);
    await row(page).waitFor();
    await expect.poll(box).toEqual({ home: expect.any(String), uploads: true, public_key: expect.any(String) });
    expect([await runtime.objects(RELAY), await runtime.found(MARKS)]).toEqual([[], []]);
  });
});
