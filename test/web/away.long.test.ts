import { expect, it } from 'vitest';
import table from '../../handlers/web/shared/locales/app.ts';
import { appOf, connected, pairPage, webCode } from '../support/app.ts';
import { describeInBrowser, expectUsable, RESTARTED } from '../support/browser.ts';
import { stored } from '../support/browser-storage.ts';
import { cleanups } from '../support/built-relay.ts';
import { createShiftedClock } from '../support/clock.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { startNodeTarget, type Target } from '../support/relay.ts';

const DAY = 24 * 3_600_000;
const CLOCK =
  "The clock of the relay's machine may be wrong. This browser stays paired: once that clock is set right, it connects again.";
const ADDRESS =
  "The relay may have another address now: open the app there. To pair it there, type on the relay's machine: svc pair --web";
/** Of a browser, in the order of the translations. */
const LOCALES = ['en-US', 'de-DE', 'es-ES', 'ja-JP', 'pt-BR', 'zh-CN'];

const pending = cleanups();

async function started(options: Parameters<typeof startNodeTarget>[0]): Promise<Target> {
  const relay = await startNodeTarget(options);
  pending.push(() => relay.stop());
  return relay;
}

describeInBrowser('a page whose relay is away', ({ open }) => {
  it('11 §2: with a wrong clock of the relay it stays paired, says why, and comes back', async () => {
    const clock = createShiftedClock();
    const relay = await started({ clock });
    const { page, allow } = await open();
    allow(RESTARTED);
    await pairPage(page, relay);
    await relay.restart(async () => {
      clock.offset = 40 * DAY;
    });
    await page.getByText(CLOCK).waitFor();
    await expectUsable(page);
    // A new start of the page takes nothing away either.
    await page.reload();
    await page.getByText(CLOCK).waitFor();
    await relay.restart(async () => {
      clock.offset = 0;
    });
    await connected(page);
    await expect.poll(() => page.getByText(CLOCK).count()).toBe(0);
  });

  it('11 §2: a page whose address is gone leads to another one of its relay, in every language', async () => {
    const relay = await started({ env: { RELAY_HOST: '0.0.0.0' } });
    const port = Number(new URL(relay.url).port);
    // Loopback stands for the addresses of the machine. The pages come by a way of their own, which goes away.
    const network = relay.relay?.host?.network;
    const addresses = relay.relay?.addresses;
    if (!network || !addresses) throw new Error('this relay has no host');
    let address = '192.0.2.7';
    network.addresses = () => ['127.0.0.1', address];
    network.lanAddress = async () => address;
    network.tailnet = async () => null;
    await addresses.update();
    const way = await startFlakyProxy({ port, seed: 1, faults: ['none'] });
    pending.push(() => way.close());
    const app = appOf({ url: `http://127.0.0.1:${way.port}` });

    const pages = [];
    for (const locale of LOCALES) {
      const { page, allow } = await open({ context: { locale } });
      allow(/WebSocket|ERR_|Failed to load/);
      await page.goto(`${app}#code=${await webCode(relay)}`);
      await page
        .getByText(/· \d+ ms$/)
        .first()
        .waitFor();
      pages.push(page);
    }
    address = '127.0.0.2';
    await addresses.update();
    const moved = `http://127.0.0.2:${port}/app/`;
    const [first] = pages;
    if (!first) throw new Error('no page');
    // A page keeps the address before its way to the relay goes.
    for (const page of pages) {
      await expect.poll(async () => JSON.stringify((await stored(page)).databases)).toContain(moved);
    }
    await way.close();
    const row = (table as Record<string, readonly string[]>)[ADDRESS];
    for (const [index, page] of pages.entries()) {
      await page.getByText((index === 0 ? ADDRESS : row?.[index - 1]) as string).waitFor();
      expect(await page.getByRole('link', { name: `127.0.0.2:${port}` }).getAttribute('href')).toBe(moved);
    }
    await expectUsable(first);

    // The next step: the app opens there, and pairs with a code.
    await first.getByRole('link', { name: `127.0.0.2:${port}` }).click();
    await first.waitForURL(`${moved}**`);
    await first.goto(`${moved}#code=${await webCode(relay)}`);
    await connected(first);
  });
});
