import * as v from 'valibot';
import type { PushNoticeRecord, PushSubscriptionRecord, Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { loadInOrder, readAs } from '../kit/entries.ts';
import { sha256 } from '../kit/sha256.ts';
import type { Log } from '../log.ts';
import type { Subscriptions } from './subscriptions.ts';

/** Maximum notices that are pending, or sent and not yet read. */
const MAX_NOTICES = 100;
/** Milliseconds before the second and each further attempt at a device, which is then given up. */
const BACKOFF = [5_000, 30_000, 120_000, 600_000];
/** The longest wait that a push service may ask for, milliseconds. */
const MAX_WAIT = 3_600_000;
/** A timer this long is an alarm at the edge, which wakes an object from its sleep. */
const ALARM = 60_000;
const PREFIX = 'knock:';
const ENDED = ['done', 'cancelled', 'failed', 'interrupted'] as const;
/** Stands in the list of devices for the other relay, which notifies its devices. */
const ELSEWHERE = 'elsewhere';

/** Outcome of a call to a push service. */
export type Outcome =
  | { result: 'sent' }
  /** The subscription has ended. */
  | { result: 'gone' }
  /** The service will never accept this. */
  | { result: 'refused' }
  /** Try again after the milliseconds that the service asked for. */
  | { result: 'later'; wait: number };

export interface PushNoticesDeps {
  store: Store<'push'>;
  clock: Clock;
  log: Log;
  subscriptions: Pick<Subscriptions, 'find' | 'keys' | 'of' | 'gone'>;
  /** Sends one notice. Rejects if the push service does not answer. */
  send(notice: PushNoticeRecord, to: PushSubscriptionRecord, signal: AbortSignal): Promise<Outcome>;
  /** True if a device may be sent `read` messages, which show no notification. */
  acceptsRead(to: PushSubscriptionRecord): boolean;
  /** Passes a notice to the other relay of the mirror. False if this relay has to send it. */
  forward?(notice: NewPushNotice): boolean;
  /** Devices need no notice of a forwarded message any more; `by` has read it. */
  settledThere?(messageId: string, by: readonly string[]): void;
}

/** The grant that a device needs to be notified of answers. */
const CHAT_GRANT = 'chat';

/** A notice without the fields that are filled in later. */
export type NewPushNotice = Omit<PushNoticeRecord, 'seq' | 'kind' | 'pending' | 'told'>;

/**
 * Notifies devices of messages, each at its time, and withdraws the notices once a message was read. Every task is stored
 * before it is done, so that it survives a restart and a sleep. After a crash a device may be notified twice, which replaces
 * its notification.
 */
export async function openPushNotices(deps: PushNoticesDeps) {
  const { store, clock, log, subscriptions } = deps;
  /** By message id, oldest first. */
  const notices = new Map<string, PushNoticeRecord>();
  /** The notice being sent to a subscription, one at a time. */
  const busy = new Map<string, PushNoticeRecord>();
  /** Time of the next attempt for services that asked for a pause, by subscription. */
  const retryAt = new Map<string, number>();
  /** Ids of messages whose notice could not be written or removed. */
  const unsaved = new Set<string>();
  const end = new AbortController();
  let cancelTimers: Cancel = () => {};
  let isRunning = false;

  const stored = await loadInOrder({ store, log, base: PREFIX, read: (value) => readAs(Stored)(value)?.knock });
  for (const notice of stored) notices.set(notice.message_id, notice);
  let seq = stored.at(-1)?.seq ?? 0;

  /** Also repeats the writes that have failed. */
  function save({ message_id: id }: PushNoticeRecord): void {
    for (const each of new Set([id, ...unsaved])) write(each);
  }

  /** Makes the store contain the notice of a message, or none. */
  function write(id: string): void {
    const key = PREFIX + sha256(id);
    const notice = notices.get(id);
    unsaved.delete(id);
    const written = notice ? store.setItem(key, { knock: notice }) : store.removeItem(key);
    written.catch((error) => {
      // Once for all that fail together.
      if (unsaved.size === 0) log.warn(`a push message could not be saved: ${describeError(error)}`);
      if (unsaved.size < MAX_NOTICES) unsaved.add(id);
    });
  }

  function remove(notice: PushNoticeRecord): void {
    if (notices.get(notice.message_id) === notice) notices.delete(notice.message_id);
    save(notice);
  }

  /** Time of the next task for a notice. */
  function nextOf(notice: PushNoticeRecord): number {
    if (notice.pending === null) return notice.due;
    const times = notice.pending
      .filter(({ subscription }) => !busy.has(subscription))
      .map(({ subscription, at }) => Math.max(at, retryAt.get(subscription) ?? 0));
    return Math.min(notice.until, ...times);
  }

  /** Sends due notices, and sets the timer for the rest. */
  function run(): void {
    if (!isRunning) return;
    cancelTimers();
    const now = clock.now();
    for (const notice of [...notices.values()]) {
      if (now >= notice.until) remove(notice);
      else if (nextOf(notice) <= now) advance(notice, now);
    }
    for (const [subscription, until] of retryAt) if (until <= now) retryAt.delete(subscription);
    const next = Math.min(...[...notices.values()].map(nextOf));
    if (!Number.isFinite(next)) return;
    const delay = Math.max(next - now, 0);
    const timers = [clock.after(delay, run)];
    // A short timer is lost with the memory of an object.
    if (delay < ALARM) timers.push(clock.after(ALARM, run));
    cancelTimers = () => {
      for (const cancel of timers) cancel();
    };
  }

  /** A subscription that may be notified. */
  const findFor = ({ answer }: PushNoticeRecord, key: string) =>
    answer ? subscriptions.find(key, CHAT_GRANT) : subscriptions.find(key);

  function advance(notice: PushNoticeRecord, now: number): void {
    if (notice.pending === null && deps.forward?.(newOf(notice))) {
      Object.assign(notice, { pending: [], told: [ELSEWHERE] });
      save(notice);
    } else if (notice.pending === null) {
      const own = notice.answer ?? notice.ends;
      const keys = own ? subscriptions.of(own) : subscriptions.keys();
      notice.pending = keys.map((subscription) => ({ subscription, attempts: 0, at: now }));
      save(notice);
    }
    for (const { subscription, at } of [...(notice.pending ?? [])]) {
      if (!busy.has(subscription) && Math.max(at, retryAt.get(subscription) ?? 0) <= now)
        void sendTo(notice, subscription);
    }
    closeIfDone(notice);
  }

  async function sendTo(notice: PushNoticeRecord, subscription: string): Promise<void> {
    const to = findFor(notice, subscription);
    if (!to) return settle(notice, subscription);
    const { kind } = notice;
    busy.set(subscription, notice);
    const outcome = await deps.send({ ...notice }, to, end.signal).catch((error): Outcome => {
      log.debug(`a push message could not be sent: ${describeError(error)}`);
      return { result: 'later', wait: 0 };
    });
    busy.delete(subscription);
    if (!isRunning) return;
    if (outcome.result === 'gone') subscriptions.gone(subscription);
    if (outcome.result === 'later' && outcome.wait > 0) {
      retryAt.set(subscription, clock.now() + Math.min(outcome.wait, MAX_WAIT));
    }
    // A message that was read meanwhile is not retried.
    if (outcome.result === 'later' && notice.kind === kind) postpone(notice, subscription, outcome.wait);
    else settle(notice, subscription);
    if (outcome.result === 'sent' && kind === 'message') {
      notice.told.push(subscription);
      // The message was read while the notice was being sent.
      if (notice.kind === 'read') withdraw(notice);
    }
    closeIfDone(notice);
    if (notices.get(notice.message_id) === notice) save(notice);
    run();
  }

  function settle(notice: PushNoticeRecord, subscription: string): void {
    notice.pending = (notice.pending ?? []).filter((entry) => entry.subscription !== subscription);
  }

  function postpone(notice: PushNoticeRecord, subscription: string, wait: number): void {
    const entry = notice.pending?.find((entry) => entry.subscription === subscription);
    const backoff = entry && BACKOFF[entry.attempts];
    if (entry && backoff !== undefined) {
      entry.attempts++;
      entry.at = clock.now() + Math.max(backoff, Math.min(wait, MAX_WAIT));
      retryAt.set(subscription, entry.at);
    } else settle(notice, subscription);
  }

  /** Tells the devices that were notified of a message to remove the notification. */
  function withdraw(notice: PushNoticeRecord): void {
    const at = clock.now();
    const notified = notice.told.filter((subscription) => {
      const to = findFor(notice, subscription);
      return to !== undefined && deps.acceptsRead(to);
    });
    notice.told = [];
    notice.pending = [
      ...(notice.pending ?? []),
      ...notified.map((subscription) => ({ subscription, attempts: 0, at })),
    ];
  }

  /** Removes a notice without remaining tasks. A notice that reached a device stays until the message is read. */
  function closeIfDone(notice: PushNoticeRecord): void {
    const isUnderWay = notice.pending === null || notice.pending.length > 0;
    if (!isUnderWay && notice.told.length === 0) remove(notice);
  }

  return {
    /** Starts sending. */
    start(): void {
      isRunning = true;
      run();
    },

    /** Notifies devices of a message when it is due. Stored in the same transaction as the caller's writes. */
    add(notice: NewPushNotice): void {
      const [oldest] = notices.values();
      if (oldest && notices.size >= MAX_NOTICES && !notices.has(notice.message_id)) remove(oldest);
      notices.delete(notice.message_id);
      const added: PushNoticeRecord = { ...notice, seq: ++seq, kind: 'message', pending: null, told: [] };
      notices.set(notice.message_id, added);
      save(added);
      run();
    },

    /** A message was read, or needs no notice any more. `by` are the subscriptions of the device that read it. */
    settled(messageId: string, by: readonly string[]): void {
      const notice = notices.get(messageId);
      if (!notice || notice.kind === 'read') return;
      notice.kind = 'read';
      if (notice.told.includes(ELSEWHERE)) deps.settledThere?.(messageId, by);
      // A notice that is being sent is withdrawn once it has arrived.
      notice.pending = (notice.pending ?? []).filter(({ subscription }) => busy.get(subscription) === notice);
      notice.told = notice.told.filter((subscription) => !by.includes(subscription));
      withdraw(notice);
      closeIfDone(notice);
      if (notices.has(messageId)) save(notice);
      run();
    },

    /** True if devices were notified of this, or will be. */
    isWaiting: (messageId: string): boolean => notices.get(messageId)?.kind === 'message',

    /** Number of stored notices. */
    size: (): number => notices.size,

    /** A forwarded notice did not reach the other relay, so this one notifies the devices. */
    again(messageId: string): void {
      const notice = notices.get(messageId);
      if (!notice?.told.includes(ELSEWHERE)) return;
      Object.assign(notice, { pending: null, told: [] });
      save(notice);
      run();
    },

    stop(): void {
      isRunning = false;
      cancelTimers();
      end.abort();
    },
  };
}

function newOf({
  seq: _seq,
  kind: _kind,
  pending: _pending,
  told: _notified,
  ...notice
}: PushNoticeRecord): NewPushNotice {
  return notice;
}

const [label, family] = [v.nullable(v.string()), v.string()];
const Stored: v.GenericSchema<unknown, { knock: PushNoticeRecord }> = v.object({
  knock: v.object({
    ...v.entriesFromList(['message_id', 'text'], v.string()),
    ...v.entriesFromList(['chat_id', 'title'], label),
    ...v.entriesFromList(['seq', 'due', 'until'], v.number()),
    kind: v.picklist(['message', 'read']),
    question: v.boolean(),
    answers: v.optional(v.array(v.string())),
    answer: v.optional(v.object({ family, session_id: label, state: v.picklist(ENDED) })),
    ends: v.optional(v.object({ family, ends_at: v.number() })),
    pending: v.nullable(v.array(v.object({ subscription: v.string(), attempts: v.number(), at: v.number() }))),
    told: v.array(v.string()),
  }),
});
