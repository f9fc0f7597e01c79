import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { pairPage } from '../support/app.ts';
import { describeInBrowser, expectUsable, ROUTED } from '../support/browser.ts';
import { startNodeTarget, type Target } from '../support/relay.ts';

/** Pictures of the screens are written there. */
const { SCREENS } = process.env;
const LONG = `quarterly-report-${'of-the-whole-household-'.repeat(4)}2031-final-v2.txt`;

describeInBrowser('folders of the relay’s machine in the app (contract 04 §2)', ({ open }) => {
  let relay: Target;
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'svc-relay-test-'));
    await mkdir(join(folder, 'plans/empty'), { recursive: true });
    await writeFile(join(folder, 'plans', LONG), 'the whole report');
    await writeFile(join(folder, 'notes.md'), '# Notes');
    await symlink('/etc', join(folder, 'away'));
    relay = await startNodeTarget({ env: { RELAY_TERMINAL_TMUX: '0', RELAY_MEDIA_ALLOWED_ROOTS: folder } });
  });
  afterAll(async () => {
    await relay?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  async function openFiles(page: Page) {
    await pairPage(page, relay);
    await page.evaluate(() => {
      location.hash = '#/files';
    });
    const recent = page.getByRole('region', { name: 'Recent files of the agent' });
    await recent.getByRole('button', { name: 'notes.md' }).waitFor();
    return { recent, folders: page.getByRole('region', { name: 'Folders' }) };
  }

  it('leads from the allowed folders to a file, and has the recent ones', async () => {
    const { page } = await open({ context: { viewport: { width: 390, height: 844 } } });
    const { recent, folders } = await openFiles(page);
    const row = recent.getByRole('button').filter({ hasText: LONG });
    // In two lines, the second of which is the end of the name.
    const lines = row.locator('.file-name > span');
    expect(await lines.allTextContents()).toEqual([LONG.slice(0, -20), LONG.slice(-20)]);
    const [first, second] = await Promise.all([lines.first().boundingBox(), lines.last().boundingBox()]);
    expect(second?.y).toBeGreaterThan((first?.y ?? 0) + 10);
    expect((second?.x ?? 0) + (second?.width ?? 0)).toBeLessThan(390);
    expect(await lines.last().evaluate((line) => line.scrollWidth <= line.clientWidth)).toBe(true);
    await expectUsable(page);
    if (SCREENS) await page.screenshot({ path: `${SCREENS}/folders.png`, fullPage: true });

    const name = folder.slice(folder.lastIndexOf('/') + 1);
    await folders.getByRole('button', { name: new RegExp(name) }).click();
    await folders.getByRole('button', { name: /^plans/ }).waitFor();
    expect(await folders.getByRole('listitem').count()).toBe(2);
    await folders.getByRole('button', { name: /^plans/ }).click();
    await folders.getByRole('button').filter({ hasText: LONG }).click();
    await page.getByRole('dialog').getByText('16 B').waitFor();
    await expectUsable(page);
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
    await folders.getByRole('button', { name: /^empty/ }).click();
    await folders.getByText('Nothing is in this folder.').waitFor();
    await folders.getByRole('button', { name: 'Up' }).click();
    // Until then, the button leads up from the folder that is still shown.
    await folders.getByRole('button', { name: /^empty/ }).waitFor();
    await folders.getByRole('button', { name: 'Up' }).click();
    await folders.getByRole('button', { name: /^notes.md/ }).waitFor();
    await folders.getByRole('button', { name: 'Up' }).click();
    await folders.getByRole('button', { name: new RegExp(name) }).waitFor();
    if (SCREENS) await page.screenshot({ path: `${SCREENS}/folders-top.png`, fullPage: true });
  });

  it('says why a folder does not open, and opens it at the next attempt', async () => {
    const { page, allow } = await open(ROUTED);
    allow(/503/);
    const { recent, folders } = await openFiles(page);
    await page.route(/media\/(folder\?path=|recent)/, (route) => route.fulfill({ status: 503 }));
    await folders.getByRole('button', { name: new RegExp(folder.slice(folder.lastIndexOf('/') + 1)) }).click();
    await recent.getByRole('button', { name: 'Refresh' }).click();
    for (const list of [folders, recent]) await list.getByRole('button', { name: 'Retry' }).waitFor();
    await expectUsable(page);
    await page.unrouteAll();
    for (const list of [folders, recent]) {
      await list.getByRole('button', { name: 'Retry' }).click();
      await list.getByRole('button', { name: /^notes.md/ }).waitFor();
      await expect.poll(() => list.getByRole('button', { name: 'Retry' }).count()).toBe(0);
    }
  });
});
