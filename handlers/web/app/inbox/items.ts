import { isTime } from '../../../../lib/kit/clock.ts';
import { asObject, isObject } from '../../../../lib/kit/json.ts';
import { answersOf } from '../../../../lib/phone/question.ts';
import type { Payload } from '../../../../lib/socket/envelope.ts';

type MessageState = 'queued' | 'sent' | 'shown' | 'answered' | 'expired' | 'cancelled' | 'dropped';

/** A message of the agent, or a reply to it. */
export interface Item {
  kind: 'message' | 'reply';
  id: string;
  /** Its thread: `chat_id`, or the home thread for messages without one. */
  thread: string;
  chatId: string | null;
  title: string | null;
  text: string;
  replyTo: string | null;
  /** Epoch ms. */
  ts: number;
  state: MessageState | 'waiting' | 'taken';
  /** Its `seq` in the relay's history; absent until known. */
  seq?: number;
  /** Answers to choose from, as named by the relay (contract 09 §10). */
  answers: readonly string[];
  /** Why a reply came too late for its question. */
  late?: LateReason;
  /** True if this browser has seen a message that came too late, for which the relay has no state. */
  isSeen?: boolean;
  /**
   * How it came through the mailbox (contract 12 §4): sealed and opened here, sealed and not opened, or unsealed, so that
   * anybody there may have written it.
   */
  seal?: 'opened' | 'unopened' | 'none';
}

/** Text shown in place of one that cannot be opened. */
const UNOPENED = 'This is sealed, and this browser cannot open it. What home has of it shows here once home is back.';

/** `withdrawn` by the agent, or `answered` on another device (contract 09 §7). */
export type LateReason = 'answered' | 'withdrawn' | 'expired';

/** One row of `GET /phone/history` (contract 09 §1). */
export interface HistoryRow {
  seq: number;
  kind: 'message' | 'reply';
  message_id: string;
  chat_id: string | null;
  title: string | null;
  text: string;
  reply_to: string | null;
  ts: number;
  state: Item['state'];
  answers?: string[];
  late?: LateReason;
  sealed?: unknown;
}

/** The thread of messages without a chat (contract 04 §5.7). */
export const HOME_THREAD = 'phone';

/** Maximum items, the same as at the relay. */
const MAX_ITEMS = 500;

export const threadOf = (chatId: string | null): string => (chatId?.trim() ? chatId : HOME_THREAD);

export const keyOf = ({ kind, id }: Pick<Item, 'kind' | 'id'>): string => `${kind} ${id}`;

export const byKey = (items: readonly Item[]): Map<string, Item> => new Map(items.map((item) => [keyOf(item), item]));

/**
 * The seal of a message or reply. If it is unopened, a text of this page replaces the surrounding text, which is the edge's.
 */
function sealOf(sealed: unknown): Partial<Item> {
  if (isObject(sealed)) return { seal: 'unopened', title: null, text: UNOPENED, answers: [] };
  if (sealed === true) return { seal: 'opened' };
  return sealed === false ? { seal: 'none' } : {};
}

export const itemOfRow = (row: HistoryRow): Item => ({
  kind: row.kind,
  id: row.message_id,
  thread: threadOf(row.chat_id),
  chatId: row.chat_id,
  title: row.title,
  text: row.text,
  replyTo: row.reply_to,
  ts: isTime(row.ts) ? row.ts : Date.now(),
  state: row.state,
  seq: row.seq,
  answers: answersOf(row),
  late: row.late,
  ...sealOf(row.sealed),
});

/** A copy of a message that has just arrived (contract 09 §1); undefined if it is invalid. */
export function itemOfCopy(payload: Payload): Item | undefined {
  const { message_id: id, chat_id, title, text, reply_to, sent_at: ts } = payload;
  const metadata = asObject(payload.metadata) ?? {};
  if (typeof id !== 'string' || typeof text !== 'string') return undefined;
  const label = (value: unknown) => (typeof value === 'string' ? value : null);
  const chatId = label(chat_id);
  return {
    kind: 'message',
    id,
    thread: threadOf(chatId),
    chatId,
    title: label(title),
    text,
    replyTo: label(reply_to),
    ts: isTime(ts) ? ts : Date.now(),
    // The history reports its state right afterwards.
    state: 'queued',
    answers: answersOf(metadata),
    ...sealOf(payload.sealed ?? (metadata.sealed === false ? false : undefined)),
  };
}

const PROGRESS: Readonly<Record<Item['state'], number>> = {
  queued: 0,
  waiting: 0,
  // The relay queues a message again if it may not have arrived.
  sent: 0,
  taken: 1,
  shown: 2,
  answered: 3,
  expired: 3,
  cancelled: 3,
  dropped: 3,
};

/** Merges two versions of the same item: the position of the newer one, and the more advanced state. */
export function merged(known: Item | undefined, next: Item): Item {
  if (!known || (known.seq !== undefined && next.seq !== undefined && known.seq !== next.seq)) return next;
  const isFurther = PROGRESS[next.state] >= PROGRESS[known.state];
  // Content from home is kept, whatever the edge sends under the same id.
  const isSame = next.seal === 'none' && known.text === next.text && isOpened(known, known.ts);
  const isKnown = isSame || (next.seal === 'unopened' && isOpened(known, next.ts));
  // Home's history does not record which items came through the edge.
  const isMarked = known.seal === 'none' && next.seal === undefined;
  return {
    ...(isKnown ? known : next),
    late: next.late,
    seal: isKnown || isMarked ? known.seal : next.seal,
    seq: next.seq ?? known.seq,
    state: isFurther ? next.state : known.state,
    isSeen: next.isSeen ?? known.isSeen,
  };
}

/** Items by key, with newer versions of some of them, or further ones. */
export function withChanges(known: ReadonlyMap<string, Item>, changes: readonly Item[]): Map<string, Item> {
  const next = new Map(known);
  for (const item of changes) next.set(keyOf(item), merged(next.get(keyOf(item)), item));
  return next;
}

/** True if it is exactly this item, and from home: opened here, or sent by home itself. */
export const isOpened = (known: Item | undefined, ts: number): boolean =>
  known !== undefined && (known.seal === undefined || known.seal === 'opened') && known.ts === ts;

/** Oldest first. An item without a position in the history, as at the mailbox, follows the last one that is no newer. */
export function inOrder(items: Iterable<Item>): Item[] {
  const all = [...items].sort((a, b) => (a.seq ?? 0) - (b.seq ?? 0) || a.ts - b.ts);
  const ordered = all.filter(({ seq }) => seq !== undefined);
  for (const item of all.filter(({ seq }) => seq === undefined)) {
    ordered.splice(ordered.findLastIndex(({ ts }) => ts <= item.ts) + 1, 0, item);
  }
  return ordered.slice(-MAX_ITEMS);
}

/** States of a message that nobody needs to look at any more (contract 09 §10). */
const READ: ReadonlySet<Item['state']> = new Set(['shown', 'answered', 'cancelled']);

/** True if nobody has seen a message yet, including one that never reached a phone in time. */
export const isUnread = ({ kind, state, isSeen }: Item): boolean =>
  kind === 'message' && !READ.has(state) && isSeen !== true;

/** States of messages that never reached a phone. */
export const isTooLate = ({ state }: Item): boolean => state === 'expired' || state === 'dropped';

export interface Thread {
  id: string;
  title: string | null;
  last: Item;
  unread: number;
}

/** Threads of the items, the one with the newest item first. `titles` are those known to the relay. */
export function threadsOf(items: readonly Item[], titles: ReadonlyMap<string, string>): Thread[] {
  const threads = new Map<string, Thread>();
  for (const item of items) {
    const known = threads.get(item.thread);
    // An unsealed message must not rename a thread.
    const title = item.seal === 'none' ? (known?.title ?? item.title) : (item.title ?? known?.title);
    threads.delete(item.thread);
    threads.set(item.thread, {
      id: item.thread,
      title: titles.get(item.thread) ?? title ?? null,
      last: item,
      unread: (known?.unread ?? 0) + (isUnread(item) ? 1 : 0),
    });
  }
  return [...threads.values()].reverse();
}
