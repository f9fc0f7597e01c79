import type { Browser, Page } from 'playwright-core';
import { pause } from '../pause.ts';
import type { Inbox } from './inbox.ts';
import { deliver, MAX_UNSEEN } from './messages.ts';
import { newCode, type Stage } from './stage.ts';
import { createLog, missing, tallyOf, type Work } from './tally.ts';

/** Milliseconds. */
const TIMEOUT = 30_000;
const ACTION_TIMEOUT = 5000;
const PACE = 700;
/** The page replies to every so many messages. */
const REPLY_EVERY = 2;
/** Replies that may wait in the page at once. */
const MAX_WAITING = 20;
/** Other items of the history that may follow one that the page has yet to show: the relay and the page keep 500 in all. */
const MAX_BEHIND = 200;
const CHAT = 'drill-page';

export interface PageWork extends Work {
  /** Reads the page again. */
  scan(): Promise<void>;
  /** A message has arrived at the phone, which the page has a copy of. */
  arrived(messageId: string): void;
  /** True while nothing else may get into the history, which would forget what the page has yet to show. */
  isBehind(): boolean;
}

/**
 * The app in a browser, with one thread open: it shows numbered messages, and sends numbered replies. `others` counts the
 * items that other work has put into the history.
 */
export async function createPageWork(
  stage: Stage,
  inbox: Inbox,
  browser: Browser,
  others: () => number,
): Promise<PageWork> {
  const context = await browser.newContext({ locale: 'en-US' });
  context.setDefaultTimeout(TIMEOUT);
  const page = await context.newPage();
  page.on('pageerror', (error) => stage.note(`the page failed: ${error.message}`));
  const replies = inbox.from('drill page reply');
  const confirmed = createLog();
  const shown = createLog();
  /** Messages that the relay need not keep for the phone any more. */
  const arrived = createLog();
  const acknowledged = createLog();
  const doubled = new Set<string>();
  /** The texts that the page has yet to show, oldest first, each with the number of other items sent before it. */
  const due = new Map<string, number>();
  let sent = 0;
  let written = 0;
  let waiting = 0;

  /** Counts what the thread shows now. Nothing in it may be there twice. */
  async function scan(): Promise<void> {
    const bubbles = await page.locator('.bubble').evaluateAll((all) =>
      all.map((bubble) => ({
        text: bubble.querySelector('p')?.textContent ?? '',
        isWaiting: bubble.textContent?.includes('Waits for the relay') === true,
      })),
    );
    const texts = new Set<string>();
    waiting = 0;
    for (const { text, isWaiting } of bubbles) {
      const [, kind, number = ''] = /^drill page (message|reply) (\d+)$/.exec(text) ?? [];
      if (kind === undefined) continue;
      if (texts.has(text)) doubled.add(text);
      texts.add(text);
      if (isWaiting) {
        waiting++;
        continue;
      }
      due.delete(text);
      if (kind === 'reply') once(acknowledged, Number(number));
      else once(shown, Number(number));
    }
  }

  async function sendNext(signal: AbortSignal): Promise<void> {
    const id = sent++;
    const text = `drill page message ${id}`;
    const body = { message_id: `${CHAT}-${id}`, text, title: 'Drill page', chat_id: CHAT };
    due.set(text, others());
    if (await deliver(stage, body, signal)) confirmed.add(id);
  }

  /** Types a reply and sends it, as a person does. */
  async function reply(): Promise<void> {
    const text = `drill page reply ${written}`;
    await page.getByLabel('Reply').fill(text, { timeout: ACTION_TIMEOUT });
    await page.getByRole('button', { name: 'Send' }).click({ timeout: ACTION_TIMEOUT });
    due.set(text, others());
    written++;
  }

  // Paired and opened while the network is good.
  const app = `http://localhost:${stage.port}/app/`;
  await page.goto(`${app}#code=${await newCode(stage)}`);
  await page.getByText(CONNECTED).first().waitFor();
  await sendNext(AbortSignal.timeout(TIMEOUT));
  await page.getByRole('link', { name: 'Inbox' }).click();
  await page.getByRole('link', { name: /Drill page/ }).click();
  await page.locator('.bubble', { hasText: 'drill page message 0' }).waitFor();

  return {
    async run(signal) {
      while (!signal.aborted) {
        if (sent - arrived.size < MAX_UNSEEN) await sendNext(signal);
        try {
          await reconnect(page);
          await scan();
          if (sent % REPLY_EVERY === 0 && waiting < MAX_WAITING) await reply();
        } catch (error) {
          if (!signal.aborted) stage.note(`the page did not do as it should: ${String(error).split('\n', 1)[0]}`);
        }
        await pause(PACE, signal);
      }
    },
    async scan() {
      await reconnect(page);
      await scan();
    },
    arrived(messageId) {
      const [, id] = /^drill-page-(\d+)$/.exec(messageId) ?? [];
      if (id !== undefined) arrived.add(Number(id));
    },
    isBehind() {
      const [before] = due.values();
      return before !== undefined && others() - before > MAX_BEHIND;
    },
    isSettled: () =>
      waiting === 0 &&
      acknowledged.size === written &&
      missing(sent, confirmed, shown).length === 0 &&
      missing(written, acknowledged, replies.received).length === 0,
    tallies() {
      const twice = (kind: string) => [...doubled].filter((text) => text.includes(kind)).length;
      const { received, repeated } = replies;
      return [
        tallyOf('page_messages', sent, { confirmed, arrived: shown }, { doubled: twice('message') }),
        tallyOf(
          'page_replies',
          written,
          { confirmed: acknowledged, arrived: received },
          { repeated, doubled: replies.doubled + twice('reply') },
        ),
      ];
    },
  };
}

const CONNECTED = /^Connected · \d+ ms$/;

const once = (log: ReturnType<typeof createLog>, id: number): void => {
  if (log.times(id) === 0) log.add(id);
};

/** A page that is offline waits longer and longer. It tries at once when the browser says that the network is back. */
async function reconnect(page: Page): Promise<void> {
  if ((await page.getByText(CONNECTED).count()) > 0) return;
  await page.evaluate(() => void dispatchEvent(new Event('online')));
}
