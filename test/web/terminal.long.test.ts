import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connected, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, type PageOptions, smallTargets } from '../support/browser.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { TIMED, TIMEOUT } from '../support/limits.ts';
import { hasProgram, startTerminalRelay } from '../support/terminal.ts';

const tmux = hasProgram('tmux');
if (!tmux) process.stderr.write('SKIPPED: no tmux here, the terminal of the app is tested without it\n');

describeInBrowser('the terminal of the app (contract 09 §1)', ({ open }) => {
  let relay: Awaited<ReturnType<typeof startTerminalRelay>>;
  beforeAll(async () => {
    relay = await startTerminalRelay({ tmux });
  });
  afterAll(() => relay?.stop());

  /** Opens the app on its terminal, with a shell that waits for input. */
  async function openTerminal({ port, ...options }: PageOptions & { port?: number } = {}) {
    const opened = await open(options);
    const { page } = opened;
    const code = await webCode(relay);
    await page.goto(`http://localhost:${port ?? relay.port}/app/#code=${code}`);
    await connected(page);
    await page.getByRole('link', { name: 'Terminal' }).click();
    await shows(page, /^ready>$/m);
    await field(page).focus();
    return opened;
  }

  const field = (page: Page, shell = 1) => page.getByRole('textbox', { name: new RegExp(`^Shell ${shell}`) });
  const key = (page: Page, name: string | RegExp) =>
    page.locator('.keys').getByRole('button', { name, exact: typeof name === 'string' });
  const screen = (page: Page): Promise<string> =>
    page.evaluate(() =>
      [...document.querySelectorAll('.pane:not([hidden]) .xterm-rows > div')]
        .map((row) => (row.textContent ?? '').replaceAll('\u00a0', ' ').trimEnd())
        .join('\n')
        .trimEnd(),
    );
  const shows = (page: Page, what: RegExp) => expect.poll(() => screen(page), { timeout: TIMEOUT }).toMatch(what);
  /** Where the cursor is, in pixels from the top of the window, and how high the window is. */
  const cursor = (page: Page) =>
    page.evaluate(() => ({
      bottom: document.querySelector('.pane:not([hidden]) .xterm-cursor')?.getBoundingClientRect().bottom ?? Infinity,
      height: window.visualViewport?.height ?? 0,
    }));

  it('types, and the key row has the keys that a phone lacks', async () => {
    const { page } = await openTerminal();
    await page.keyboard.type("cat -v; echo d'o'ne\n");
    const press = async (...names: string[]) => {
      for (const name of names) await key(page, name).tap();
    };
    await press('Esc', 'Tab', 'Shift', 'Tab', 'Up arrow', 'Ctrl', 'Right arrow', 'Home', 'PgDn', '|', '/', '-', '~');
    await page.keyboard.press('Enter');
    await shows(page, /^\^\[\s*\^\[\[Z\^\[\[A\^\[\[1;5C\^\[\[(H|1~)\^\[\[6~\|\/-~$/m);
    // Locked by a second tap, it stays until a third one.
    await press('Alt');
    await key(page, 'Alt, for one key').tap();
    await page.keyboard.type('xy');
    await key(page, 'Alt, locked').tap();
    await page.keyboard.type('z\n');
    await shows(page, /^\^\[x\^\[yz$/m);
    await press('Ctrl');
    await page.keyboard.type('c');
    await shows(page, /\^C\n(done\n)?ready>$/);
    await press('Ctrl');
    await page.keyboard.type('r');
    await shows(page, /\(reverse-i-search\)/);
    await press('Esc');
    await expect.poll(() => page.evaluate(() => document.activeElement?.tagName)).toBe('TEXTAREA');
  });

  it('issue 25: keeps what is typed before the shell is open', async () => {
    const { page } = await open({ device: 'desktop' });
    let letGo = () => {};
    const isTyped = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    let isAsked = false;
    await page.routeWebSocket(/\/ws$/, (socket) => {
      const server = socket.connectToServer();
      let answers = Promise.resolve();
      socket.onMessage((data) => {
        isAsked ||= JSON.parse(String(data)).type === 'terminal.attach';
        server.send(data);
      });
      server.onMessage((data) => {
        const isHeld = isAsked;
        answers = answers.then(() => (isHeld ? isTyped : undefined)).then(() => socket.send(data));
      });
    });
    await page.goto(`http://localhost:${relay.port}/app/#code=${await webCode(relay)}`);
    await connected(page);
    await page.getByRole('link', { name: 'Terminal' }).click();
    await expect.poll(() => isAsked).toBe(true);
    await field(page).focus();
    await page.keyboard.type("echo 'ear''ly'\n");
    letGo();
    await shows(page, /^early$/m);
  });

  it('takes composed, corrected and dictated text exactly once', async () => {
    const { page } = await openTerminal();
    const { send } = await devtools(page);
    const compose = (text: string) =>
      send('Input.imeSetComposition', { text, selectionStart: text.length, selectionEnd: text.length });
    await page.keyboard.type('cat > typed\n');
    for (const text of ['h', 'he', 'hel', 'hell', 'hello']) await compose(text);
    await send('Input.insertText', { text: 'hello' });
    await page.keyboard.press('Enter');
    // An autocorrection while composing.
    for (const text of ['t', 'te', 'teh', 'the']) await compose(text);
    await send('Input.insertText', { text: 'the ' });
    for (const text of ['に', 'にほ', 'にほん', '日本']) await compose(text);
    await shows(page, /^the$/m);
    await expect.poll(() => page.locator('.preview').textContent()).toBe('日本');
    await send('Input.insertText', { text: '日本' });
    await page.keyboard.press('Enter');
    // Dictation inserts words.
    for (const text of ['list ', 'these ', 'files']) await send('Input.insertText', { text });
    await page.keyboard.press('Enter');
    await page.keyboard.type('abc');
    for (let time = 0; time < 3; time++) await page.keyboard.press('Backspace');
    await page.keyboard.type('é🎈\n');
    await page.keyboard.press('Control+d');
    await page.keyboard.type('clear; cat typed\n');
    await shows(page, /^hello\nthe 日本\nlist these files\né🎈\nready>$/m);
  });

  it('shows 1,000 lines, colours of any kind, and finds a text', async () => {
    const { page } = await openTerminal({
      device: 'desktop',
      context: { permissions: ['clipboard-read', 'clipboard-write'] },
    });
    await page.keyboard.type("seq 1 1000; printf '\\e[38;2;250;120;0mora\\e[0mnge\\n'\n");
    await shows(page, /^999\n1000\norange\nready>$/m);
    await page.getByRole('button', { name: 'Search' }).click();
    await page.getByRole('searchbox').fill('ORANGE');
    const copy = page.getByRole('button', { name: 'Copy' });
    await copy.waitFor();
    // As when a keyboard appears.
    const rows = page.locator('.xterm-rows > div');
    const before = await rows.count();
    await page.setViewportSize({ width: 1280, height: 400 });
    await expect.poll(() => rows.count()).toBeLessThan(before);
    await copy.click();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe('orange');
    await page.getByRole('searchbox').fill('lemon');
    await page.getByText('Not on the screen').waitFor();
    await expectAccessible(page);
    await page.keyboard.press('Escape');
    await expect.poll(() => page.evaluate(() => document.activeElement?.tagName)).toBe('TEXTAREA');
  });

  it('stops a flood within 200 ms of Ctrl-C', TIMED, async () => {
    const { page } = await openTerminal();
    await page.keyboard.type('yes\n');
    await shows(page, /^y\ny\ny$/m);
    const took = await page.evaluate(async () => {
      let resolve: (took: number) => void = () => {};
      const promise = new Promise<number>((done) => {
        resolve = done;
      });
      const rows = document.querySelector('.xterm-rows') as Element;
      const began = performance.now();
      const look = () => /ready>/.test(rows.lastElementChild?.textContent ?? '') && resolve(performance.now() - began);
      const observer = new MutationObserver(look);
      observer.observe(rows, { subtree: true, childList: true, characterData: true });
      const keys = [...document.querySelectorAll<HTMLElement>('.keys button')];
      keys.find(({ textContent }) => textContent === 'Ctrl')?.click();
      document.execCommand('insertText', false, 'c');
      return promise;
    });
    expect(took).toBeLessThan(200);
  });

  it('has the screen back within a second of a cut', TIMED, async () => {
    const proxy = await startFlakyProxy({ port: relay.port, seed: 1, faults: ['none'] });
    try {
      const opened = await openTerminal({ port: proxy.port });
      const { page } = opened;
      opened.allow(/WebSocket/);
      // A connection that has just been made waits before it is made again.
      await page.keyboard.type("sleep 3; echo b'e'fore; sleep 1000\n");
      await shows(page, /^before$/m);
      const restored = page.waitForEvent('websocket').then(
        (socket) =>
          new Promise<number>((resolve) =>
            socket.on('framereceived', ({ payload }) => {
              if (String(payload).includes('"terminal.output"')) resolve(performance.now());
            }),
          ),
      );
      const began = performance.now();
      proxy.strike('cut');
      expect((await restored) - began).toBeLessThan(1_000);
      await shows(page, /^before$/m);
      await page.keyboard.press('Control+c');
      await shows(page, /^before\n\^C\nready>$/m);
    } finally {
      await proxy.close();
    }
  });

  it('has four shells, which are left and ended on request', async () => {
    const { page } = await openTerminal();
    await page.getByRole('tab', { name: 'Shell 4' }).click();
    await shows(page, /^ready>$/m);
    await page.keyboard.type('echo four\n');
    await shows(page, /^four$/m);
    await page.getByRole('button', { name: 'More' }).click();
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    await page.getByRole('button', { name: /^Detach/ }).click();
    await page.getByText('Detached. The shell keeps running at home.').waitFor();
    await page.getByRole('button', { name: 'Attach again' }).click();
    await shows(page, /^four$/m);
    await page.getByRole('button', { name: 'More' }).click();
    await page.getByRole('button', { name: 'End the shell' }).click();
    await expectAccessible(page);
    await page.getByRole('dialog').getByRole('button', { name: 'End the shell' }).click();
    await page.getByText('The shell has ended.').waitFor();
    await expectAccessible(page);
    await page.getByRole('button', { name: 'New shell' }).click();
    await shows(page, /^ready>$/m);
    await page.getByRole('tab', { name: 'Shell 4' }).press('ArrowRight');
    await page.keyboard.press('Enter');
    // The prompt of the other shell looks the same.
    await expect.poll(() => page.getByRole('tab', { name: 'Shell 1' }).getAttribute('aria-selected')).toBe('true');
    await shows(page, /^ready>$/m);
    // The keyboard leaves a terminal, whose Tab belongs to the shell.
    await field(page).focus();
    await page.keyboard.press('Control+F6');
    await expect.poll(() => page.evaluate(() => document.activeElement?.id)).toBe('tab-1');
  });

  it('keeps the cursor in sight above an on-screen keyboard, and is accessible', async () => {
    const { page } = await openTerminal();
    await page.keyboard.type('seq 1 100\n');
    await shows(page, /^100\nready>$/m);
    expect(await smallTargets(page)).toEqual([]);
    await expectAccessible(page);
    const size = page.viewportSize() ?? { width: 412, height: 839 };
    await page.setViewportSize({ ...size, height: 420 });
    await expect.poll(() => page.getByRole('navigation').isVisible()).toBe(false);
    await shows(page, /^100\nready>$/m);
    await expect.poll(async () => (await cursor(page)).bottom).toBeLessThan(420 - 44);
    // tmux tells its programs a little later.
    await page.keyboard.type('until (( `stty size | cut -c1-2` < 20 )); do sleep 0.1; done; stty size\n');
    await shows(page, /^1\d \d+$/m);
    await page.setViewportSize(size);
    await expect.poll(() => page.getByRole('navigation').isVisible()).toBe(true);
  });

  it('follows fingers: one scrolls, one that rests selects, two change the text size', async () => {
    const { page } = await openTerminal({ context: { permissions: ['clipboard-read', 'clipboard-write'] } });
    const { touch } = await devtools(page);
    await page.keyboard.type('echo several-words here\n');
    await shows(page, /^several-words here$/m);
    const box = await page.locator('.pane:not([hidden]) .xterm-screen').boundingBox();
    if (!box) throw new Error('no screen');
    const height = await page
      .locator('.pane:not([hidden]) .xterm-rows > div')
      .first()
      .evaluate((row) => row.clientHeight);
    const word = { x: box.x + 30, y: box.y + height * 1.5 };
    await touch('touchStart', [word]);
    await page.getByRole('button', { name: 'Copy' }).waitFor();
    await touch('touchEnd', []);
    await page.getByRole('button', { name: 'Copy' }).tap();
    await page.getByText('Copied').waitFor();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe('several-words');
    await key(page, 'Paste').tap();
    await shows(page, /^ready> several-words$/m);
    const [x, y] = [box.x + 200, box.y + 200];
    await page.getByRole('tab', { name: 'Shell 1' }).focus();
    await page.touchscreen.tap(x, y);
    await expect.poll(() => page.evaluate(() => document.activeElement?.tagName)).toBe('TEXTAREA');
    await page.keyboard.press('Control+c');
    // Ctrl-C drops what is typed before the shell has seen it.
    await shows(page, /\^C\nready>$/);
    await page.keyboard.type('seq 1 300\n');
    await shows(page, /^300\nready>$/m);
    await touch('touchStart', [{ x, y }]);
    for (let moved = 20; moved <= 300; moved += 20) await touch('touchMove', [{ x, y: y + moved }]);
    await touch('touchEnd', []);
    await shows(page, /^250$/m);
    await touch('touchStart', [
      { x: x - 50, y },
      { x: x + 50, y },
    ]);
    await touch('touchMove', [
      { x: x - 75, y },
      { x: x + 75, y },
    ]);
    await touch('touchEnd', []);
    await page.getByRole('button', { name: 'More' }).tap();
    await page.getByText('Text size: 21').waitFor();
    await page.getByRole('button', { name: 'Smaller' }).tap();
    await page.getByText('Text size: 20').waitFor();
    await page.getByRole('switch', { name: 'Screen reader' }).tap();
    await page.getByRole('button', { name: 'Close' }).tap();
    await page
      .locator('.xterm-accessibility-tree')
      .getByText(/^\d{3}$/)
      .first()
      .waitFor();
    await expectAccessible(page);
  });
});

/** The browser's own input: what no script of a page could send. */
async function devtools(page: Page) {
  const session = await page.context().newCDPSession(page);
  const send = (method: string, params: Record<string, unknown>) =>
    session.send(method as 'Input.insertText', params as never);
  return {
    send,
    touch: (type: string, touchPoints: { x: number; y: number }[]) =>
      send('Input.dispatchTouchEvent', { type, touchPoints: touchPoints.map((point, id) => ({ ...point, id })) }),
  };
}
