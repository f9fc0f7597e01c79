import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { PLAIN } from '../support/app.ts';
import { describeInBrowser, RESTARTED } from '../support/browser.ts';
import { stored } from '../support/browser-storage.ts';
import { connect } from '../support/client.ts';
import { authenticate, bearer, randomCode, registerCode, startNodeTarget, type Target } from '../support/relay.ts';

const BOUND = /bound to a key of this browser: a copy of its token is of no use elsewhere/;
const UNBOUND = /not bound to a key of this browser/;
const NEEDS = 'Authentication needs a proof of the key of this session (timeout)';

const connected = (page: Page) =>
  page
    .getByText(/^Connected/)
    .first()
    .waitFor();

interface Kept {
  session_token: string;
  refresh_token: string;
  bound?: boolean;
}

/** The pairing as a script in the page's origin reads it. */
async function keptIn(page: Page): Promise<Kept> {
  const { databases } = await stored(page);
  const row = databases.svc?.['pairing /'] as { pairing: Kept } | undefined;
  if (!row) throw new Error('there is no pairing');
  return row.pairing;
}

describeInBrowser(
  'the key of a session (issue 23, 1.3)',
  ({ open }) => {
    let relay: Target;
    beforeAll(async () => {
      relay = await startNodeTarget({ env: PLAIN });
    });
    afterAll(() => relay?.stop());

    const app = (host = 'localhost') => `${relay.url.replace('127.0.0.1', host)}/app/`;
    async function newCode(): Promise<string> {
      const code = randomCode();
      await registerCode(relay, code, { without: ['bridge', 'desktop'] });
      return code;
    }
    const statusOf = async (token: string) => (await relay.fetch('/sessions', { headers: bearer(token) })).status;

    it('what a script copies out of the browser is of no use elsewhere, and the page goes on', async () => {
      const { page } = await open();
      await page.goto(`${app()}#code=${await newCode()}`);
      await connected(page);
      await page.getByText(BOUND).waitFor();
      const copied = await keptIn(page);
      expect(await statusOf(copied.session_token)).toBe(401);
      const { session_token, refresh_token } = copied;
      for (const payload of [{ session_token, refresh_token }, { session_token }, { refresh_token }]) {
        expect((await authenticate(relay, payload)).frame.payload).toEqual({ reason: NEEDS });
      }
      const extracted = await page.evaluate(async () => {
        const opening = indexedDB.open('svc');
        const database = await new Promise<IDBDatabase>((resolve) => {
          opening.onsuccess = () => resolve(opening.result);
        });
        const reading = database.transaction('keep').objectStore('keep').get('key /');
        const { privateKey } = await new Promise<{ privateKey: CryptoKey }>((resolve) => {
          reading.onsuccess = () => resolve(reading.result);
        });
        const formats = ['jwk', 'pkcs8'] as const;
        const exports = formats.map((format) => crypto.subtle.exportKey(format, privateKey).catch(String));
        return [privateKey.extractable, ...(await Promise.all(exports))];
      });
      expect(extracted).toEqual([
        false,
        expect.stringMatching(/InvalidAccess/),
        expect.stringMatching(/InvalidAccess/),
      ]);

      // Requests, a new socket, a reload, and a page after the relay has started anew.
      await page.goto(`${app()}#/devices`);
      await page.getByRole('button', { name: 'Sign out' }).waitFor();
      await page.reload();
      await connected(page);
      expect(await keptIn(page)).toMatchObject({ session_token, bound: true });
    });

    it('the page goes on after the relay has started anew, which knows no earlier nonce', async () => {
      const { page, allow } = await open();
      allow(RESTARTED);
      await page.goto(`${app()}#code=${await newCode()}`);
      await connected(page);
      await relay.restart();
      await page.goto(`${app()}#/devices`);
      await page.getByRole('button', { name: 'Sign out' }).waitFor();
      await page.goto(`${app()}#/home`);
      // The page may wait for a while, when its first attempt came too early.
      await page.reload();
      await connected(page);
      await page.getByText(BOUND).waitFor();
    });

    it('a session from before is bound at the next visit, in every tab', async () => {
      const { page, tab } = await open();
      // As a page before this version: it makes no key.
      await page.addInitScript(() => {
        const reject = () => Promise.reject(new DOMException('none', 'NotSupportedError'));
        SubtleCrypto.prototype.generateKey = reject as typeof SubtleCrypto.prototype.generateKey;
      });
      await page.goto(`${app()}#code=${await newCode()}`);
      await connected(page);
      await page.getByText(UNBOUND).waitFor();
      const before = await keptIn(page);
      expect(await statusOf(before.session_token)).toBe(200);

      const other = await tab();
      await other.goto(app());
      await connected(other);
      await other.getByText(BOUND).waitFor();
      await expect.poll(() => keptIn(other)).toMatchObject({ session_token: before.session_token, bound: true });
      expect(await statusOf(before.session_token)).toBe(401);
      // The first tab hears of it, and signs too.
      await page.getByText(BOUND).waitFor();
      await page.goto(`${app()}#/devices`);
      await page.getByRole('button', { name: 'Sign out' }).waitFor();
    });

    it('a tab of an older version keeps the pairing that it cannot use', async () => {
      const { page } = await open();
      await page.goto(`${app()}#code=${await newCode()}`);
      await connected(page);
      const { session_token } = await keptIn(page);
      const client = await connect(relay.wsUrl);
      client.send('system', 'auth', { session_token });
      // It keeps a pairing when the reason names both.
      const { reason } = (await client.next()).payload;
      expect(reason).toMatch(/auth/i);
      expect(reason).toMatch(/timeout/i);
    });

    it('with a clock that is wrong by years', async () => {
      const { page } = await open();
      await page.addInitScript(() => {
        const now = Date.now;
        Date.now = () => now() - 3 * 365 * 86_400_000;
      });
      await page.goto(`${app()}#code=${await newCode()}`);
      await connected(page);
      await page.getByText(BOUND).waitFor();
      await page.goto(`${app()}#/devices`);
      await page.getByRole('button', { name: 'Sign out' }).waitFor();
    });

    it('signing out removes the key, and the next pairing has another one', async () => {
      const { page, allow } = await open();
      // What was asked while the session ended.
      allow(/401/);
      const keyIn = async () => ((await stored(page)).databases.svc?.['key /'] as { x: string } | undefined)?.x;
      await page.goto(`${app()}#code=${await newCode()}`);
      await connected(page);
      await expect.poll(keyIn).toMatch(/^[\w-]{43}$/);
      const first = await keyIn();
      await page.goto(`${app()}#/devices`);
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click();
      await page.getByRole('heading', { name: 'Pair this browser' }).waitFor();
      await expect.poll(keyIn).toBeUndefined();
      await page.getByLabel('Pairing code').fill(await newCode());
      await page.keyboard.press('Enter');
      await connected(page);
      await expect.poll(keyIn).toMatch(/^[\w-]{43}$/);
      expect(await keyIn()).not.toBe(first);
    });

    it('a browser that stores no key has an unbound session, and says so', async () => {
      const { page } = await open();
      await page.addInitScript(() => {
        const { put } = IDBObjectStore.prototype;
        IDBObjectStore.prototype.put = function (this: IDBObjectStore, value, key) {
          if (value?.privateKey) throw new DOMException('keys cannot be cloned', 'DataCloneError');
          return put.call(this, value, key);
        };
      });
      await page.goto(`${app()}#code=${await newCode()}`);
      await connected(page);
      await page.getByText(UNBOUND).waitFor();
      await page.reload();
      await connected(page);
      expect(await statusOf((await keptIn(page)).session_token)).toBe(200);
    });

    it('a session is bound only to a key that is stored: one that cannot be leaves it unbound, and the next visit works', async () => {
      const { page } = await open();
      await page.goto(`${app()}#code=${await newCode()}`);
      await connected(page);
      await page.getByText(BOUND).waitFor();
      const { session_token: first } = await keptIn(page);
      // The page has the key in memory; another tab has removed it, and from now on the browser stores none.
      await page.evaluate(async () => {
        const opening = indexedDB.open('svc');
        const database = await new Promise<IDBDatabase>((resolve) => {
          opening.onsuccess = () => resolve(opening.result);
        });
        const transaction = database.transaction('keep', 'readwrite');
        transaction.objectStore('keep').delete('key /');
        await new Promise((resolve) => {
          transaction.oncomplete = resolve;
        });
        database.close();
        const { put } = IDBObjectStore.prototype;
        IDBObjectStore.prototype.put = function (this: IDBObjectStore, value, key) {
          if (value?.privateKey) throw new DOMException('keys cannot be cloned', 'DataCloneError');
          return put.call(this, value, key);
        };
      });
      await page.goto(`${app()}#code=${await newCode()}`);
      await expect.poll(async () => (await keptIn(page)).session_token).not.toBe(first);
      await page.goto(`${app()}#/home`);
      await page.getByText(UNBOUND).waitFor();
      const { session_token } = await keptIn(page);
      expect(await statusOf(session_token)).toBe(200);
      await page.reload();
      await connected(page);
      expect((await keptIn(page)).session_token).toBe(session_token);
    });

    it('plain http has no key, and says so', async () => {
      const { page } = await open();
      await page.goto(`${app('relay.test')}#code=${await newCode()}`);
      await page.getByLabel('I am connected through a VPN').check();
      await page.getByRole('button', { name: 'Continue without encryption' }).click();
      await connected(page);
      await page.getByText(UNBOUND).waitFor();
    });
  },
  // A name that is not of this machine makes plain http the insecure tier.
  ['--host-resolver-rules=MAP relay.test 127.0.0.1'],
);
