import { computed, type ReadonlySignal, signal } from '@preact/signals';
import { type Cancel, every, systemClock } from '../../../../lib/kit/clock.ts';
import { isObject } from '../../../../lib/kit/json.ts';
import { UNNUMBERED } from '../../../../lib/phone/numbers.ts';
import type { Message } from '../../../../lib/socket/envelope.ts';
import type { Api } from '../../shared/api.ts';
import { type PageStore, withEntry } from '../page-store.ts';
import type { Session } from '../session.ts';
import {
  byKey,
  type HistoryRow,
  type Item,
  inOrder,
  isOpened,
  isTooLate,
  isUnread,
  itemOfCopy,
  itemOfRow,
  keyOf,
  threadOf,
  threadsOf,
  withChanges,
} from './items.ts';
import { createOutbox, inboxChannel, type NewReply, type WaitingReply } from './outbox.ts';

/** Items per request, the maximum that the relay returns. */
const PAGE = 200;
/** Number of items whose states are read again after a loss. */
const REREAD = 100;
/** Milliseconds for one page of the history. */
const READ_TIMEOUT = 20_000;
/** Milliseconds after which an unacknowledged reply is sent again, and a failed read is repeated. */
const RETRY_EVERY = 15_000;
/** Milliseconds after which changes are stored, since messages come in bursts. */
const KEEP_AFTER = 500;
const MAX_DRAFTS = 50;
/** In place of the hash of the words shown, where this page cannot compute one: home then takes the reply for no answer. */
const UNKNOWN = '';

/** Messages between the tabs of a browser and its service worker. */
export type InboxNews = { name: 'outbox' } | { name: 'shown'; ids: string[] };

export interface InboxDeps {
  session: Session;
  api: Api;
  base: string;
  pageStore: PageStore;
  /** Called with messages that were seen, here or elsewhere, some more than once. */
  onSeen?(ids: readonly string[]): void;
}

/** Items as stored in this browser. */
interface KeptItems {
  /** The `seq` up to which every item of home's history is among them. */
  known: number;
  items: readonly Item[];
}

export type Inbox = ReturnType<typeof createInbox>;

/**
 * Messages of the agent and the replies. Copies arrive live; missed ones are read from the history by its numbers, so that
 * none is lost or shown twice. Replies stay in the outbox until the relay has them.
 */
export function createInbox({ session, api, base, pageStore, onSeen }: InboxDeps) {
  const outbox = createOutbox(pageStore, async (shown) =>
    isSecureContext ? ((await import('../sealing.ts').catch(() => undefined))?.hashOf(shown) ?? UNKNOWN) : undefined,
  );
  const channel = inboxChannel(base);
  const port = session.port('proactive');
  const items = signal<ReadonlyMap<string, Item>>(new Map());
  const waiting = signal<readonly WaitingReply[]>([]);
  const titles = signal<ReadonlyMap<string, string>>(new Map());
  const drafts = signal<Readonly<Record<string, string>>>({});
  /** Why the history could not be read. */
  const error = signal<unknown>(null);
  const isLoaded = signal(false);
  /** The `seq` up to which every item of the history is here. */
  let known = 0;
  /** The same for the mailbox, which has separate numbers. */
  let knownThere = 0;
  let reading: AbortController | null = null;
  let isBehind = false;
  let cancelKeep: Cancel = () => {};
  /** True if the stored items could not be read, so that those of this page must not replace them. */
  let isMissed = false;
  const isOffered = computed(() => session.may('phone'));
  const ordered = computed(() => inOrder(items.value.values()));

  function put(changes: readonly Item[]): void {
    if (changes.length === 0) return;
    const next = withChanges(items.value, changes);
    items.value = byKey(inOrder(next.values()));
    const read = changes.filter(({ kind, id }) => {
      const item = next.get(keyOf({ kind, id }));
      return kind === 'message' && item !== undefined && !isUnread(item);
    });
    if (read.length > 0) onSeen?.(read.map(({ id }) => id));
    // The relay has it, so it no longer waits.
    const arrived = new Set(changes.filter(({ kind }) => kind === 'reply').map(({ id }) => id));
    if (waiting.value.some(({ message_id }) => arrived.has(message_id))) void settle(arrived);
    cancelKeep();
    cancelKeep = systemClock.after(KEEP_AFTER, keepItems);
  }

  function keepItems(): void {
    cancelKeep();
    void pageStore.change<KeptItems>('items', (stored) => {
      const all = isMissed && stored && inOrder(withChanges(byKey(stored.items), ordered.value).values());
      return { known, items: all || ordered.value };
    });
  }

  /** Reads the history from the last position. A call during a read makes it read once more. */
  async function catchUp(): Promise<void> {
    isBehind = true;
    if (reading) return;
    const attempt = new AbortController();
    reading = attempt;
    try {
      while (isBehind) {
        isBehind = false;
        await readOn(attempt);
      }
      error.value = null;
    } catch (failure) {
      // A newer connection may have begun another read.
      if (reading === attempt) error.value = failure;
    } finally {
      if (reading === attempt) reading = null;
      isLoaded.value = true;
    }
  }

  async function readOn(attempt: AbortController): Promise<void> {
    const isThere = session.isAtMailbox.peek();
    for (;;) {
      const since = isThere ? knownThere : known;
      // On a silently broken connection, an answer may never come.
      const cancelTimeout = systemClock.after(READ_TIMEOUT, () => attempt.abort());
      const { items: rows, latest } = await api
        .call<{ items: HistoryRow[]; latest: number }>(`phone/history?since=${since}&limit=${PAGE}`, attempt)
        .finally(cancelTimeout);
      attempt.signal.throwIfAborted();
      if (isThere) {
        const opened = await Promise.all(rows.map((row) => (isHere(row) ? row : session.opened(row))));
        attempt.signal.throwIfAborted();
        put(opened.map((row) => ({ ...itemOfRow(row), seq: undefined })));
        reportAgain(rows);
        knownThere = rows.at(-1)?.seq ?? latest;
        if (rows.length < PAGE) return;
        continue;
      }
      if (latest < known) {
        // The relay has lost its state, and counts from the start.
        known = 0;
        items.value = new Map();
        isMissed = false;
        continue;
      }
      put(rows.map(itemOfRow));
      reportAgain(rows);
      known = rows.at(-1)?.seq ?? Math.max(known, latest);
      if (rows.length < PAGE) return;
    }
  }

  /** Messages that were seen here, but whose receipts were lost with the connection. */
  function reportAgain(rows: readonly HistoryRow[]): void {
    for (const { kind, message_id: id, state } of rows) {
      if (kind !== 'message' || (state !== 'queued' && state !== 'sent')) continue;
      if (items.value.get(keyOf({ kind, id }))?.state === 'shown') port.send('proactive.shown', { message_id: id });
    }
  }

  /** True for a sealed item that need not be opened again. */
  const isHere = ({ kind, message_id: id, ts, sealed }: HistoryRow): boolean =>
    isObject(sealed) && isOpened(items.value.get(keyOf({ kind, id })), ts);

  function receive({ type, payload }: Message): void {
    if (type === 'phone.message') {
      const item = itemOfCopy(payload);
      if (item) put([item]);
    } else if (type === 'proactive.reply.ack') {
      if (typeof payload.client_msg_id === 'string') void settle(new Set([payload.client_msg_id]));
    } else if (type === 'proactive.history') changed(payload as unknown as HistoryRow);
    else if (type === 'phone.message.cancelled') closed(payload);
  }

  /** A question was withdrawn or has expired, so nobody waits for its answer (contract 09 §7). */
  function closed({ message_id: id, reason }: Message['payload']): void {
    const item = typeof id === 'string' ? items.value.get(keyOf({ kind: 'message', id })) : undefined;
    if (item) put([{ ...item, state: reason === 'expired' ? 'expired' : 'cancelled' }]);
  }

  /** The relay reports the new state of an item. */
  function changed({ seq, kind, message_id: id, state }: HistoryRow): void {
    const item = items.value.get(keyOf({ kind, id }));
    if (session.isAtMailbox.peek()) {
      if (item) put([{ ...item, state }]);
      if (seq > knownThere) void catchUp();
      return;
    }
    // Home has assigned a number to an item of the edge.
    const isNumbered = item?.seq !== undefined && item.seq > UNNUMBERED && seq < UNNUMBERED;
    if (item && (item.seq === undefined || item.seq === seq || isNumbered)) {
      put([{ ...item, seq, state }]);
      if (seq === known + 1) known = seq;
    }
    if (seq > known) void catchUp();
  }

  async function settle(ids: ReadonlySet<string>): Promise<void> {
    waiting.value = await outbox.remove(ids);
    channel.postMessage({ name: 'outbox' } satisfies InboxNews);
  }

  function send({ plain, ...reply }: WaitingReply): void {
    // A reply is sealed like the message that this page shows. Over plain http nothing removes this member before it is sent.
    const hint = isSecureContext && session.isAtMailbox.peek() && { plain: plain === true };
    port.send('proactive.reply', { ...reply, ...hint }, reply.message_id);
  }

  const sendWaiting = (): void => waiting.value.forEach(send);

  function retry(): void {
    sendWaiting();
    if (error.value) void catchUp();
  }

  async function readTitles(): Promise<void> {
    // The mailbox knows only the states of messages that arrived there, which are here, and of no sealed one.
    if (session.isAtMailbox.peek()) return;
    type Row = { chat_id: string; title: string | null };
    const { threads } = await api.call<{ threads: Row[] }>('phone/threads').catch(() => ({ threads: [] as Row[] }));
    if (threads.length === 0) return;
    const named = threads.flatMap(({ chat_id, title }) => (title ? [[threadOf(chat_id), title] as const] : []));
    titles.value = new Map(named.reverse());
  }

  function enter(): Cancel | void {
    if (!isOffered.value) return undefined;
    port.send('proactive.subscribe', { mirror: true });
    known = Math.max(0, known - REREAD);
    knownThere = 0;
    // Requests of the former connection may never be answered.
    reading?.abort();
    reading = null;
    void catchUp();
    void readTitles();
    sendWaiting();
    return every(systemClock, RETRY_EVERY, retry, () => {});
  }

  channel.onmessage = async ({ data }: MessageEvent<InboxNews>) => {
    if (data.name === 'shown') {
      put(data.ids.flatMap((id) => seen(id) ?? []));
      return;
    }
    const before = new Set(waiting.value.map(({ message_id }) => message_id));
    waiting.value = await outbox.list();
    if (waiting.value.some(({ message_id }) => !before.has(message_id))) sendWaiting();
  };

  function seen(id: string): Item | undefined {
    const item = items.value.get(keyOf({ kind: 'message', id }));
    if (!item || !isUnread(item)) return undefined;
    return isTooLate(item) ? { ...item, isSeen: true } : { ...item, state: 'shown' };
  }

  const stops: Cancel[] = [];
  /** Stored items are read first, so that arriving ones are never older. */
  const opened = (async () => {
    const stored = await pageStore.find<KeptItems>('items').catch(() => {
      isMissed = true;
    });
    if (stored) {
      known = stored.known;
      // Items of an older version have no answers.
      items.value = byKey(stored.items.map((item) => ({ ...item, answers: item.answers ?? [] })));
      isLoaded.value = items.value.size > 0;
    }
    // A thread may be shown by now, and something typed in it.
    drafts.value = { ...(await pageStore.read<Record<string, string>>('drafts')), ...drafts.value };
    waiting.value = await outbox.list();
    stops.push(port.onMessage(receive), port.onOnline(enter));
  })();

  return {
    opened,
    /** True if this session may have messages. */
    isOffered,
    /** Oldest first. */
    items: ordered as ReadonlySignal<readonly Item[]>,
    threads: computed(() => threadsOf(ordered.value, titles.value)),
    unread: computed(() => ordered.value.filter(isUnread).length),
    waiting: waiting as ReadonlySignal<readonly WaitingReply[]>,
    drafts: drafts as ReadonlySignal<Readonly<Record<string, string>>>,
    error: error as ReadonlySignal<unknown>,
    isLoaded: isLoaded as ReadonlySignal<boolean>,
    /** Called at every connection. */
    onOnline: port.onOnline,
    catchUp,

    /** Sends a reply, now or once there is a connection. @throws Error worded for people. */
    async reply(reply: NewReply): Promise<void> {
      const asked = reply.reply_to ? items.value.get(keyOf({ kind: 'message', id: reply.reply_to })) : undefined;
      const added = await outbox.add({
        ...reply,
        plain: asked?.seal === 'none',
        // This page shows a text of its own in place of an unopened message.
        asked: asked?.seal === 'unopened' ? undefined : asked,
      });
      waiting.value = await outbox.list();
      send(added);
      channel.postMessage({ name: 'outbox' } satisfies InboxNews);
    },

    /** A person sees these messages now. */
    show(ids: readonly string[]): void {
      const fresh = ids.flatMap((id) => seen(id) ?? []);
      if (fresh.length === 0) return;
      for (const item of fresh) {
        if (isTooLate(item)) continue;
        // After an unsent receipt, the message stays unread on the relay; the receipt is sent when the message is next seen.
        if (!port.send('proactive.shown', { message_id: item.id })) return;
      }
      put(fresh);
      // Only this page knows that they were seen, and it may be closed now.
      if (fresh.some(isTooLate)) keepItems();
      const shown = fresh.map(({ id }) => id);
      channel.postMessage({ name: 'shown', ids: shown } satisfies InboxNews);
    },

    /** Stores a draft; an empty text removes it. */
    draft(thread: string, text: string): void {
      const changed = (all: Readonly<Record<string, string>> = {}) =>
        withEntry(all, thread, text === '' ? undefined : text, MAX_DRAFTS);
      drafts.value = changed(drafts.value);
      // Another tab may have stored drafts of other threads.
      void pageStore.change<Record<string, string>>('drafts', changed);
    },

    /** Erases everything, and writes no more to the page store. */
    clear(): void {
      cancelKeep();
      reading?.abort();
      reading = null;
      known = 0;
      items.value = new Map();
      titles.value = new Map();
      drafts.value = {};
      waiting.value = [];
    },

    close(): void {
      cancelKeep();
      for (const stop of stops) stop();
      channel.close();
    },
  };
}
