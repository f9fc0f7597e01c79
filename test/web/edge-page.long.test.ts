import { expect, it } from 'vitest';
import { connected } from '../support/app.ts';
import { describeInBrowser, expectUsable, type TestBrowser, type TestPage } from '../support/browser.ts';
import { sentToken, stored } from '../support/browser-storage.ts';
import { atMailbox, mailboxOf, mirrored } from '../support/mirrored.ts';
import { randomCode } from '../support/relay.ts';

type World = Awaited<ReturnType<typeof mirrored>>;
interface StoredPairing {
  session_token: string;
  endpoints: { url: string }[];
  paired_at_edge?: true;
  mailbox?: { session_token: string };
}

const publicOf = ({ home }: World): string => home.url.replace('127.0.0.1', 'localhost');
const pairingOf = async ({ page }: TestPage): Promise<StoredPairing | undefined> =>
  ((await stored(page)).databases.svc?.['pairing /'] as { pairing?: StoredPairing } | undefined)?.pairing;

/** Waits until the edge's pages may call home: home tells it after its sessions, and the Worker keeps an answer a minute. */
async function knowsHome(world: World): Promise<void> {
  let now = Date.now();
  const policy = async () => {
    now += 60_000;
    await world.runtime.stopClock(now);
    return (await fetch(`${world.edge}/app/`)).headers.get('content-security-policy');
  };
  await expect
    .poll(policy)
    .toContain(`connect-src 'self' ${publicOf(world).replace('http', 'ws')} ${publicOf(world)};`);
}

/** Waits until the page has been let in at home with credentials that the edge has not seen. */
const isHome = (opened: TestPage, world: World): Promise<void> =>
  expect
    .poll(async () => {
      const pairing = await pairingOf(opened);
      return [pairing?.endpoints[0]?.url, pairing?.paired_at_edge];
    })
    .toEqual([`${publicOf(world).replace('http', 'ws')}/ws`, undefined]);

describeInBrowser("the app of the edge's own origin (contract 12 §3)", ({ open }) => {
  /** A window that may call home, which may be off. */
  async function openFor(world: World, options: Parameters<TestBrowser['open']>[0] = {}): Promise<TestPage> {
    const opened = await open(options);
    opened.allow(
      /ERR_(?:CONNECTION_REFUSED|CONNECTION_RESET|EMPTY_RESPONSE)|WebSocket connection to 'ws:\/\/localhost/,
    );
    opened.allow(new RegExp(`^request to ${publicOf(world)}$`));
    return opened;
  }

  /** Pairs a page by a link of the edge, and waits until it is connected to home. */
  async function pairedAtHome(world: World) {
    const { edge, inStep, svc } = world;
    await inStep();
    const link = JSON.parse((await svc('pair', '--web', '--via', 'edge', '--json')).stdout).page_url;
    expect(link).toContain(`${edge}/app/#code=`);
    await knowsHome(world);
    const opened = await openFor(world, { device: 'desktop' });
    await opened.page.goto(link);
    await isHome(opened, world);
    await connected(opened.page);
    return opened;
  }

  it('pairs by a code of the edge, goes to home, to its mailbox while home is off, and back', {
    timeout: 120_000,
  }, async () => {
    const world = await mirrored({ published: true });
    const { home, edge, inStep, say, history } = world;
    const { page } = await pairedAtHome(world);
    expect(await mailboxOf(page)).toBe(`${edge.replace('http', 'ws')}/ws`);
    // Calls go to home: what only home serves is there.
    await page.goto(`${edge}/app/#/files`);
    await page.getByText('The agent has made no files yet.').waitFor();
    await page.goto(`${edge}/app/#/devices`);
    await page.getByText('This device').first().waitFor();
    await page.goto(`${edge}/app/#/inbox`);
    await inStep();

    await home.kill();
    await atMailbox(page);
    await page.getByText(/^Home is off since \d\d:\d\d/).waitFor();
    await say({ text: 'Shall I deploy?', title: 'Deploy', chat_id: 'c1', message_id: 'm1' });
    await page.getByRole('link', { name: /Deploy/ }).click();
    await page.getByRole('button', { name: 'Yes' }).click();
    await page.getByText('Answered').waitFor();
    await page.reload();
    await atMailbox(page);
    await expect.poll(() => page.locator('.bubble p').allTextContents()).toEqual(['Shall I deploy?', 'Yes']);
    await expectUsable(page);

    await home.restart();
    await connected(page);
    await expect.poll(() => page.getByText(/^Home is off/).count()).toBe(0);
    await inStep();
    const replies = async () => (await history('home')).filter(({ kind }) => kind === 'reply').map(({ text }) => text);
    await expect.poll(replies).toEqual(['Yes']);
  });

  it('uses the whole of home: it saves a document that it has read there, and blurs a sensitive picture', {
    timeout: 120_000,
  }, async () => {
    const world = await mirrored({ published: true });
    const { home, edge } = world;
    const { page } = await pairedAtHome(world);
    await page.goto(`${edge}/app/#/profiles/default%2Fsoul`);
    for (const text of ['She is kind.', 'She is kind and brief.']) {
      await page.getByLabel('Text').fill(text);
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText(/^Not saved yet/).waitFor({ state: 'detached' });
    }

    const buffer = Buffer.from(await (await fetch(`${home.url}/app/icon-192.png`)).arrayBuffer());
    await page.goto(`${edge}/app/#/files`);
    await page.getByLabel('Send files').setInputFiles({ name: 'secret.png', mimeType: 'image/png', buffer });
    const token = await sentToken(page, 'secret.png');
    const marking = { method: 'POST', headers: { 'x-svc-operator': '1' } };
    expect((await home.ask(`/media/${token}/sensitive`, marking)).status).toBe(200);
    await page.getByRole('listitem').filter({ hasText: 'secret.png' }).getByRole('button', { name: 'Open' }).click();
    const picture = page.getByRole('img', { name: 'secret.png' });
    await expect.poll(() => picture.evaluate((image) => getComputedStyle(image).filter)).toMatch(/^blur/);
  });

  it('redeems a code of home at home, and says what to do where home cannot be reached', {
    timeout: 120_000,
  }, async () => {
    const world = await mirrored({ published: true });
    const { home, edge, inStep } = world;
    await inStep();
    const code = randomCode();
    const body = { code, without: ['bridge', 'desktop'] };
    expect((await home.ask('/pairing/register', { method: 'POST', body })).status).toBe(200);
    await knowsHome(world);
    const opened = await openFor(world);
    await opened.page.goto(`${edge}/app/#code=${code}`);
    await isHome(opened, world);
    await connected(opened.page);
    await expect.poll(() => mailboxOf(opened.page)).toBe(`${edge.replace('http', 'ws')}/ws`);
    await home.kill();
    await atMailbox(opened.page);

    const late = await openFor(world);
    await late.page.goto(`${edge}/app/#code=${randomCode()}`);
    await late.page.getByText(/This is the mailbox of a relay, which does not know this code/).waitFor();
    await expectUsable(late.page);
  });

  it('stays at its mailbox where no browser can reach home', { timeout: 120_000 }, async () => {
    const world = await mirrored();
    const { edge, inStep, svc, say } = world;
    await inStep();
    const link = JSON.parse((await svc('pair', '--web', '--via', 'edge', '--json')).stdout).page_url;
    const { page } = await openFor(world);
    await page.goto(link);
    await atMailbox(page);
    await page.getByText(/^Home cannot be reached from here/).waitFor();
    await page.goto(`${edge}/app/#/inbox`);
    await say({ text: 'It is done.', title: 'Deploy', chat_id: 'c1', message_id: 'm1' });
    await page.getByRole('link', { name: /Deploy/ }).waitFor();
  });

  it('offers a page that was open before there was a mirror to load it anew', { timeout: 120_000 }, async () => {
    const { home, enable, inStep, pair } = await mirrored({ later: true });
    const { page, allow } = await pair(open);
    await connected(page);
    allow(/Content Security Policy|Refused to connect/);
    await enable();
    await inStep();
    const reload = page.getByRole('button', { name: 'Reload' });
    await reload.waitFor();
    await expectUsable(page);
    await reload.click();
    await connected(page);
    await expect.poll(() => mailboxOf(page)).not.toBe('');
    expect(await reload.count()).toBe(0);
    await home.kill();
    await atMailbox(page);
  });
});
