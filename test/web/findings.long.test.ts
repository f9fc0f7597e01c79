import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { screens } from '../../handlers/web/app/screens.ts';
import { appOf, connected, pairPage, webCode } from '../support/app.ts';
import { describeInBrowser, expectUsable } from '../support/browser.ts';
import { TIMEOUT } from '../support/limits.ts';
import { put } from '../support/profiles.ts';
import { pair, post, startNodeTarget, type Target } from '../support/relay.ts';

const asTool = { 'x-svc-operator': '1' };

/** Resolves when what the page has just drawn was painted, and has done what comes after that, such as to listen for keys. */
const painted = (page: Page): Promise<void> =>
  page.evaluate(
    () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve)))),
  );

/** What was found in the pages outside chat and terminal (issue 25 §3). */
describeInBrowser('findings in the pages (issue 25 §3)', ({ open }) => {
  let relay: Target;
  beforeAll(async () => {
    relay = await startNodeTarget({ env: { RELAY_PROVIDER_USAGE_ENABLED: 'yes' } });
    await put(relay, { 'config.yaml': 'description: The one at home\n', 'SOUL.md': 'Kind and brief.\n' });
    // Profiles are looked for at a start.
    await relay.restart();
  });
  afterAll(() => relay?.stop());

  const say = async (body: Record<string, unknown>) => {
    const response = await relay.operator('/phone/message', { ...post(body), headers: asTool });
    expect(response.status).toBe(200);
  };

  it('4: a message that came too late is unread until it is seen here, and says so', async () => {
    // Nobody is there to take them, and the queue holds fifty.
    for (let n = 0; n <= 50; n++) await say({ text: `n${n}`, chat_id: n === 0 ? 'late' : 'crowd' });
    const { page } = await open();
    await pairPage(page, relay);
    await page.getByRole('link', { name: /unread messages/ }).click();
    await page.getByRole('link', { name: /late/ }).getByText('unread').waitFor({ state: 'attached' });
    await page.getByRole('link', { name: /late/ }).click();
    await page.getByText('Came too late').waitFor();
    await page.getByRole('link', { name: 'All threads' }).click();
    await expect.poll(() => page.getByRole('link', { name: /late/ }).getByText('unread').count()).toBe(0);
    // It stays read after a reload, though the relay knows of no such state.
    await page.reload();
    await page.getByRole('link', { name: /late/ }).waitFor();
    await expect.poll(() => page.getByRole('link', { name: /late/ }).getByText('unread').count()).toBe(0);
  });

  it('6: the focus never falls to the body, and the title names what is shown', async () => {
    const { page } = await open({ device: 'desktop' });
    await pairPage(page, relay);
    const away = await pair(relay, { device: { device_name: 'Old phone', client_surface: 'android' } });
    away.client.terminate();
    const lost = () =>
      page.evaluate(() => [document.body, null].includes(document.activeElement as HTMLElement | null));
    const press = async (name: string | RegExp, role: 'link' | 'button' = 'link') => {
      const target = page.getByRole(role, { name }).first();
      await target.focus();
      await page.keyboard.press('Enter');
    };
    const title = (text: string) => expect.poll(() => page.title()).toBe(text);

    await press('Got it', 'button');
    await expect.poll(() => page.getByRole('button', { name: 'Got it' }).count()).toBe(0);
    await expect.poll(lost).toBe(false);
    await say({ text: 'Shall I?', answers: ['Yes', 'No'], chat_id: 'focus', title: 'Permission' });
    await press(/^Inbox/);
    await title('Inbox · svc');
    await press(/Permission/);
    await title('Permission · Inbox · svc');
    await expect.poll(lost).toBe(false);
    await press('Yes', 'button');
    await expect.poll(() => page.getByRole('button', { name: 'Yes' }).count()).toBe(0);
    await expect.poll(lost).toBe(false);
    await press('All threads');
    await title('Inbox · svc');
    await expect.poll(() => page.evaluate(() => document.activeElement?.textContent)).toContain('Permission');
    await page.getByLabel('Search messages').fill('Shall');
    await press(/Shall I/);
    await title('Permission · Inbox · svc');
    await expect.poll(lost).toBe(false);

    await press('Profiles');
    await press(/default/);
    await title('default · Profiles · svc');
    await press(/SOUL/);
    await title('SOUL.md · Profiles · svc');
    await expect.poll(lost).toBe(false);
    await page.getByRole('textbox').fill('Kind, brief and awake.');
    await press('Save', 'button');
    await page.getByText('Saved.').waitFor();
    await expect.poll(lost).toBe(false);

    await press('Devices');
    await press(/Old phone/);
    await page.getByRole('article', { name: 'Old phone' }).getByRole('button', { name: 'Revoke' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).focus();
    await page.keyboard.press('Enter');
    await expect.poll(() => page.getByRole('article', { name: 'Old phone' }).count()).toBe(0);
    await expect.poll(lost).toBe(false);
    await press('Freeze the agent on every device', 'button');
    await page.getByText('Frozen: the agent can act on no device.').waitFor();
    await expect.poll(lost).toBe(false);
    await relay.operator('/relay/freeze', { method: 'DELETE', headers: asTool });
  });

  it('8: a toast covers neither what is typed in nor what is tapped', async () => {
    for (const device of ['phone', 'desktop'] as const) {
      const { page } = await open({ device });
      await pairPage(page, relay);
      await say({ text: 'Good morning', chat_id: device });
      await page.goto(`${appOf(relay)}#/inbox/${device}`);
      await page.locator('.bubble').waitFor();
      await page.getByRole('button', { name: 'Freeze the agent' }).click();
      // All at the same moment: a banner comes meanwhile, and the toast goes.
      const boxes = await page.waitForFunction(() => {
        const found = [...document.querySelectorAll('.toasts > *')].slice(0, 1);
        for (const selector of ['.composer', 'nav', '.bubble']) {
          const last = [...document.querySelectorAll(selector)].at(-1);
          if (last) found.push(last);
        }
        return found.length === 4 && found.map((element) => element.getBoundingClientRect().toJSON() as DOMRect);
      });
      const [toast, ...others] = (await boxes.jsonValue()) as [DOMRect, ...DOMRect[]];
      expect(others.length).toBe(3);
      for (const other of others) {
        const isApart = toast.top >= other.bottom || toast.bottom <= other.top;
        const isBeside = device === 'desktop' && other.right <= toast.left;
        expect(isApart || isBeside).toBe(true);
      }
      await relay.operator('/relay/freeze', { method: 'DELETE', headers: asTool });
    }
  });

  it('8: an old message has its year, and one of this year none', async () => {
    const { page } = await open();
    await pairPage(page, relay, { policy: { ttl_seconds: 0 } });
    await say({ text: 'An old one', chat_id: 'old' });
    await page.goto(`${appOf(relay)}#/inbox/old`);
    const time = page.locator('.bubble time').first();
    await time.waitFor();
    const year = String(new Date().getFullYear());
    expect(await time.textContent()).not.toContain(year);
    await page.clock.install({ time: Date.now() + 400 * 86_400_000 });
    await page.reload();
    await expect.poll(() => time.textContent()).toContain(year);
  });

  it('8: the header fits into 195 pixels', async () => {
    const { page } = await open({ context: { viewport: { width: 195, height: 420 } } });
    await pairPage(page, relay);
    for (const screen of ['home', 'notifications', 'inbox/phone', 'settings']) {
      const before = await page.title();
      await page.goto(`${appOf(relay)}#/${screen}`);
      if (screen !== 'home') await expect.poll(() => page.title()).not.toBe(before);
      await page.locator('main .screen').waitFor();
      const measure = () =>
        page.evaluate(() => {
          const header = document.querySelector('.shell > header') as HTMLElement;
          const parts = [...header.querySelectorAll('h1, button')].map((element) => element.getBoundingClientRect());
          return {
            excess: document.documentElement.scrollWidth - innerWidth,
            cut: parts.filter(({ left, right }) => left < 0 || right > innerWidth).length,
            // Words of the title in one piece.
            title: (header.querySelector('h1') as HTMLElement).scrollWidth > (parts[0]?.width ?? 0) + 1,
            height: header.offsetHeight,
          };
        });
      // What is just being drawn may be wider for a moment.
      await expect.poll(measure).toMatchObject({ excess: 0, cut: 0, title: false });
      expect((await measure()).height).toBeLessThanOrEqual(110);
    }
  });

  it('8: a profile without a picture is no error of the page', async () => {
    const { page } = await open();
    await pairPage(page, relay);
    const answered = page.waitForResponse(/avatar/);
    await page.goto(`${appOf(relay)}#/profiles`);
    expect((await answered).status()).toBe(204);
    await expectUsable(page);
  });

  it('10: list and thread are beside each other on a desktop, and j, k, e and r go through them', async () => {
    const { page } = await open({ device: 'desktop' });
    await pairPage(page, relay);
    for (const chat_id of ['first', 'second', 'third']) await say({ text: `In ${chat_id}`, chat_id, title: chat_id });
    // Newest first: third, second, first.
    await page.goto(`${appOf(relay)}#/inbox`);
    const current = page.locator('.panes a[aria-current]');
    const shown = page.locator('.panes .bubble p');
    await page.getByText('Choose a thread.').waitFor();
    await page.getByRole('link', { name: /third/ }).waitFor();
    await painted(page);
    await page.keyboard.press('j');
    await expect.poll(() => shown.allTextContents()).toEqual(['In third']);
    await page.keyboard.press('j');
    await expect.poll(() => shown.allTextContents()).toEqual(['In second']);
    await expect.poll(() => current.textContent()).toContain('second');
    await expect.poll(() => page.getByRole('link', { name: /first/ }).count()).toBe(1);
    await page.keyboard.press('k');
    await expect.poll(() => shown.allTextContents()).toEqual(['In third']);
    await page.keyboard.press('r');
    await page.keyboard.type('jk are letters here');
    expect(await page.getByLabel('Reply').inputValue()).toBe('jk are letters here');
    expect(await shown.allTextContents()).toEqual(['In third']);
    await expectUsable(page);
    // On a phone, one of the two.
    await page.setViewportSize({ width: 390, height: 844 });
    await expect.poll(() => page.locator('.panes').count()).toBe(0);
    await expect.poll(() => shown.count()).toBe(0);
    await page.locator('.bubble p').waitFor();
  });

  it('10: e takes a thread for read without a look at each message', async () => {
    const { page } = await open({ device: 'desktop' });
    await pairPage(page, relay);
    for (let n = 0; n < 30; n++) await say({ text: `A long one, ${n}. `.repeat(40), chat_id: 'many', title: 'Many' });
    await page.goto(`${appOf(relay)}#/inbox/many`);
    const row = page.getByRole('link', { name: /Many/ });
    await row.getByText('unread').waitFor({ state: 'attached' });
    // The keys work from the first paint of the screen on.
    await page.locator('.bubble').first().waitFor();
    await painted(page);
    await page.keyboard.press('e');
    await expect.poll(() => row.getByText('unread').count()).toBe(0);
  });

  it('10: Ctrl-K goes anywhere, in app and console', async () => {
    const { page } = await open({ device: 'desktop' });
    await pairPage(page, relay);
    await say({ text: 'Hm', chat_id: 'palette', title: 'Garden and greenhouse' });
    await page.goto(`${appOf(relay)}#/inbox`);
    await page.getByRole('link', { name: /Garden/ }).waitFor();
    await page.keyboard.press('Control+k');
    const field = page.getByLabel('Screen, thread or profile');
    await field.fill('green');
    await expectUsable(page);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Garden and greenhouse' }).waitFor();
    await page.keyboard.press('Control+k');
    await field.fill('se');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Settings', level: 1 }).waitFor();
    await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
    await page.goto(`${relay.url}/console/`);
    await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
    await painted(page);
    await page.keyboard.press('Control+k');
    await field.fill('sec');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Security', level: 1 }).waitFor();
  });

  it('11: devices are found, ordered, named and grouped by person, and the name is asked while pairing', async () => {
    const { page } = await open();
    await page.goto(appOf(relay));
    await page.getByLabel('Name of this device').fill('Phone of Ada');
    await page.getByLabel('Pairing code').fill(await webCode(relay));
    await expectUsable(page);
    await page.getByRole('button', { name: 'Pair' }).click();
    await connected(page);
    const away = await Promise.all(
      ['Zebra', 'Alpha', 'Mitte'].map((device_name) =>
        pair(relay, { device: { device_name, device_id: `id-${device_name}`, client_surface: 'android' } }),
      ),
    );
    for (const { client } of away) client.terminate();
    await page.goto(`${appOf(relay)}#/devices`);
    const names = () => page.getByRole('article').getByRole('heading').allTextContents();
    await expect.poll(names).toContain('Phone of Ada');
    await expect.poll(async () => (await names())[0]).toBe('Phone of Ada');
    await page.getByLabel('Order').selectOption('name');
    const own = ['Alpha', 'Mitte', 'Zebra'];
    await expect.poll(async () => (await names()).filter((name) => own.includes(name))).toEqual(own);
    await page.getByLabel('Search devices').fill('zeb');
    await expect.poll(names).toEqual(['Zebra']);
    const card = page.getByRole('article', { name: 'Zebra' });
    await card.getByRole('button', { name: 'Rename' }).click();
    await page.getByLabel('Name', { exact: true }).fill('Tablet in the kitchen');
    await page.getByLabel('Whose is it?').fill('Grace');
    await expectUsable(page);
    await page.getByRole('button', { name: 'Save' }).click();
    await expect.poll(names).toEqual(['Tablet in the kitchen']);
    await page.reload();
    await page.getByLabel('By person').check();
    await page.getByRole('region', { name: 'Grace' }).getByRole('heading', { name: 'Tablet in the kitchen' }).waitFor();
    await expectUsable(page);
    // The relay itself has the name of this browser from the next connection on.
    await page.getByRole('article', { name: 'Phone of Ada' }).getByRole('button', { name: 'Rename' }).click();
    await page.getByLabel('Name', { exact: true }).fill('Ada, old phone');
    await page.getByRole('button', { name: 'Save' }).click();
    const rows = async () =>
      ((await (await relay.operator('/relay/devices')).json()) as { devices: { device_name: string }[] }).devices;
    await expect.poll(async () => (await rows()).map((row) => row.device_name)).toContain('Ada, old phone');
  });

  it('11: the search stays when the device that it has found is revoked', async () => {
    const few = await startNodeTarget({});
    onTestFinished(() => few.stop());
    for (const device_name of ['Zebra', 'Alpha', 'Mitte']) {
      const { client } = await pair(few, { device: { device_name } });
      client.terminate();
    }
    const { page } = await open();
    await pairPage(page, few);
    await page.goto(`${appOf(few)}#/devices`);
    await page.getByLabel('Search devices').fill('zeb');
    await page.getByRole('article', { name: 'Zebra' }).getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await page.getByText('No device matches.').waitFor();
    await page.getByLabel('Search devices').fill('');
    await page.getByRole('article', { name: 'Alpha' }).waitFor();
  });

  it('11: on a desktop, the devices are beside the one that is chosen', async () => {
    const { page } = await open({ device: 'desktop' });
    await pairPage(page, relay);
    const { client } = await pair(relay, { device: { device_name: 'Beside', device_id: 'id-beside' } });
    client.terminate();
    await page.goto(`${appOf(relay)}#/devices`);
    await page.getByRole('link', { name: /Beside/ }).click();
    await page.getByRole('article', { name: 'Beside' }).waitFor();
    await expect.poll(() => page.getByRole('article').count()).toBe(1);
    await expectUsable(page);
  });

  it('14: a question about a device stays when the page gets wider, as on a tablet that is turned', async () => {
    await pair(relay, { device: { device_name: 'Turned tablet' } });
    const { page } = await open({ context: { viewport: { width: 820, height: 1180 } } });
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/devices`);
    await page.getByRole('article', { name: 'Turned tablet' }).getByRole('button', { name: 'Rename' }).click();
    await page.getByLabel('Whose is it?').fill('Grace');
    await page.setViewportSize({ width: 1180, height: 820 });
    await page.locator('.panes').waitFor();
    expect(await page.getByLabel('Whose is it?').inputValue()).toBe('Grace');
    await expectUsable(page);
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'Turned tablet' }).click();
    await page.getByRole('article', { name: 'Turned tablet' }).getByText('Grace').waitFor();
  });

  it('14: what is being typed goes on when the page gets wider or narrower', async () => {
    await say({ text: 'Where shall it go?', chat_id: 'turn', title: 'Turned' });
    const { page } = await open({ device: 'desktop', context: { viewport: { width: 820, height: 1180 } } });
    await pairPage(page, relay);
    await page.getByRole('link', { name: 'Inbox' }).click();
    await page.getByRole('link', { name: /Turned/ }).click();
    await page.getByLabel('Reply').fill('To the');
    await page.setViewportSize({ width: 1180, height: 820 });
    await page.locator('.panes').waitFor();
    await page.keyboard.type(' left');
    await page.setViewportSize({ width: 820, height: 1180 });
    await page.locator('.panes').waitFor({ state: 'detached' });
    await page.keyboard.type(', please.');
    await page.keyboard.press('Enter');
    await page.locator('.bubble.own').getByText('To the left, please.').waitFor();
    await page.goto(`${appOf(relay)}#/chat/new`);
    const field = page.getByRole('textbox', { name: 'Message' });
    await field.fill('A question');
    await page.setViewportSize({ width: 1180, height: 820 });
    await page.locator('.panes').waitFor();
    await page.keyboard.type(' for you');
    expect(await field.inputValue()).toBe('A question for you');
  });

  it('14: a search of messages goes on when the page gets narrower and wider again', async () => {
    await say({ text: 'Where is the key?', chat_id: 'search', title: 'Search here' });
    const { page } = await open({ device: 'desktop', context: { viewport: { width: 1180, height: 820 } } });
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/inbox/search`);
    await page.getByLabel('Search messages').fill('key');
    await page.setViewportSize({ width: 820, height: 1180 });
    await page.locator('.panes').waitFor({ state: 'detached' });
    await page.setViewportSize({ width: 1180, height: 820 });
    await page.locator('.panes').waitFor();
    expect(await page.getByLabel('Search messages').inputValue()).toBe('key');
  });

  it('11: a dashboard that is not there is one finding of the console', async () => {
    const { page, allow } = await open({ device: 'desktop' });
    allow(/50[13]/);
    await page.goto(`${relay.url}/console/`);
    await page.getByText('Checks that are fine').waitFor();
    const ids = await page.locator('.checks code').allTextContents();
    expect(ids.length).toBeGreaterThan(3);
    expect(ids.filter((id) => id === 'agent' || /^(dashboard-(?!plugin)|api-)/.test(id)).length).toBeLessThanOrEqual(1);
  });

  /** Pictures to look at, where `SCREENS` names a folder. */
  async function shoot(page: Page, name: string): Promise<void> {
    const folder = process.env.SCREENS;
    if (folder) await page.screenshot({ path: `${folder}/findings-${name}.png` });
  }
  const excess = (page: Page) =>
    page.evaluate(() => {
      const { scrollWidth, clientWidth } = document.documentElement;
      const main = document.querySelector('main') as HTMLElement;
      return Math.max(scrollWidth - clientWidth, main.scrollWidth - main.clientWidth);
    });

  it('14: a page that gets narrower while a screen is drawn shows it as narrow', async () => {
    const { page } = await open();
    // Wide for the first drawing only, and no event tells of the change.
    await page.addInitScript(() => {
      const real = window.matchMedia.bind(window);
      let reads = 0;
      window.matchMedia = (query) =>
        query === '(min-width: 64rem)'
          ? ({ matches: reads++ === 0, addEventListener() {}, removeEventListener() {} } as never)
          : real(query);
    });
    await pairPage(page, relay);
    await page.goto(`${appOf(relay)}#/inbox`);
    await page.locator('main .screen').first().waitFor();
    await expect.poll(() => page.locator('.panes').count()).toBe(0);
  });

  it('14: every screen fits into every width, in the dark, with little motion, and from right to left', async () => {
    const { page, allow } = await open({ context: { colorScheme: 'dark', reducedMotion: 'reduce' } });
    const missing: string[] = [];
    allow(/status of 404/);
    page.on('response', (response) => response.status() === 404 && missing.push(new URL(response.url()).pathname));
    await pairPage(page, relay, { policy: { without: [] } });
    await say({ text: 'שלום! 1. אדום 2. כחול?', chat_id: 'rtl', title: 'עברית' });
    const paths = [...screens.map(({ path }) => path), 'inbox/rtl', 'profiles/default', 'profiles/default%2Fsoul'];
    const wrong: string[] = [];
    for (const dir of ['ltr', 'rtl']) {
      await page.evaluate((dir) => document.documentElement.setAttribute('dir', dir), dir);
      for (const place of paths) {
        await page.evaluate((place) => {
          location.hash = `#/${place}`;
        }, place);
        await page.locator('main .screen').first().waitFor();
        for (const width of [195, 320, 390, 768, 1024, 1440]) {
          await page.setViewportSize({ width, height: 800 });
          // What is just being drawn may be wider for a moment.
          const fits = expect.poll(() => excess(page), { timeout: TIMEOUT / 2 }).toBe(0);
          await fits.catch(async () => wrong.push(`${dir} ${place} ${width}: ${await excess(page)} px too wide`));
          if (width === 390 || width === 1440) await shoot(page, `${dir}-${place.replace(/\W+/g, '-')}-${width}`);
        }
        const moving = () =>
          page.evaluate(() => document.getAnimations().filter(({ playState }) => playState === 'running').length);
        // A transition of no length still takes a frame.
        await expect
          .poll(moving, { timeout: TIMEOUT / 2 })
          .toBe(0)
          .catch(() => wrong.push(`${place} moves`));
      }
    }
    // What points, points the other way, and a switch stays on its track.
    await page.evaluate(() => {
      location.hash = '#/inbox/rtl';
    });
    const icon = page.locator('.icon.directed').first();
    await expect.poll(() => icon.evaluate((icon) => getComputedStyle(icon).scale)).toBe('-1 1');
    await page.evaluate(() => {
      location.hash = '#/settings';
    });
    const thumb = page.locator('.switch:checked').first();
    await expect.poll(() => thumb.evaluate((track) => getComputedStyle(track, '::after').translate)).toMatch(/^-/);
    expect(wrong).toEqual([]);
    expect([...new Set(missing)]).toEqual([]);
  });

  it('14: ten minutes without the relay end as soon as it is back, and what was written then is sent', async () => {
    const { page, allow } = await open();
    allow(/WebSocket|Failed to load resource|ERR_/);
    await page.clock.install();
    await pairPage(page, relay);
    await say({ text: 'Are you there?', chat_id: 'away', message_id: 'away-1' });
    await page.goto(`${appOf(relay)}#/inbox/away`);
    await page.getByText('Are you there?').waitFor();
    await relay.restart(async () => {
      await page
        .getByText(/^Offline/)
        .first()
        .waitFor();
      await page.getByLabel('Reply').fill('Now I am');
      await page.getByRole('button', { name: 'Send' }).click();
      await page.getByText('Waits for the relay').waitFor();
      for (let minute = 0; minute < 10; minute += 0.1) await page.clock.runFor(6_000);
      expect(await page.locator('header .chip-button').innerText()).toMatch(/^Offline for 1\d min/);
      await shoot(page, 'offline');
    });
    // The clock has outrun the last attempt. A tap makes one at once.
    await page.locator('header .chip-button').click();
    await connected(page);
    await expect.poll(() => page.getByText('Waits for the relay').count()).toBe(0);
    const { replies } = await (await relay.operator('/phone/replies?chat_id=away&timeout=5')).json();
    expect(replies).toMatchObject([{ text: 'Now I am' }]);
  });
});
