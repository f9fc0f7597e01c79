import * as v from 'valibot';
import type {
  MessageStanding,
  PhoneHistoryItem,
  PhoneMessage,
  Reply,
  SealedText,
  Store,
} from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { readSealed } from '../kit/box.ts';
import { loadInOrder, readAs } from '../kit/entries.ts';
import type { Log } from '../log.ts';
import { isLater, laterOf } from './custody.ts';
import { cursorOf, placeOf, seqOf } from './numbers.ts';
import { answersOf, isAnswerAt, isQuestion } from './question.ts';
import { unsealedReply } from './reply.ts';
import { isUnsealed } from './sealed.ts';

const MAX_ITEMS = 500;
/** Maximum characters of texts in all items, including sealed ones: one reply may have a million. */
const MAX_CHARACTERS = 8 * 1024 * 1024;

export type MessageState = Extract<PhoneHistoryItem, { kind: 'message' }>['state'];

/** States from which a message may enter another one. It only ever returns from `sent` to `queued`. */
const BEFORE: Readonly<Record<Exclude<MessageState, 'queued'>, readonly MessageState[]>> = {
  sent: ['queued'],
  // A device that gets copies may show messages that still wait for the phone.
  shown: ['queued', 'sent'],
  answered: ['queued', 'sent', 'shown'],
  expired: ['queued'],
  cancelled: ['queued'],
  dropped: ['queued'],
};

/** States of an open question. */
const OPEN: readonly MessageState[] = ['queued', 'sent', 'shown'];

export type MessageItem = Extract<PhoneHistoryItem, { kind: 'message' }>;

/** Why a question accepts no more answers (contract 09 §7). */
export type Closed = 'answered' | 'withdrawn' | 'expired';

const CLOSED: Readonly<Partial<Record<MessageState, Closed>>> = {
  answered: 'answered',
  cancelled: 'withdrawn',
  expired: 'expired',
};

/** Why a question is closed; undefined for an open one, and for a message that is not a question. */
export const closedBy = ({ question, state }: MessageItem): Closed | undefined =>
  question ? CLOSED[state] : undefined;

/** Standing of a message, which distinguishes withdrawals. */
export const standingOf = ({ state, withdrawn }: MessageItem): MessageStanding =>
  state === 'cancelled' && withdrawn ? 'withdrawn' : state;

/**
 * An item as shown to clients. `origin` means that the edge has it but home has not assigned a `seq` yet (contract 12 §2).
 */
export type HistoryRow = PhoneHistoryItem & { origin?: 'edge' };

/** The content of a message that arrived at the other relay. */
export type MessageContent = Pick<
  MessageItem,
  'message_id' | 'chat_id' | 'title' | 'text' | 'reply_to' | 'ts' | 'question' | 'answers' | 'unsealed'
>;

export interface HistoryPage {
  items: HistoryRow[];
  /** `seq` of the newest item; 0 for an empty history. */
  latest: number;
}

export interface HistoryDeps {
  store: Store<'phone-history'>;
  /** When `svc restore` put this state in place, if it did. */
  restored?: Store<'restored'>;
  log: Log;
  /** Items are new or have changed; `latest` is the `seq` of the newest. */
  changed?(items: readonly PhoneHistoryItem[], latest: number): void;
  /** True at the edge of a mirror, where home assigns the numbers. */
  isEdge?(): boolean;
  /** Sends home a message that it has never had. Returns the standing sent; undefined if it cannot be sent now. */
  give?(item: MessageItem): MessageStanding | undefined;
  /** Reports the progress of a message to the other relay of the mirror; false if that is not possible yet. */
  report?(messageId: string, standing: MessageStanding): boolean;
}

export type PhoneHistory = Awaited<ReturnType<typeof openHistory>>;

/**
 * The last messages and replies with their states (contract 09 §1). Changes take effect at once and are written by `save`,
 * so that an item with two changes in one turn is written once.
 */
export async function openHistory(deps: HistoryDeps) {
  const { store, log, changed: notify, report, give } = deps;
  const isEdge = () => deps.isEdge?.() ?? false;
  /** Keyed by `seq`, oldest first. */
  const items = new Map<number, PhoneHistoryItem>();
  /** `seq` of the newest item with an id. */
  const seqs = { message: new Map<string, number>(), reply: new Map<string, number>() };
  const changed = new Set<number>();
  /** Items with changes that concern only the mirror. */
  const marked = new Set<number>();
  /** Writes that have not ended. */
  const writing = new Set<Promise<boolean>>();
  let latest = 0;
  let characters = 0;

  /**
   * Devices have seen higher numbers than a restored backup holds. The time of the restore in seconds is above all of them,
   * since no relay gives more than one number a second for years.
   */
  const floor = readAs(Restored)(await deps.restored?.getItem('restored'))?.at ?? 0;
  const nextSeq = (): number => Math.max(latest, floor) + 1;

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

  /** Removes the oldest items over the bounds, but never the newest one. */
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

  /** Records a change of a message that concerns only the mirror. */
  function mark(item: MessageItem): void {
    items.set(item.seq, item);
    marked.add(item.seq);
  }

  /** Reports changed items that the other relay does not know yet. */
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
      if (isLater(standing, item.peer) && report?.(item.message_id, standing)) mark({ ...item, peer: standing });
    }
  }

  const messages = (): MessageItem[] => [...items.values()].filter((item) => item.kind === 'message');

  function findMessage(id: string | null): MessageItem | undefined {
    const item = id === null ? undefined : find('message', id);
    return item?.kind === 'message' ? item : undefined;
  }

  /** The item of this id and time, which need not be the newest of its id. */
  function findExact(kind: PhoneHistoryItem['kind'], id: string, ts: number): PhoneHistoryItem | undefined {
    const newest = find(kind, id);
    if (newest?.ts === ts) return newest;
    return [...items.values()].find((item) => item.kind === kind && item.message_id === id && item.ts === ts);
  }

  /** Adds a message that came to the edge under the id of one of home's, which stays as it is. Returns its `seq`. */
  function adoptBeside(content: MessageContent, standing: MessageStanding, isAgain: boolean): number {
    const known = findExact('message', content.message_id, content.ts);
    if (known) return known.seq;
    if (isAgain && isTooOld(content.ts)) return 0;
    const state = standing === 'withdrawn' ? 'cancelled' : standing;
    add({ ...content, kind: 'message', seq: nextSeq(), state, peer: standing });
    return latest;
  }

  /** The `seq` of the newest item, as shown to clients. */
  function latestSeen(): number {
    if (!isEdge()) return latest;
    let newest = 0;
    for (const item of items.values()) newest = Math.max(newest, seqOf(item, true));
    return newest;
  }

  /** Writes changed items. Resolves with false if that fails. */
  async function writeChanged(): Promise<boolean> {
    if (changed.size > 0) {
      const isAtEdge = isEdge();
      const news: PhoneHistoryItem[] = [];
      for (const seq of changed) {
        const item = items.get(seq);
        if (item) news.push(isAtEdge ? { ...item, seq: seqOf(item, true) } : item);
      }
      notify?.(news, latestSeen());
    }
    // After a failure, several seqs may share a slot, which is the newest one's.
    const seqs = new Map<string, number>();
    for (const some of [changed, marked]) {
      for (const seq of some) {
        const slot = String(seq % MAX_ITEMS);
        if (seq > (seqs.get(slot) ?? 0)) seqs.set(slot, seq);
      }
    }
    const writes = [...seqs].map(([slot, seq]) => {
      const item = items.get(seq);
      if (item) return store.setItem(slot, item);
      // A newer item may already use the slot.
      return items.has(seq + MAX_ITEMS) ? undefined : store.removeItem(slot);
    });
    changed.clear();
    marked.clear();
    try {
      await Promise.all(writes);
    } catch (error) {
      for (const seq of seqs.values()) marked.add(seq);
      log.warn(`the history of messages could not be saved: ${describeError(error)}`);
      return false;
    }
    return true;
  }

  /** An item without the members of the mirror. */
  function shown(item: PhoneHistoryItem, freshSince: number): HistoryRow {
    const { home, ...others } = item;
    if (others.kind === 'message') {
      if (isAway(others) && others.ts < freshSince) others.state = 'expired';
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
     * Adds an accepted message; `isAsked` if a caller waits for its answer. If it replaces a queued message, it takes over
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
        // Home has the replaced message, and gets this one.
        const peer = isEdge() ? undefined : queued.peer;
        replace({ seq: queued.seq, ...content, ...(peer !== undefined && { peer }) });
      } else add({ seq: nextSeq(), ...content });
    },

    /** Takes back changes of an item, such as its replacement by a message that could not be stored. */
    restore(item: MessageItem): void {
      if (items.has(item.seq)) replace(item);
    },

    /** The newest message with an id. Home's own takes precedence over an unsealed one from the edge. */
    findMessage,

    /** Open questions whose callers ended with an earlier process. */
    abandoned: (): MessageItem[] => messages().filter(({ asked, state }) => asked && OPEN.includes(state)),

    /** Ids of questions that were withdrawn after delivery, no earlier than `since` (epoch ms), oldest first. */
    withdrawnSince: (since: number): string[] =>
      messages().flatMap(({ withdrawn, ts, message_id }) => (withdrawn && ts >= since ? message_id : [])),

    /** Closes an open question, even one that a phone shows. Returns false for any other message. */
    withdraw(messageId: string): boolean {
      const item = findMessage(messageId);
      if (!item?.question || !OPEN.includes(item.state)) return false;
      replace({ ...item, state: 'cancelled', withdrawn: true });
      return true;
    },

    /** A reply, without its `answer_index` if that does not match the text (contract 09 §10). */
    checked(reply: Reply): Reply {
      const { answer_index: index, ...others } = reply;
      if (index === undefined || isAnswerAt(findMessage(reply.reply_to)?.answers ?? [], index, reply.text))
        return reply;
      return others;
    },

    /** True if the same message already has another reply. */
    isSecond({ message_id, reply_to }: Reply): boolean {
      for (const item of items.values()) {
        if (item.kind === 'reply' && item.reply_to === reply_to) return item.message_id !== message_id;
      }
      return false;
    },

    /** Moves a message to a state, unless it has progressed further. Ignores unknown ids. */
    became(messageId: string, state: Exclude<MessageState, 'queued'>): void {
      const item = findMessage(messageId);
      if (!item || !BEFORE[state].includes(item.state)) return;
      // A phone may have got it from the other relay.
      const isWithdrawn = state === 'cancelled' && item.question && item.peer !== undefined;
      replace({ ...item, state, ...(isWithdrawn && { withdrawn: true }) });
    },

    /** A sent message has to be sent again, since its socket closed before the phone proved its arrival. */
    returned(messageId: string): void {
      const item = findMessage(messageId);
      if (item?.state === 'sent') replace({ ...item, state: 'queued' });
    },

    /** Messages that count as queued but no longer wait were sent. */
    delivered(waiting: ReadonlySet<string>): void {
      for (const item of messages()) {
        if (item.state === 'queued' && !item.away && !waiting.has(item.message_id)) replace({ ...item, state: 'sent' });
      }
    },

    /** Adds a new reply; `late` if its question was closed before. */
    reply({ message_id, chat_id, text, reply_to, ts, answer_index, sealed }: Reply, lateReason?: Closed): void {
      add({
        seq: nextSeq(),
        kind: 'reply',
        message_id,
        chat_id,
        title: null,
        text,
        reply_to,
        ts,
        state: 'waiting',
        ...(answer_index !== undefined && { answer_index }),
        ...(lateReason && { late: lateReason }),
        ...(sealed && { sealed }),
      });
      if (reply_to !== null) this.became(reply_to, 'answered');
    },

    /** Standing of a message; undefined for an unknown one. */
    stateOf: (messageId: string): MessageState | undefined => findMessage(messageId)?.state,

    /**
     * True if this exact reply has arrived before. A phone repeats it if it missed the acknowledgement, perhaps to home
     * after sending it unsealed to the edge.
     */
    hasReply(reply: Reply): boolean {
      const item = find('reply', reply.message_id);
      if (!item) return false;
      return isSame(item, reply) || isSame(item, unsealedReply(reply)) || isSame(unsealedReply(item), reply);
    },

    /** True for a known reply, whose text may be sealed at the edge. */
    knowsReply: ({ message_id, ts }: Reply): boolean => find('reply', message_id)?.ts === ts,

    /** Removes a reply that could not be stored. Its device has shown the message, which is unanswered without another reply. */
    forget(messageId: string): void {
      const item = find('reply', messageId);
      if (!item) return;
      remove(item);
      const message = findMessage(item.reply_to);
      const isAnswered = [...items.values()].some(
        ({ kind, reply_to }) => kind === 'reply' && reply_to === item.reply_to,
      );
      if (message?.state === 'answered' && !isAnswered) replace({ ...message, state: 'shown' });
    },

    /** A reader took a reply. */
    taken(messageId: string): void {
      const item = find('reply', messageId);
      if (item?.kind === 'reply') replace({ ...item, state: 'taken' });
    },

    /** A message was handed to the other relay (`isGiven`), or received from it. Returns its `seq`, 0 for an unknown one. */
    shared(messageId: string, isGiven: boolean): number {
      const item = findMessage(messageId);
      if (!item) return 0;
      if (item.peer === undefined || item.away) {
        const peer = item.peer ?? (isGiven ? give?.(item) : undefined) ?? 'queued';
        mark({ ...item, peer, away: undefined });
      }
      return item.seq;
    },

    /** The other relay has taken over a message, which no longer waits here. */
    handedOver(messageId: string): void {
      const item = findMessage(messageId);
      if (item?.state === 'queued') mark({ ...item, away: true });
    },

    /** A message has arrived, or its progress must be reported to the other relay again. */
    retell(messageId: string, peer?: MessageStanding): void {
      const item = findMessage(messageId);
      if (item?.peer !== undefined) mark({ ...item, peer: peer ?? item.peer });
    },

    /** The other relay reports the progress of a message. */
    advance(messageId: string, standing: MessageStanding): void {
      const item = findMessage(messageId);
      if (!item) return;
      const known = { ...item, peer: laterOf(item.peer ?? 'queued', standing) };
      const state = standing === 'withdrawn' ? 'cancelled' : standing;
      if (!isLater(standing, standingOf(item))) mark(known);
      else replace({ ...known, state, withdrawn: standing === 'withdrawn' || undefined, away: undefined });
    },

    /** Messages that wait at the other relay and were sent no earlier than `freshSince` (epoch ms): see `isAway`. */
    awaited: (freshSince: number): MessageItem[] => messages().filter((item) => isAway(item) && item.ts >= freshSince),

    /** The mirror has ended: nobody here will hear what becomes of a message at the other relay. */
    giveUp(item: MessageItem): void {
      replace({ ...item, state: 'dropped', peer: undefined, away: undefined });
    },

    /** Ids of messages that the other relay knows. */
    sharedIds: (): string[] => messages().flatMap(({ peer, message_id }) => (peer ? message_id : [])),

    /**
     * Writes changed items. Resolves when these and those of earlier calls are durable, with false if a write failed, after
     * which the next call writes them again.
     */
    async save(): Promise<boolean> {
      tellPeer();
      if (changed.size > 0 || marked.size > 0) {
        const write = writeChanged().finally(() => writing.delete(write));
        writing.add(write);
      }
      return (await Promise.all(writing)).every(Boolean);
    },

    /** A `since` for everything after the present items. */
    end: (): number => cursorOf(latest, isEdge()),

    /** The `seq` of a reply as stored here; 0 for an unknown one. */
    replySeq: (messageId: string): number => find('reply', messageId)?.seq ?? 0,

    /**
     * Adds a message that arrived at the edge, with its progress there, once only. Returns its `seq`; 0 if it is older than
     * everything in a full history while the edge offers its whole history again (`isAgain`). `wasDelivered`: home has
     * already delivered the id, which its sender repeated at the edge.
     */
    adopt(
      content: MessageContent,
      standing: MessageStanding,
      { isAgain, wasDelivered }: { isAgain: boolean; wasDelivered: boolean },
    ): number {
      const { message_id: id, ts } = content;
      const own = findMessage(id);
      // The words of home's own can only come from its sender, even while it still waits.
      const isRepeated = own !== undefined && isBeside(content, own) && hasSameWords(content, own);
      if (own && own.ts !== ts && isBeside(content, own) && !isRepeated) return adoptBeside(content, standing, isAgain);
      const older = own && own.ts > ts ? findExact('message', id, ts) : undefined;
      if (older) return older.seq;
      if (!own || (own.ts < ts && !wasDelivered && !isRepeated)) {
        if (isAgain && isTooOld(ts)) return 0;
        const waiting = { ...content, kind: 'message', state: 'queued', peer: 'queued', away: true } as const;
        if (own?.state === 'queued') replace({ ...waiting, seq: own.seq });
        else add({ ...waiting, seq: nextSeq() });
      }
      this.advance(id, standing);
      return findMessage(id)?.seq ?? 0;
    },

    /** True for a time before all items of a full history. */
    isTooOld,

    /** Home has assigned an item its `seq`. */
    number({ kind, id, ts, seq }: { kind: PhoneHistoryItem['kind']; id: string; ts: number; seq: number }): void {
      const item = findExact(kind, id, ts);
      if (!item || item.home === seq) return;
      const other = [...items.values()].find(({ home }) => home === seq);
      if (other) replace({ ...other, home: undefined });
      replace({ ...item, home: seq });
    },

    /** Forgets the numbers that home assigned, since home is another one or has another state. */
    unnumber(): void {
      for (const item of items.values()) if (item.home !== undefined) replace({ ...item, home: undefined });
    },

    /** All items, in the order of their arrival here. */
    all: (): PhoneHistoryItem[] => [...items.values()],

    /**
     * At most `limit` items after `since`, ascending. At the edge, they are the first ones that arrived here after the item
     * with that `seq`. `freshSince` is that of `awaited`.
     */
    page({ since, limit, freshSince = 0 }: { since: number; limit: number; freshSince?: number }): HistoryPage {
      const isAtEdge = isEdge();
      const place = isAtEdge ? placeOf(items.values(), since) : since;
      const page: HistoryRow[] = [];
      for (const item of items.values()) {
        if (item.seq > place) page.push(shown(item, freshSince));
        if (page.length === limit) break;
      }
      if (isAtEdge) page.sort((a, b) => a.seq - b.seq);
      return { items: page, latest: latestSeen() };
    },
  };
}

/**
 * True for a message that waits at the other relay, as far as known here. It expires there, which is not reported until its
 * queue is used. Until then it only counts as expired: a phone may have got it in time, and its answer may be on its way.
 */
const isAway = ({ away, state }: Pick<MessageItem, 'away' | 'state'>): boolean => away === true && state === 'queued';

type ReplyContent = Pick<Reply, 'chat_id' | 'reply_to' | 'text'>;
const isSame = (a: ReplyContent, b: ReplyContent): boolean =>
  a.text === b.text && a.chat_id === b.chat_id && a.reply_to === b.reply_to;

/** Characters of an item that differ from item to item. */
function lengthOf({ text, sealed }: PhoneHistoryItem): number {
  const keys = Object.values(sealed?.keys ?? {}).reduce((sum, { length }) => sum + length, 0);
  return text.length + (sealed?.content.length ?? 0) + keys;
}

const hasSameWords = (a: MessageContent, b: MessageContent): boolean =>
  a.title === b.title && a.text === b.text && JSON.stringify(a.answers ?? []) === JSON.stringify(b.answers ?? []);

/** True for an unsealed message under the id of home's own, which takes precedence: other words are not home's question. */
const isBeside = (item: object, own: object | undefined): boolean =>
  own !== undefined && 'unsealed' in item && !('unsealed' in own);

const STATES = ['queued', 'sent', 'shown', 'answered', 'expired', 'cancelled', 'dropped'] as const;
const common = {
  seq: v.pipe(v.number(), v.safeInteger()),
  home: v.optional(v.number()),
  ...v.entriesFromList(['message_id', 'text'], v.string()),
  ...v.entriesFromList(['chat_id', 'title', 'reply_to'], v.fallback(v.nullable(v.string()), null)),
  ts: v.number(),
  sealed: v.optional(v.custom<SealedText>((value) => readSealed(value) !== undefined)),
};
const Restored = v.object({ at: v.pipe(v.number(), v.safeInteger()) });
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
