import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { deferred } from '../../lib/kit/deferred.ts';
import { appOf, pairPage } from '../support/app.ts';
import { describeInBrowser, expectAccessible, ROUTED, smallTargets } from '../support/browser.ts';
import { type FakeApi, startFakeApi } from '../support/fake-api-server.ts';
import { registered } from '../support/media.ts';
import { post, startNodeTarget, type Target } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

describeInBrowser('pictures and files in the chat (contract 04 §3, §6)', ({ open }) => {
  let relay: Target;
  let api: FakeApi;
  let icon: Buffer;
  const ends: (() => void)[] = [];
  beforeAll(async () => {
    api = await startFakeApi((end) => ends.push(end));
    relay = await startNodeTarget({ env: { RELAY_WEBAPI_URL: api.url } });
    icon = Buffer.from(await (await relay.fetch('/app/icon-192.png')).arrayBuffer());
  });
  afterAll(async () => {
    await relay?.stop();
    for (const end of ends) end();
  });

  async function openAt(place: string, policy: Record<string, unknown> = {}) {
    const opened = await open();
    const { page } = opened;
    const app = appOf(relay);
    await pairPage(page, relay, { policy });
    await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
    await page.goto(`${app}#/${place}`);
    return opened;
  }

  async function onDisk(name: string, bytes: Buffer): Promise<string> {
    const path = join(await temporaryDirectory(), name);
    await writeFile(path, bytes);
    return path;
  }

  /** The agent answers every message with this. */
  const answerWith = (text: string) =>
    api.onStream(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'assistant.delta', delta: text });
      await exchange.event({ type: 'run.completed' });
      exchange.end();
    });

  async function say(page: Page, text: string): Promise<void> {
    await page.getByRole('textbox', { name: 'Message' }).fill(text);
    await page.getByRole('button', { name: 'Send' }).click();
  }

  const widthOf = (page: Page, name: string) =>
    page.getByRole('img', { name }).evaluate((image) => (image as HTMLImageElement).naturalWidth);

  it('shows what the agent refers to, blurred where it is marked, and a card for what is gone', async () => {
    const { page, allow } = await openAt('chat/new');
    allow(/404/);
    const token = await registered(relay, await onDisk('one.png', icon), {
      content_type: 'image/png',
      file_name: 'Übersicht.png',
    });
    const path = await onDisk('two.png', icon);
    const large = await onDisk('large.png', Buffer.concat([icon, Buffer.alloc(3 * 1024 * 1024)]));
    answerWith(
      [
        `Here: MEDIA:svc-relay://${token}`,
        `||![Private](${path})||`,
        `![Large](${large})`,
        `![Inline](data:image/png;base64,${icon.toString('base64')})`,
        '![Gone](/home/nobody/secret-place.png)',
      ].join('\n'),
    );
    await say(page, 'Show me.');
    const answer = page.getByRole('article', { name: 'Agent' });
    await answer.getByText('File unavailable').waitFor();
    expect(await answer.getByText('secret-place').count()).toBe(0);
    for (const name of ['Übersicht.png', 'Private', 'Inline']) await expect.poll(() => widthOf(page, name)).toBe(192);
    const blur = (name: string) => page.getByRole('img', { name }).evaluate((image) => getComputedStyle(image).filter);
    expect(await blur('Übersicht.png')).toBe('none');
    expect(await blur('Private')).toMatch(/^blur/);
    await answer.getByRole('button', { name: 'Show' }).click();
    await expect.poll(() => blur('Private')).toBe('none');
    // Larger than what is loaded by itself.
    expect(await page.getByRole('img', { name: 'Large' }).count()).toBe(0);
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    await answer.getByRole('button', { name: 'Load', exact: true }).click();
    await expect.poll(() => widthOf(page, 'Large')).toBe(192);
  });

  it('attaches pictures from a file, the clipboard, and a drop, which the agent finds on its machine', async () => {
    const { page } = await openAt('chat/new');
    answerWith('Nice.');
    await page.getByLabel('Attach pictures').setInputFiles({ name: 'a [1].png', mimeType: 'image/png', buffer: icon });
    await page.getByRole('img', { name: 'a [1].png' }).waitFor();
    for (const kind of ['paste', 'drop']) {
      await page.getByRole('textbox', { name: 'Message' }).evaluate(
        (field, { kind, bytes }) => {
          const data = new DataTransfer();
          data.items.add(new File([new Uint8Array(bytes)], `${kind}.png`, { type: 'image/png' }));
          field.dispatchEvent(
            kind === 'paste'
              ? new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })
              : new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }),
          );
        },
        { kind, bytes: [...icon] },
      );
      await page.getByRole('img', { name: `${kind}.png` }).waitFor();
    }
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    await page.getByRole('button', { name: 'Remove drop.png' }).click();
    await say(page, 'What is this?');
    await page.getByRole('article', { name: 'Agent' }).getByText('Nice.').waitFor();
    const sent = api.requests.filter(({ path }) => path.endsWith('/chat/stream')).at(-1);
    const { message } = JSON.parse(sent?.body ?? '{}') as { message: string };
    const [text, ...lines] = message.split('\n');
    expect(text).toBe('What is this?');
    const paths = lines.map((line) => /^!\[[^\]]*\]\((\/.*)\)$/.exec(line)?.[1] ?? '');
    expect(paths).toHaveLength(2);
    for (const path of paths) expect((await readFile(path)).equals(icon)).toBe(true);
    // The person sees them in the conversation, too.
    await expect.poll(() => widthOf(page, 'paste.png')).toBe(192);
  });

  /** Holds pictures on their way. `arrived` resolves with the first one. */
  async function holdUploads(page: Page) {
    const { promise: arrived, resolve: arrive } = deferred<void>();
    const { promise: released, resolve: release } = deferred<void>();
    await page.route('**/clipboard/inbox', async (route) => {
      arrive();
      await released;
      await route.continue();
    });
    return { arrived, release };
  }

  it('keeps words and pictures that are added while others are on their way', async () => {
    const { page } = await open(ROUTED);
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/chat/new`);
    answerWith('Nice.');
    const { arrived, release } = await holdUploads(page);
    const attach = page.getByLabel('Attach pictures');
    const field = page.getByRole('textbox', { name: 'Message' });
    await attach.setInputFiles({ name: 'first.png', mimeType: 'image/png', buffer: icon });
    await say(page, 'The first?');
    await arrived;
    await field.fill('The first? And more');
    await attach.setInputFiles({ name: 'second.png', mimeType: 'image/png', buffer: icon });
    await page.getByRole('img', { name: 'second.png' }).waitFor();
    release();
    await page.getByRole('article', { name: 'Agent' }).getByText('Nice.').waitFor();
    expect(await field.inputValue()).toBe('The first? And more');
    expect(
      await page.locator('.attached img').evaluateAll((all) => all.map((one) => (one as HTMLImageElement).alt)),
    ).toEqual(['second.png']);
  });

  it('goes on sending pictures while something else is shown, and sends them once', async () => {
    const { page, allow } = await open(ROUTED);
    // Nothing was ever said in the other conversation.
    allow(/404/);
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/chat/new`);
    answerWith('Nice.');
    const { arrived, release } = await holdUploads(page);
    const before = api.requests.length;
    await page.getByLabel('Attach pictures').setInputFiles({ name: 'one.png', mimeType: 'image/png', buffer: icon });
    await say(page, 'Once?');
    await arrived;
    const send = page.getByRole('button', { name: 'Send', exact: true });
    const cancel = page.getByRole('button', { name: 'Cancel' });
    await page.goto(`${appOf(relay)}#/chat/other`);
    await send.waitFor();
    expect(await cancel.count()).toBe(0);
    await page.goto(`${appOf(relay)}#/inbox`);
    await page.getByRole('heading', { name: 'Inbox', level: 1 }).waitFor();
    await page.goto(`${appOf(relay)}#/chat/new`);
    await cancel.waitFor();
    await page.getByRole('img', { name: 'one.png' }).waitFor();
    expect(await send.count()).toBe(0);
    release();
    await page.getByRole('article', { name: 'Agent' }).getByText('Nice.').waitFor();
    await expect.poll(() => page.getByRole('textbox', { name: 'Message' }).inputValue()).toBe('');
    expect(await page.locator('.attached').count()).toBe(0);
    expect(api.requests.slice(before).filter(({ path }) => path.endsWith('/chat/stream'))).toHaveLength(1);
  });

  it('keeps words and pictures when one is no picture or cannot be sent', async () => {
    const { page, allow } = await openAt('chat/new');
    allow(/status of 4|ERR_/);
    const attach = page.getByLabel('Attach pictures');
    await attach.setInputFiles({ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('x') });
    const refused = page.getByText('Only pictures in PNG, JPEG, WebP or GIF can be sent.');
    await refused.waitFor();
    await attach.setInputFiles(
      Array.from({ length: 5 }, (_, n) => ({
        name: `fake-${n}.png`,
        mimeType: 'image/png',
        buffer: Buffer.from('no'),
      })),
    );
    await page.getByText('At most 4 pictures in one message.').waitFor();
    await expect.poll(() => page.locator('.attached img').count()).toBe(4);
    await refused.waitFor({ state: 'detached' });
    await say(page, 'Look');
    await refused.waitFor();
    await expect.poll(() => page.getByRole('textbox', { name: 'Message' }).inputValue()).toBe('Look');
    await expect.poll(() => page.locator('.attached img').count()).toBe(4);
    const narrow = await openAt('chat/new', { without: ['files', 'bridge', 'desktop'] });
    await narrow.page.getByRole('textbox', { name: 'Message' }).waitFor();
    expect(await narrow.page.getByLabel('Attach pictures').count()).toBe(0);
  });

  it('shows them in messages of the inbox', async () => {
    const { page } = await openAt('inbox/c7');
    const token = await registered(relay, await onDisk('chart.png', icon), { content_type: 'image/png' });
    const text = `The chart: ![Chart](MEDIA:svc-relay://${token}) Is it right?`;
    expect((await relay.operator('/phone/message', post({ text, chat_id: 'c7' }))).status).toBe(200);
    await expect.poll(() => widthOf(page, 'Chart')).toBe(192);
    await page.getByText('Is it right?').waitFor();
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
  });
});
