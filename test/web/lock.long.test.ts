import type { CDPSession, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connected, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, smallTargets } from '../support/browser.ts';
import { stored } from '../support/browser-storage.ts';
import { TIMEOUT } from '../support/limits.ts';
import { post, startNodeTarget, type Target } from '../support/relay.ts';

const SECRET = 'The door code is blue';
const NOT_CONFIRMED = 'The passkey was not confirmed: it was cancelled, took too long, or is not on this device.';

describeInBrowser('the passkey lock (issue 17)', ({ open }) => {
  let relay: Target;
  beforeAll(async () => {
    // A tmux server would outlive the relay.
    relay = await startNodeTarget({ env: { RELAY_TERMINAL_TMUX: '0' } });
    const sent = await relay.operator('/phone/message', post({ text: SECRET, chat_id: 'c' }));
    expect(sent.status).toBeLessThan(300);
  });
  afterAll(() => relay?.stop());

  const app = (host = 'localhost') => `${relay.url.replace('127.0.0.1', host)}/app/`;

  const sessions = async () => {
    const { devices } = (await (await relay.operator('/relay/devices')).json()) as { devices: unknown[] };
    return devices.length;
  };

  /** The sensor of the device, as the browser sees it. */
  async function addSensor(page: Page) {
    const session: CDPSession = await page.context().newCDPSession(page);
    await session.send('WebAuthn.enable');
    const { authenticatorId } = await session.send('WebAuthn.addVirtualAuthenticator', {
      options: {
        protocol: 'ctap2',
        transport: 'internal',
        hasUserVerification: true,
        hasResidentKey: true,
        isUserVerified: true,
      },
    });
    return {
      /** Whether the finger is the right one. */
      verify: (isUserVerified: boolean) =>
        session.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified }),
      /** Whether there is a finger at all. */
      touch: (enabled: boolean) =>
        session.send('WebAuthn.setAutomaticPresenceSimulation', { authenticatorId, enabled }),
      lose: () => session.send('WebAuthn.clearCredentials', { authenticatorId }),
    };
  }

  /** A paired page at a screen, on a device with a sensor. */
  async function openPaired(screen: string, host?: string) {
    const opened = await open();
    const { page } = opened;
    const sensor = await addSensor(page);
    await page.goto(`${app(host)}#code=${await webCode(relay)}`);
    await connected(page);
    await page.goto(`${app(host)}#/${screen}`);
    return { ...opened, page, sensor };
  }

  const unlock = (page: Page) => page.getByRole('button', { name: 'Unlock' });

  /** Turns the lock on, with some minutes. */
  async function turnOn(page: Page, minutes = 5): Promise<void> {
    await page.getByLabel('Lock with a passkey').click();
    await page.getByRole('button', { name: 'Lock now' }).waitFor();
    await page.getByLabel('Lock when hidden for, minutes').fill(String(minutes));
  }

  async function expectLocked(page: Page): Promise<void> {
    await unlock(page).waitFor();
    expect(await page.getByRole('navigation').count()).toBe(0);
    expect(await page.locator('body').textContent()).not.toContain(SECRET);
    // The title follows the paint.
    await expect.poll(() => page.title()).toBe('svc');
  }

  /** Hides or shows the page, as a phone does with an app that is left. */
  const setVisible = (page: Page, isVisible: boolean) =>
    page.evaluate(
      (state) => {
        Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => state });
        document.dispatchEvent(new Event('visibilitychange'));
      },
      isVisible ? 'visible' : 'hidden',
    );

  it('shows nothing at start until the person is verified, and goes on where it was', async () => {
    const { page, sensor } = await openPaired('settings');
    await turnOn(page);
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    await page.goto(`${app()}#/inbox/c`);
    await page.getByText(SECRET).first().waitFor();
    await page.reload();
    await expectLocked(page);
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);

    // Somebody else's finger.
    await sensor.verify(false);
    await unlock(page).click();
    await page.getByText(NOT_CONFIRMED).waitFor();
    await expectLocked(page);
    await expectAccessible(page);
    await sensor.verify(true);
    await unlock(page).click();
    await page.getByText(SECRET).first().waitFor();
    expect(page.url()).toBe(`${app()}#/inbox/c`);
  });

  it('a cancelled question leaves it locked, and the next one opens it', async () => {
    const { page, sensor } = await openPaired('settings');
    await turnOn(page);
    await page.getByRole('button', { name: 'Lock now' }).click();
    await sensor.touch(false);
    await unlock(page).click();
    await page.getByRole('button', { name: 'Waiting for the passkey' }).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText(NOT_CONFIRMED).waitFor();
    await expectLocked(page);
    await sensor.touch(true);
    await unlock(page).click();
    await page.getByLabel('Lock with a passkey').waitFor();
  });

  it('locks after its minutes out of sight, also in other tabs and by a link, and not before', async () => {
    const { page, tab } = await openPaired('settings');
    const other = await tab();
    await other.goto(`${app()}#/inbox/c`);
    await other.getByText(SECRET).first().waitFor();
    // A page behind another one may not ask for a passkey.
    await page.bringToFront();
    await page.clock.install();
    await turnOn(page, 2);

    // The clock stands still meanwhile, or a busy machine adds a second of its own.
    await page.clock.pauseAt((await page.evaluate(() => Date.now())) + TIMEOUT);
    await setVisible(page, false);
    await page.clock.runFor(119_000);
    await setVisible(page, true);
    expect(await unlock(page).count()).toBe(0);
    await page.clock.resume();
    // Its content is gone before anybody looks.
    await setVisible(page, false);
    await page.clock.runFor(121_000);
    await expectLocked(page);
    await setVisible(page, true);
    await expectLocked(page);
    await unlock(page).click();
    await page.getByLabel('Lock with a passkey').waitFor();
    // Timers stand still in a page that a phone has frozen.
    await setVisible(page, false);
    await page.clock.setSystemTime(Date.now() + 3_600_000);
    await setVisible(page, true);
    await expectLocked(page);

    // 0 minutes: at once. A tab that was open when the lock was turned on follows it too.
    await page.evaluate(() => {
      const stored = JSON.parse(localStorage.getItem('svc settings') ?? '{}');
      localStorage.setItem('svc settings', JSON.stringify({ ...stored, lock_after_minutes: 0 }));
    });
    await setVisible(other, false);
    await other.reload();
    await expectLocked(other);
    await page.goto(`${app()}#code=${await webCode(relay)}`);
    await expectLocked(page);
  });

  it('takes no keys for the terminal while it is locked', async () => {
    const { page } = await openPaired('settings');
    await turnOn(page, 0);
    await page.goto(`${app()}#/terminal`);
    const screen = page.locator('.terminal-screen').first();
    await screen.waitFor();
    await screen.click();
    const frames: string[] = [];
    page.on('websocket', (socket) => socket.on('framesent', ({ payload }) => frames.push(String(payload))));
    await setVisible(page, false);
    await expectLocked(page);
    await setVisible(page, true);
    await page.keyboard.type('echo gone');
    await page.keyboard.press('Enter');
    await expectLocked(page);
    expect(frames.filter((frame) => frame.includes('terminal.input'))).toEqual([]);
    await unlock(page).click();
    await screen.waitFor();
    await connected(page);
    expect(await page.locator('body').textContent()).not.toContain('echo gone');
  });

  it('turning it off asks for the passkey; a lost one ends in signing out', async () => {
    const { page, sensor } = await openPaired('settings');
    await turnOn(page);
    await sensor.verify(false);
    await page.getByLabel('Lock with a passkey').click();
    await page.getByText(NOT_CONFIRMED).waitFor();
    await page.reload();
    await expectLocked(page);
    await sensor.verify(true);
    await unlock(page).click();
    await page.getByLabel('Lock with a passkey').click();
    await page.getByRole('button', { name: 'Lock now' }).waitFor({ state: 'detached' });
    await page.reload();
    await page.getByLabel('Lock with a passkey').waitFor();

    await turnOn(page);
    await page.goto(`${app()}#/inbox/c`);
    await page.getByText(SECRET).first().waitFor();
    await page.reload();
    await sensor.lose();
    await unlock(page).click();
    await page.getByText(NOT_CONFIRMED).waitFor();
    const before = await sessions();
    await page.getByRole('button', { name: 'The passkey is lost' }).click();
    await expectAccessible(page);
    await page.getByRole('dialog').getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Pair this browser' }).waitFor();
    await expect.poll(sessions).toBe(before - 1);
    // The page is loaded anew once everything is gone.
    const isKept = async () => {
      const kept = await stored(page)
        .then(JSON.stringify)
        .catch(() => SECRET);
      return kept.includes(SECRET) || kept.includes('svc lock');
    };
    await expect.poll(isKept).toBe(false);
    // Paired again, it is open.
    await page.goto(`${app()}#code=${await webCode(relay)}`);
    await connected(page);
  });

  it('is not offered where a passkey cannot be, with the reason', async () => {
    const { page } = await open();
    await page.goto(`${app()}#code=${await webCode(relay)}`);
    await connected(page);
    await page.goto(`${app()}#/settings`);
    // This machine has no sensor.
    await page.getByText('This device has no fingerprint, face or screen lock').waitFor();
    expect(await page.getByLabel('Lock with a passkey').count()).toBe(0);
  });
});
