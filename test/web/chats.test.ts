import { signal } from '@preact/signals';
import { expect, it, onTestFinished, vi } from 'vitest';
import { createChats } from '../../handlers/web/app/chat/chats.ts';
import type { App } from '../../handlers/web/app/context.ts';
import { openPageStore } from '../../handlers/web/app/page-store.ts';
import { createEvent } from '../../lib/kit/event.ts';
import { stubIndexedDb } from '../support/fake-indexeddb.ts';

const BASE = 'https://relay.example/';

/** The database of a browser with the page's globals. */
function stubBrowser() {
  for (const name of ['addEventListener', 'removeEventListener']) vi.stubGlobal(name, () => {});
  vi.stubGlobal('document', { addEventListener: () => {}, removeEventListener: () => {} });
  return stubIndexedDb();
}

/** The chats of a tab, whose relay takes every message. `api` answers requests. */
function openTab(api: object = {}) {
  const { on, emit } = createEvent<[message: unknown]>();
  const sent: { type: string; payload: object; id: string | undefined }[] = [];
  const isOnline = signal(true);
  const port = {
    send: (type: string, payload: object, id?: string) => isOnline.value && sent.push({ type, payload, id }) > 0,
    onMessage: on,
    onOnline: (listener: () => () => void) => {
      enter = listener;
      leave = listener();
      return leave;
    },
  };
  let enter = () => () => {};
  let leave = () => {};
  const app = {
    session: { port: () => port, isOnline },
    api,
    base: BASE,
    pageStore: openPageStore(BASE),
    retained: () => ({ startAnswer: () => ({ follow: () => {} }) }),
  };
  const chats = createChats(app as unknown as App);
  onTestFinished(() => chats.close());
  /** The relay reports that it stores turns, of which there are none. */
  const follow = () =>
    emit({ type: 'chat.turns', id: sent.findLast(({ type }) => type === 'chat.follow')?.id, payload: { turns: [] } });
  const reconnect = () => {
    leave();
    leave = enter();
    follow();
  };
  return { chats, sent, isOnline, follow, reconnect };
}

/** A new conversation, once it has this draft. */
async function begun(tab: ReturnType<typeof openTab>, draft: string) {
  const conversation = tab.chats.begin();
  await vi.waitFor(() => expect(conversation.draft.value).toBe(draft));
  return conversation;
}

it('contract 10 §3: what is said elsewhere erases no draft of a new conversation, and sending it does', async () => {
  const { rows } = stubBrowser();
  const tab = openTab();
  tab.chats.type(tab.chats.begin(), 'A draft');
  tab.chats.send(tab.chats.open(null), 'Spoken');
  await vi.waitFor(() => expect(rows.get('chat drafts /')).toEqual({ new: 'A draft' }));
  const conversation = await begun(tab, 'A draft');
  tab.chats.send(conversation, 'A draft');
  await vi.waitFor(() => expect(rows.get('chat drafts /')).toEqual({}));
});

it('contract 10 §3: a prepared text joins the draft of a new conversation, and is stored at once', async () => {
  const { rows } = stubBrowser();
  const tab = openTab();
  tab.chats.type(tab.chats.begin(), 'A draft');
  await tab.chats.prepare('Shared');
  await begun(tab, 'A draft\nShared');
  await vi.waitFor(() => expect(rows.get('chat drafts /')).toEqual({ new: 'A draft\nShared' }));
  await begun(openTab(), 'A draft\nShared');
});

it('contract 10 §3: sending in one tab erases no draft that another has typed later', async () => {
  const { rows } = stubBrowser();
  const [one, two] = [openTab(), openTab()];
  const other = one.chats.open('s1');
  const [first, second] = [one.chats.begin(), two.chats.begin()];
  // Both read that there is no draft yet.
  await new Promise((resolve) => setTimeout(resolve));
  one.chats.type(first, 'First');
  await vi.waitFor(() => expect(rows.get('chat drafts /')).toEqual({ new: 'First' }));
  two.chats.type(second, 'Second');
  await vi.waitFor(() => expect(rows.get('chat drafts /')).toEqual({ new: 'Second' }));
  // Tabs hear each other in order.
  two.chats.send(two.chats.open('s1'), 'Known?');
  await vi.waitFor(() => expect(other.turns.value).toHaveLength(2));
  one.chats.send(first, 'First');
  one.chats.type(other, 'Third');
  await vi.waitFor(() => expect(rows.get('chat drafts /')).toEqual({ new: 'Second', s1: 'Third' }));
});

it('contract 10 §3: a reconnect leaves the earlier messages that somebody reads', async () => {
  stubBrowser();
  const items = (first: number, last: number) =>
    Array.from({ length: last - first + 1 }, (_, at) => ({ id: `m${first + at}`, role: 'user', text: '', ts: 1 }));
  const pages = [
    { items: items(3, 4), has_more: true },
    { items: items(1, 2), has_more: false },
    // Two more were said meanwhile.
    { items: items(4, 6), has_more: true },
    // So many that what lies between is unknown.
    { items: items(8, 9), has_more: true },
  ];
  const tab = openTab({ call: async () => pages.shift() });
  const conversation = tab.chats.open('s1');
  const shown = () => [conversation.past.value.items.map(({ id }) => id).join(' '), conversation.past.value.hasMore];
  tab.follow();
  await tab.chats.readPast(conversation, false);
  await tab.chats.readPast(conversation, true);
  tab.reconnect();
  await tab.chats.readPast(conversation, false);
  expect(shown()).toEqual(['m1 m2 m3 m4 m5 m6', false]);
  tab.reconnect();
  await tab.chats.readPast(conversation, false);
  expect(shown()).toEqual(['m8 m9', true]);
});

it('tells that nothing was stopped without a connection', () => {
  stubBrowser();
  const { chats, sent, isOnline } = openTab();
  const conversation = chats.open('s1');
  chats.send(conversation, 'Count.');
  isOnline.value = false;
  expect(chats.stop(conversation)).toBe(false);
  isOnline.value = true;
  expect(chats.stop(conversation)).toBe(true);
  expect(sent.filter(({ type }) => type === 'chat.cancel')).toHaveLength(1);
});
