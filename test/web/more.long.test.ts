import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { appOf, connected, webCode } from '../support/app.ts';
import { describeInBrowser, expectUsable, type PageOptions, RESTARTED, ROUTED } from '../support/browser.ts';
import { stored } from '../support/browser-storage.ts';
import { startFakeApi } from '../support/fake-api-server.ts';
import { put } from '../support/profiles.ts';
import { pair, startNodeTarget, type Target } from '../support/relay.ts';

describeInBrowser('screens of the app under More', ({ open }) => {
  let relay: Target;
  beforeAll(async () => {
    relay = await startNodeTarget({ env: { RELAY_PROVIDER_USAGE_ENABLED: 'yes' } });
  });
  afterAll(() => relay?.stop());

  /** A paired page on a screen. */
  async function openScreen(screen: string, options: PageOptions = {}) {
    const app = appOf(relay);
    const opened = await open(options);
    const code = await webCode(relay);
    await opened.page.goto(`${app}#code=${code}`);
    await connected(opened.page);
    await opened.page.goto(`${app}#/${screen}`);
    return { ...opened, go: (place: string) => opened.page.goto(`${app}#/${place}`) };
  }

  const rows = async () => {
    const { devices } = (await (await relay.operator('/relay/devices')).json()) as {
      devices: {
        device_name: string;
        client_surface: string;
        grants: Record<string, number>;
        connections: unknown[];
      }[];
    };
    return devices;
  };
  const ownRow = async () => (await rows()).find((row) => row.client_surface === 'web' && row.connections.length > 0);

  it('01 §6: lists devices, revokes another, reduces itself, and signs out', async () => {
    const tablet = await pair(relay, { device: { device_name: 'Study tablet' } });
    const { page, allow } = await openScreen('devices');
    // The socket of a revoked session is closed.
    allow(/WebSocket|401/);
    const articles = page.getByRole('article');
    await expect.poll(() => articles.count()).toBe(2);
    expect(await articles.first().textContent()).toContain('This device');
    await expectUsable(page);

    const other = page.getByRole('article', { name: 'Study tablet' });
    await other.getByRole('button', { name: 'Revoke' }).click();
    await expectUsable(page);
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await other.waitFor({ state: 'detached' });
    expect(await tablet.client.closed()).toMatchObject({ code: 4401 });

    const own = articles.first();
    expect(await own.textContent()).toContain('terminal');
    await own.getByRole('button', { name: 'Reduce' }).click();
    await page.getByRole('checkbox', { name: 'terminal' }).uncheck();
    await page.getByLabel('Its session ends').selectOption({ label: 'in 1 day' });
    await page.getByRole('dialog').getByRole('button', { name: 'Reduce' }).click();
    await expect.poll(() => own.textContent()).not.toContain('terminal');
    await expect.poll(() => own.textContent()).toMatch(/ends in 1 d/);
    // What it may use no more is no longer offered.
    await page.getByRole('link', { name: 'Terminal' }).waitFor({ state: 'detached' });
    await expect.poll(async () => (await ownRow())?.grants.terminal).toBeLessThan(Date.now() / 1000 + 2);

    await own.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Pair this browser' }).waitFor();
    await expect.poll(rows).toEqual([]);
    await page.reload();
    await page.getByRole('heading', { name: 'Pair this browser' }).waitFor();
  });

  it('04 §9: shows what is used of each quota, and says so when nothing is set up', async () => {
    const provider = await startFakeApi();
    const resetsAt = new Date(Date.now() + 7.2e6).toISOString();
    const usage = { rolling: { percent: 12.5 }, weekly: { percent: 96, resetsAt } };
    provider.onAny((exchange) => exchange.answer(200, { usage }));
    const { page, allow } = await openScreen('usage', { device: 'desktop' });
    allow(RESTARTED);
    await page.getByText('No provider is set up').waitFor();
    await put(relay, { '.env': `OPENCODE_GO_API_KEY=5ecret\nOPENCODE_GO_BASE_URL=${provider.url}\n` });
    // It answers from memory for 30 seconds.
    await relay.restart();
    await page.getByRole('button', { name: 'Refresh' }).click();
    const card = page.getByRole('region', { name: 'OpenCode Go' });
    await card.getByText('12.5% used').waitFor();
    expect(await card.textContent()).toContain('96% used');
    expect(await card.textContent()).toContain('Resets in 2 h');
    expect(await card.getByRole('progressbar').last().getAttribute('value')).toBe('96');
    expect(await page.getByText(/^Not set up:/).textContent()).toBe('Not set up: Codex, Nous, and SuperGrok');
    await expectUsable(page);
  });

  it('02 §6: shows notifications of phones by app; codes are blurred until they are tapped', async () => {
    const phone = await pair(relay);
    const post = (app: string, title: string, text: string, postedAt = Date.now()) =>
      phone.client.send('notifications', 'notification.posted', {
        package_name: app,
        title,
        text,
        posted_at: postedAt,
        key: '0|1',
      });
    // No date can hold the time of the first.
    post('org.example.clock', 'Alarm', 'Ringing', 1e300);
    post('org.example.mail', 'Ada', 'Lunch at noon?');
    post('org.example.bank', 'Sign in', 'Your number is 482 913');
    const { page } = await openScreen('notifications');
    await page.getByText('Lunch at noon?').waitFor();
    await page.getByText('Your number is 482 913').waitFor();
    const veil = page.getByRole('button', { name: 'Hidden: tap to show' });
    await expect.poll(() => veil.count()).toBe(1);
    await expectUsable(page);
    await veil.focus();
    await page.keyboard.press('Enter');
    await expect.poll(() => page.locator('.blurred').count()).toBe(0);
    expect(await page.getByText('Your number is 482 913').isVisible()).toBe(true);
    await page.getByLabel('App').selectOption('org.example.mail');
    await expect.poll(() => page.getByRole('article').count()).toBe(1);
    await page.getByText('Lunch at noon?').waitFor();
    phone.client.terminate();
  });

  const SOUL = '# Ada\nShe is kind.\nShe is brief.\n';
  const soul = () => readFile(join(relay.agentHome, 'SOUL.md'), 'utf8');

  it('07 §1: lists profiles as they change, with their skills and pictures', async () => {
    const { page, go, allow } = await openScreen('profiles');
    // Not every profile has a picture.
    allow(/404/);
    await put(relay, {
      'SOUL.md': SOUL,
      'config.yaml': 'model: {default: m-large, provider: acme}\ndescription: The one at home\n',
      'avatar.png': new Uint8Array(await (await relay.fetch('/app/icon-192.png')).arrayBuffer()),
      'memories/MEMORY.md': 'The door code is kept elsewhere.\n',
      'skills/tools/search/SKILL.md': '---\nname: search\ndescription: Finds things\n---\n',
      'profiles/work/config.yaml': 'description: The one at work\n',
    });
    await page.getByRole('link', { name: /default The one at home/ }).waitFor();
    await page.getByRole('link', { name: /work The one at work/ }).waitFor();
    await page.locator('img.avatar').waitFor();
    await expectUsable(page);
    await go('profiles/default');
    await page.getByText('search').first().waitFor({ state: 'attached' });
    await page.getByText('tools').click();
    await page.getByText('Finds things').waitFor();
    await page.getByRole('link', { name: /MEMORY\.md/ }).waitFor();
    await expectUsable(page);
    await go('profiles/nobody');
    await page.getByText('There is no such profile.').first().waitFor();
  });

  it('07 §1.5: keeps drafts over a reload, saves, and compares both versions on 412', async () => {
    await put(relay, { 'SOUL.md': SOUL, 'config.yaml': 'description: The one at home\n' });
    const { page, allow } = await openScreen('profiles/default%2Fsoul', { device: 'desktop' });
    allow(/412/);
    const text = page.getByLabel('Text');
    await text.fill(`${SOUL}She likes tea.\n`);
    await page.getByText(/^Not saved yet/).waitFor();
    await expect.poll(async () => JSON.stringify((await stored(page)).databases)).toContain('She likes tea.');
    await page.reload();
    await expect.poll(() => text.inputValue()).toBe(`${SOUL}She likes tea.\n`);
    await page.keyboard.press('Control+s');
    await expect.poll(soul).toBe(`${SOUL}She likes tea.\n`);
    await expect.poll(() => page.getByText(/^Not saved yet/).count()).toBe(0);

    const change = async (mine: string, theirs: string) => {
      await text.fill(mine);
      await writeFile(join(relay.agentHome, 'SOUL.md'), theirs);
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText(/^The document was changed elsewhere/).waitFor();
      expect(await soul()).toBe(theirs);
    };
    await page.getByText('Saved.', { exact: true }).waitFor();
    await change('# Ada\nMine.\n', '# Ada\nTheirs.\n');
    // The page does not say of one document that it was saved and that it was not.
    expect(await page.getByText('Saved.', { exact: true }).count()).toBe(0);
    const added = (name: string) => page.getByRole('region', { name }).locator('ins').allTextContents();
    await expect.poll(() => added('Mine')).toEqual(['Mine.']);
    await expect.poll(() => added('Theirs')).toEqual(['Theirs.']);
    await expectUsable(page);
    await page.getByRole('button', { name: 'Edit mine' }).click();
    await page.getByLabel('Mine').fill('# Ada\nBoth.\n');
    await expectUsable(page);
    await page.getByRole('button', { name: 'Save' }).click();
    await expect.poll(soul).toBe('# Ada\nBoth.\n');

    await change('# Ada\nMine again.\n', '# Ada\nTheirs again.\n');
    await page.getByRole('button', { name: 'Keep mine' }).click();
    await expect.poll(soul).toBe('# Ada\nMine again.\n');

    await text.waitFor();
    await change('# Ada\nNever saved.\n', '# Ada\nTheirs last.\n');
    await page.getByRole('button', { name: 'Take theirs' }).click();
    await expect.poll(() => text.inputValue()).toBe('# Ada\nTheirs last.\n');
    expect(await soul()).toBe('# Ada\nTheirs last.\n');
  });

  it('07 §1.5: sees that a document was saved although the answer was lost', async () => {
    await put(relay, { 'SOUL.md': SOUL, 'config.yaml': 'description: The one at home\n' });
    const { page, allow } = await openScreen('profiles/default%2Fsoul', { ...ROUTED });
    allow(/412|ERR_FAILED|Failed to load resource/);
    const text = page.getByLabel('Text');
    const save = page.getByRole('button', { name: 'Save' });
    const saveInVain = async (content: string) => {
      await text.waitFor();
      await page.route(
        /profiles\/default\/soul$/,
        async (route) => {
          await route.fetch();
          await route.abort();
        },
        { times: 1 },
      );
      await text.fill(content);
      await save.click();
      await page.getByText(/^Not saved: /).waitFor();
      await expect.poll(soul).toBe(content);
    };
    await saveInVain('# Ada\nFirst.\n');
    await save.click();
    await page.getByText('Saved.', { exact: true }).waitFor();
    await saveInVain('# Ada\nSecond.\n');
    for (const content of ['# Ada\nSecond.\n', '# Ada\nTheirs.\n']) {
      await writeFile(join(relay.agentHome, 'SOUL.md'), content);
      await page.reload();
      await expect.poll(() => text.inputValue()).toBe(content);
      expect(await page.getByText(/^Not saved yet/).count()).toBe(0);
    }
  });

  it('07 §1.5: creates a memory document, by keyboard alone', async () => {
    await put(relay, { 'config.yaml': 'description: The one at home\n' });
    const { page } = await openScreen('profiles/default', { device: 'desktop' });
    await page.getByRole('button', { name: 'New memory' }).focus();
    await page.keyboard.press('Enter');
    await page.getByLabel('Name').fill('../people');
    await page.getByText('Use letters, digits').waitFor();
    await expectUsable(page);
    await page.getByLabel('Name').fill('people');
    await page.keyboard.press('Enter');
    await page.getByText('This file does not exist yet.').waitFor();
    await page.getByLabel('Text').fill('Ada likes tea.');
    await page.keyboard.press('Control+s');
    const path = join(relay.agentHome, 'memories/people.md');
    await expect.poll(() => readFile(path, 'utf8').catch(() => '')).toBe('Ada likes tea.');
    await page.getByRole('link', { name: 'Back to default' }).click();
    await page.getByRole('link', { name: /people\.md/ }).waitFor();
  });

  it('07 §1.5: replaces no file that somebody else creates under the name of a new one', async () => {
    await put(relay, { 'config.yaml': 'description: The one at home\n' });
    const { page, allow, go } = await openScreen('profiles/default%2Fmemory%2Fplaces.md', { ...ROUTED });
    allow(/412/);
    const path = join(relay.agentHome, 'memories/places.md');
    // Between the last look of the page and its request.
    await page.route(/memory\/places\.md$/, async (route) => {
      await put(relay, { 'memories/places.md': 'Theirs.' });
      await route.continue();
    });
    await page.getByLabel('Text').fill('Mine.');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText(/^The document was changed elsewhere/).waitFor();
    expect(await readFile(path, 'utf8')).toBe('Theirs.');
    await page.unrouteAll();
    await page.getByRole('button', { name: 'Keep mine' }).click();
    await expect.poll(() => readFile(path, 'utf8')).toBe('Mine.');

    // The relay does not list a file that is no text.
    const bytes = new Uint8Array([0xff, 0xfe, 0x41, 0x00]);
    await put(relay, { 'memories/utf16.md': bytes });
    await go('profiles/default%2Fmemory%2Futf16.md');
    await page.getByText('This file does not exist yet.').waitFor();
    await page.getByLabel('Text').fill('Mine.');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText(/^Not saved: there is a file of this name that cannot be shown/).waitFor();
    expect(new Uint8Array(await readFile(join(relay.agentHome, 'memories/utf16.md')))).toEqual(bytes);
    expect(await page.getByLabel('Text').inputValue()).toBe('Mine.');
  });
});
