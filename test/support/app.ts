import type { Page } from 'playwright-core';
import { randomCode, registerCode, type Target } from './relay.ts';

/** A pairing code as `svc pair --web` makes it (contract 09 §5). */
export async function webCode(relay: Target, policy: Record<string, unknown> = {}): Promise<string> {
  const code = randomCode();
  await registerCode(relay, code, { without: ['bridge', 'desktop'], ...policy });
  return code;
}

/** The app of a relay on this machine, on the app's own origin. */
export const appOf = ({ url }: Pick<Target, 'url'>): string => `${url.replace('127.0.0.1', 'localhost')}/app/`;

/** Waits until the page shows a live connection. */
export const connected = (page: Page): Promise<void> =>
  page
    .getByText(/^Connected · \d+ ms$/)
    .first()
    .waitFor();

/** Pairs a page by a link with a new code, and waits until it is connected. `app` is another way to the relay. */
export async function pairPage(
  page: Page,
  relay: Target,
  { app = appOf(relay), policy }: { app?: string; policy?: Record<string, unknown> } = {},
): Promise<void> {
  await page.goto(`${app}#code=${await webCode(relay, policy)}`);
  await connected(page);
}

/** Variables of a relay that a browser may reach as `relay.test` or `relay.localhost`, over plain HTTP and not as this machine. */
export const PLAIN = { RELAY_HOSTS: 'relay.test,relay.localhost' };
