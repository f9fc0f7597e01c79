import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { appOf, connected, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, smallTargets } from '../support/browser.ts';
import { stored } from '../support/browser-storage.ts';
import { bearer, pair, startNodeTarget, type Target } from '../support/relay.ts';

interface Shared {
  title?: string;
  text?: string;
  url?: string;
  files?: { name: string; type: string; text: string }[];
}

describeInBrowser('what other apps share with the app (issue 17)', ({ open }) => {
  let relay: Target;
  let app: string;
  beforeAll(async () => {
    // A tmux server would outlive the relay.
    relay = await startNodeTarget({ env: { RELAY_TERMINAL_TMUX: '0' } });
    app = appOf(relay);
  });
  afterAll(() => relay?.stop());

  async function newCode(policy: Record<string, unknown> = {}): Promise<string> {
    const code = await webCode(relay, policy);
    return code;
  }

  /** A page with a service worker. The policy of the pages forbids forms, which the system's share does not ask. */
  async function openApp({ isPaired = true, policy = {} } = {}) {
    const opened = await open({ context: { bypassCSP: true } });
    const { page } = opened;
    await page.goto(isPaired ? `${app}#code=${await newCode(policy)}` : app);
    if (isPaired) await connected(page);
    await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
    return opened;
  }

  /** Posts the form that the system posts for `share_target` of the manifest. */
  async function share(page: Page, shared: Shared): Promise<void> {
    const arrival = page.waitForURL(/#\/shared/);
    await page.evaluate((shared) => {
      const form = Object.assign(document.createElement('form'), {
        method: 'POST',
        enctype: 'multipart/form-data',
        action: 'share',
      });
      for (const name of ['title', 'text', 'url'] as const) {
        form.append(Object.assign(document.createElement('input'), { name, value: shared[name] ?? '' }));
      }
      const files = new DataTransfer();
      for (const { name, type, text } of shared.files ?? []) files.items.add(new File([text], name, { type }));
      const input = Object.assign(document.createElement('input'), { type: 'file', name: 'files', multiple: true });
      input.files = files.files;
      form.append(input);
      document.body.append(form);
      form.submit();
    }, shared);
    await arrival;
  }

  const FILES = [
    { name: 'notes & ü.txt', type: 'text/plain', text: 'one' },
    { name: '../escape.txt', type: 'text/plain', text: 'two' },
  ];

  it('is named in the manifest as the browser reads it', async () => {
    const { page } = await openApp({ isPaired: false });
    const devtools = await page.context().newCDPSession(page);
    const { errors, manifest } = (await devtools.send('Page.getAppManifest')) as unknown as {
      errors: unknown[];
      manifest: { shareTarget: { action: string; method: string } };
    };
    expect(errors).toEqual([]);
    expect(manifest.shareTarget).toMatchObject({ action: `${app}share`, method: expect.stringMatching(/post/i) });
  });

  it('files go to the relay, and are kept no longer', async () => {
    const { page } = await openApp();
    await share(page, { files: FILES });
    await page.getByText('notes & ü.txt').waitFor();
    await connected(page);
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    // It waits while something else is looked at.
    await page.goto(`${app}#/home`);
    await page.getByText('What another app has shared waits here.').waitFor();
    await page.getByRole('link', { name: 'Open', exact: true }).click();
    await page.getByRole('button', { name: "Send to the relay's machine" }).click();
    await page.getByRole('listitem').filter({ hasText: 'notes & ü.txt' }).waitFor();
    await page.getByRole('listitem').filter({ hasText: 'escape.txt' }).waitFor();
    const held = async () => {
      const { media } = await (await relay.operator('/media/inspect')).json();
      return media.map(({ file_name, size }: { file_name: string; size: number }) => [file_name, size]);
    };
    // A file is listed from its first byte on.
    await expect.poll(held).toEqual(
      expect.arrayContaining([
        ['notes & ü.txt', 3],
        ['escape.txt', 3],
      ]),
    );
    await page.reload();
    await page.goto(`${app}#/shared`);
    await page.getByText('Nothing waits here.').waitFor();
  });

  it('a text becomes a reply, a message to the agent, or a paste that somebody confirms', async () => {
    const { page } = await openApp();
    const text = { title: 'A page', text: 'Look: https://example.org/a', url: 'https://example.org/a' };
    await share(page, { title: text.title, url: text.url });
    await page.getByRole('button', { name: 'Reply with it in the inbox' }).click();
    await expect
      .poll(() => page.getByRole('textbox', { name: 'Reply' }).inputValue())
      .toBe('A page\nhttps://example.org/a');

    await share(page, text);
    // The address is in the text already.
    await page.getByRole('button', { name: 'New conversation' }).click();
    await expect
      .poll(() => page.getByRole('textbox', { name: 'Message' }).inputValue())
      .toBe('A page\nLook: https://example.org/a');

    await share(page, { text: 'echo shared-$((40+2))' });
    await page.getByRole('button', { name: 'Paste into the terminal' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Another app has shared this text.').waitFor();
    await expect.poll(() => dialog.getByRole('textbox').inputValue()).toBe('echo shared-$((40+2))');
    await expectAccessible(page);
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await page.goto(`${app}#/shared`);
    await page.getByText('Nothing waits here.').waitFor();
  });

  it('waits for the pairing, and goes with it', async () => {
    const { page, allow } = await openApp({ isPaired: false });
    // A request may be under way when its session ends.
    allow(/status of 401/);
    await share(page, { text: 'before pairing', files: FILES });
    await page.getByText('waits here until this browser is paired').waitFor();
    await expectAccessible(page);
    await page.getByLabel('Pairing code').fill(await newCode({ without: ['bridge', 'desktop', 'files'] }));
    await page.getByRole('button', { name: 'Pair', exact: true }).click();
    await page.getByText('before pairing').waitFor();
    await page.getByText('This device may not send that.').waitFor();
    expect(await page.getByRole('button', { name: "Send to the relay's machine" }).count()).toBe(0);
    // The relay ends the session: nothing stays.
    const phone = await pair(relay);
    const { sessions } = await (await relay.fetch('/sessions', { headers: bearer(phone.token) })).json();
    const own = sessions.find(({ client_surface: surface }: { client_surface: string }) => surface === 'web');
    expect(own).toBeDefined();
    for (const { token_prefix: prefix, client_surface: surface } of sessions) {
      if (surface === 'web')
        await relay.fetch(`/sessions/${prefix}`, { method: 'DELETE', headers: bearer(phone.token) });
    }
    await page.getByText('The relay no longer knows this browser').waitFor();
    await expect.poll(() => page.getByText('waits here until this browser is paired').count()).toBe(0);
    // The database is erased after the page has said so.
    await expect.poll(async () => (await stored(page)).databases['svc shares']).toEqual({});
    await page.reload();
    await page.getByRole('heading', { name: 'Pair this browser' }).waitFor();
    expect(await page.getByText('waits here until this browser is paired').count()).toBe(0);
    phone.client.terminate();
  });

  it('pictures go with the next message to the agent', async () => {
    const { page } = await openApp();
    const files = [{ name: 'a.png', type: 'image/png', text: 'x' }, ...FILES];
    await share(page, { text: 'What is this?', files });
    await page.getByRole('button', { name: 'Ask the agent about the pictures' }).click();
    await page.getByRole('img', { name: 'a.png' }).waitFor();
    await expect.poll(() => page.getByRole('textbox', { name: 'Message' }).inputValue()).toBe('What is this?');
    expect(await page.locator('.attached img').count()).toBe(1);
  });

  it('is bounded: of too many or too large files the names are told', async () => {
    const { page } = await openApp();
    const many = Array.from({ length: 22 }, (_, n) => ({ name: `file-${n}.txt`, type: 'text/plain', text: `${n}` }));
    await share(page, { files: many });
    await page.getByText('file-19.txt').waitFor();
    await page.getByText('Too much at once, so these are missing: file-20.txt, file-21.txt').waitFor();
    await page.getByRole('button', { name: 'Discard' }).click();
    await page.getByText('Nothing waits here.').waitFor();
  });

  it('is answered by the relay where no service worker is, which stores nothing', async () => {
    const { page, allow } = await openApp();
    // The page without the app has no icon of its own.
    allow(/404/);
    await page.evaluate(async () => {
      for (const registration of await navigator.serviceWorker.getRegistrations()) await registration.unregister();
    });
    await page.goto(`${app}icon.svg`);
    await page.goto(app);
    const form = new FormData();
    form.append('files', new Blob([new Uint8Array(8 * 1024 * 1024)]), 'large.bin');
    const answer = await relay.fetch('/app/share', { method: 'POST', body: form, redirect: 'manual' });
    expect([answer.status, answer.headers.get('location')]).toEqual([303, './#/shared?lost=1']);
    await page.goto(`${app}#/shared?lost=1`);
    await page.getByText('What was shared did not arrive').waitFor();
    await expectAccessible(page);
  });
});
