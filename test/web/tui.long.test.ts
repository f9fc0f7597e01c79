import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { connected, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, sendsByConfirming, smallTargets } from '../support/browser.ts';
import { cleanups } from '../support/built-relay.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { TIMEOUT } from '../support/limits.ts';
import { startTerminalRelay } from '../support/terminal.ts';

const GATEWAY = fileURLToPath(new URL('../support/fake-gateway.mjs', import.meta.url));

describeInBrowser("the agent's TUI in the app (contract 02 §4)", ({ open }) => {
  const cleanup = cleanups();

  async function openTui(command: string) {
    const relay = await startTerminalRelay({ env: { RELAY_TUI_COMMAND: command } });
    cleanup.push(() => relay.stop());
    const proxy = await startFlakyProxy({ port: relay.port, seed: 1, faults: ['none'] });
    cleanup.push(() => proxy.close());
    const opened = await open({ device: 'desktop' });
    const { page } = opened;
    opened.allow(/WebSocket|ERR_CONNECTION_REFUSED/);
    const code = await webCode(relay);
    await page.goto(`http://localhost:${proxy.port}/app/#code=${code}`);
    await connected(page);
    await page.getByRole('link', { name: 'Agent TUI' }).click();
    return { page, proxy };
  }

  const shows = (page: Page, what: RegExp) =>
    expect
      .poll(
        () =>
          page.evaluate(() =>
            [...document.querySelectorAll('.xterm-rows > div')].map((row) => row.textContent).join('\n'),
          ),
        {
          timeout: TIMEOUT,
        },
      )
      .toMatch(what);

  it('asks and answers, stops, goes on with another conversation, and after a lost connection', async () => {
    const { page, proxy } = await openTui(JSON.stringify([process.execPath, GATEWAY]));
    const field = page.getByLabel('Ask the agent');
    expect(await sendsByConfirming(field)).toBe(false);
    const ask = async (text: string) => {
      await expect.poll(() => page.getByRole('button', { name: 'Send' }).isEnabled()).toBe(true);
      await field.fill(text);
      await page.keyboard.press('Enter');
    };
    await ask('hello');
    await shows(page, /❯ hello\s*\n> look hello\s*\nIn s1: you said "hello"/);
    await expect.poll(() => page.getByRole('button', { name: 'Stop' }).count()).toBe(0);
    await ask('endless');
    await page.getByRole('button', { name: 'Stop' }).click();
    await expect.poll(() => page.getByRole('button', { name: 'Stop' }).count()).toBe(0);
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    await page.getByRole('button', { name: 'Conversations' }).click();
    await page.getByRole('button', { name: 'Yesterday' }).click();
    await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
    await ask('again');
    await shows(page, /In s0: you said "again"/);
    // What is asked before the page notices goes with the connection.
    const again = page.waitForEvent('websocket');
    proxy.strike('cut');
    await again;
    await ask('after it');
    await shows(page, /In s0: you said "after it"/);
  });

  it('says that a host has no TUI', async () => {
    const { page } = await openTui('');
    await page.getByText('The agent on this host has no TUI. Use the chat instead.').waitFor();
    await expectAccessible(page);
  });
});
