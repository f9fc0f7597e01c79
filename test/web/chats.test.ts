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

/** The chats of a tab, whose relay takes every message. */
function openTab() {
  const { on, emit } = createEvent<[message: unknown]>();
  const sent: { type: string; payload: object; id: string | undefined }[] = [];
  const port = {
    send: (type: string, payload: object, id?: string) => sent.push({ type, payload, id }) > 0,
    onMessage: on,
    onOnline: (listener: () => void) => {
      listener();
      return () => {};
    },
  };
  const app = {
    session: { port: () => port, isOnline: signal(true) },
    api: {},
    base: BASE,
    pageStore: openPageStore(BASE),
    retained: () => ({ startAnswer: () => ({ follow: () => {} }) }),
  };
  const chats = createChats(app as unknown as App);
  onTestFinished(() => chats.close());
  return { chats, sent, emit };
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
  const first = one.chats.begin();
  one.chats.type(first, 'First');
  await vi.waitFor(() => expect(rows.get('chat drafts /')).toEqual({ new: 'First' }));
  two.chats.type(two.chats.begin(), 'Second');
  await vi.waitFor(() => expect(rows.get('chat drafts /')).toEqual({ new: 'Second' }));
  // Tabs hear each other in order.
  two.chats.send(two.chats.open('s1'), 'Known?');
  await vi.waitFor(() => expect(other.turns.value).toHaveLength(2));
  one.chats.send(first, 'First');
  one.chats.type(other, 'Third');
  await vi.waitFor(() => expect(rows.get('chat drafts /')).toEqual({ new: 'Second', s1: 'Third' }));
});
