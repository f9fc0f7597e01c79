import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect } from 'vitest';
import { appOf, pairPage } from './app.ts';
import type { PageOptions, TestBrowser, TestPage } from './browser.ts';
import { type Exchange, type FakeApi, startFakeApi } from './fake-api-server.ts';
import { startNodeTarget, type Target } from './relay.ts';

/** A relay in front of a fake agent for the cases of one `describeInBrowser`, with pages at its chat. */
export function useChat({ open }: Pick<TestBrowser, 'open'>) {
  let relay: Target;
  let api: FakeApi;
  const ends: (() => void)[] = [];
  beforeAll(async () => {
    api = await startFakeApi((end) => ends.push(end));
    relay = await startNodeTarget({ env: { RELAY_WEBAPI_URL: api.url } });
  });
  afterAll(async () => {
    await relay?.stop();
    for (const end of ends) end();
  });

  const delta = (text: string) => ({ type: 'assistant.delta', delta: text });

  return {
    get relay() {
      return relay;
    },
    get api() {
      return api;
    },

    /** The address of a conversation, or of the list. */
    at: (place: string): string => `${appOf(relay)}#/chat/${place}`,

    /** A paired page at a place of the chat; `allowed` are problems that it may have. */
    async open(place = 'new', { allowed, ...options }: PageOptions & { allowed?: RegExp } = {}): Promise<TestPage> {
      const opened = await open(options);
      if (allowed) opened.allow(allowed);
      await pairPage(opened.page, relay);
      await opened.page.goto(`${appOf(relay)}#/chat/${place}`);
      return opened;
    },

    answers: (page: Page) => page.getByRole('article', { name: 'Agent' }),
    questions: (page: Page) => page.getByRole('article', { name: 'You' }),

    async say(page: Page, text: string): Promise<void> {
      await page.getByRole('textbox', { name: 'Message' }).fill(text);
      await page.getByRole('button', { name: 'Send' }).click();
    },

    /** The agent answers questions with these parts, at once. */
    answering: (...parts: string[]): void =>
      api.onStream(async (exchange) => {
        exchange.open();
        for (const part of parts) await exchange.event(delta(part));
        await exchange.event({ type: 'run.completed' });
        exchange.end();
      }),

    /** The agent says a beginning, and the rest when it is told to. */
    halting(beginning: string): { goOn(rest: string): Promise<void> } {
      let exchange: Exchange | undefined;
      api.onStream(async (opened) => {
        exchange = opened;
        opened.open();
        await opened.event(delta(beginning));
      });
      return {
        async goOn(rest) {
          await expect.poll(() => exchange !== undefined).toBe(true);
          await exchange?.event(delta(rest));
          await exchange?.event({ type: 'run.completed' });
          exchange?.end();
        },
      };
    },
  };
}
