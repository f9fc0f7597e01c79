import type { Page } from 'playwright-core';
import { expect, it, onTestFinished } from 'vitest';
import { connected, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, smallTargets } from '../support/browser.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { TIMED } from '../support/limits.ts';
import { startNodeTarget, type Target } from '../support/relay.ts';

describeInBrowser('the app without a relay (issue 17)', ({ open }) => {
  async function start(env: Record<string, string> = {}): Promise<{ relay: Target; app: string; port: number }> {
    const relay = await startNodeTarget({ env });
    onTestFinished(() => relay.stop());
    const { port } = new URL(relay.url);
    return { relay, app: `http://localhost:${port}/app/`, port: Number(port) };
  }
  async function newCode(relay: Target): Promise<string> {
    const code = await webCode(relay);
    return code;
  }

  it('starts from its service worker, says so, and is back by itself', async () => {
    const { relay, app } = await start();
    const { page, allow } = await open();
    allow(/ERR_INTERNET_DISCONNECTED|WebSocket|Failed to load resource/);
    await page.goto(`${app}#code=${await newCode(relay)}`);
    await connected(page);
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
    await page.context().setOffline(true);
    await page.reload();
    await page
      .getByText(/^Offline/)
      .first()
      .waitFor();
    await page.getByRole('button', { name: 'Retry' }).waitFor();
    await expectAccessible(page);
    // Screens that were never opened are there too.
    await page.goto(`${app}#/settings`);
    await page.getByLabel('Theme').waitFor();
    await page.context().setOffline(false);
    await connected(page);
  });

  it('can be installed', async () => {
    const { app } = await start();
    const { page } = await open();
    await page.goto(app);
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
    const session = await page.context().newCDPSession(page);
    const { installabilityErrors } = await session.send('Page.getInstallabilityErrors');
    // A window without a profile installs nothing, whatever the page offers.
    expect(installabilityErrors.map(({ errorId }) => errorId).filter((id) => id !== 'in-incognito')).toEqual([]);
  });

  it('loses a bad service worker once RELAY_SERVICE_WORKER=0', async () => {
    const relay = await startNodeTarget();
    const port = Number(new URL(relay.url).port);
    const app = `http://localhost:${port}/app/`;
    const { page } = await open();
    await page.goto(app);
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
    await expect.poll(() => page.evaluate(async () => (await caches.keys()).length)).toBe(1);
    await relay.stop();
    const off = await startNodeTarget({ env: { RELAY_SERVICE_WORKER: '0' }, port });
    onTestFinished(() => off.stop());
    await page.goto(app);
    await expect.poll(() => page.evaluate(async () => (await caches.keys()).length)).toBe(0);
    await page.waitForFunction(async () => (await navigator.serviceWorker.getRegistrations()).length === 0);
    await page.getByRole('heading', { name: 'Pair this browser' }).waitFor();
  });

  it('connects again within a second after its socket was cut', TIMED, async () => {
    const { relay, port } = await start();
    const proxy = await startFlakyProxy({ port, seed: 17, faults: ['none'] });
    onTestFinished(() => proxy.close());
    const { page, allow } = await open();
    allow(/WebSocket|Failed to load resource|ERR_/);
    await page.goto(`http://localhost:${proxy.port}/app/#code=${await newCode(relay)}`);
    await connected(page);
    // A connection that lasted a second is made again soon.
    await page.waitForFunction(() => performance.now() > 2500);
    await page.evaluate(() => {
      const header = document.querySelector('header') as Element;
      const seen = { lostAt: 0, backAt: 0 };
      Object.assign(globalThis, { seen });
      new MutationObserver(() => {
        const isConnected = /^Connected/.test(header.querySelector('.chip')?.textContent ?? '');
        if (!isConnected) seen.lostAt ||= performance.now();
        else if (seen.lostAt > 0) seen.backAt ||= performance.now();
      }).observe(header, { subtree: true, childList: true, characterData: true });
    });
    proxy.strike('reset');
    const times = await page.waitForFunction(() => {
      const { seen } = globalThis as unknown as { seen: { lostAt: number; backAt: number } };
      return seen.backAt > 0 && seen;
    });
    const { lostAt, backAt } = (await times.jsonValue()) as { lostAt: number; backAt: number };
    expect(backAt - lostAt).toBeLessThan(1000);
  });

  /** Text of the chip in the header. */
  const chip = (page: Page) => page.locator('header .chip-button').innerText();

  it('issue 25 §3.7: knows at once that the browser is offline, and no screen says the opposite', async () => {
    const { relay, port } = await start();
    const proxy = await startFlakyProxy({ port, seed: 17, faults: ['none'] });
    onTestFinished(() => proxy.close());
    const { page, allow } = await open();
    allow(/WebSocket|Failed to load resource|ERR_/);
    await page.clock.install();
    await page.goto(`http://localhost:${proxy.port}/app/#code=${await newCode(relay)}`);
    await connected(page);
    await page.getByText('Running for').waitFor();
    // The socket breaks without a word, as in a tunnel.
    proxy.block('stall');
    await page.evaluate(() => {
      const seen: { isOffline?: true; atOnce?: string; lostAfter?: number } = {};
      Object.assign(globalThis, { seen });
      const header = document.querySelector('header .chip-button') as Element;
      addEventListener('offline', () => {
        const offlineAt = performance.now();
        seen.isOffline = true;
        setTimeout(() => {
          seen.atOnce = header.textContent;
        });
        new MutationObserver(() => {
          if (/^Offline/.test(header.textContent)) seen.lostAfter ??= performance.now() - offlineAt;
        }).observe(header, { subtree: true, childList: true, characterData: true });
      });
    });
    // By the clock of the page, whatever else the machine does.
    await page.clock.pauseAt((await page.evaluate(() => Date.now())) + 2_000);
    await page.context().setOffline(true);
    const seen = () =>
      page.evaluate(
        () => (globalThis as unknown as { seen: { isOffline?: true; atOnce?: string; lostAfter?: number } }).seen,
      );
    await expect.poll(async () => (await seen()).isOffline).toBe(true);
    await page.clock.runFor(2_500);
    await expect.poll(async () => (await seen()).lostAfter).toBeDefined();
    await page.clock.resume();
    const { atOnce, lostAfter } = await seen();
    expect(atOnce).toBe('No answer yet');
    expect(lostAfter).toBeLessThan(2_500);
    await page.getByText(/Offline\. What you see is from/).waitFor();
    expect(await page.getByText(/^Connected/).count()).toBe(0);
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
  });

  it('issue 25 §3.7: counts from the loss, and is back within two seconds of the return, however long it was away', async () => {
    const { relay, app } = await start();
    const { page, allow } = await open();
    allow(/WebSocket|Failed to load resource|ERR_/);
    await page.clock.install();
    await page.goto(`${app}#code=${await newCode(relay)}`);
    await connected(page);
    const pass = async (seconds: number) => {
      for (let passed = 0; passed < seconds; passed++) await page.clock.runFor(1_000);
    };
    // The last echo is as old as it can be.
    await pass(12);
    // The relay takes as long to end as the machine makes it.
    await page.clock.pauseAt((await page.evaluate(() => Date.now())) + 2_000);
    await relay.restart(async () => {
      await expect.poll(() => chip(page)).toMatch(/^Offline for [012] s/);
      await pass(90);
      expect(await chip(page)).toMatch(/^Offline for (1|2) min/);
    });
    await page.clock.runFor(2_000);
    await page.clock.resume();
    await connected(page);
  });

  it('issue 25 §3.7: counts down to the next attempt where that is far off, which a tap cuts short', async () => {
    const { relay, port } = await start();
    const proxy = await startFlakyProxy({ port, seed: 17, faults: ['none'] });
    onTestFinished(() => proxy.close());
    const { page, allow } = await open();
    allow(/WebSocket|Failed to load resource|ERR_/);
    await page.clock.install();
    await page.goto(`http://localhost:${proxy.port}/app/#code=${await newCode(relay)}`);
    await connected(page);
    // Something listens, so that the page does not ask as often as after a refusal.
    proxy.block('cut');
    const left = async () => Number(/Next try in (\d+) s/.exec(await chip(page))?.[1]);
    let before = Number.NaN;
    await expect
      .poll(async () => {
        await page.clock.runFor(1_000);
        before = await left();
        return before;
      })
      .toBeGreaterThan(5);
    await expect
      .poll(async () => {
        await page.clock.runFor(1_000);
        return left();
      })
      .toBeLessThan(before);
    proxy.plan(['none']);
    await page.getByRole('button', { name: /^Offline/ }).click();
    await connected(page);
  });
});
