import { signal } from '@preact/signals';
import fc from 'fast-check';
import { expect, it, onTestFinished, vi } from 'vitest';
import { createChats } from '../../handlers/web/app/chat/chats.ts';
import type { App } from '../../handlers/web/app/context.ts';
import { openDrafts } from '../../handlers/web/app/files/drafts.ts';
import { createFiles } from '../../handlers/web/app/files/files.ts';
import { openPageStore } from '../../handlers/web/app/page-store.ts';
import { openPairingStore } from '../../handlers/web/app/pairing-store.ts';
import { createShares } from '../../handlers/web/app/share/shares.ts';
import { type Share, storeShare } from '../../handlers/web/app/share/stored-share.ts';
import type { StoredPairing } from '../../handlers/web/app/stored-pairing.ts';
import { ApiError } from '../../handlers/web/shared/api.ts';
import { createEvent } from '../../lib/kit/event.ts';
import { PAIRING } from '../lib/companion/link/support.ts';
import { stubIndexedDb } from '../support/fake-indexeddb.ts';

const BASE = 'https://relay.example/';
const add =
  (entry: string) =>
  (stored: string[] = []) => [...stored, entry];

it('keeps what is stored when it could not be read, with the changes made meanwhile', async () => {
  const { rows, failing } = stubIndexedDb();
  rows.set('list /', ['a']);
  const keep = openPageStore(BASE);
  failing.read = true;
  await expect(keep.find('list')).rejects.toThrow('refused');
  expect(await keep.read('list')).toBeUndefined();
  expect(await keep.change('list', add('b'))).toEqual(['b']);
  expect(await keep.change('list', add('c'))).toEqual(['b', 'c']);
  expect([await keep.read('list'), await keep.find('list')]).toEqual([
    ['b', 'c'],
    ['b', 'c'],
  ]);
  failing.read = false;
  expect(await keep.read('list')).toEqual(['a', 'b', 'c']);
  failing.write = true;
  expect(await keep.change('list', add('d'))).toEqual(['a', 'b', 'c', 'd']);
  failing.read = true;
  expect(await keep.change('list', add('e'))).toEqual(['a', 'b', 'c', 'd', 'e']);
  failing.read = failing.write = false;
  expect(await keep.change('list', add('f'))).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
  expect(rows.get('list /')).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
  expect(await openPageStore(BASE).read('list')).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
});

it('loses no entry and makes none twice, whatever fails in between', () => {
  const steps = fc.array(fc.record({ read: fc.boolean(), write: fc.boolean() }), { maxLength: 12 });
  return fc.assert(
    fc.asyncProperty(steps, async (failures) => {
      const { rows, failing } = stubIndexedDb();
      rows.set('list /', ['stored']);
      const keep = openPageStore(BASE);
      const all = ['stored'];
      for (const [at, failure] of [...failures, { read: false, write: false }].entries()) {
        Object.assign(failing, failure);
        all.push(String(at));
        await keep.change('list', add(String(at)));
      }
      expect(rows.get('list /')).toEqual(all);
    }),
    { numRuns: 60 },
  );
});

it('removes a draft that is gone from the list, and leaves one that cannot be read now', async () => {
  const { rows, failing } = stubIndexedDb();
  vi.stubGlobal('navigator', {});
  const draft = { file: { name: 'a' } as File };
  await openDrafts(openPageStore(BASE)).put('one', draft);
  await openDrafts(openPageStore(BASE)).put('two', draft);
  rows.delete('upload two /');
  const drafts = openDrafts(openPageStore(BASE));
  expect(await drafts.ids()).toEqual(['one', 'two']);
  failing.read = true;
  for (const id of ['one', 'two']) expect(await drafts.adopt(id)).toBeUndefined();
  failing.read = false;
  expect(await drafts.ids()).toEqual(['one', 'two']);
  expect(await drafts.adopt('two')).toBeUndefined();
  expect(await drafts.adopt('one')).toEqual(draft);
  expect(await openDrafts(openPageStore(BASE)).ids()).toEqual(['one']);
});

/** Opens the store of a browser that is paired. */
async function openPaired() {
  const { rows, failing } = stubIndexedDb();
  rows.set('pairing /', { deviceId: 'd1', pairing: PAIRING });
  const store = await openPairingStore(BASE);
  onTestFinished(() => store.close());
  const stored = () => (rows.get('pairing /') as StoredPairing).pairing;
  return { rows, failing, store, stored };
}

it('stores new credentials of the pairing with the next change, when they could not be written', async () => {
  const { failing, store, stored } = await openPaired();
  failing.write = true;
  await store.updatePairing({ session_token: 'token-2', refresh_token: 'refresh-2' });
  failing.read = true;
  await store.updatePairing({ grants: { chat: null } });
  expect([store.pairing()?.session_token, stored()?.session_token]).toEqual(['token-2', 'token-1']);
  failing.read = failing.write = false;
  await store.updatePairing({ server_version: '9' });
  const all = { session_token: 'token-2', refresh_token: 'refresh-2', grants: { chat: null }, server_version: '9' };
  expect(store.pairing()).toMatchObject(all);
  expect(stored()).toMatchObject(all);
});

it('takes the pairing that another tab has stored in place of credentials that could not be written', async () => {
  const { rows, failing, store, stored } = await openPaired();
  failing.write = true;
  await store.updatePairing({ session_token: 'token-2' });
  failing.write = false;
  rows.set('pairing /', { deviceId: 'd1', pairing: { ...PAIRING, session_token: 'token-3' } });
  await store.updatePairing({ server_version: '9' });
  expect(store.pairing()).toMatchObject({ session_token: 'token-3', server_version: '9' });
  await store.clear();
  expect([store.pairing(), stored()]).toEqual([null, null]);
});

it('leaves what was shared later, which the worker has stored, when a tab is done with what came before', async () => {
  const { rows } = stubIndexedDb();
  const shareAt = (at: number): Share => ({ text: `Text of ${at}`, files: [], refused: [], at });
  const [first, second] = [shareAt(Date.now() - 1), shareAt(Date.now())];
  for (const end of ['used', 'discard'] as const) {
    await storeShare(BASE, first);
    const shares = createShares(BASE);
    await vi.waitFor(() => expect(shares.pending.value).toEqual(first));
    await storeShare(BASE, second);
    await shares[end]('text');
    expect([shares.pending.value, rows.get('/')]).toEqual([null, second]);
    const later = createShares(BASE);
    await vi.waitFor(() => expect(later.pending.value).toEqual(second));
    await later[end]('text');
    expect([...rows]).toEqual([]);
  }
});

/** A page without a connection, as far as the stores of the screens use it. `api` fails by default. */
const offline = (api: object = {}): App =>
  ({
    session: {
      port: () => ({ send: () => false, onMessage: () => () => {}, onOnline: () => () => {} }),
      isOnline: signal(false),
      isAtMailbox: signal(false),
      pairing: signal(null),
      target: signal(BASE),
      state: signal({ name: 'waiting' }),
    },
    api,
    base: BASE,
    pageStore: openPageStore(BASE),
    retained: () => ({}),
  }) as unknown as App;

it('keeps a draft of a chat over a reload although the database takes nothing', async () => {
  const { failing, rows } = stubIndexedDb();
  const session = new Map<string, string>();
  vi.stubGlobal('sessionStorage', {
    getItem: (name: string) => session.get(name) ?? null,
    setItem: (name: string, text: string) => session.set(name, text),
    removeItem: (name: string) => session.delete(name),
  });
  for (const name of ['addEventListener', 'removeEventListener']) vi.stubGlobal(name, () => {});
  vi.stubGlobal('document', { addEventListener: () => {}, removeEventListener: () => {} });
  failing.write = true;
  const app = offline();
  const chats = createChats(app);
  onTestFinished(() => chats.close());
  chats.type(chats.open('s1'), 'Not sent');
  await vi.waitFor(async () => expect(await app.pageStore.read('chat drafts')).toEqual({ s1: 'Not sent' }));
  const after = createChats(offline());
  onTestFinished(() => after.close());
  const { draft } = after.open('s1');
  await vi.waitFor(() => expect(draft.value).toBe('Not sent'));
  failing.write = false;
  after.type(after.open('s2'), 'Another');
  const all = { s1: 'Not sent', s2: 'Another' };
  await vi.waitFor(() => expect([rows.get('chat drafts /'), [...session]]).toEqual([all, []]));
});

it('lists a conversation without its time if no date can hold that', async () => {
  stubIndexedDb();
  for (const name of ['addEventListener', 'removeEventListener']) vi.stubGlobal(name, () => {});
  vi.stubGlobal('document', { addEventListener: () => {}, removeEventListener: () => {} });
  const { on, emit } = createEvent<[message: unknown]>();
  const app = offline();
  const send = (_: string, __: object, id: string) => {
    const sessions = [
      { id: 'early', updated_at: 1e9 },
      { id: 'late', updated_at: 1e300 },
    ];
    queueMicrotask(() => emit({ type: 'chat.sessions', id, payload: { sessions } }));
    return true;
  };
  Object.assign(app.session, { port: () => ({ send, onMessage: on, onOnline: () => () => {} }) });
  const chats = createChats(app);
  onTestFinished(() => chats.close());
  const list = await chats.list(new AbortController().signal);
  expect(list.map(({ id, updatedAt }) => [id, updatedAt])).toEqual([
    ['early', 1e12],
    ['late', null],
  ]);
});

it('keeps nothing of an upload that is dismissed while its failure is being stored', async () => {
  const { rows } = stubIndexedDb();
  vi.stubGlobal('navigator', {});
  vi.stubGlobal('isSecureContext', true);
  rows.set('uploads /', ['one']);
  rows.set('upload one /', { file: { name: 'a', size: 1 } });
  const app = offline({ call: async () => Promise.reject(new ApiError('no', 500)) });
  const files = createFiles(app);
  onTestFinished(() => files.close());
  await vi.waitFor(() => expect(files.transfers.value).toMatchObject([{ state: 'failed' }]), { interval: 1 });
  files.dismiss('one');
  // More turns of the database than storing the failure takes.
  for (let turn = 0; turn < 10; turn++) await app.pageStore.read('uploads');
  expect([...rows]).toEqual([['uploads /', []]]);
});
