import { existsSync } from 'node:fs';
import axe from 'axe-core';
import { type Browser, type BrowserContextOptions, chromium, devices, type Locator, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect } from 'vitest';
import { TIMEOUT } from './limits.ts';

const CHROMIUM = '/usr/bin/chromium';
export const hasBrowser: boolean = existsSync(CHROMIUM);
if (!hasBrowser) process.stderr.write('SKIPPED: there is no chromium here\n');

/** What a browser says of requests to a server that is killed under them. */
export const KILLED =
  /ERR_(?:CONNECTION_\w+|EMPTY_RESPONSE|INCOMPLETE_CHUNKED\w*|CONTENT_LENGTH_MISMATCH|SOCKET_NOT_CONNECTED)/;

/** Console messages of a page whose relay restarts. It gets 426 or 503 when it asks why its socket was refused. */
export const RESTARTED = /WebSocket|ERR_|status of (?:401|426|503)|fetching the script/;

/** How a page is shown. */
export const DEVICES = {
  phone: devices['Pixel 7'],
  desktop: { viewport: { width: 1280, height: 800 } },
} as const satisfies Record<string, BrowserContextOptions>;

export interface PageOptions {
  device?: keyof typeof DEVICES;
  context?: BrowserContextOptions;
}

/** For pages with `page.route`, which does not get the requests of a page that has a service worker. */
export const ROUTED: PageOptions = { context: { serviceWorkers: 'block' } };

export interface TestPage {
  page: Page;
  /** Lets a problem of this page pass, such as a socket that a case has cut. */
  allow(pattern: RegExp): void;
  /** Opens another tab of the same browser. */
  tab(): Promise<Page>;
}

export interface TestBrowser {
  /** A window of its own, with nothing stored. It is closed after the case, which fails for any problem in it. */
  open(options?: PageOptions): Promise<TestPage>;
}

/**
 * Declares cases with one browser for all of them. After a case, an error of a page, a report of its content security
 * policy, or a request to another origin than that of the page fails it.
 */
export function describeInBrowser(name: string, declare: (browser: TestBrowser) => void, args: string[] = []): void {
  describe.skipIf(!hasBrowser)(name, () => {
    let browser: Browser;
    const endings: ((hasFailed: boolean) => Promise<string[]>)[] = [];
    beforeAll(async () => {
      // With a window, every step waits long enough to be seen.
      const shown = process.env.HEADED ? { headless: false, slowMo: 300 } : {};
      browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', ...args], ...shown });
    });
    afterAll(() => browser?.close());
    afterEach(async ({ task }) => {
      const hasFailed = task.result?.state === 'fail';
      const problems = (await Promise.all(endings.splice(0).map((end) => end(hasFailed)))).flat();
      expect(problems, 'problems of the pages').toEqual([]);
    });

    async function open({ device = 'phone', context: options = {} }: PageOptions = {}): Promise<TestPage> {
      const context = await browser.newContext({ ...DEVICES[device], ...options });
      context.setDefaultTimeout(TIMEOUT);
      const problems: string[] = [];
      const allowed: RegExp[] = [];
      const watch = (page: Page) => {
        page.on('pageerror', (error) => problems.push(`error: ${error.message}`));
        page.on('console', (message) => message.type() === 'error' && problems.push(`console: ${message.text()}`));
      };
      context.on('page', watch);
      context.on('request', (request) => {
        const origin = new URL(request.url()).origin;
        // A request of a service worker has no page.
        const own = request.serviceWorker()?.url() ?? (request.isNavigationRequest() ? '' : request.frame().url());
        if (own !== '' && origin !== 'null' && new URL(own).origin !== origin) problems.push(`request to ${origin}`);
      });
      const page = await context.newPage();
      endings.push(async (hasFailed) => {
        const shown = hasFailed ? await Promise.all(context.pages().map(shownBy)) : [];
        await context.close();
        return [...problems.filter((problem) => !allowed.some((pattern) => pattern.test(problem))), ...shown];
      });
      return { page, allow: (pattern) => allowed.push(pattern), tab: () => context.newPage() };
    }

    declare({ open });
  });
}

/** The text that a page shows, for the report of a failed case. */
const shownBy = async (page: Page): Promise<string> => {
  const text = await page.locator('body').innerText({ timeout: 2_000 }).catch(String);
  return `shown at ${page.url()}: ${text.replace(/\s+/g, ' ').slice(0, 1_000)}`;
};

/** Checks a page with axe in both themes, and that 320 pixels are enough for it without sideways scrolling. */
export async function expectAccessible(page: Page): Promise<void> {
  const size = page.viewportSize();
  for (const [colorScheme, width] of [
    ['light', size?.width ?? 412],
    ['dark', 320],
  ] as const) {
    await page.setViewportSize({ width, height: size?.height ?? 800 });
    await page.emulateMedia({ colorScheme });
    // The page's policy allows no foreign script; what playwright evaluates is not subject to it.
    await page.evaluate(axe.source);
    const found = await page.evaluate(async () => {
      const { violations } = await (globalThis as unknown as { axe: typeof axe }).axe.run();
      const { scrollWidth, clientWidth } = document.documentElement;
      return {
        violations: violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html.slice(0, 200))]),
        excess: scrollWidth - clientWidth,
      };
    });
    expect(found, `${colorScheme}, ${width} pixels`).toEqual({ violations: [], excess: 0 });
  }
  await page.emulateMedia({ colorScheme: null });
  if (size) await page.setViewportSize(size);
}

/**
 * Elements that a finger has to hit and that are smaller than 44 pixels. Of a choice or a file, that is the label. Links
 * within a sentence are as high as its line (WCAG 2.5.8).
 */
export const smallTargets = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const choice = 'input:is([type=radio], [type=checkbox], [type=file])';
    const targets = `button, a[href], select, textarea, summary, input:not(${choice}), label:has(${choice})`;
    return [...document.querySelectorAll(targets)]
      .filter((element) => (element as HTMLElement).checkVisibility())
      .filter((element) => !(element.matches('a') && getComputedStyle(element).display === 'inline'))
      .filter((element) => !element.matches('.xterm-helper-textarea'))
      .filter((element) => {
        const { width, height } = element.getBoundingClientRect();
        return width < 43.5 || height < 43.5;
      })
      .map((element) => element.outerHTML.slice(0, 150));
  });

/** True if a field sends by the Enter that confirms an input method's word: in Safari, after the composition has ended. */
export const sendsByConfirming = (field: Locator): Promise<boolean> =>
  field.evaluate((element) => {
    const init = { key: 'Enter', keyCode: 229, bubbles: true, cancelable: true };
    return !element.dispatchEvent(new KeyboardEvent('keydown', init));
  });

/** Checks a page, or the dialog above it, with axe, at 320 pixels, and for fingers. */
export async function expectUsable(page: Page): Promise<void> {
  await expectAccessible(page);
  expect(await smallTargets(page)).toEqual([]);
}
