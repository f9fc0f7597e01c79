import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { screens } from '../../handlers/web/console/screens.ts';
import { connected } from '../support/app.ts';
import { describeInBrowser, expectAccessible, KILLED, smallTargets } from '../support/browser.ts';
import { agentHome } from '../support/cli.ts';
import { begin, run } from '../support/companion-cli.ts';
import { fillRelay } from '../support/console-scene.ts';
import { startEdgeTarget } from '../support/edge.ts';
import type { Phone } from '../support/phone.ts';
import { freePort, startRelayProcess } from '../support/process.ts';
import { startReachStack } from '../support/reach-stack.ts';
import { authenticate, bearer, pair, post, startNodeTarget, type Target } from '../support/relay.ts';

/** Answers of the relay that a browser calls errors, although they are expected. */
const NO_HOST = /status of 501/;

const isLive = (page: Page) => page.getByText('Live', { exact: true }).waitFor();
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
const device = (page: Page, name: string) => page.getByRole('article', { name, exact: true });

describeInBrowser('the console in a browser (contract 09 §4, §5)', ({ open }) => {
  let relay: Target;
  let phone: Phone;
  beforeAll(async () => {
    // On every address, because a companion follows the one in the code.
    const noAgent = { SVC_API_URL: 'http://127.0.0.1:1', SVC_DASHBOARD_URL: 'http://127.0.0.1:1' };
    relay = await startNodeTarget({ env: { RELAY_HOST: '0.0.0.0', ...noAgent } });
    ({ phone } = await fillRelay(relay));
  });
  afterAll(async () => {
    phone?.client.terminate();
    await relay?.stop();
  });

  async function openAt(screen: string, device: 'phone' | 'desktop' = 'desktop') {
    const opened = await open({ device, context: { permissions: ['clipboard-read', 'clipboard-write'] } });
    await opened.page.goto(`${relay.url}/console/#/${screen}`);
    await isLive(opened.page);
    return opened;
  }

  it.each(['desktop', 'phone'] as const)(
    'every screen on a %s is accessible, in both themes and at 320 px',
    async (on) => {
      const { page } = await openAt('overview', on);
      await page.getByText('As of').waitFor();
      for (const { path, title } of screens) {
        await page.goto(`${relay.url}/console/#/${path}`);
        await page.getByRole('heading', { name: title, level: 1 }).waitFor();
        await expect.poll(() => page.locator('.spinner').count()).toBe(0);
        if (on === 'desktop') await expectAccessible(page);
        expect([path, await smallTargets(page)]).toEqual([path, []]);
      }
    },
  );

  it('the doctor prints the remedy, and an agent that does not run is one finding', async () => {
    const { page } = await openAt('overview');
    const doctor = page.getByRole('region', { name: 'Doctor' });
    await doctor.getByText('As of').waitFor();
    const finding = doctor.getByRole('listitem').filter({ has: page.getByText('agent', { exact: true }) });
    const words = /Warning\s+agent\s+it does not run: [\s\S]*Start the agent, or say where it is[\s\S]*dashboard-audio/;
    expect(await finding.innerText()).toMatch(words);
    expect(await doctor.getByRole('listitem').filter({ hasText: 'dashboard-status' }).count()).toBe(1);
    await doctor.getByText('Checks that are fine').click();
    const fine = await doctor.locator('details li').allInnerTexts();
    expect(fine.length).toBeGreaterThan(5);
    for (const check of fine) expect(check).toMatch(/^Fine/);
  });

  it('pairs a companion by a code of the page, which then shows it as connected', async () => {
    const { page } = await openAt('pair');
    await page.getByLabel('Good for').selectOption({ label: '7 days' });
    await page.getByText('What it may do').click();
    await page.getByRole('checkbox', { name: /^terminal/ }).uncheck();
    await page.getByLabel('How long: voice').selectOption({ label: '1 hour' });
    await page.getByLabel('How long: tui').selectOption({ label: '1 day' });
    await expectAccessible(page);
    await button(page, 'Show a code').click();
    await page.getByRole('img', { name: 'QR code' }).waitFor();
    await expectAccessible(page);
    await page.getByText(/^ws:\/\/[\d.]+:\d+$/).waitFor();
    await button(page, 'Copy the link').click();
    await page.getByText('Copied').waitFor();
    const link = await page.evaluate(() => navigator.clipboard.readText());
    const home = agentHome();
    expect(await run(['companion', 'pair', link, '--name', 'Spare phone'], { home })).toMatchObject({ code: 0 });
    await page.getByRole('heading', { name: 'Paired: Spare phone' }).waitFor();
    await page.getByRole('link', { name: 'Show devices' }).click();
    const companion = begin(['companion', 'run', '--name', 'Spare phone'], { home });
    const row = device(page, 'Spare phone');
    await row.getByText(/^Connected for/).waitFor();
    expect(await row.innerText()).toMatch(/ends in 7 d/);
    expect(await row.innerText()).not.toMatch(/\bterminal\b/);
    expect(await row.innerText()).toMatch(/voice (?:1 h|\d\d min).*tui 1 d/s);
    companion.stop();
    await row.getByText(/^Offline for/).waitFor();
  });

  it('§5: pairs a browser by a link, without the grants that it is not for', async () => {
    const { page } = await openAt('pair', 'phone');
    await page.getByLabel('Browser').check();
    await button(page, 'Show a code').click();
    const link = await page.getByText(/\/app\/#code=[A-Z0-9]{6}&secret=[\w-]{22}$/).innerText();
    const app = await open();
    await app.page.goto(link.replace(/^http:\/\/[^:]+/, 'http://localhost'));
    await connected(app.page);
    await page.getByRole('heading', { name: /^Paired: / }).waitFor();
    const { devices } = await (await relay.operator('/relay/devices')).json();
    const paired = devices.find(
      ({ client_surface: surface, connections }: { client_surface: string; connections: [] }) =>
        surface === 'web' && connections.length > 0,
    );
    expect(Object.keys(paired.grants)).toContain('chat');
    for (const grant of ['bridge', 'desktop']) expect(paired.grants).not.toHaveProperty(grant);
  });

  it('§4: shows who asks to pair, and admits them by the whole code alone', async () => {
    const { page } = await openAt('pair');
    await page.getByText('elsewhere.example').waitFor();
    const before = await page.getByRole('button', { name: 'Admit' }).count();
    const from = { headers: { origin: 'https://tablet.example' } };
    await relay.fetch('/pairing', { method: 'POST', ...from });
    await expect.poll(() => page.getByRole('button', { name: 'Admit' }).count()).toBe(before + 1);
    const code =
      /tablet\.example asks to pair.* ([A-Z0-9]{6})$/.exec(
        relay.log.findLast((line) => line.includes('tablet')) ?? '',
      )?.[1] ?? '';
    expect(await page.content()).not.toContain(code);
    await page.getByRole('listitem').filter({ hasText: 'tablet.example' }).getByRole('button').click();
    await page.getByRole('textbox', { name: 'Code' }).fill('ZZ');
    await page.getByRole('dialog').getByRole('button', { name: 'Admit' }).click();
    await page.getByText('Type the six letters and digits').waitFor();
    await expectAccessible(page);
    await page.getByRole('textbox', { name: 'Code' }).fill(code.toLowerCase());
    await page.keyboard.press('Enter');
    await page.getByText('The code is valid now').waitFor();
    const { client, frame } = await authenticate(relay, { pairing_code: code, device_name: 'Tablet' });
    expect(frame.type).toBe('auth.ok');
    client.terminate();
  });

  it('01 §6.4: reduces a device, and revokes it after a question; its socket is closed', async () => {
    const { page } = await openAt('devices');
    const lost = await pair(relay, { device: { device_name: 'Lost phone' } });
    const row = device(page, 'Lost phone');
    await row.getByText(/^Connected for/).waitFor();
    await row.getByRole('button', { name: 'Reduce' }).click();
    await page.getByLabel('Its session ends').selectOption({ label: 'in 1 day' });
    await page.getByRole('checkbox', { name: /^voice/ }).uncheck();
    await page.getByLabel('How long: files').selectOption({ label: '1 hour' });
    await expectAccessible(page);
    await page.getByRole('dialog').getByRole('button', { name: 'Reduce' }).click();
    await page.getByText('Reduced Lost phone.').waitFor();
    await expect.poll(() => row.innerText()).toMatch(/ends in 1 d.*chat, terminal.*files (?:1 h|\d\d min)/s);

    await row.getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('dialog', { name: 'Revoke Lost phone?' }).waitFor();
    await expectAccessible(page);
    await page.keyboard.press('Escape');
    await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
    const ended = lost.client.closed();
    await row.getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await page.getByText('Revoked Lost phone.').waitFor();
    await row.waitFor({ state: 'detached' });
    expect((await ended).code).toBe(4401);
  });

  it('11 §2: gives a device the name that its owner has for it', async () => {
    const { page } = await openAt('devices', 'phone');
    const phone = await pair(relay, { device: { device_name: 'SM-G991B' } });
    await device(page, 'SM-G991B').getByRole('button', { name: 'Rename' }).click();
    await page.getByRole('dialog', { name: 'Rename SM-G991B' }).waitFor();
    const name = page.getByRole('textbox', { name: 'Name' });
    const save = page.getByRole('dialog').getByRole('button', { name: 'Save' });
    expect(await save.isDisabled()).toBe(true);
    await name.fill('  ');
    expect(await save.isDisabled()).toBe(true);
    await name.fill(' Grace’s phone ');
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    await page.keyboard.press('Enter');
    await page.getByText('Renamed Grace’s phone.').waitFor();
    await device(page, 'Grace’s phone').waitFor();
    const { sessions } = await (await relay.fetch('/sessions', { headers: bearer(phone.token) })).json();
    const names = sessions.map(({ device_name }: { device_name: string }) => device_name);
    expect(names).toContain('Grace’s phone');
    expect(names).not.toContain('SM-G991B');
  });

  it('11 §2: extends a device that ends soon with one tap, and lists what has ended', async () => {
    const { page } = await openAt('devices');
    const lent = await pair(relay, { policy: { ttl_seconds: 400_000 }, device: { device_name: 'Lent phone' } });
    const patch = { ...post({ ttl_seconds: 1000 }), method: 'PATCH', headers: { 'x-svc-operator': '1' } };
    await relay.operator(`/sessions/${lent.prefix}`, patch);
    const row = device(page, 'Lent phone');
    await row.getByText(/ends in 1\d min/).waitFor();
    await row.getByRole('button', { name: 'Extend' }).click();
    await page.getByText('Extended Lent phone.').waitFor();
    await row.getByText(/ends in [45] d/).waitFor();
    await relay.operator(`/sessions/${lent.prefix}`, { method: 'DELETE', headers: { 'x-svc-operator': '1' } });
    await row.waitFor({ state: 'detached' });
    await page.getByText('Ended sessions').click();
    const ended = page.getByRole('listitem').filter({ hasText: lent.prefix });
    await ended.getByText(/revoked by operator/).waitFor();
    await expectAccessible(page);
  });

  it('§4: shows commands, messages, files and log lines as they happen', async () => {
    const { page } = await openAt('commands');
    await page.getByText('POST /tap', { exact: true }).first().waitFor();
    await relay.fetch('/press_key', { ...post({ key: 'home' }), headers: phone.headers });
    const first = page.getByRole('listitem').filter({ hasText: 'POST /press_key' });
    await first.getByText('Done').waitFor();

    await page.goto(`${relay.url}/console/#/messages`);
    await page.getByText('Waiting for the phone: 2').waitFor();
    await relay.operator('/phone/message', post({ text: 'Bring milk' }));
    await page.getByText('Waiting for the phone: 3').waitFor();
    await page.getByRole('listitem').filter({ hasText: 'Bring milk' }).getByRole('button').click();
    await page.getByText('Waiting for the phone: 2').waitFor();
    await page.getByRole('listitem').filter({ hasText: 'Bring milk' }).getByText('Cancelled').waitFor();

    await page.goto(`${relay.url}/console/#/logs`);
    const log = page.getByRole('log');
    await page.getByLabel('Filter').fill('bring-the-bread');
    await page.getByText('No line matches.').waitFor();
    relay.relay?.log.named('test').warn('bring-the-bread 1');
    await log.getByText('bring-the-bread 1').waitFor();
    await button(page, 'Pause').click();
    relay.relay?.log.named('test').error('bring-the-bread 2');
    await page.getByText('New lines: 1').waitFor();
    expect(await log.getByText('bring-the-bread').count()).toBe(1);
    await button(page, 'Go on').click();
    await log.getByText('bring-the-bread 2').waitFor();
    await page.getByLabel('Level').selectOption('ERROR');
    await expect.poll(() => log.getByText('bring-the-bread').allInnerTexts()).toEqual(['test: bring-the-bread 2']);
  });

  it('01 §8.2: switches what is not encrypted, here and elsewhere', async () => {
    const { page } = await openAt('security');
    const toggle = page.getByRole('switch');
    await toggle.click();
    await page.getByText('Anybody between a client and this relay').waitFor();
    await expectAccessible(page);
    await relay.operator('/relay/security', { ...post({ allow_insecure_api_bearer: false }), method: 'PATCH' });
    await expect.poll(() => toggle.isChecked()).toBe(false);
    await expect.poll(() => page.getByRole('heading', { name: 'Freeze' }).count()).toBe(1);
  });

  it('issue 17: says when the relay is of another version than the page', async () => {
    const { page } = await open({ device: 'phone' });
    await page.route('**/health', async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ json: { ...(await answer.json()), version: '9.9.9' } });
    });
    await page.goto(`${relay.url}/console/`);
    await page.getByText('The relay is now version 9.9.9').waitFor();
    await expectAccessible(page);
    await page.unroute('**/health');
    // The page that goes is live as well.
    const loaded = page.waitForEvent('load');
    await button(page, 'Reload').click();
    await loaded;
    await isLive(page);
    expect(await page.getByText('The relay is now version').count()).toBe(0);
  });

  it('works by keyboard alone', async () => {
    const { page } = await openAt('overview');
    await pair(relay, { device: { device_name: 'By keyboard' } });
    /** Moves on with Tab until the focus is on something of this name. */
    async function tabTo(name: string, within = 'body'): Promise<void> {
      const focused = () =>
        page.evaluate(
          (within) =>
            document.activeElement?.closest(within) ? (document.activeElement as HTMLElement).innerText : '',
          within,
        );
      for (let steps = 0; (await focused()).trim() !== name; steps++) {
        if (steps > 60) throw new Error(`Tab does not lead to ${name}`);
        await page.keyboard.press('Tab');
      }
    }
    await tabTo('Devices', 'nav');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Devices', level: 1 }).waitFor();
    await device(page, 'By keyboard').waitFor();
    await tabTo('Revoke', '[aria-label="By keyboard"]');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    // The focus is back on the button that asked.
    const focused = () => page.evaluate(() => document.activeElement?.textContent ?? '');
    await expect.poll(focused).toBe('Revoke');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await tabTo('Revoke', 'dialog');
    await page.keyboard.press('Enter');
    await page.getByText('Revoked By keyboard.').waitFor();
    // That button has gone with its device.
    await expect.poll(focused).toBe('Devices');
  });

  it('§5: refuses localhost, and pages of another origin', async () => {
    const { page, allow } = await open({ device: 'desktop' });
    allow(/403/);
    const port = new URL(relay.url).port;
    const answer = await page.goto(`http://localhost:${port}/console/`);
    expect(answer?.status()).toBe(403);
    await page.getByText(/^ssh -L \d+:127\.0\.0\.1:\d+ /).waitFor();
    await expectAccessible(page);
    // From the app's origin, an operator route is refused although the request comes from this machine.
    await page.goto(`http://localhost:${port}/app/`);
    const own = await page.evaluate(async () => {
      const response = await fetch('../relay/devices', { headers: { 'x-svc-operator': '1' } });
      return response.status;
    });
    expect(own).toBe(403);

    const server = createServer((_request, response) => response.end('<title>elsewhere</title>')).listen(
      0,
      '127.0.0.1',
    );
    onTestFinished(() => void server.close());
    const foreign = await open({ device: 'desktop' });
    foreign.allow(/./);
    await foreign.page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    const outcomes = await foreign.page.evaluate(async (url) => {
      const attempt = (path: string, init: RequestInit) =>
        fetch(url + path, init).then(
          ({ type }) => type,
          () => 'failed',
        );
      return [
        await attempt('/relay/devices', { headers: { 'x-svc-operator': '1' } }),
        await attempt('/pairing/mint', { method: 'POST', mode: 'no-cors', body: '{}' }),
        await attempt('/relay/doctor', { method: 'POST', mode: 'no-cors' }),
      ];
    }, relay.url);
    expect(outcomes).toEqual(['failed', 'opaque', 'opaque']);
    // Nor may it show the console in a frame, where clicks could be stolen.
    await foreign.page.evaluate((url) => {
      const frame = document.body.appendChild(document.createElement('iframe'));
      return new Promise<void>((resolve) => {
        frame.onload = () => resolve();
        frame.src = `${url}/console/`;
      });
    }, relay.url);
    await expect.poll(() => foreign.page.frames()[1]?.url()).toMatch(/^chrome-error:/);
    for (const path of ['/pairing/mint', '/relay/doctor']) {
      await expect
        .poll(() => relay.log.join('\n'))
        .toMatch(new RegExp(`refused an operator call from 127\\.0\\.0\\.1.* to ${path}`));
    }
  });
});

describeInBrowser('a console with much to show', ({ open }) => {
  it('shows some of 5,000 devices, finds each, and takes their names for text', async () => {
    const relay = await startNodeTarget();
    onTestFinished(() => relay.stop());
    const { page } = await open();
    const now = Date.now() / 1000;
    const names = ['<img src=x onerror=alert(1)>', 'א'.repeat(128), 'w'.repeat(500), '\u202egnp.exe', '**bold** {n}'];
    const devices = Array.from({ length: 5000 }, (_, index) => ({
      ...{ token_prefix: String(index).padStart(8, '0'), device_id: `d${index}`, device_name: `Device ${index}` },
      ...(index < names.length && { device_name: names[index] }),
      ...{ created_at: now - index, last_seen: now - index, expires_at: now + 86_400, grants: { chat: now + 3600 } },
      ...{ client_surface: 'android', device_model: 'Pixel', device_platform: 'Android 16', connections: [] },
    }));
    await page.route('**/relay/devices', (route) => route.fulfill({ json: { devices } }));
    await page.goto(`${relay.url}/console/#/devices`);
    await page.getByText('Device 49', { exact: true }).waitFor();
    expect(await page.getByRole('article').count()).toBe(50);
    for (const name of names) expect(await page.getByRole('heading', { name, exact: true }).count()).toBe(1);
    expect(await page.locator('img').count()).toBe(0);
    await expectAccessible(page);
    await button(page, 'More: 4950').click();
    await page.getByText('Device 99', { exact: true }).waitFor();
    await page.getByLabel('Filter').fill('device 4999');
    await device(page, 'Device 4999').waitFor();
    expect(await page.getByRole('article').count()).toBe(1);
    await page.getByLabel('Filter').fill('nothing like it');
    await page.getByText('No device matches.').waitFor();
  });

  it('follows a flood of log lines, and holds the last 500 of them', async () => {
    const relay = await startNodeTarget();
    onTestFinished(() => relay.stop());
    const { page } = await open();
    await page.goto(`${relay.url}/console/#/logs`);
    await isLive(page);
    const log = relay.relay?.log.named('flood');
    for (let part = 0; part < 20; part++) {
      for (let line = 0; line < 1000; line++) log?.info(`<b>${part}</b>.${line}`);
      await new Promise((resolve) => setImmediate(resolve));
    }
    log?.info('the last line');
    await page.getByText('flood: the last line').waitFor();
    expect(await page.getByRole('log').locator('p').count()).toBeLessThanOrEqual(500);
    expect(await page.getByRole('log').locator('span b').count()).toBe(0);
  });
});

describeInBrowser('a console in many tabs', ({ open }) => {
  it('holds a stream in the tab that is seen alone: a browser has six connections to a relay', async () => {
    const relay = await startNodeTarget();
    onTestFinished(() => relay.stop());
    const { page, tab } = await open({ device: 'desktop' });
    /** Headless tabs are all visible, unless they say otherwise. */
    const show = (page: Page, state: 'hidden' | 'visible') =>
      page.evaluate((state) => {
        Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
      }, state);
    const tabs = [page];
    while (tabs.length < 7) {
      await show(tabs.at(-1) as Page, 'hidden').catch(() => {});
      const next = await tab();
      await next.goto(`${relay.url}/console/#/devices`);
      await isLive(next);
      tabs.push(next);
    }
    const first = tabs[1] as Page;
    await pair(relay, { device: { device_name: 'Came later' } });
    expect(await device(first, 'Came later').count()).toBe(0);
    await show(first, 'visible');
    await device(first, 'Came later').waitFor();
  });
});

describeInBrowser('the console and its relay (contract 09 §4)', ({ open }) => {
  it('a killed relay dims the page, which follows it again by itself', async () => {
    const relay = await startRelayProcess();
    const { page, allow } = await open({ device: 'desktop' });
    allow(KILLED);
    await page.goto(`${relay.url}/console/#/devices`);
    await isLive(page);
    const registered = await relay.ask('/pairing/register', { method: 'POST', body: { code: 'KILL42' } });
    expect(registered.status).toBe(200);
    const { socket } = await relay.offer({ pairing_code: 'KILL42', device_name: 'Pixel 9', device_id: 'one' });
    onTestFinished(() => socket.terminate());
    await device(page, 'Pixel 9')
      .getByText(/^Connected for/)
      .waitFor();

    await button(page, 'Revoke').click();
    await relay.kill();
    await page.getByText('Relay away', { exact: true }).waitFor();
    // A question that was asked before does nothing now, and later what it says.
    const question = page.getByRole('dialog', { name: 'Revoke Pixel 9?' });
    await question.getByText('The relay does not answer.').waitFor();
    await expect.poll(() => question.getByRole('button', { name: 'Revoke' }).isDisabled()).toBe(true);
    await question.getByRole('checkbox').focus();
    await page.keyboard.press('Enter');
    await expectAccessible(page);
    await page.keyboard.press('Escape');
    await expect.poll(() => question.count()).toBe(0);
    await page.getByText('The relay has not answered for').waitFor();
    await expect.poll(() => page.locator('.chip.good').count()).toBe(0);
    await expect.poll(() => button(page, 'Revoke').isDisabled()).toBe(true);
    await expectAccessible(page);

    relay.begin();
    await isLive(page);
    await device(page, 'Pixel 9')
      .getByText(/^Offline for/)
      .waitFor();
    await expect.poll(() => page.getByText('The relay has not answered for').count()).toBe(0);
    await expect.poll(() => button(page, 'Revoke').isDisabled()).toBe(false);
  });

  it('08 §6.1: shows Secure Link and Reach, names them in a code, and says why Reach is away', async (context) => {
    const { relay, broker } = await startReachStack(context);
    const { page } = await open();
    await page.goto(`${relay.url}/console/#/overview`);
    await page.getByText('Secure Link on').waitFor();
    await page.getByText('Reach connected').waitFor();
    await page.goto(`${relay.url}/console/#/pair`);
    await page.getByText('Secure Link, and Reach where it is connected, come with every code for the app.').waitFor();
    await button(page, 'Show a code').click();
    const code = page.getByRole('region', { name: 'Pairing code' });
    await code.getByRole('timer').waitFor();
    const ways = await code.locator('dt').allTextContents();
    expect(ways).toEqual(expect.arrayContaining(['Secure Link', 'Reach']));
    const addresses = await code.locator('dd').allTextContents();
    expect(addresses[ways.indexOf('Reach')]).toBe(`${broker.url}/v1/connect`);
    await expectAccessible(page);
    // Two pixels for each of its squares, where there is room.
    await page.setViewportSize({ width: 1280, height: 800 });
    const picture = code.getByRole('img', { name: 'QR code that pairs a device' });
    const squares = Number((await picture.getAttribute('viewBox'))?.split(' ')[2]);
    expect(squares).toBeGreaterThan(100);
    await expect.poll(async () => ((await picture.boundingBox())?.width ?? 0) / squares).toBeGreaterThan(2);
    await broker.kill();
    await page.goto(`${relay.url}/console/#/overview`);
    await expect
      .poll(async () => {
        await page.reload();
        await page.getByText(/Reach (not )?connected/).waitFor();
        return page.getByText('Reach not connected').count();
      })
      .toBe(1);
    await page
      .getByText(/ECONNREFUSED|closed|ended|hung up|lost/i)
      .first()
      .waitFor();
    await expectAccessible(page);
  });

  it('12 §1: says that the relay is not linked to the edge that mirrors it, since when and what waits', async () => {
    const relay = await startNodeTarget();
    onTestFinished(() => relay.stop());
    const { client } = await pair(relay);
    onTestFinished(() => client.terminate());
    const { page } = await open();
    await page.goto(`${relay.url}/console/#/overview`);
    await page.getByText('Running for').waitFor();
    expect(await page.getByText(/linked/i).count()).toBe(0);
    const enabled = await relay.operator('/relay/mirror', post({ url: `http://127.0.0.1:${await freePort()}` }));
    expect(enabled.status).toBe(200);
    await page.reload();
    await page.getByText(/^Not linked since \d\d:\d\d( [AP]M)? · Waiting: \d+$/).waitFor();
    await expectAccessible(page);
  });

  it('01 §1.3: where every caller needs the operator key, the key unlocks it', async () => {
    const relay = await startNodeTarget({ env: { RELAY_REQUIRE_OPERATOR_KEY: '1' } });
    onTestFinished(() => relay.stop());
    const { page, allow } = await open({ device: 'phone' });
    allow(/status of 40[13]/);
    await page.goto(`${relay.url}/console/`);
    await page.getByText('Locked', { exact: true }).waitFor();
    expect(await page.getByRole('heading', { name: 'Doctor' }).count()).toBe(0);
    await expectAccessible(page);
    const key = await readFile(join(relay.agentHome, 'svc-relay', 'operator-key'), 'utf8');
    await page.getByLabel('Operator token or key').fill(key);
    await page.keyboard.press('Enter');
    await isLive(page);
    await page.getByText('As of').waitFor();
    expect(await page.getByLabel('Operator token or key').count()).toBe(0);
  });

  it('§5: at the edge, an operator token unlocks it and stays in memory', async () => {
    const relay = await startEdgeTarget();
    const { page, allow } = await open({ device: 'desktop' });
    allow(NO_HOST);
    allow(/status of 40[13]/);
    await page.goto(`${relay.url}/console/`);
    await page.getByText('Locked', { exact: true }).waitFor();
    await expectAccessible(page);
    const field = page.getByLabel('Operator token or key');
    await field.fill('not.a.token');
    await page.keyboard.press('Enter');
    await expect.poll(() => field.inputValue()).toBe('');
    await page.getByText('Locked', { exact: true }).waitFor();
    await field.fill(relay.operatorToken ?? '');
    await button(page, 'Unlock').click();
    await isLive(page);
    await page.getByText('This relay runs without a host').waitFor();
    await page.getByText('No device is paired.').waitFor();
    const phone = await pair(relay, { device: { device_name: 'Pixel 9' } });
    onTestFinished(() => phone.client.terminate());
    await page.getByText('1 connected').waitFor();
    expect(await page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie])).toEqual([
      0,
      0,
      '',
    ]);
    await page.reload();
    await page.getByText('Locked', { exact: true }).waitFor();
  });
});
