import { existsSync } from 'node:fs';
import axe from 'axe-core';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { documentOf } from '../lib/dashboard/pages/support.ts';
import { startDemoProcess } from '../support/demo.ts';
import { startRelayProcess } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';

const CHROMIUM = '/usr/bin/chromium';
const PLUGIN = '/api/plugins/svc-relay';
const hasBrowser = existsSync(CHROMIUM);
if (!hasBrowser) process.stderr.write('SKIPPED: there is no chromium here\n');

describe.skipIf(!hasBrowser)('the demo dashboard in a browser', () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
  });
  afterAll(() => browser?.close());

  /** A relay with a paired phone, the demo, and a page that has not signed in. */
  async function start() {
    const relay = await startRelayProcess();
    const code = randomCode();
    await relay.ask('/pairing/register', { method: 'POST', body: { code } });
    const phone = { pairing_code: code, device_name: 'Pixel <b>8</b>', device_id: crypto.randomUUID() };
    const { frame, socket } = await relay.offer(phone);
    onTestFinished(() => socket.terminate());
    const demo = await startDemoProcess({ home: relay.home, relayPort: relay.port });
    const context = await browser.newContext();
    onTestFinished(() => context.close());
    const page = await context.newPage();
    const problems: string[] = [];
    page.on('pageerror', (error) => problems.push(error.message));
    page.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
    return { relay, demo, page, problems, token: frame.payload.session_token as string };
  }

  async function signIn(page: Page, { url, password }: { url: string; password: string }) {
    await page.goto(url);
    await page.getByLabel('Password').fill(password);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('Signed in').waitFor();
  }

  it('signs in, shows the Relay tab and revokes a device', async () => {
    const { demo, page, problems } = await start();
    await signIn(page, demo);
    const [cookie] = await page.context().cookies();
    expect(cookie).toMatchObject({ name: 'svc_demo_session', httpOnly: true, sameSite: 'Strict' });
    await page.getByRole('link', { name: 'Relay tab' }).click();
    await page.getByText('Paired devices: 1').waitFor();
    // The name is text, whatever a phone calls itself.
    await page.getByText('Pixel <b>8</b>').waitFor();
    await page.getByRole('img', { name: 'QR code' }).waitFor();
    expect(await page.locator('code').textContent()).toBe(demo.url);
    await page.getByRole('button', { name: 'Revoke' }).click();
    await page.getByText('No device is paired yet.').waitFor();
    expect(problems).toEqual([]);
  });

  it('shows a code that pairs a device, without violations of accessibility, on a narrow screen too', async () => {
    const { demo, page, problems, relay } = await start();
    await page.setViewportSize({ width: 320, height: 640 });
    const check = async () => {
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        await page.evaluate(axe.source);
        const found = await page.evaluate(async () => {
          const { violations } = await (globalThis as unknown as { axe: typeof axe }).axe.run();
          const { scrollWidth, clientWidth } = document.documentElement;
          return {
            violations: violations.map(({ id, nodes }) => [id, nodes[0]?.html]),
            excess: scrollWidth - clientWidth,
          };
        });
        expect(found).toEqual({ violations: [], excess: 0 });
      }
    };
    await page.goto(demo.url);
    await check();
    await signIn(page, demo);
    await check();
    await page.getByRole('link', { name: 'Relay tab' }).click();
    await page.getByText('Paired devices: 1').waitFor();
    await page.getByText('Pixel <b>8</b>').waitFor();
    await check();
    await page.getByRole('button', { name: 'Show a pairing code' }).click();
    await page.getByRole('img', { name: 'QR code to pair a device' }).waitFor();
    await check();
    const code = (await page.locator('code').last().textContent()) ?? '';
    expect(code).toMatch(/^[A-Z0-9]{6}$/);
    const { frame, socket } = await relay.offer({ pairing_code: code, device_name: 'Tablet', device_id: 'tablet' });
    onTestFinished(() => socket.terminate());
    expect(frame.type).toBe('auth.ok');
    await page.getByRole('button', { name: 'Hide' }).click();
    await expect.poll(() => page.getByText(code, { exact: true }).count()).toBe(0);
    expect(problems).toEqual([]);
  });

  it('reads a page of the phone and the relay through the ingress, over HTTP and a socket', async () => {
    const { demo, page, token } = await start();
    await signIn(page, demo);
    const read = await page.evaluate(
      async ({ plugin, token, document }) => {
        const json = { 'content-type': 'application/json' };
        const body = JSON.stringify({ title: 'Hello', document });
        await fetch(`${plugin}/mobile/plugins/hello/draft`, { method: 'PUT', headers: json, body });
        const draft = await (await fetch(`${plugin}/mobile/pages/hello`)).json();
        const headers = { 'X-Svc-Relay-Session': token };
        const sessions = await (await fetch(`${plugin}/transport/sessions`, { headers })).json();
        const { ticket } = await (await fetch('/api/ws', { method: 'POST' })).json();
        const socket = new WebSocket(`ws://${location.host}${plugin}/transport/ws?ticket=${ticket}`);
        await new Promise((resolve, reject) => {
          socket.onopen = resolve;
          socket.onerror = reject;
        });
        const payload = { session_token: token };
        socket.send(JSON.stringify({ channel: 'system', type: 'auth', id: crypto.randomUUID(), payload }));
        const first = await new Promise<MessageEvent>((resolve) => {
          socket.onmessage = resolve;
        });
        socket.close();
        return { draft, sessions, type: JSON.parse(first.data).type };
      },
      { plugin: PLUGIN, token, document: documentOf() },
    );
    expect(read.draft).toEqual({ ...documentOf(), host_revision: 1 });
    expect(read.sessions.sessions).toMatchObject([{ is_current: true }]);
    expect(read.type).toMatch(/^auth\./);
  });

  it('gives a page of another site neither answers nor sockets', async () => {
    const { demo, page } = await start();
    await signIn(page, demo);
    // Another name of the same server is another site.
    const foreign = await page.context().newPage();
    await foreign.route('http://evil.test/**', (route) =>
      route.fulfill({ contentType: 'text/html', body: '<title>evil</title>' }),
    );
    await foreign.goto('http://evil.test/');
    const seen = await foreign.evaluate(async (url) => {
      const read = await fetch(`${url}/api/plugins/svc-relay/overview`, { credentials: 'include' }).then(
        (response) => response.status,
        () => 'blocked',
      );
      const changed = await fetch(`${url}/demo/plugin`, {
        method: 'POST',
        mode: 'no-cors',
        body: 'enabled=false',
        credentials: 'include',
      }).then(
        () => 'sent',
        () => 'blocked',
      );
      const socket = new WebSocket(`${url.replace('http', 'ws')}/api/ws?ticket=x`);
      const opened = await new Promise((resolve) => {
        socket.onopen = () => resolve('open');
        socket.onerror = () => resolve('refused');
      });
      return { read, changed, opened };
    }, demo.url);
    expect(seen).toMatchObject({ read: 'blocked', opened: 'refused' });
    await page.reload();
    // Still enabled: the foreign request had no effect.
    await page.getByRole('button', { name: 'Disable the plugin' }).waitFor();
  });
});
