import { rm } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { connected, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, type PageOptions, ROUTED, smallTargets } from '../support/browser.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { startNodeTarget, type Target } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

const MiB = 1024 * 1024;

describeInBrowser('uploads in a browser (contract 04 §3.5)', ({ open }) => {
  let relay: Target;
  beforeAll(async () => {
    relay = await startNodeTarget({ env: { RELAY_TERMINAL_TMUX: '0', RELAY_MEDIA_MAX_SIZE_MB: '2' } });
  });
  afterAll(() => relay?.stop());

  async function openFiles(target = relay, port = new URL(target.url).port, options: PageOptions = {}) {
    const opened = await open(options);
    const { page, allow } = opened;
    allow(/Failed to load resource|WebSocket|ERR_/);
    const code = await webCode(target);
    await page.goto(`http://localhost:${port}/app/#code=${code}`);
    await connected(page);
    await page.goto(`http://localhost:${port}/app/#/files`);
    return opened;
  }

  const file = (name: string, size: number) => ({ name, mimeType: 'text/plain', buffer: Buffer.alloc(size, 97) });
  const choose = (page: Page, ...files: ReturnType<typeof file>[]) =>
    page.getByLabel('Send files').setInputFiles(files);
  const row = (page: Page, name: string) => page.getByRole('listitem').filter({ hasText: name });
  const failure = (page: Page, name: string) => page.getByRole('alert').filter({ hasText: name });
  async function held(target = relay): Promise<[string, number][]> {
    const { media } = await (await target.operator('/media/inspect')).json();
    return media.map(({ file_name, size }: { file_name: string; size: number }) => [file_name, size]);
  }
  /** Slows the page's uploads down to bytes per second, -1 for not at all. */
  async function slowDown(page: Page, uploadThroughput: number): Promise<void> {
    const network = await page.context().newCDPSession(page);
    await network.send('Network.emulateNetworkConditions', {
      offline: false,
      latency: 0,
      downloadThroughput: -1,
      uploadThroughput,
    });
  }

  it('takes empty files and names of any kind', async () => {
    const { page } = await openFiles();
    const long = `${'n'.repeat(296)}.txt`;
    await choose(
      page,
      file('empty.txt', 0),
      file('../../up.txt', 10),
      file(long, 11),
      file('a "b"; c=d\\ <i>é.txt', 12),
    );
    for (const name of ['empty.txt', 'up.txt', long, 'é.txt']) await row(page, name).waitFor();
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    await expect.poll(async () => (await held()).length).toBe(4);
    const names = (await held()).map(([name]) => name);
    expect(names).toEqual(expect.arrayContaining(['empty.txt', 'up.txt']));
    for (const name of names) {
      expect(name).not.toMatch(/[/\\]/);
      expect(name.length).toBeLessThan(256);
    }
    await row(page, 'empty.txt').getByRole('button', { name: 'Open' }).click();
    await page.getByRole('dialog').getByText('0 B').waitFor();
  });

  it('says that a file is too large, however much of it the relay had read', async () => {
    const { page } = await openFiles();
    await choose(page, file('much.bin', 12 * MiB), file('bit.bin', 2 * MiB + 500_000));
    await failure(page, 'much.bin').getByText('The file is larger than the relay accepts.').waitFor();
    await failure(page, 'bit.bin').getByText('The file is larger than the relay accepts.').waitFor();
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    await failure(page, 'bit.bin').getByRole('button', { name: 'Close' }).click();
    await expect.poll(() => failure(page, 'bit.bin').count()).toBe(0);
  });

  it('sends many files one after the other, as many at once as the relay takes', async () => {
    const { page } = await openFiles();
    await slowDown(page, 50_000);
    const many = Array.from({ length: 9 }, (_, n) => file(`many-${n}.txt`, 100_000 + n));
    await choose(page, ...many);
    await page.getByText('Waits for the others').first().waitFor();
    expect(await page.getByRole('progressbar').count()).toBeGreaterThan(3);
    await slowDown(page, -1);
    for (const { name } of many) await row(page, name).waitFor();
    expect(await page.getByRole('alert').count()).toBe(0);
  });

  it('sends a file again after the relay had gone midway', async () => {
    const proxy = await startFlakyProxy({ port: Number(new URL(relay.url).port), seed: 4, faults: ['none'] });
    onTestFinished(() => proxy.close());
    const { page } = await openFiles(relay, String(proxy.port));
    await slowDown(page, 100_000);
    await choose(page, file('broken.txt', MiB));
    const sent = page.getByRole('progressbar', { name: 'broken.txt' });
    await expect.poll(() => sent.evaluate((bar) => (bar as HTMLProgressElement).value)).toBeGreaterThan(50_000);
    // A browser tries a reused connection once more by itself.
    proxy.block('reset');
    await failure(page, 'broken.txt').getByText('The connection broke before the whole file had arrived.').waitFor();
    await expectAccessible(page);
    proxy.plan(['none']);
    await slowDown(page, -1);
    await page.getByRole('button', { name: 'Send broken.txt again' }).click();
    await row(page, 'broken.txt').waitFor();
    await expect.poll(held).toContainEqual(['broken.txt', MiB]);
  });

  it('stores a file once that is sent again because the answer was lost', async () => {
    const { page } = await openFiles(relay, undefined, ROUTED);
    await page.route('**/media/upload', async (route) => {
      await route.fetch();
      await route.abort();
    });
    await choose(page, file('twice.txt', 10));
    await failure(page, 'twice.txt').waitFor();
    await page.unroute('**/media/upload');
    await page.getByRole('button', { name: 'Send twice.txt again' }).click();
    await row(page, 'twice.txt').waitFor();
    expect((await held()).filter(([name]) => name === 'twice.txt')).toEqual([['twice.txt', 10]]);
  });

  it('can be cancelled after it was sent again in the very moment of its failure', async () => {
    const { page } = await openFiles(relay, undefined, ROUTED);
    let attempts = 0;
    let release = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    await page.route('**/media/upload', async (route) => {
      if (attempts++ === 0) return route.abort();
      await released;
      await route.continue().catch(() => {});
    });
    await page.evaluate(() => {
      new MutationObserver((_, observer) => {
        const again = document.querySelector<HTMLElement>('[aria-label="Send hasty.txt again"]');
        if (!again) return;
        observer.disconnect();
        again.click();
      }).observe(document, { subtree: true, childList: true });
    });
    const cancelled = page.waitForEvent('requestfailed', () => attempts === 2);
    await choose(page, file('hasty.txt', 10));
    await expect.poll(() => attempts).toBe(2);
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('hasty.txt was not sent: you cancelled it.').waitFor();
    await cancelled;
    release();
    expect((await held()).filter(([name]) => name === 'hasty.txt')).toEqual([]);
  });

  it('says when the relay cannot store a file, or has no room for it', async () => {
    const tmp = await temporaryDirectory();
    const broken = await startNodeTarget({ env: { RELAY_TERMINAL_TMUX: '0', TMPDIR: tmp } });
    onTestFinished(() => broken.stop());
    const { page } = await openFiles(broken, undefined, ROUTED);
    await rm(tmp, { recursive: true });
    await choose(page, file('nowhere.txt', 10));
    await failure(page, 'nowhere.txt').getByText('The relay could not store the file.').waitFor();
    // A proxy before the relay has its own statuses.
    await page.route('**/media/upload', (route) => route.fulfill({ status: 507, body: 'full' }));
    await page.getByRole('button', { name: 'Send nowhere.txt again' }).click();
    await failure(page, 'nowhere.txt').getByText("The relay's machine has no room for the file.").waitFor();
  });
});
