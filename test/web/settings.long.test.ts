import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connected, PLAIN, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, type PageOptions, smallTargets } from '../support/browser.ts';
import { type FakeApi, startFakeApi } from '../support/fake-api-server.ts';
import { startNodeTarget, type Target } from '../support/relay.ts';

const DAY = 86_400;

describeInBrowser(
  'the settings of the app (spec 2.1, 8)',
  ({ open }) => {
    let relay: Target;
    let api: FakeApi;
    const ends: (() => void)[] = [];
    beforeAll(async () => {
      api = await startFakeApi((end) => ends.push(end));
      relay = await startNodeTarget({
        env: { ...PLAIN, RELAY_WEBAPI_URL: api.url, RELAY_PROVIDER_USAGE_ENABLED: '1' },
      });
    });
    afterAll(async () => {
      await relay?.stop();
      for (const end of ends) end();
    });

    const app = (host = 'localhost') => `${relay.url.replace('127.0.0.1', host)}/app/`;

    async function newCode(policy: Record<string, unknown> = {}): Promise<string> {
      const code = await webCode(relay, policy);
      return code;
    }

    async function openAt(screen: string, options?: PageOptions) {
      const opened = await open(options);
      await opened.page.goto(`${app()}#code=${await newCode()}`);
      await connected(opened.page);
      await opened.page.goto(`${app()}#/${screen}`);
      return opened;
    }

    const stored = (page: Page) => page.evaluate(() => JSON.parse(localStorage.getItem('svc settings') ?? '{}'));

    async function check(page: Page): Promise<void> {
      await expectAccessible(page);
      expect(await smallTargets(page)).toEqual([]);
    }

    it('shows each with its key, range and default, or why a browser cannot', async () => {
      const { page } = await openAt('settings');
      await page.getByText('What only the app of a phone can set').click();
      // Words first (issue 25 §3.11).
      expect(await page.locator('main').textContent()).not.toMatch(/show_reasoning|default: on|insecure_ack_seen/);
      await page.getByLabel('Details').check();
      const text = (await page.locator('main').textContent()) ?? '';
      const shown = [
        'theme · default: As the system',
        'dynamic_colors · default: on',
        'language · default: As the browser',
        'show_reasoning · default: on',
        'show_token_usage · default: on',
        'tool_display · default: Detailed',
        'max_inbound_mb · 5 to 100 · default: 25',
        'auto_fetch_mb · 0 to 50 · default: 2',
        'auto_fetch_on_cellular · default: off',
        'pair_ttl_seconds · default: as the host decides',
        'insecure_ack_seen: false',
        'insecure_reason: –',
        'all_insecure_pair_ack_seen: false',
        'last_session',
        'onboarding_complete',
        'last_seen_version',
        'Relay URL',
        'Relay session token',
        'tofu_pins',
        'API Server URL',
        'API Key',
        'Dashboard URL',
        'Dashboard session cookies',
        'bridge_trusted_destructive_verbs',
        'notification_triggers_enabled',
        'notification_triggers_kill_switch',
        'notification_trigger_rules_json',
        'notification_trigger_activity_log_json',
        'Share phone status',
        'Personality',
        'Cached media cap',
      ];
      expect(shown.filter((one) => !text.includes(one))).toEqual([]);
      await check(page);
    });

    it('§2.1: takes the hue of the system unless told otherwise, with enough contrast', async () => {
      const { page } = await openAt('settings');
      const accent = () =>
        page.evaluate(() => getComputedStyle(document.documentElement).getPropertyValue('--accent').trim());
      expect(await accent()).toContain('AccentColor');
      await page.getByLabel('Dynamic colours').uncheck();
      await expect.poll(accent).not.toContain('AccentColor');
      await page.reload();
      await page.getByLabel('Dynamic colours').waitFor();
      expect(await accent()).not.toContain('AccentColor');
    });

    it('§2.1: drops stored values that no setting has, and keeps the others', async () => {
      const { page } = await openAt('settings');
      await page.evaluate(() =>
        localStorage.setItem(
          'svc settings',
          JSON.stringify({ theme: 'pink', max_inbound_mb: 9999, tool_display: 'compact', auto_fetch_mb: '7' }),
        ),
      );
      await page.reload();
      expect(await page.getByLabel('Tool calls').inputValue()).toBe('compact');
      expect(await page.getByLabel('Theme').inputValue()).toBe('system');
      expect(await page.getByLabel('Largest file to load, MB').inputValue()).toBe('25');
      expect(await page.getByLabel('Load automatically up to, MB').inputValue()).toBe('2');
    });

    it('§2.1: remembers the introduction, the version and the last conversation', async () => {
      api.onStream(async (exchange) => {
        exchange.open();
        await exchange.event({ type: 'assistant.delta', delta: 'Hello.' });
        await exchange.event({ type: 'run.completed' });
        exchange.end();
      });
      const { page } = await openAt('home');
      await page.getByText('This browser is paired.').waitFor();
      await check(page);
      await page.getByRole('button', { name: 'Got it' }).click();
      await page.getByText('This browser is paired.').waitFor({ state: 'detached' });
      const version = (await stored(page)).last_seen_version;
      expect(version).toMatch(/^\d+\.\d+\.\d+/);

      await page.goto(`${app()}#/chat/new`);
      await page.getByRole('textbox', { name: 'Message' }).fill('Hi');
      await page.getByRole('button', { name: 'Send' }).click();
      await page.getByText('Hello.').waitFor();
      await expect.poll(async () => (await stored(page)).last_session).toBe('s1');
      await page.goto(`${app()}#/chat`);
      await page.getByRole('link', { name: 'Continue the last conversation' }).click();
      await expect.poll(() => page.url()).toMatch(/#\/chat\/s1$/);

      await page.evaluate(() => {
        const settings = JSON.parse(localStorage.getItem('svc settings') ?? '{}');
        localStorage.setItem('svc settings', JSON.stringify({ ...settings, last_seen_version: '0.9.0' }));
      });
      await page.goto(`${app()}#/home`);
      await page.reload();
      const news = page.getByText(`This page was updated from version 0.9.0 to ${version}.`);
      await news.waitFor();
      expect(await page.getByText('This browser is paired.').count()).toBe(0);
      await page.getByRole('button', { name: 'Close' }).click();
      await news.waitFor({ state: 'detached' });
      await expect.poll(async () => (await stored(page)).last_seen_version).toBe(version);
    });

    it('§2.1: measures the chats of this page, in memory alone', async () => {
      const usage = { input_tokens: 1200, output_tokens: 34, total_tokens: 1234 };
      let answers = 0;
      api.onStream(async (exchange) => {
        exchange.open();
        await exchange.event({ type: 'assistant.delta', delta: `Answer ${++answers}.` });
        if (answers === 2) await exchange.event({ type: 'error', message: 'out of tokens' });
        else await exchange.event({ type: 'run.completed', usage });
        exchange.end();
      });
      const { page } = await openAt('usage');
      const figure = (name: string) =>
        page.locator('dl.facts', { hasText: name }).locator(`dt:text-is("${name}") + dd`).first();
      await page.getByText('nothing measured yet').first().waitFor();
      await expect.poll(() => figure('Health latency').textContent()).toMatch(/^\d[\d.]* (?:ms|sec), median/);
      expect(await figure('Stream success rate').textContent()).toBe('nothing measured yet');

      await page.goto(`${app()}#/chat/new`);
      const say = async (text: string, number: number) => {
        await page.getByRole('textbox', { name: 'Message' }).fill(text);
        await page.getByRole('button', { name: 'Send' }).click();
        await page.getByText(`Answer ${number}.`).waitFor();
        await page.getByText('The agent is at work').waitFor({ state: 'detached' });
      };
      await say('One', 1);
      await page.getByText('1,234 tokens: 1,200 in, 34 out').waitFor();
      await say('Two', 2);
      await say('Three', 3);
      await expect.poll(() => page.getByText('1,234 tokens').count()).toBe(2);

      await page.goto(`${app()}#/usage`);
      await expect.poll(() => figure('Stream success rate').textContent()).toBe('67%: 2 of 3');
      expect(await figure('Token usage').textContent()).toBe('2,468 tokens: 2,400 in, 68 out');
      expect(await figure('Time to first token').textContent()).toMatch(/ of 3$/);
      expect(await figure('Completion time').textContent()).toMatch(/ of 2$/);
      await check(page);

      // Nothing of it is stored, and nobody is told.
      const kept = await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }));
      expect(kept).not.toMatch(/firstToken|1234|latency/);
      await page.reload();
      await expect.poll(() => figure('Stream success rate').textContent()).toBe('nothing measured yet');
      expect(await figure('Token usage').textContent()).toBe('nothing measured yet');

      await page.goto(`${app()}#/settings`);
      await page.getByLabel('Show token usage').uncheck();
      await page.goto(`${app()}#/chat/s1`);
      await page.getByText('Answer 1.').waitFor();
      await expect.poll(() => page.getByText('1,234 tokens').count()).toBe(0);
    });

    /** Seconds for which the newest session still lasts. */
    async function lifetime(): Promise<number> {
      const { devices } = (await (await relay.operator('/relay/devices')).json()) as {
        devices: { expires_at: number; created_at: number; connections: unknown[] }[];
      };
      const [newest] = devices.toSorted((a, b) => b.created_at - a.created_at);
      return (newest?.expires_at ?? 0) - Date.now() / 1000;
    }

    it('§8: the last chosen lifetime is used when the browser pairs, and shortens the session at once', async () => {
      const { page } = await openAt('settings');
      expect(await lifetime()).toBeGreaterThan(29 * DAY);
      await page.getByLabel('Lifetime of a session').selectOption('7 days');
      await page.getByRole('button', { name: 'Limit this session to it' }).click();
      await page.getByText('This session is now limited.').waitFor();
      await expect.poll(lifetime).toBeLessThan(7 * DAY + 60);

      await page.getByLabel('Lifetime of a session').selectOption('1 day');
      await page.goto(`${app()}#code=${await newCode()}`);
      await expect.poll(lifetime).toBeLessThan(DAY + 60);
      await connected(page);
    });

    it('§8: over plain http without a VPN, 7 days are preselected; the consent can be taken back', async () => {
      const { page } = await open();
      await page.goto(`${app('relay.test')}#code=${await newCode()}`);
      await page.getByLabel('I am at home, in my own network').check();
      await page.getByRole('button', { name: 'Continue without encryption' }).click();
      await connected(page);
      await expect.poll(lifetime).toBeLessThan(7 * DAY + 60);
      await page.goto(`${app('relay.test')}#/settings`);
      const consent = page.getByLabel('Allow plain connections');
      expect(await consent.isChecked()).toBe(true);
      await page.getByText('A passkey needs a secure page').waitFor();
      await page.getByText('A backup needs a secure page').waitFor();
      await check(page);
      await page.getByLabel('Details').check();
      await consent.uncheck();
      await page.getByText('insecure_ack_seen: false').waitFor();
      await expect
        .poll(() => stored(page))
        .toMatchObject({ insecure_ack_seen: false, insecure_reason: '', all_insecure_pair_ack_seen: false });
      await consent.check();
      await page.getByLabel('I am testing on this machine').check();
      await page.getByRole('button', { name: 'Continue without encryption' }).click();
      await page.getByText('insecure_reason: local_dev').waitFor();
      await connected(page);
    });

    /** Exports behind a passphrase, and resolves with the path of the file. */
    async function exported(page: Page, passphrase: string): Promise<string> {
      await page.getByLabel('Passphrase').fill(passphrase);
      const download = page.waitForEvent('download');
      await page.getByRole('button', { name: 'Export' }).click();
      return (await download).path();
    }

    it('a tab does not undo what another one has set meanwhile', async () => {
      const { page, tab } = await openAt('settings');
      const other = await tab();
      await other.goto(page.url());
      await other.getByLabel('Tool calls').waitFor();
      await page.getByLabel('Theme').selectOption('dark');
      await other.getByLabel('Tool calls').selectOption('off');
      await page.reload();
      await page.getByLabel('Theme').waitFor();
      expect(await page.getByLabel('Theme').inputValue()).toBe('dark');
      expect(await page.getByLabel('Tool calls').inputValue()).toBe('off');
    });

    it('§2.1: a backup replaces settings and pairing, which go on being renewed', async () => {
      const { page } = await openAt('settings');
      await page.getByLabel('Tool calls').selectOption('off');
      await page.getByLabel('Largest file to load, MB').fill('7');
      const deviceId = await page.locator('dt:has-text("Device ID") + dd').textContent();
      const file = await exported(page, 'correct horse');
      await page.goto('about:blank');

      const { page: other } = await openAt('settings');
      await other.getByLabel('Show reasoning').uncheck();
      const choose = async (passphrase: string) => {
        await other.getByLabel('Passphrase').fill(passphrase);
        await other.getByLabel('Import').setInputFiles(file);
      };
      await choose('another horse');
      await other.getByText('The passphrase is not that of this backup').waitFor();
      await choose('correct horse');
      const question = other.getByRole('dialog', { name: 'Replace settings and pairing?' });
      await question.waitFor();
      expect(await question.getByText('The pairing was made at').count()).toBe(0);
      await check(other);
      await question.getByRole('button', { name: 'Cancel' }).click();
      expect(await other.getByLabel('Tool calls').inputValue()).toBe('detailed');
      await choose('correct horse');
      await question.getByRole('button', { name: 'Replace' }).click();
      await other.getByText('Restored.').waitFor();
      await connected(other);
      // What the backup says replaces what was set here.
      await expect.poll(() => other.getByLabel('Tool calls').inputValue()).toBe('off');
      await expect.poll(() => other.getByLabel('Show reasoning').isChecked()).toBe(true);
      await expect.poll(() => other.getByLabel('Largest file to load, MB').inputValue()).toBe('7');
      await expect.poll(() => other.locator('dt:has-text("Device ID") + dd').textContent()).toBe(deviceId);

      // The relay renews it for this device: the session is over, and the refresh token is good.
      await other.evaluate(async () => {
        await new Promise<void>((resolve) => {
          const opening = indexedDB.open('svc');
          opening.onsuccess = () => {
            const place = opening.result.transaction('keep', 'readwrite').objectStore('keep');
            const reading = place.get('pairing /');
            reading.onsuccess = () => {
              const pairing = { ...reading.result.pairing, session_token: crypto.randomUUID() };
              place.put({ ...reading.result, pairing }, 'pairing /').onsuccess = () => resolve();
            };
          };
        });
      });
      await other.reload();
      await connected(other);
    });

    it('§2.1: refuses files that are no backup or were changed, and warns of a foreign relay', async () => {
      const { page } = await openAt('settings');
      await page.getByLabel('Passphrase').fill('correct horse');
      const give = (buffer: Buffer) =>
        page.getByLabel('Import').setInputFiles({ name: 'b.json', mimeType: 'application/json', buffer });
      await give(Buffer.from('{}'));
      await page.getByText('This file is no backup of this app.').waitFor();
      const file = await readFile(await exported(page, 'correct horse'), 'utf8');
      const changed = JSON.parse(file) as { data: string };
      await give(Buffer.from(JSON.stringify({ ...changed, data: `AAAA${changed.data.slice(4)}` })));
      await page.getByText('The passphrase is not that of this backup.').waitFor();

      const { page: elsewhere } = await open();
      await elsewhere.goto(`${app('relay.localhost')}#code=${await newCode()}`);
      await connected(elsewhere);
      await elsewhere.goto(`${app('relay.localhost')}#/settings`);
      await elsewhere.getByLabel('Passphrase').fill('correct horse');
      await elsewhere
        .getByLabel('Import')
        .setInputFiles({ name: 'b.json', mimeType: 'application/json', buffer: Buffer.from(file) });
      await elsewhere.getByText(/The pairing was made at ws:\/\/localhost:\d+\/ws\./).waitFor();
      await check(elsewhere);
    });
  },
  ['--host-resolver-rules=MAP relay.test 127.0.0.1, MAP relay.localhost 127.0.0.1'],
);
