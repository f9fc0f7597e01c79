import { readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Page, Request } from 'playwright-core';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { MiB } from '../../lib/kit/units.ts';
import { connected, PLAIN, pairPage, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, type PageOptions, smallTargets } from '../support/browser.ts';
import { sentToken } from '../support/browser-storage.ts';
import { registered } from '../support/media.ts';
import { startNodeTarget, type Target } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

const SECONDS = 600;
const RATE = 16_000;

/** Ten minutes of a quiet tone, 19 MB: more than a browser reads ahead. */
function wav(): Buffer {
  const samples = SECONDS * RATE;
  const bytes = Buffer.alloc(44 + 2 * samples);
  bytes.write('RIFF', 0);
  bytes.writeUInt32LE(36 + 2 * samples, 4);
  bytes.write('WAVEfmt ', 8);
  bytes.writeUInt32LE(16, 16);
  bytes.writeUInt16LE(1, 20);
  bytes.writeUInt16LE(1, 22);
  bytes.writeUInt32LE(RATE, 24);
  bytes.writeUInt32LE(2 * RATE, 28);
  bytes.writeUInt16LE(2, 32);
  bytes.writeUInt16LE(16, 34);
  bytes.write('data', 36);
  bytes.writeUInt32LE(2 * samples, 40);
  for (let at = 0; at < samples; at++) bytes.writeInt16LE(Math.round(300 * Math.sin(at / 6)), 44 + 2 * at);
  return bytes;
}

describeInBrowser(
  'media in a browser (contract 04 §3.6)',
  ({ open }) => {
    let relay: Target;
    const sound = wav();
    beforeAll(async () => {
      relay = await startNodeTarget({ env: { ...PLAIN, RELAY_TERMINAL_TMUX: '0' } });
    });
    afterAll(() => relay?.stop());

    const port = () => new URL(relay.url).port;

    /** A paired page at the files, with its service worker in charge. */
    async function openPaired(options?: PageOptions) {
      const opened = await open(options);
      const { page } = opened;
      const app = `http://localhost:${port()}/app/`;
      await pairPage(page, relay);
      await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
      await page.goto(`${app}#/files`);
      return opened;
    }

    /** Sets the limit for files that are loaded whole. */
    async function allowMegabytes(page: Page, limit: number): Promise<void> {
      await page.evaluate((limit) => {
        const stored = JSON.parse(localStorage.getItem('svc settings') ?? '{}');
        localStorage.setItem('svc settings', JSON.stringify({ ...stored, max_inbound_mb: limit }));
      }, limit);
      await page.reload();
    }

    /** A file of the host, opened by its path. */
    async function openFile(page: Page, path: string): Promise<void> {
      await page.getByLabel('File on the machine of the relay').fill(path);
      await page.getByRole('button', { name: 'Open' }).last().click();
      await page.getByRole('dialog').waitFor();
    }

    async function onDisk(name: string, bytes: Buffer): Promise<string> {
      const path = join(await temporaryDirectory(), name);
      await writeFile(path, bytes);
      return path;
    }

    /** Sends a file of this browser and resolves with its token. */
    async function sendFile(page: Page, name: string, mimeType: string, buffer: Buffer): Promise<string> {
      await page.getByLabel('Send files').setInputFiles({ name, mimeType, buffer });
      await page.getByRole('listitem').filter({ hasText: name }).waitFor();
      return sentToken(page, name);
    }

    /** Ranges that the service worker asked the relay for. */
    function watchRanges(page: Page): Request[] {
      const asked: Request[] = [];
      page.context().on('request', (request) => {
        if (request.serviceWorker() && /\/media\//.test(request.url())) asked.push(request);
      });
      return asked;
    }

    const seek = (page: Page, seconds: number) =>
      page.locator('audio').evaluate(
        (element, to) =>
          new Promise<number>((resolve, reject) => {
            const audio = element as HTMLAudioElement;
            audio.addEventListener('seeked', () => resolve(audio.currentTime));
            audio.addEventListener('error', () => reject(new Error(audio.error?.message)));
            audio.currentTime = to;
          }),
        seconds,
      );

    it('seeks in a sound through the service worker, by ranges that the relay answers', async () => {
      const { page } = await openPaired();
      const asked = watchRanges(page);
      await sendFile(page, 'tone.wav', 'audio/wav', sound);
      await page.getByRole('listitem').filter({ hasText: 'tone.wav' }).getByRole('button', { name: 'Open' }).click();
      const audio = page.locator('audio');
      await expect.poll(() => audio.evaluate((element) => (element as HTMLAudioElement).duration)).toBe(SECONDS);
      await expectAccessible(page);
      expect(await smallTargets(page)).toEqual([]);
      expect(await seek(page, SECONDS - 30)).toBe(SECONDS - 30);
      const answers = await Promise.all(
        asked.map(async (request) => {
          const answer = await request.response();
          return [request.headers().range, answer?.status(), answer?.headers()['content-range']];
        }),
      );
      // The browser may give up a range before its answer, when it seeks elsewhere.
      const ranges = answers.filter(([, status]) => status !== undefined);
      const starts = ranges.map(([range]) => Number(/^bytes=(\d+)-/.exec(String(range))?.[1]));
      expect(Math.max(...starts)).toBeGreaterThan(2 * RATE * (SECONDS - 60));
      for (const [, status, range] of ranges) {
        expect(status).toBe(206);
        expect(range).toMatch(new RegExp(`^bytes \\d+-\\d+/${sound.length}$`));
      }
      // Nothing of it is kept, and the bearer is in no address.
      expect(asked.map((request) => new URL(request.url()).search).join('')).toBe('');
      const kept = await page.evaluate(async () => {
        const caught = await Promise.all((await caches.keys()).map(async (name) => (await caches.open(name)).keys()));
        return caught.flat().map(({ url }) => url);
      });
      expect(kept.filter((url) => url.includes('/media/'))).toEqual([]);
    });

    it('streams a file that is larger than the limit for whole ones, and saves it as it arrives', async () => {
      const { page } = await openPaired();
      await allowMegabytes(page, 5);
      await openFile(page, await onDisk('töne "1".wav', sound));
      await expect.poll(() => page.locator('audio').count()).toBe(1);
      expect(await page.getByText('The file is larger than your settings allow').count()).toBe(0);
      const download = page.waitForEvent('download');
      await page.getByRole('button', { name: 'Download' }).click();
      const saved = await download;
      expect(saved.suggestedFilename()).toMatch(/^töne .?1.?\.wav$/);
      expect((await readFile(await saved.path())).equals(sound)).toBe(true);
      // The page stayed where it was.
      await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
      expect(new URL(page.url()).hash).toBe('#/files');
    });

    it('saves a file that it requests while the service worker is being replaced', async () => {
      // The policy lets only the app register a worker.
      const { page } = await openPaired({ context: { bypassCSP: true } });
      const bytes = sound.subarray(0, MiB);
      await openFile(page, await onDisk('tone.wav', bytes));
      const button = page.getByRole('dialog').getByRole('button', { name: 'Download' });
      const download = page.waitForEvent('download');
      const asked = await button.evaluate(async (button) => {
        const { serviceWorker } = navigator;
        const { installing: next } = await serviceWorker.register('sw.js?mailbox=edge.example');
        return new Promise((resolve) => {
          next?.addEventListener('statechange', () => {
            if (next.state !== 'activating') return;
            (button as HTMLElement).click();
            resolve(serviceWorker.controller?.scriptURL.split('/').at(-1));
          });
        });
      });
      expect(asked).toBe('sw.js');
      expect((await readFile(await (await download).path())).equals(bytes)).toBe(true);
    });

    it('saves one file in two tabs at once', async () => {
      const { page, tab } = await openPaired();
      const bytes = sound.subarray(0, MiB);
      const path = await onDisk('tone.wav', bytes);
      const other = await tab();
      await other.goto(page.url());
      await other.waitForFunction(() => navigator.serviceWorker.controller !== null);
      const route = `media/by-path?path=${encodeURIComponent(path)}`;
      // Both have their answer before either goes to the file.
      for (const each of [page, other]) {
        const status = await each.evaluate((route) => {
          const { port1, port2 } = new MessageChannel();
          navigator.serviceWorker.controller?.postMessage({ name: 'save-media', route }, [port2]);
          return new Promise((resolve) => {
            port1.onmessage = ({ data }) => resolve(data);
          });
        }, route);
        expect(status).toBe(200);
      }
      for (const each of [page, other]) {
        const download = each.waitForEvent('download');
        await each.evaluate((route) => location.assign(route), route);
        expect((await readFile(await (await download).path())).equals(bytes)).toBe(true);
      }
    });

    it('says at once that it cannot save a file after the browser has removed the service worker', async () => {
      const { page } = await openPaired();
      await openFile(page, await onDisk('tone.wav', sound.subarray(0, MiB)));
      const button = page.getByRole('dialog').getByRole('button', { name: 'Download' });
      await button.waitFor();
      const browser = await page.context().newCDPSession(page);
      const { origin } = new URL(page.url());
      await browser.send('Storage.clearDataForOrigin', { origin, storageTypes: 'service_workers' });
      await page.waitForFunction(() => navigator.serviceWorker.controller === null);
      await button.click();
      await page.getByText('The service worker could not be started').waitFor();
    });

    it('gets another bearer when the relay does not accept the one that is stored', async () => {
      const { page, allow } = await openPaired();
      allow(/401/);
      const path = await onDisk('tone.wav', sound);
      await openFile(page, path);
      await expect.poll(() => page.locator('audio').count()).toBe(1);
      const asked = watchRanges(page);
      // The session is over, as after a long time, and the refresh token is good: every tab learns of it.
      await page.evaluate(async () => {
        const stored = await new Promise<{ session_token: string }>((resolve) => {
          const opening = indexedDB.open('svc');
          opening.onsuccess = () => {
            const place = opening.result.transaction('keep', 'readwrite').objectStore('keep');
            const reading = place.get('pairing /');
            reading.onsuccess = () => {
              const pairing = { ...reading.result.pairing, session_token: crypto.randomUUID() };
              place.put({ ...reading.result, pairing }, 'pairing /').onsuccess = () => resolve(pairing);
            };
          };
        });
        new BroadcastChannel('pairing /').postMessage(null);
        return stored.session_token;
      });
      expect(await seek(page, SECONDS - 30)).toBe(SECONDS - 30);
      const answers = await Promise.all(asked.map(async (request) => (await request.response())?.status()));
      // The browser may give up a range before its answer.
      const statuses = answers.filter((status) => status !== undefined);
      expect(statuses).toContain(401);
      expect(statuses.at(-1)).toBe(206);
    });

    it('blurs a picture that was marked as sensitive until somebody asks for it', async () => {
      const { page } = await openPaired();
      const icon = await (await relay.fetch('/app/icon-192.png')).arrayBuffer();
      const token = await sendFile(page, 'secret.png', 'image/png', Buffer.from(icon));
      expect((await relay.operator(`/media/${token}/sensitive`, { method: 'POST' })).status).toBe(200);
      await page.getByRole('listitem').filter({ hasText: 'secret.png' }).getByRole('button', { name: 'Open' }).click();
      const picture = page.getByRole('img', { name: 'secret.png' });
      await expect.poll(() => picture.evaluate((image) => (image as HTMLImageElement).naturalWidth)).toBe(192);
      const blur = () => picture.evaluate((image) => getComputedStyle(image).filter);
      expect(await blur()).toMatch(/^blur/);
      await page.getByRole('button', { name: 'Show' }).click();
      await expect.poll(blur).toBe('none');
      expect(await picture.getAttribute('src')).toBe(`media/${token}`);
    });

    it('gives a file to no page of another origin, and to no document', async () => {
      const { page, allow, tab } = await openPaired();
      allow(/404|request to|ERR_/);
      const path = await onDisk('tone.wav', sound);
      const token = await registered(relay, path, { content_type: 'audio/wav' });
      const address = `http://localhost:${port()}/app/media/${token}`;
      const foreign = createServer((_, response) => {
        response.setHeader('content-type', 'text/html');
        response.end(`<audio src="${address}"></audio><iframe src="${address}"></iframe>`);
      });
      await new Promise<void>((resolve) => foreign.listen(0, '127.0.0.1', resolve));
      onTestFinished(() => void foreign.close());
      const asked = watchRanges(page);
      const other = await tab();
      await other.goto(`http://localhost:${(foreign.address() as AddressInfo).port}/`);
      await expect
        .poll(() => other.locator('audio').evaluate((audio) => (audio as HTMLAudioElement).error?.code))
        .toBeGreaterThan(0);
      const answer = await other.goto(address);
      expect(answer?.status()).toBe(404);
      expect(asked).toEqual([]);
    });

    it('loads a file whole where there is no service worker, up to the limit', async () => {
      const { page } = await open();
      const app = `http://relay.test:${port()}/app/`;
      await page.goto(`${app}#code=${await webCode(relay)}`);
      await page.getByLabel('I am testing on this machine').check();
      await page.getByRole('button', { name: 'Continue without encryption' }).click();
      await connected(page);
      await page.goto(`${app}#/files`);
      await allowMegabytes(page, 5);
      await openFile(page, await onDisk('tone.wav', sound));
      await page.getByText('The file is larger than your settings allow').waitFor();
      await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
      await openFile(page, await onDisk('short.wav', sound.subarray(0, MiB)));
      await expect.poll(() => page.locator('audio').getAttribute('src')).toMatch(/^blob:/);
    });
  },
  ['--host-resolver-rules=MAP relay.test 127.0.0.1', '--autoplay-policy=no-user-gesture-required'],
);
