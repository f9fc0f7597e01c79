import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { pairPage } from '../support/app.ts';
import {
  describeInBrowser,
  expectAccessible,
  expectUsable,
  type PageOptions,
  smallTargets,
} from '../support/browser.ts';
import { TIMED, TIMEOUT } from '../support/limits.ts';
import { attach, hasProgram, pairTerminal, startTerminalRelay } from '../support/terminal.ts';

const tmux = hasProgram('tmux');
if (!tmux) process.stderr.write('SKIPPED: no tmux here, shells of other devices are not listed without it\n');
/** Pictures of the screens are written there. */
const { SCREENS } = process.env;

const PHONE = { viewport: { width: 390, height: 844 } };

describeInBrowser('shells at home in the app (contract 09 §1)', ({ open }) => {
  let relay: Awaited<ReturnType<typeof startTerminalRelay>>;
  beforeAll(async () => {
    relay = await startTerminalRelay({ tmux });
  });
  afterAll(() => relay?.stop());

  async function openApp(options: PageOptions = { context: PHONE }) {
    const opened = await open(options);
    await pairPage(opened.page, relay);
    return opened;
  }

  async function openTerminal(options?: PageOptions) {
    const opened = await openApp(options);
    await opened.page.getByRole('link', { name: 'Terminal' }).click();
    await shows(opened.page, /^ready>$/m);
    return opened;
  }

  const screen = (page: Page): Promise<string> =>
    page.evaluate(() =>
      [...document.querySelectorAll('.pane:not([hidden]) .xterm-rows > div')]
        .map((row) => (row.textContent ?? '').replaceAll('\u00a0', ' ').trimEnd())
        .join('\n')
        .trimEnd(),
    );
  const shows = (page: Page, what: RegExp) => expect.poll(() => screen(page), { timeout: TIMEOUT }).toMatch(what);
  const key = (page: Page, name: string) => page.locator('.keys').getByRole('button', { name, exact: true });
  async function picture(page: Page, name: string): Promise<void> {
    if (SCREENS) await page.screenshot({ path: `${SCREENS}/${name}.png` });
  }

  it.skipIf(!tmux)('leads from the count of open shells to them, to watch one or to work in it', async () => {
    const { client } = await pairTerminal(relay);
    onTestFinished(() => client.close());
    const laptop = await attach(client, 'build', { cols: 120, rows: 30 });
    await laptop.shows('ready>');
    laptop.type('clear; echo compiling 4 of 9; sleep 1000\r');
    await laptop.shows(/^compiling 4 of 9$/m);
    const { page } = await openApp();
    await page.getByRole('link', { name: /Open shells/ }).click();
    const row = page.getByRole('listitem').filter({ hasText: 'build' });
    await row.getByText('compiling 4 of 9').waitFor();
    expect(await row.textContent()).toMatch(/build.*Phone · open for .* · last output .* ago.*1 attached/);
    await expectUsable(page);
    await picture(page, 'shells');
    // The list of shells opens none.
    expect(relay.tmuxRun('list-sessions', '-F', '#{session_name}')).toBe('svc-build\n');

    await row.getByRole('button', { name: 'Watch build' }).click();
    await shows(page, /^compiling 4 of 9$/m);
    await page.getByText('You watch build. Nothing you type reaches it.').waitFor();
    await page.getByRole('textbox', { name: /^Shell 1/ }).focus();
    await page.keyboard.press('Control+c');
    await key(page, 'Ctrl-C').tap();
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    await picture(page, 'shell-watched');
    // All of its columns are in sight.
    const excess = () =>
      page.evaluate(() => {
        const drawn = document.querySelector('.pane:not([hidden]) .xterm-screen');
        return (drawn?.getBoundingClientRect().right ?? Number.MAX_VALUE) - innerWidth;
      });
    await expect.poll(excess).toBeLessThanOrEqual(1);
    laptop.resize(100, 20);
    await expect
      .poll(() => page.evaluate(() => document.querySelectorAll('.pane:not([hidden]) .xterm-rows > div').length))
      .toBe(20);
    await expect.poll(() => laptop.screen.text()).toBe('compiling 4 of 9');

    await page.getByRole('button', { name: 'Attach' }).click();
    await expect.poll(() => page.getByText('You watch build.').count()).toBe(0);
    await shows(page, /^compiling 4 of 9$/m);
    await page.getByRole('textbox', { name: /^Shell 1/ }).focus();
    await page.keyboard.press('Control+c');
    await page.keyboard.type('echo he$((1))re\n');
    // The phone's size is the newest now, and tmux marks what is outside of it.
    await laptop.shows(/^he1re\s/m);
    await shows(page, /^he1re$/m);
    // From the list, a shell that a tab has is shown there.
    await page.getByRole('tab', { name: 'Shell 2' }).click();
    await shows(page, /^ready>$/m);
    await page.getByRole('button', { name: 'Shells at home' }).click();
    await page.getByRole('button', { name: 'Attach build' }).click();
    await shows(page, /^he1re$/m);
    await expect.poll(() => page.getByRole('tab', { name: 'Shell 1' }).getAttribute('aria-selected')).toBe('true');
    await page.getByRole('button', { name: 'Shells at home' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'New shell' }).click();
    await expect.poll(() => page.getByRole('tab', { name: 'Shell 3' }).getAttribute('aria-selected')).toBe('true');
    await shows(page, /^ready>$/m);
  });

  it('says that no shell is open, and opens one when the list is closed', async () => {
    const { page } = await openApp();
    await page.getByRole('link', { name: /Open shells/ }).waitFor();
    await page.goto(`${page.url().split('#')[0]}#/terminal/shells`);
    if (tmux) await page.getByRole('dialog').getByRole('button', { name: 'Close' }).waitFor();
    else await page.getByText('No shell is open at home.').waitFor();
    await expectUsable(page);
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
    await shows(page, /^ready>$/m);
    await expect.poll(() => new URL(page.url()).hash).toBe('#/terminal');
  });

  it('has the keys in one row that scrolls, with 24 lines above it on a phone', async () => {
    const { page } = await openTerminal();
    await page.getByRole('textbox', { name: /^Shell 1/ }).focus();
    await page.keyboard.type('clear; stty size\n');
    await expect.poll(async () => Number(/^(\d+) \d+$/m.exec(await screen(page))?.[1])).toBeGreaterThanOrEqual(24);
    const heights = await page.evaluate(() => {
      const row = document.querySelector('.keys')?.getBoundingClientRect();
      const strip = document.querySelector('.key-strip') as HTMLElement;
      return { row: row?.height ?? 0, scrolls: strip.scrollWidth > strip.clientWidth };
    });
    expect(heights.row).toBeLessThan(52);
    expect(heights.scrolls).toBe(true);
    await expectUsable(page);
    await picture(page, 'keys');
    await page.keyboard.type("cat -v; echo d'o'ne\n");
    for (const name of ['F1', 'F5', 'F12', 'Left arrow', 'Up arrow', 'Shift', 'F2', 'End']) await key(page, name).tap();
    await page.keyboard.press('Enter');
    await shows(page, /^\^\[OP\^\[\[15~\^\[\[24~\^\[\[D\^\[\[A\^\[\[1;2Q\^\[\[(F|4~)$/m);
    await key(page, 'Ctrl-C').tap();
    await shows(page, /\^C\n(done\n)?ready>$/);
    // An arrow that is held down repeats.
    await page.keyboard.type('clear; echo u"p"; cat -v\n');
    await shows(page, /^up$/m);
    const arrow = await key(page, 'Down arrow').boundingBox();
    if (!arrow) throw new Error('no arrow');
    const devtools = await page.context().newCDPSession(page);
    const touchPoints = [{ x: arrow.x + 20, y: arrow.y + 20 }];
    await devtools.send('Input.dispatchTouchEvent', { type: 'touchStart', touchPoints });
    await shows(page, /(\^\[\[B){5}/);
    await devtools.send('Input.dispatchTouchEvent', { type: 'touchEnd', touchPoints: [] });
    await key(page, 'Ctrl-C').tap();
    await shows(page, /ready>$/);
    const count = (await screen(page)).split('^[[B').length;
    await key(page, 'Down arrow').tap();
    expect((await screen(page)).split('^[[B').length).toBe(count);
  });

  it('has keys of the person’s own, which the browser keeps', async () => {
    const { page } = await openTerminal();
    await key(page, 'Own keys').tap();
    await page.getByLabel('Keys, with spaces between them').fill('Alt-. echo\\sown\\n Ctrl-Left');
    await expectUsable(page);
    await picture(page, 'own-keys');
    await page.getByRole('button', { name: 'Save' }).click();
    await key(page, 'echo\\sown\\n').tap();
    await shows(page, /^own\nready>$/m);
    await page.reload();
    await page
      .getByText(/^Connected/)
      .first()
      .waitFor();
    await key(page, 'Ctrl-Left').waitFor();
    // Ctrl-Left in the shell goes one word back.
    await shows(page, /ready>$/);
    await page.getByRole('textbox', { name: /^Shell 1/ }).focus();
    await page.keyboard.type('echo xb');
    await key(page, 'Ctrl-Left').tap();
    await page.keyboard.type('a');
    await page.keyboard.press('Enter');
    await shows(page, /^axb$/m);
  });

  it('has no key row where there is a real keyboard', async () => {
    const { page } = await openTerminal({ device: 'desktop' });
    expect(await page.locator('.keys').isVisible()).toBe(false);
    await expectAccessible(page);
    await picture(page, 'terminal-desktop');
  });

  it('draws 10,000 lines a second without losing one, and answers meanwhile', TIMED, async () => {
    const { page } = await openTerminal();
    await page.getByRole('textbox', { name: /^Shell 1/ }).focus();
    // Each tenth of a second a thousand lines.
    const lines = 'for ((n = 0; n < 50; n++)); do seq $((n * 1000 + 1)) $((n * 1000 + 1000)); sleep 0.1; done';
    await page.evaluate(() => {
      const gaps: number[] = [];
      let last = performance.now();
      const frame = (now: number) => {
        gaps.push(now - last);
        last = now;
        requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
      Object.assign(globalThis, { gaps });
    });
    const began = performance.now();
    await page.keyboard.type(`time (${lines}); echo e'n'd\n`);
    // A tap in the middle of it.
    await page.waitForTimeout(1_500);
    const tapped = performance.now();
    await page.getByRole('button', { name: 'More' }).tap();
    await page.getByRole('dialog').waitFor();
    const answered = performance.now() - tapped;
    await picture(page, 'flood');
    await page.getByRole('button', { name: 'Close' }).tap();
    await shows(page, /^50000\n\nreal/m);
    await shows(page, /^end\nready>$/m);
    const took = performance.now() - began;
    const gaps = await page.evaluate(() =>
      (globalThis as unknown as { gaps: number[] }).gaps.toSorted((a, b) => b - a),
    );
    process.stderr.write(
      `50,000 lines in ${Math.round(took)} ms; a tap took ${Math.round(answered)} ms; longest frame ${Math.round(gaps[0] ?? 0)} ms\n`,
    );
    expect(took).toBeLessThan(15_000);
    expect(answered).toBeLessThan(2_000);
    expect(gaps[0]).toBeLessThan(1_000);
  });
});
