import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { pairPage } from '../support/app.ts';
import { describeInBrowser, expectAccessible, smallTargets } from '../support/browser.ts';
import { useChat } from '../support/chat-page.ts';
import { COSTLY_MARKDOWN, HARMFUL_MARKDOWN } from '../support/hostile-markdown.ts';
import { median, TIMED } from '../support/limits.ts';
import { slowDown } from '../support/slow-phone.ts';
import { tasksOf } from '../support/tasks.ts';

/** Milliseconds of processor time that one task of the page may take (issue 25, section 2). */
const MAX_TASK = 50;
/** Milliseconds of one of 60 frames a second. */
const FRAME = 1000 / 60;

const ANSWER = `## Backup of last night
It took **12 minutes**, *slower* than ~~before~~, see [the log](https://example.org/log).

1. Stopped the \`database\`
2. Copied
   - files
   - photos

- [x] done
- [ ] still to do

| Volume | Size |
|:-------|-----:|
| photos | 12 GB |
| mail | 800 MB |

> It was quiet.

\`\`\`sh
tail -n 1 /var/log/backup.log | grep --line-buffered "finished after" | tee -a /tmp/somewhere/with-a-long-name.txt
\`\`\`

The formula is $a_1 * b_1$.
`;

describeInBrowser('Markdown in the chat (contract 10 §3)', ({ open }) => {
  const chat = useChat({ open });
  const { say } = chat;

  it('shows what people expect of a chat, and copies and wraps code', async () => {
    chat.api.onStream(async (exchange) => {
      exchange.open();
      for (let at = 0; at < ANSWER.length; at += 7) {
        await exchange.event({ type: 'assistant.delta', delta: ANSWER.slice(at, at + 7) });
      }
      await exchange.event({ type: 'run.completed' });
      exchange.end();
    });
    const { page } = await chat.open('new', { context: { permissions: ['clipboard-read', 'clipboard-write'] } });
    await say(page, 'How did it go?');
    const answer = page.getByRole('article', { name: 'Agent' });
    await answer.getByText('The formula is $a_1 * b_1$.').waitFor();
    await answer.getByRole('heading', { level: 3, name: 'Backup of last night' }).waitFor();
    expect(await answer.locator('strong').textContent()).toBe('12 minutes');
    expect(await answer.locator('em').textContent()).toBe('slower');
    expect(await answer.locator('del').textContent()).toBe('before');
    const link = answer.getByRole('link', { name: 'the log' });
    expect(await link.getAttribute('href')).toBe('https://example.org/log');
    expect(await link.getAttribute('rel')).toBe('noopener noreferrer');
    expect(await answer.locator('ol > li').allTextContents()).toHaveLength(2);
    expect(await answer.locator('ol ul > li').allTextContents()).toEqual(['files', 'photos']);
    await answer.getByRole('img', { name: 'to do' }).waitFor();
    expect(await answer.getByRole('row').allTextContents()).toEqual(['VolumeSize', 'photos12 GB', 'mail800 MB']);
    expect((await answer.locator('blockquote').textContent())?.trim()).toBe('It was quiet.');
    await answer.getByText('sh', { exact: true }).waitFor();
    const heightOf = () => answer.locator('pre').evaluate((element) => element.clientHeight);
    const wrapped = await heightOf();
    await answer.getByRole('button', { name: 'Wrap long lines' }).click();
    await expect.poll(heightOf).toBeLessThan(wrapped);
    await answer.getByRole('button', { name: 'Copy the code' }).click();
    await page.getByText('Copied', { exact: true }).waitFor();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toMatch(/^tail -n 1 [^\n]*$/);
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
  });

  /** Puts conversations of one answer each, or of several, into the browser's storage, and returns the page. */
  async function openStored(conversations: readonly (readonly string[])[]): Promise<Page> {
    const { page, allow } = await open();
    // A path to a file that the agent names, of which there is none.
    allow(/status of 404/);
    await pairPage(page, chat.relay);
    await page.evaluate(async (all) => {
      const opening = indexedDB.open('svc kept');
      const database = await new Promise<IDBDatabase>((resolve) => {
        opening.onsuccess = () => resolve(opening.result);
      });
      const transaction = database.transaction('keep', 'readwrite');
      for (const [index, texts] of all.entries()) {
        const turn = { from: 'agent', reasoning: '', tools: [], state: 'done', at: 1 };
        const turns = texts.map((text, at) => ({ ...turn, request: `r${at}`, text }));
        transaction.objectStore('keep').put(turns, `chat h${index} /`);
      }
      await new Promise((resolve) => {
        transaction.oncomplete = resolve;
      });
      database.close();
    }, conversations);
    await page.goto(chat.at(''));
    return page;
  }

  it('makes no element of harmful texts that is not on the list', async () => {
    const page = await openStored([HARMFUL_MARKDOWN]);
    await page.goto(chat.at('h0'));
    const answers = page.getByRole('article', { name: 'Agent' });
    await expect.poll(() => answers.count()).toBe(HARMFUL_MARKDOWN.length);
    await answers
      .filter({ has: page.locator('.prose > div') })
      .nth(HARMFUL_MARKDOWN.length - 1)
      .waitFor();
    const found = await page.evaluate(() => {
      const elements = [...document.querySelectorAll('.prose *')];
      const attributes = elements.flatMap((element) => element.getAttributeNames());
      const addresses = elements.flatMap((element) => element.getAttribute('href') ?? []);
      return { names: elements.map(({ localName }) => localName), attributes, addresses };
    });
    const onList =
      'a bdi blockquote button code div em h3 h4 li ol p path pre section span strong svg table tbody td th thead tr ul wbr';
    const attributes =
      'aria-hidden aria-label aria-pressed class d dir focusable href rel role start tabindex target title type viewBox';
    expect(found.names.filter((name) => !onList.split(' ').includes(name))).toEqual([]);
    expect(found.attributes.filter((name) => !attributes.split(' ').includes(name))).toEqual([]);
    expect(found.addresses.filter((address) => !/^(?:https?|mailto):/.test(address))).toEqual([]);
    expect(await page.title()).toMatch(/ · svc$/);
    await expectAccessible(page);
  });

  /** Those of some texts with which a page of its own holds up a frame, and for how long. */
  async function slowOf(texts: readonly string[]): Promise<{ text: string; time: number }[]> {
    const page = await openStored(texts.map((text) => [text]));
    const tasks = await tasksOf(page, async () => {
      for (const index of texts.keys()) {
        await page.evaluate(async (name) => {
          performance.mark(name);
          location.hash = `#/chat/${name}`;
          for (let frames = 0; frames < 40; frames++) await new Promise(requestAnimationFrame);
        }, `h${index}`);
      }
    });
    await page.close();
    const slow = tasks.filter(({ time, mark }) => /^h\d/.test(mark) && time > MAX_TASK);
    return slow.map(({ time, mark }) => ({ time, text: texts[Number(mark.slice(1))] ?? '' }));
  }

  it('issue 25: holds up no frame for 50 ms, whatever an answer is made of', { timeout: 200_000 }, async () => {
    let slow = await slowOf(COSTLY_MARKDOWN);
    // A busy moment of the machine passes: a text that is slow by itself is slow again.
    for (let again = 0; again < TIMED.retry && slow.length > 0; again++) {
      slow = await slowOf([...new Set(slow.map(({ text }) => text))]);
    }
    expect(slow.map(({ text, time }) => [time, text.slice(0, 30)])).toEqual([]);
  });

  it('issue 25: streams 100 KB in short frames on a slow phone, its end as fast as its beginning', {
    ...TIMED,
    timeout: 300_000,
  }, async () => {
    const { page } = await chat.open();
    const text = `${ANSWER}\n`.repeat(Math.ceil(100_000 / ANSWER.length));
    const PART = 60;
    let begin = () => {};
    const isWatched = new Promise<void>((resolve) => {
      begin = resolve;
    });
    chat.api.onStream(async (exchange) => {
      exchange.open();
      await isWatched;
      for (let at = 0; at < text.length; at += PART) {
        await exchange.event({ type: 'assistant.delta', delta: text.slice(at, at + PART) });
        await new Promise((resolve) => setTimeout(resolve, 3));
      }
      await exchange.event({ type: 'run.completed' });
      exchange.end();
    });
    await page.getByRole('textbox', { name: 'Message' }).fill('Tell me all.');
    await page.getByRole('button', { name: 'Send' }).tap();
    await page.getByText('The agent is at work').waitFor();
    await slowDown(page);
    const tasks = await tasksOf(page, async () => {
      await page.evaluate(() => performance.mark('answer'));
      begin();
      // A locator would ask the page for its layout again and again.
      await page.evaluate(async (count) => {
        const drawn = document.getElementsByTagName('blockquote');
        while (drawn.length < count) await new Promise((resolve) => setTimeout(resolve, 200));
        performance.mark('over');
      }, text.split('> It was quiet.').length - 1);
    });
    const own = tasks.filter(({ mark }) => mark === 'answer');
    const frames = own.filter(({ isFrame }) => isFrame).map(({ time }) => time);
    const part = (share: number) => frames.toSorted((a, b) => a - b)[Math.floor(frames.length * share)];
    // What comes faster than this page draws is drawn a little later, and not in longer frames.
    expect(frames.length).toBeGreaterThan(600);
    expect(part(0.5)).toBeLessThan(FRAME);
    expect(part(0.95)).toBeLessThan(2 * FRAME);
    // The slowest tenth draws the most.
    const drawn = (some: readonly number[]) => median(some.toSorted((a, b) => b - a).slice(0, some.length / 10));
    const quarter = Math.floor(frames.length / 4);
    // The last 25 KB cost as much as the first: what is complete is neither read nor drawn again.
    expect(drawn(frames.slice(-quarter))).toBeLessThan(2 * drawn(frames.slice(0, quarter)));
    expect(Math.max(...own.map(({ time }) => time))).toBeLessThan(2 * MAX_TASK);
  });
});
