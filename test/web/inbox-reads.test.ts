import { signal } from '@preact/signals';
import { beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { createInbox, type InboxDeps } from '../../handlers/web/app/inbox/inbox.ts';
import { type HistoryRow, itemOfRow } from '../../handlers/web/app/inbox/items.ts';
import { openPageStore } from '../../handlers/web/app/page-store.ts';
import { deferred } from '../../lib/kit/deferred.ts';
import { stubIndexedDb } from '../support/fake-indexeddb.ts';

const BASE = 'https://relay.example/';

const rowOf = (seq: number): HistoryRow => ({
  seq,
  kind: 'message',
  message_id: `m${seq}`,
  chat_id: null,
  title: null,
  text: `Message ${seq}`,
  reply_to: null,
  ts: seq,
  state: 'shown',
});

interface Read {
  path: string;
  signal: AbortSignal;
  answer(rows: HistoryRow[]): void;
  fail(): void;
}

/** Without storage. */
const EMPTY = { find: async () => undefined, read: async () => undefined, change: async () => undefined };

/** An inbox whose history the case answers, and the means to connect it. */
async function openInbox(pageStore: object = EMPTY, meanwhile = (_: ReturnType<typeof createInbox>) => {}) {
  const reads: Read[] = [];
  let listen: Parameters<ReturnType<InboxDeps['session']['port']>['onMessage']>[0] = () => {};
  let connect = (): unknown => undefined;
  const sent: [type: string, payload: unknown][] = [];
  const port = {
    send: (type: string, payload: unknown) => sent.push([type, payload]) > 0,
    onMessage(listener: typeof listen) {
      listen = listener;
      return () => {};
    },
    onOnline(listener: typeof connect) {
      connect = listener;
      return () => {};
    },
  };
  const call = (path: string, { signal }: { signal?: AbortSignal } = {}) => {
    if (!path.startsWith('phone/history') || !signal) return Promise.resolve({ threads: [] });
    const { promise, resolve, reject } = deferred<unknown>();
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason));
    reads.push({
      path,
      signal,
      answer: (items) => resolve({ items, latest: items.at(-1)?.seq ?? 0 }),
      fail: () => reject(new Error('no answer')),
    });
    return promise;
  };
  const inbox = createInbox({
    session: { port: () => port, isAtMailbox: signal(false), may: () => true },
    api: { call },
    base: BASE,
    pageStore,
  } as unknown as InboxDeps);
  onTestFinished(() => inbox.close());
  meanwhile(inbox);
  await Promise.all([inbox.opened, vi.advanceTimersByTimeAsync(100)]);
  return {
    inbox,
    reads,
    /** Messages that were reported as shown. */
    shown: () => sent.filter(([type]) => type === 'proactive.shown').map(([, payload]) => payload),
    connect: () => connect() as () => void,
    report: (row: HistoryRow) => listen({ type: 'proactive.history', payload: { ...row } } as never),
    texts: () => inbox.items.value.map((item) => item.text),
  };
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
});

const settle = () => vi.advanceTimersByTimeAsync(0);

it('reads the history again while it is connected, after a read that failed', async () => {
  const { inbox, reads, connect, texts } = await openInbox();
  const disconnect = connect();
  reads[0]?.fail();
  await settle();
  expect(inbox.error.value).toBeInstanceOf(Error);
  await vi.advanceTimersByTimeAsync(15_000);
  expect(reads).toHaveLength(2);
  reads[1]?.answer([rowOf(1)]);
  await settle();
  expect([texts(), inbox.error.value]).toEqual([['Message 1'], null]);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(reads).toHaveLength(2);
  disconnect();
});

it('gives up a read without an answer after 20 s, and tries again', async () => {
  const { inbox, reads, connect, texts } = await openInbox();
  const disconnect = connect();
  await vi.advanceTimersByTimeAsync(20_000);
  expect([reads[0]?.signal.aborted, inbox.error.value]).toEqual([true, expect.anything()]);
  await vi.advanceTimersByTimeAsync(10_000);
  reads[1]?.answer([rowOf(1)]);
  await settle();
  expect(texts()).toEqual(['Message 1']);
  disconnect();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(reads).toHaveLength(2);
});

it('a read that a new connection has replaced takes nothing from its successor', async () => {
  const { inbox, reads, connect, report, texts } = await openInbox();
  connect()();
  // It was answered just before.
  reads[0]?.answer([]);
  const disconnect = connect();
  expect(reads.map(({ signal }) => signal.aborted)).toEqual([true, false]);
  // A message that arrives during the new read is not in its answer.
  report(rowOf(2));
  await settle();
  reads[1]?.answer([rowOf(1)]);
  await settle();
  expect(inbox.error.value).toBeNull();
  reads[2]?.answer([rowOf(2)]);
  await settle();
  expect(texts()).toEqual(['Message 1', 'Message 2']);
  disconnect();
});

/** Opens an inbox that cannot read what is stored: two messages, the first of which the relay has no longer. */
async function openUnread() {
  const { rows, failing } = stubIndexedDb();
  const seen = { ...itemOfRow({ ...rowOf(1), state: 'expired' }), isSeen: true };
  rows.set('items /', { known: 2, items: [seen, itemOfRow(rowOf(2))] });
  failing.read = true;
  return { ...(await openInbox(openPageStore(BASE))), rows, failing, seen };
}

it('keeps stored messages that could not be read at the start, with those that have arrived', async () => {
  const { reads, connect, report, texts, rows, failing, seen } = await openUnread();
  const disconnect = connect();
  const third = { ...rowOf(3), state: 'sent' as const };
  reads[0]?.answer([rowOf(2), third]);
  await vi.advanceTimersByTimeAsync(1000);
  expect(texts()).toEqual(['Message 2', 'Message 3']);
  report(rowOf(3));
  failing.read = false;
  await vi.advanceTimersByTimeAsync(1000);
  const all = { known: 3, items: [seen, itemOfRow(rowOf(2)), itemOfRow(rowOf(3))] };
  expect(rows.get('items /')).toEqual(all);
  // Those of the page replace none of them later either.
  report(rowOf(3));
  await vi.advanceTimersByTimeAsync(1000);
  expect(rows.get('items /')).toEqual(all);
  disconnect();
});

it('keeps no stored message of a state that the relay has lost, even if it could not be read', async () => {
  const { reads, connect, rows, failing } = await openUnread();
  connect()();
  reads[0]?.answer([rowOf(200)]);
  await settle();
  const disconnect = connect();
  for (const read of [1, 2]) {
    reads[read]?.answer([rowOf(1)]);
    await settle();
  }
  failing.read = false;
  await vi.advanceTimersByTimeAsync(1000);
  expect(rows.get('items /')).toEqual({ known: 1, items: [itemOfRow(rowOf(1))] });
  disconnect();
});

it('keeps what is typed while the stored drafts are read', async () => {
  const read = async (name: string) => (name === 'drafts' ? { t1: 'stored', t2: 'stored' } : undefined);
  const { inbox } = await openInbox({ ...EMPTY, read }, (inbox) => inbox.draft('t1', 'typed'));
  expect(inbox.drafts.value).toEqual({ t1: 'typed', t2: 'stored' });
});

it('09 §1: reports a message as shown again if the receipt was lost with its connection', async () => {
  const { inbox, reads, connect, shown } = await openInbox();
  const [unseen, seen] = [rowOf(1), rowOf(2)].map((row): HistoryRow => ({ ...row, state: 'sent' }));
  const rows = [unseen, seen] as HistoryRow[];
  const lose = connect();
  reads[0]?.answer(rows);
  await settle();
  inbox.show(['m2']);
  expect(shown()).toEqual([{ message_id: 'm2' }]);
  lose();
  const disconnect = connect();
  reads[1]?.answer(rows);
  await settle();
  expect(shown()).toEqual([{ message_id: 'm2' }, { message_id: 'm2' }]);
  disconnect();
});
