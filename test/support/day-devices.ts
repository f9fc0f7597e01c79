import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { expect, onTestFinished } from 'vitest';
import type { ReceivedMessage } from '../../lib/companion/messages.ts';
import { connected } from './app.ts';
import { KILLED, type TestBrowser } from './browser.ts';
import { sentToken } from './browser-storage.ts';
import { type DayDevice, type DayWorld, QUESTIONS, type Uploaded } from './day.ts';
import { pairMailboxDevice } from './mailbox-device.ts';
import { mailboxOf } from './mirrored.ts';
import { launchSvc, runSvc, temporaryHome } from './process.ts';
import { randomCode } from './relay.ts';

/** Clients wait longer than a test: their timers, and the clock by which they measure, run that many times as fast. */
const SPEED = 5;
const FAST = `{
  const [wait, now] = [globalThis.setTimeout, performance.now.bind(performance)];
  globalThis.setTimeout = (run, delay, ...rest) => wait(run, delay / ${SPEED}, ...rest);
  Object.defineProperty(performance, 'now', { value: () => now() * ${SPEED} });
}`;
const LOOK = 100;
const pause = () => new Promise((resolve) => setTimeout(resolve, LOOK));

/** Calls again and again until the test is over. An error is that of a moment, such as a page that is loaded anew. */
function repeat(look: () => void | Promise<void>): void {
  let isOver = false;
  const looking = (async () => {
    while (!isOver) {
      await Promise.resolve(look()).catch(() => {});
      await pause();
    }
  })();
  onTestFinished(async () => {
    isOver = true;
    await looking;
  });
}

async function newCode({ home }: DayWorld, policy: Record<string, unknown> = {}): Promise<string> {
  const code = randomCode();
  expect((await home.ask('/pairing/register', { method: 'POST', body: { code, ...policy } })).status).toBe(200);
  return code;
}

/** Waits until home seals what it gives the edge, for every device that there is. */
const isSealed = ({ mirrorStatus }: DayWorld) =>
  expect.poll(async () => (await mirrorStatus()).mailbox.sealed).toBe(true);

/** The link and messages of a companion in this process. */
export const linkDevice =
  (name: string) =>
  async ({ home, homePort, mirrorStatus, claims }: DayWorld): Promise<DayDevice> => {
    const sent = new Map<string, string>();
    function onShown({ messageId }: ReceivedMessage): void {
      if (!claims(own, messageId)) return;
      const { message_id, text } = device.messages.reply({ answerIndex: 0, replyTo: messageId });
      sent.set(text, message_id);
    }
    const wsUrl = `ws://127.0.0.1:${homePort}/ws`;
    const device = await pairMailboxDevice({ name, isKeyed: true, home, wsUrl, mirrorStatus, onShown });
    const link = device.connect();
    const own: DayDevice = {
      hasAll: false,
      shown: () => device.shown.map(({ messageId }) => messageId),
      reply: (text) => void sent.set(text, device.messages.reply({ text, chatId: null }).message_id),
      isAcknowledged: (text) => device.acknowledged.includes(sent.get(text) ?? ''),
      upload: async (name, bytes) => ({ token: await device.upload({ name, type: 'image/png', bytes }) }),
      isAtMailbox: () => link.state.name === 'online' && link.state.endpoint.role === 'mailbox',
    };
    return own;
  };

type Event = { event: string } & Record<string, unknown>;

/** `svc companion run` in a process of its own, with a script. */
export async function companionDevice(world: DayWorld): Promise<DayDevice> {
  const directory = await temporaryHome();
  const url = `ws://127.0.0.1:${world.homePort}`;
  const link = JSON.stringify({ svc: 1, relay: { url, code: await newCode(world) } });
  const paired = await runSvc(['companion', 'pair', link, '--name', 'phone'], { home: directory });
  expect([paired.code, paired.stderr]).toEqual([0, '']);
  const env = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(FAST)}` };
  const words = 'companion run --json --messages on --approve never'.split(' ');
  const child = await launchSvc(words, { home: directory, env, isTyped: true });
  const type = (instruction: object) => child.type(`${JSON.stringify(instruction)}\n`);
  const events = (name: string): Event[] =>
    child.stdout
      .split('\n')
      .slice(0, -1)
      .filter((line) => line.startsWith(`{"event":"${name}"`))
      .map((line) => JSON.parse(line));
  await child.prints(/"state":"online"/);
  await isSealed(world);

  let chats = 0;
  /** By chat or question, the text of the reply. */
  const sent = new Map<unknown, string>();
  let seen = 0;
  const own: DayDevice = {
    hasAll: false,
    shown: () => events('message').map(({ message_id: id }) => String(id)),
    reply(text) {
      const chat_id = `chat-${++chats}`;
      sent.set(chat_id, text);
      type({ reply: { text, chat_id } });
    },
    isAcknowledged: (text) =>
      events('reply').some(({ chat_id, reply_to }) => [sent.get(chat_id), sent.get(reply_to)].includes(text)),
    async upload(name, bytes): Promise<Uploaded> {
      const path = join(directory, name);
      await writeFile(path, bytes);
      const before = events('upload').length;
      type({ upload: path });
      const outcome = () =>
        events('upload')
          .slice(before)
          .find((event) => event.path === path);
      await expect.poll(outcome, { timeout: 60_000 }).toBeTruthy();
      const { token, error } = outcome() as Event;
      if (typeof token !== 'string') throw new Error(String(error));
      return { token };
    },
    isAtMailbox() {
      const now = events('state').at(-1);
      return now?.state === 'online' && now.role === 'mailbox';
    },
  };
  repeat(() => {
    const messages = events('message');
    for (const { message_id, answers } of messages.slice(seen)) {
      if (!world.claims(own, String(message_id))) continue;
      sent.set(message_id, String((answers as string[])[0]));
      type({ reply: { answer_index: 0, reply_to: message_id } });
    }
    seen = messages.length;
  });
  return own;
}

interface Kept {
  items: { kind: string; id: string; thread: string }[];
  outbox: { text: string }[];
}

/** What the app keeps of its inbox. */
const keptOf = (page: Page): Promise<Kept> =>
  page.evaluate(async () => {
    const done = <T>(request: IDBRequest<T>) =>
      new Promise<T>((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
      });
    const database = await done(indexedDB.open('svc kept'));
    const read = (key: string) => done(database.transaction('keep').objectStore('keep').get(key));
    const [kept, outbox] = [await read('items /'), await read('outbox /')];
    database.close();
    return { items: kept?.items ?? [], outbox: outbox ?? [] };
  });

/** The web app in a browser, as somebody taps and types in it. */
export const pageDevice =
  (open: TestBrowser['open']) =>
  async (world: DayWorld): Promise<DayDevice> => {
    const { homePort, edge, claims } = world;
    const app = `http://localhost:${homePort}/app/`;
    const opened = await open({ device: 'desktop' });
    const { page } = opened;
    // What a page asks of a home and an edge that are off, and of pictures that home has no more.
    opened.allow(KILLED);
    opened.allow(/fetching the script|WebSocket connection to 'ws:\/\/|status of \d+|CORS|ERR_FAILED/);
    opened.allow(new RegExp(`^request to ${edge}$`));
    await page.context().addInitScript(FAST);
    await page.goto(`${app}#code=${await newCode(world, { without: ['bridge', 'desktop'] })}`);
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => {}));
    await connected(page);
    await expect.poll(() => mailboxOf(page)).not.toBe('');
    await isSealed(world);

    /** One hand taps. */
    let hand: Promise<unknown> = Promise.resolve();
    function turn<T>(act: () => Promise<T>): Promise<T> {
      const acting = hand.then(act);
      hand = acting.catch(() => {});
      return acting;
    }
    const go = (place: string) => page.goto(`${app}#/${place}`);
    let side: Uploaded['side'];
    page.on('response', (response) => {
      const { origin, pathname } = new URL(response.url());
      if (pathname === '/media/upload' && response.ok()) side = origin === edge ? 'edge' : 'home';
    });

    /** Ids of the messages on the screen, in both threads. */
    async function onScreen(): Promise<string[]> {
      const ids: string[] = [];
      for (const thread of ['phone', QUESTIONS]) {
        await go(`inbox/${thread}`);
        await page.locator('.thread .bubble').first().waitFor();
        const bubbles = page.locator('.thread .bubble:not(.own)');
        ids.push(...(await bubbles.evaluateAll((all) => all.map((one) => (one as HTMLElement).dataset.id ?? ''))));
      }
      return ids;
    }

    const sent = new Set<string>();
    const own: DayDevice = {
      hasAll: true,
      shown: async () => (await keptOf(page)).items.filter(({ kind }) => kind === 'message').map(({ id }) => id),
      onScreen: () => turn(onScreen),
      reply: (text) =>
        turn(async () => {
          await go('inbox/phone');
          const field = page.getByLabel('Reply');
          await field.fill(text);
          await field.press('Enter');
          await expect.poll(() => field.inputValue()).toBe('');
          sent.add(text);
        }),
      isAcknowledged: async (text) =>
        sent.has(text) && !(await keptOf(page)).outbox.some((waiting) => waiting.text === text),
      upload: (name, buffer) =>
        turn(async () => {
          await go('files');
          await page.getByLabel('Send files').setInputFiles({ name, mimeType: 'image/png', buffer });
          const failed = page.getByRole('alert').filter({ hasText: name });
          const arrived = page.getByRole('button', { name: `Forget ${name} here` });
          await failed.or(arrived).first().waitFor({ timeout: 60_000 });
          if ((await arrived.count()) === 0) {
            await failed.getByRole('button', { name: 'Close' }).click();
            throw new Error(`${name} did not arrive`);
          }
          return { token: await sentToken(page, name), side };
        }),
      isAtMailbox: async () => (await page.getByText(/^Mailbox · \d+ ms$/).count()) > 0,
      reopen: () => turn(async () => void (await page.reload())),
    };

    const toAnswer = new Set<string>();
    repeat(async () => {
      for (const { kind, id, thread } of (await keptOf(page)).items) {
        if (kind === 'message' && thread === QUESTIONS && claims(own, id)) toAnswer.add(id);
      }
      for (const id of toAnswer) {
        await turn(async () => {
          await go(`inbox/${QUESTIONS}`);
          const text = `Yes to ${id}`;
          const answer = page.getByRole('button', { name: text, exact: true });
          await answer.click();
          await answer.waitFor({ state: 'detached' });
          sent.add(text);
          toAnswer.delete(id);
        });
      }
    });
    return own;
  };
