import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { expect, onTestFinished } from 'vitest';
import { appOf } from './app.ts';
import { KILLED, type TestBrowser } from './browser.ts';
import { stored } from './browser-storage.ts';
import { run } from './cli.ts';
import { startEdgeRuntime } from './edge-runtime.ts';
import { startRelayProcess, temporaryHome } from './process.ts';
import { post, randomCode } from './relay.ts';

interface Item {
  kind: string;
  message_id: string;
  text: string;
  state: string;
}

/**
 * A home in a process of its own, and the edge that mirrors it. `published`: a browser finds home from elsewhere, too. `later`: once
 * `enable` is called. `relayEnv`: further variables of home.
 */
export async function mirrored({ published = false, later = false, relayEnv = {} } = {}) {
  const agentHome = await temporaryHome();
  const env: Record<string, string> = { SVC_HOME: agentHome, HOME: agentHome };
  const svc = (...words: string[]) => run(words, { env });
  const { stdout: key } = await svc('relay', 'operator-token', '--public-key');
  const runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: key.trim(), RELAY_HOSTS: '' });
  onTestFinished(() => runtime.stop());
  const edge = runtime.origin('127.0.0.1');
  const home = await startRelayProcess({ home: agentHome, env: relayEnv });
  env.RELAY_PORT = String(home.port);
  const page = home.url.replace('127.0.0.1', 'localhost');
  if (published) await writeFile(join(agentHome, 'relay-remote.json'), JSON.stringify({ url: page }));
  async function enable(): Promise<void> {
    const enabled = await svc('relay', 'mirror', 'enable', '--relay', edge);
    expect([enabled.code, enabled.stderr]).toEqual([0, '']);
  }
  if (!later) await enable();
  const { token } = JSON.parse((await svc('relay', 'operator-token', '--relay', edge, '--json')).stdout);
  const operator = { authorization: `Bearer ${token}` };
  const atEdge = (path: string, init: RequestInit = {}) =>
    fetch(`${edge}${path}`, { ...init, headers: { ...init.headers, ...operator } });
  return {
    home,
    edge,
    runtime,
    svc,
    enable,
    /** Waits until home seals what it gives the edge. */
    sealed: () =>
      expect
        .poll(async () => JSON.parse((await svc('relay', 'mirror', 'status', '--json')).stdout).mailbox.sealed)
        .toBe(true),
    inStep: () =>
      expect
        .poll(async () => {
          const { link, waiting } = JSON.parse((await svc('relay', 'mirror', 'status', '--json')).stdout);
          return [link, waiting];
        })
        .toEqual(['up', { out: 0, in: 0 }]),
    async say(body: Record<string, unknown>): Promise<void> {
      expect((await atEdge('/phone/message', post(body))).status).toBe(200);
    },
    async history(side: 'home' | 'edge'): Promise<Item[]> {
      if (side === 'edge')
        return ((await (await atEdge('/phone/history?limit=200')).json()) as { items: Item[] }).items;
      return (await home.ask('/phone/history?limit=200', { headers: { 'x-svc-operator': '1' } })).json.items;
    },
    /** Pairs a page at home, and waits until it has the credentials for the mailbox. */
    async pair(open: TestBrowser['open'], options: Parameters<TestBrowser['open']>[0] = {}) {
      const opened = await open(options);
      // What a page asks of a home that is off, and of its mailbox.
      opened.allow(KILLED);
      opened.allow(/fetching the script|WebSocket connection to 'ws:\/\/localhost/);
      opened.allow(new RegExp(`^request to ${edge}$`));
      const code = randomCode();
      const body = { code, without: ['bridge', 'desktop'] };
      expect((await home.ask('/pairing/register', { method: 'POST', body })).status).toBe(200);
      await opened.page.goto(`${appOf(home)}#code=${code}`);
      await opened.page.evaluate(() => navigator.serviceWorker.ready.then(() => {}));
      if (!later) await expect.poll(() => mailboxOf(opened.page)).toMatch(/^ws:\/\/127\.0\.0\.1:\d+\/ws$/);
      return opened;
    },
  };
}

/** Socket of the mailbox that the page has credentials for, with its session bound to a key; empty without. */
export async function mailboxOf(page: Page): Promise<string> {
  const { pairing } = ((await stored(page)).databases.svc?.['pairing /'] ?? {}) as {
    pairing?: { bound?: boolean; mailbox?: { url: string; session_token?: string } };
  };
  return pairing?.bound && pairing.mailbox?.session_token !== undefined ? pairing.mailbox.url : '';
}

export const atMailbox = (page: Page): Promise<void> =>
  page
    .getByText(/^Mailbox · \d+ ms$/)
    .first()
    .waitFor();
