import * as v from 'valibot';
import type { MessageStanding, PhoneHistoryItem, PhoneMessage, Reply, Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { loadInOrder, readAs } from '../kit/entries.ts';
import type { Log } from '../log.ts';
import { isLater, laterOf } from './custody.ts';
import { cursorOf, placeOf, seqOf } from './numbers.ts';
import { answersOf, isAnswerAt, isQuestion } from './question.ts';
import { unsealedReply } from './reply.ts';
import { isUnsealed } from './sealed.ts';

const MAX_ITEMS = 500;
/** Characters of texts in all items, sealed ones included: one reply may have a million. */
const MAX_CHARACTERS = 8 * 1024 * 1024;

export type MessageState = Extract<PhoneHistoryItem, { kind: 'message' }>['state'];

/** States that a message may be in before it gets into another one. It goes back only from `sent` to `queued`. */
const BEFORE: Readonly<Record<Exclude<MessageState, 'queued'>, readonly MessageState[]>> = {
  sent: ['queued'],
  // A device that gets copies shows messages that still wait for the phone.
  shown: ['queued', 'sent'],
  answered: ['queued', 'sent', 'shown'],
  expired: ['queued'],
  cancelled: ['queued'],
  dropped: ['queued'],
};

/** States of a question that is still open. */
const OPEN: readonly MessageState[] = ['queued', 'sent', 'shown'];

export type MessageItem = Extract<PhoneHistoryItem, { kind: 'message' }>;

/** Why no answer to a question counts any more (contract 09 §7). */
export type Closed = 'answered' | 'withdrawn' | 'expired';

const CLOSED: Readonly<Partial<Record<MessageState, Closed>>> = {
  answered: 'answered',
  cancelled: 'withdrawn',
  expired: 'expired',
};

/** Why a question is closed; undefined for one that is open, and for what is no question. */
export const closedBy = ({ question, state }: MessageItem): Closed | undefined =>
  question ? CLOSED[state] : undefined;

/** Standing of a message, with a withdrawal apart. */
export const standingOf = ({ state, withdrawn }: MessageItem): MessageStanding =>
  state === 'cancelled' && withdrawn ? 'withdrawn' : state;

/** An item as clients see it. `origin` says that the edge has it and home has given it no `seq` yet (contract 12 §2). */
export type HistoryRow = PhoneHistoryItem & { origin?: 'edge' };

/** The content of a message that came to the other relay. */
export type MessageContent = Pick<
  MessageItem,
  'message_id' | 'chat_id' | 'title' | 'text' | 'reply_to' | 'ts' | 'question' | 'answers' | 'unsealed'
>;

export interface HistoryPage {
  items: HistoryRow[];
  /** `seq` of the newest item, 0 without one. */
  latest: number;
}

export interface HistoryParts {
  store: Store<'phone-history'>;
  log: Log;
  /** Items are new or have changed; `latest` is the `seq` of the newest. */
  changed?(items: readonly PhoneHistoryItem[], latest: number): void;
  /** True at the edge of a mirror, whose items home numbers. */
  isEdge?(): boolean;
  /**
   * Gives home a message that it has never had. Returns what home is told of it; undefined when that is not to be now.
   */
  give?(item: MessageItem): MessageStanding | undefined;
  /** Tells the other relay of the mirror how far a message has advanced; false when that is not to be told yet. */
  tell?(messageId: string, standing: MessageStanding): boolean;
}

export type PhoneHistory = Awaited<ReturnType<typeof openHistory>>;

/**
 * The last messages and replies with what became of them (contract 09 §1). Changes are made at once and written by
 * `save`: an item that changes twice in one turn is written once.
 */
export async function openHistory(parts: HistoryParts) {
  const { store, log, changed: notify, tell, give } = parts;
  const isEdge = () => parts.isEdge?.() ?? false;
  /** By `seq`, oldest first. */
  const items = new Map<number, PhoneHistoryItem>();
  /** `seq` of the newest item of an id. */
  const seqs = { message: new Map<string, number>(), reply: new Map<string, number>() };
  const changed = new Set<number>();
  /** Items of which only what the mirror needs to know has changed. */
  const marked = new Set<number>();
  let latest = 0;
  let characters = 0;

  const find = (kind: PhoneHistoryItem['kind'], id: string): PhoneHistoryItem | undefined =>
    items.get(seqs[kind].get(id) ?? 0);

  function insert(item: PhoneHistoryItem): void {
    items.set(item.seq, item);
    if (!isBeside(item, find(item.kind, item.message_id))) seqs[item.kind].set(item.message_id, item.seq);
    characters += lengthOf(item);
    latest = item.seq;
  }

  function remove(item: PhoneHistoryItem): void {
    items.delete(item.seq);
    characters -= lengthOf(item);
    if (seqs[item.kind].get(item.message_id) === item.seq) seqs[item.kind].delete(item.message_id);
    changed.add(item.seq);
  }

  /** Removes the oldest items over the bounds, never the newest one. */
  function prune(): void {
    for (const item of items.values()) {
      if ((items.size <= MAX_ITEMS && characters <= MAX_CHARACTERS) || item.seq === latest) return;
      remove(item);
    }
  }

  function isTooOld(ts: number): boolean {
    if (items.size < MAX_ITEMS && characters < MAX_CHARACTERS) return false;
    for (const item of items.values()) if (item.ts <= ts) return false;
    return true;
  }

  function add(item: PhoneHistoryItem): void {
    insert(item);
    changed.add(item.seq);
    prune();
  }

  function replace(item: PhoneHistoryItem): void {
    const before = items.get(item.seq);
    characters += lengthOf(item) - (before ? lengthOf(before) : 0);
    items.set(item.seq, item);
    changed.add(item.seq);
  }

  /** Notes something of a message that is the mirror's alone. */
  function mark(item: MessageItem): void {
    items.set(item.seq, item);
    marked.add(item.seq);
  }

  /** Tells the other relay what it has yet to know of items that have changed. */
  function tellPeer(): void {
    for (const seq of [...changed, ...marked]) {
      const item = items.get(seq);
      if (item?.kind !== 'message') continue;
      const standing = standingOf(item);
      if (item.peer === undefined) {
        const peer = give?.(item);
        if (peer) mark({ ...item, peer });
        continue;
      }
      if (isLater(standing, item.peer) && tell?.(item.message_id, standing)) mark({ ...item, peer: standing });
    }
  }

  function findMessage(id: string | null): MessageItem | undefined {
    const item = id === null ? undefined : find('message', id);
    return item?.kind === 'message' ? item : undefined;
  }

  /** A message that came to the edge under the id of home's: it changes nothing of that. Returns its `seq`. */
  function adoptBeside(content: MessageContent, standing: MessageStanding, isAgain: boolean): number {
    for (const item of items.values())
      if (item.kind === 'message' && item.message_id === content.message_id && item.ts === content.ts) return item.seq;
    if (isAgain && isTooOld(content.ts)) return 0;
    const state = standing === 'withdrawn' ? 'cancelled' : standing;
    add({ ...content, kind: 'message', seq: latest + 1, state, peer: standing });
    return latest;
  }

  /** The `seq` of the newest item as clients see it. */
  function latestSeen(): number {
    if (!isEdge()) return latest;
    let newest = 0;
    for (const item of items.values()) newest = Math.max(newest, seqOf(item, true));
    return newest;
  }

  /** An item without what is the mirror's alone. */
  function shown(item: PhoneHistoryItem): HistoryRow {
    const { home, ...others } = item;
    if (others.kind === 'message') {
      delete others.peer;
      delete others.away;
      delete others.unsealed;
    }
    const isAtEdge = isEdge();
    return {
      ...others,
      seq: seqOf(item, isAtEdge),
      ...(isAtEdge && home === undefined && { origin: 'edge' as const }),
    };
  }

  for (const item of await loadInOrder({ store, log, read: readAs(Stored) })) insert(item);
  prune();

  return {
    /**
     * A message has been accepted; `isAsked` when a caller waits for its answer. One that replaces a queued message takes
     * its item.
     */
    message(message: PhoneMessage, isAsked = false): void {
      const { message_id, chat_id, title, text, reply_to, sent_at: ts, metadata, sealed } = message;
      const answers = answersOf(metadata);
      const content: Omit<MessageItem, 'seq'> = {
        kind: 'message',
        message_id,
        chat_id,
        title,
        text,
        reply_to,
        ts,
        state: 'queued',
        ...(isQuestion(metadata) && { question: true }),
        ...(isQuestion(metadata) && answers.length > 0 && { answers: [...answers] }),
        ...(isAsked && { asked: true }),
        ...(sealed && { sealed }),
        ...(isUnsealed(message) && { unsealed: true }),
      };
      const queued = findMessage(message_id);
      if (queued?.state === 'queued' && !isBeside(content, queued)) {
        // Home has the message that this one replaces, and gets this one.
        const peer = isEdge() ? undefined : queued.peer;
        replace({ seq: queued.seq, ...content, ...(peer !== undefined && { peer }) });
      } else add({ seq: latest + 1, ...content });
    },

    /** The newest message of an id, home's before one that came to the edge without a seal. */
    findMessage,

    /** Open questions whose callers ended with an earlier process. */
    abandoned: (): MessageItem[] =>
      [...items.values()].filter(
        (item): item is MessageItem => item.kind === 'message' && item.asked === true && OPEN.includes(item.state),
      ),

    /** Ids of questions that were withdrawn after delivery and are no older than `since` (epoch ms), oldest first. */
    withdrawnSince: (since: number): string[] =>
      [...items.values()].flatMap((item) =>
        item.kind === 'message' && item.withdrawn && item.ts >= since ? item.message_id : [],
      ),

    /** Closes an open question, also one that a phone shows. Returns false for anything else. */
    withdraw(messageId: string): boolean {
      const item = findMessage(messageId);
      if (!item?.question || !OPEN.includes(item.state)) return false;
      replace({ ...item, state: 'cancelled', withdrawn: true });
      return true;
    },

    /** A reply without an `answer_index` that does not name the answer in its text (contract 09 §10). */
    checked(reply: Reply): Reply {
      const { answer_index: index, ...others } = reply;
      if (index === undefined || isAnswerAt(findMessage(reply.reply_to)?.answers ?? [], index, reply.text))
        return reply;
      return others;
    },

    /** True if another reply came first to the same message. */
    isSecond({ message_id, reply_to }: Reply): boolean {
      for (const item of items.values()) {
        if (item.kind === 'reply' && item.reply_to === reply_to) return item.message_id !== message_id;
      }
      return false;
    },

    /** A message gets into a state, unless it is past it. Ignores unknown ids. */
    became(messageId: string, state: Exclude<MessageState, 'queued'>): void {
      const item = find('message', messageId);
      if (item?.kind !== 'message' || !BEFORE[state].includes(item.state)) return;
      // A phone may have got it from the other relay.
      const isWithdrawn = state === 'cancelled' && item.question && item.peer !== undefined;
      replace({ ...item, state, ...(isWithdrawn && { withdrawn: true }) });
    },

    /** A message that was sent has to be sent again: its socket ended before the phone proved that it had arrived. */
    returned(messageId: string): void {
      const item = find('message', messageId);
      if (item?.kind === 'message' && item.state === 'sent') replace({ ...item, state: 'queued' });
    },

    /** Messages that count as queued, but wait no longer, were sent. */
    delivered(waiting: ReadonlySet<string>): void {
      for (const item of items.values()) {
        if (item.kind === 'message' && item.state === 'queued' && !item.away && !waiting.has(item.message_id)) {
          replace({ ...item, state: 'sent' });
        }
      }
    },

    /** A new reply has arrived; `late` when its question was closed before. */
    reply({ message_id, chat_id, text, reply_to, ts, answer_index, sealed }: Reply, late?: Closed): void {
      const content = {
        kind: 'reply',
        message_id,
        chat_id,
        title: null,
        text,
        reply_to,
        ts,
        state: 'waiting',
        ...(answer_index !== undefined && { answer_index }),
        ...(late && { late }),
        ...(sealed && { sealed }),
      } as const;
      add({ seq: latest + 1, ...content });
      if (reply_to !== null) this.became(reply_to, 'answered');
    },

    /** Standing of a message; undefined for one that is not known any more. */
    stateOf(messageId: string): MessageState | undefined {
      const item = find('message', messageId);
      return item?.kind === 'message' ? item.state : undefined;
    },

    /**
     * True if this very reply has arrived before: the phone sends it again when it has missed the acknowledgement, perhaps
     * to home what it sent to the edge without a seal.
     */
    hasReply(reply: Reply): boolean {
      const item = find('reply', reply.message_id);
      if (!item) return false;
      return isSame(item, reply) || isSame(item, unsealedReply(reply)) || isSame(unsealedReply(item), reply);
    },

    /** True for a reply that is here, whose text may be sealed at the edge. */
    knowsReply: ({ message_id, ts }: Reply): boolean => find('reply', message_id)?.ts === ts,

    /** A reply could not be stored after all. */
    forget(messageId: string): void {
      const item = find('reply', messageId);
      if (item) remove(item);
    },

    /** A reader took a reply. */
    taken(messageId: string): void {
      const item = find('reply', messageId);
      if (item?.kind === 'reply') replace({ ...item, state: 'taken' });
    },

    /**
     * The other relay is given a message (`isGiven`), or has given it. Returns its `seq`, 0 for one that is not known any
     * more.
     */
    shared(messageId: string, isGiven: boolean): number {
      const item = findMessage(messageId);
      if (!item) return 0;
      if (item.peer === undefined || item.away) {
        const peer = item.peer ?? (isGiven ? give?.(item) : undefined) ?? 'queued';
        mark({ ...item, peer, away: undefined });
      }
      return item.seq;
    },

    /** The other relay has a message to deliver, and this one has it no more. */
    handedOver(messageId: string): void {
      const item = findMessage(messageId);
      if (item?.state === 'queued') mark({ ...item, away: true });
    },

    /** A message has arrived, or the other relay has to be told again how far it has advanced. */
    retell(messageId: string, peer?: MessageStanding): void {
      const item = findMessage(messageId);
      if (item?.peer !== undefined) mark({ ...item, peer: peer ?? item.peer });
    },

    /** The other relay says how far a message has advanced. */
    advance(messageId: string, standing: MessageStanding): void {
      const item = findMessage(messageId);
      if (!item) return;
      const known = { ...item, peer: laterOf(item.peer ?? 'queued', standing) };
      const state = standing === 'withdrawn' ? 'cancelled' : standing;
      if (!isLater(standing, standingOf(item))) mark(known);
      else replace({ ...known, state, withdrawn: standing === 'withdrawn' || undefined, away: undefined });
    },

    /** Messages that wait at the other relay. */
    awaited: (): MessageItem[] =>
      [...items.values()].filter(
        (item): item is MessageItem => item.kind === 'message' && item.away === true && item.state === 'queued',
      ),

    /** Messages that the other relay knows. */
    sharedIds: (): string[] =>
      [...items.values()].flatMap((item) => (item.kind === 'message' && item.peer ? item.message_id : [])),

    /** Writes what has changed. Resolves when it is durable; a failure is logged, for no message depends on it. */
    async save(): Promise<void> {
      tellPeer();
      if (changed.size === 0 && marked.size === 0) return;
      const news = [...changed].flatMap((seq) => items.get(seq) ?? []);
      if (changed.size > 0)
        notify?.(
          news.map((item) => ({ ...item, seq: seqOf(item, isEdge()) })),
          latestSeen(),
        );
      const writes = [...new Set([...changed, ...marked])].map((seq) => {
        const item = items.get(seq);
        const slot = String(seq % MAX_ITEMS);
        if (item) return store.setItem(slot, item);
        // A newer item may already have taken the slot.
        return items.has(seq + MAX_ITEMS) ? undefined : store.removeItem(slot);
      });
      changed.clear();
      marked.clear();
      try {
        await Promise.all(writes);
      } catch (error) {
        log.warn(`the history of messages could not be saved: ${describeError(error)}`);
      }
    },

    /** A `since` for what comes after everything that is here now. */
    end: (): number => cursorOf(latest, isEdge()),

    /** The `seq` of a reply as it is stored here; 0 for one that is not known any more. */
    replySeq: (messageId: string): number => find('reply', messageId)?.seq ?? 0,

    /**
     * A message that has come to the edge, with how far it has advanced there: home's history takes it once. Returns its
     * `seq`; 0 for one that is older than all that a full history keeps, where the edge offers its whole history anew
     * (`isAgain`). `wasDelivered`: home has delivered the id, so that its sender has repeated it at the edge.
     */
    adopt(
      content: MessageContent,
      standing: MessageStanding,
      { isAgain, wasDelivered }: { isAgain: boolean; wasDelivered: boolean },
    ): number {
      const { message_id: id, ts } = content;
      const own = findMessage(id);
      const isRepeated = wasDelivered && own !== undefined && hasSameWords(content, own);
      if (own && own.ts !== ts && isBeside(content, own) && !isRepeated) return adoptBeside(content, standing, isAgain);
      if (own && own.ts > ts) {
        for (const item of items.values())
          if (item.kind === 'message' && item.message_id === id && item.ts === ts) return item.seq;
      }
      if (!own || (own.ts < ts && !wasDelivered)) {
        if (isAgain && isTooOld(ts)) return 0;
        if (own?.state === 'queued')
          replace({ ...content, kind: 'message', seq: own.seq, state: 'queued', peer: 'queued' });
        else add({ ...content, kind: 'message', seq: latest + 1, state: 'queued', peer: 'queued', away: true });
      }
      this.advance(id, standing);
      return findMessage(id)?.seq ?? 0;
    },

    /** True for a time before that of every item, where there are as many as there may be. */
    isTooOld,

    /** Home has given an item its `seq`. */
    number({ kind, id, ts, seq }: { kind: PhoneHistoryItem['kind']; id: string; ts: number; seq: number }): void {
      const newest = find(kind, id);
      const item =
        newest?.ts === ts
          ? newest
          : [...items.values()].find((one) => one.kind === kind && one.message_id === id && one.ts === ts);
      if (!item || item.home === seq) return;
      const other = [...items.values()].find(({ home }) => home === seq);
      if (other) replace({ ...other, home: undefined });
      replace({ ...item, home: seq });
    },

    /** Forgets which items home has numbered: home is another one, or of another state. */
    unnumber(): void {
      for (const item of items.values()) if (item.home !== undefined) replace({ ...item, home: undefined });
    },

    /** All items, in the order in which they have come here. */
    all: (): PhoneHistoryItem[] => [...items.values()],

    /**
     * At most `limit` items after `since`, ascending. At the edge they are the first that came here after the one with
     * that `seq`.
     */
    page({ since, limit }: { since: number; limit: number }): HistoryPage {
      const isAtEdge = isEdge();
      const place = isAtEdge ? placeOf(items.values(), since) : since;
      const page: HistoryRow[] = [];
      for (const item of items.values()) {
        if (item.seq > place) page.push(shown(item));
        if (page.length === limit) break;
      }
      if (isAtEdge) page.sort((a, b) => a.seq - b.seq);
      return { items: page, latest: latestSeen() };
    },
  };
}

type ReplyContent = Pick<Reply, 'chat_id' | 'reply_to' | 'text'>;
const isSame = (a: ReplyContent, b: ReplyContent): boolean =>
  a.text === b.text && a.chat_id === b.chat_id && a.reply_to === b.reply_to;

/** Characters of an item that it does not have in common with every other one. */
function lengthOf({ text, sealed }: PhoneHistoryItem): number {
  const keys = Object.values(sealed?.keys ?? {}).reduce((sum, { length }) => sum + length, 0);
  return text.length + (sealed?.content.length ?? 0) + keys;
}

const hasSameWords = (a: MessageContent, b: MessageContent): boolean =>
  a.title === b.title && a.text === b.text && JSON.stringify(a.answers ?? []) === JSON.stringify(b.answers ?? []);

/** True for a message that home's own of the same id goes before: with other words, it is none of home's questions. */
const isBeside = (item: object, own: object | undefined): boolean =>
  own !== undefined && 'unsealed' in item && !('unsealed' in own);

const STATES = ['queued', 'sent', 'shown', 'answered', 'expired', 'cancelled', 'dropped'] as const;
const common = {
  seq: v.pipe(v.number(), v.safeInteger()),
  home: v.optional(v.number()),
  ...v.entriesFromList(['message_id', 'text'], v.string()),
  ...v.entriesFromList(['chat_id', 'title', 'reply_to'], v.fallback(v.nullable(v.string()), null)),
  ts: v.number(),
  sealed: v.optional(v.object({ by: v.string(), content: v.string(), keys: v.record(v.string(), v.string()) })),
};
const Stored: v.GenericSchema<unknown, PhoneHistoryItem> = v.variant('kind', [
  v.object({
    ...common,
    kind: v.literal('message'),
    state: v.picklist(STATES),
    answers: v.optional(v.array(v.string())),
    peer: v.optional(v.picklist([...STATES, 'withdrawn'])),
    ...v.entriesFromList(['question', 'asked', 'withdrawn', 'away', 'unsealed'], v.optional(v.literal(true))),
  }),
  v.object({
    ...common,
    kind: v.literal('reply'),
    state: v.picklist(['waiting', 'taken']),
    answer_index: v.optional(v.number()),
    late: v.optional(v.picklist(['answered', 'withdrawn', 'expired'])),
  }),
]);
