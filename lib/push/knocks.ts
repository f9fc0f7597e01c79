import * as v from 'valibot';
import type { PushKnockRecord, PushSubscriptionRecord, Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { sha256 } from '../kit/bytes.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { loadInOrder, readAs } from '../kit/entries.ts';
import type { Log } from '../log.ts';
import type { Subscriptions } from './subscriptions.ts';

/** Messages that devices are still to be told of, or have been told of and not seen yet. */
const MAX_KNOCKS = 100;
/** Milliseconds before the second attempt at a device, and so on; after the last one it is given up. */
const BACKOFF = [5_000, 30_000, 120_000, 600_000];
/** The longest wait that a push service may ask for, milliseconds. */
const MAX_WAIT = 3_600_000;
/** A timer this long is an alarm at the edge, which wakes an object from its sleep. */
const ALARM = 60_000;
const PREFIX = 'knock:';
const ENDED = ['done', 'cancelled', 'failed', 'interrupted'] as const;
/** In place of devices that were told: the other relay tells them. */
const ELSEWHERE = 'elsewhere';

/** Outcome of a call to a push service. */
export type Outcome =
  | { result: 'sent' }
  /** The subscription is over. */
  | { result: 'gone' }
  /** It will never take this. */
  | { result: 'refused' }
  /** Try again, after the milliseconds that it asked for. */
  | { result: 'later'; wait: number };

export interface KnocksParts {
  store: Store<'push'>;
  clock: Clock;
  log: Log;
  subscriptions: Pick<Subscriptions, 'find' | 'keys' | 'of' | 'gone'>;
  /** Sends one knock. Rejects without an answer from the push service. */
  send(knock: PushKnockRecord, to: PushSubscriptionRecord, signal: AbortSignal): Promise<Outcome>;
  /** True if a device may be told that a message was read, which shows nothing. */
  acceptsRead(to: PushSubscriptionRecord): boolean;
  /** Lets the other relay of the mirror tell the devices. False when this one has to. */
  forward?(knock: NewKnock): boolean;
  /** Devices need not be told any more of what was forwarded; `by` has read it. */
  settledThere?(messageId: string, by: readonly string[]): void;
}

/** The grant without which a device is told of no answer. */
const CHAT_GRANT = 'chat';

/** A knock without the fields that are filled in later. */
export type NewKnock = Omit<PushKnockRecord, 'seq' | 'kind' | 'pending' | 'told'>;

export type Knocks = Awaited<ReturnType<typeof openKnocks>>;

/**
 * Tells devices of messages, each at its time, and takes that back once a message was read. Every task is stored before
 * it is done, so that it survives a restart and a sleep; a crash may notify a device twice, which replaces its
 * notification.
 */
export async function openKnocks(parts: KnocksParts) {
  const { store, clock, log, subscriptions } = parts;
  /** By message id, oldest first. */
  const knocks = new Map<string, PushKnockRecord>();
  /** The knock that is on its way to a subscription: one at a time. */
  const busy = new Map<string, PushKnockRecord>();
  /** When a push service that asked for a pause may be asked again, by subscription. */
  const retryAt = new Map<string, number>();
  const end = new AbortController();
  let cancelTimers: Cancel = () => {};
  let isRunning = false;

  const stored = await loadInOrder({ store, log, base: PREFIX, read: (value) => readAs(Stored)(value)?.knock });
  for (const knock of stored) knocks.set(knock.message_id, knock);
  let seq = stored.at(-1)?.seq ?? 0;

  function save(knock: PushKnockRecord): void {
    const key = PREFIX + sha256(knock.message_id);
    const isCurrent = knocks.get(knock.message_id) === knock;
    if (!isCurrent && knocks.has(knock.message_id)) return;
    const write = isCurrent ? store.setItem(key, { knock }) : store.removeItem(key);
    write.catch((error) => log.warn(`a push message could not be saved: ${describeError(error)}`));
  }

  function remove(knock: PushKnockRecord): void {
    if (knocks.get(knock.message_id) === knock) knocks.delete(knock.message_id);
    save(knock);
  }

  /** When there is something to do for a knock next. */
  function nextOf(knock: PushKnockRecord): number {
    if (knock.pending === null) return knock.due;
    const times = knock.pending
      .filter(({ subscription }) => !busy.has(subscription))
      .map(({ subscription, at }) => Math.max(at, retryAt.get(subscription) ?? 0));
    return Math.min(knock.until, ...times);
  }

  /** Sends due knocks, and sets the timer for the rest. */
  function run(): void {
    if (!isRunning) return;
    cancelTimers();
    const now = clock.now();
    for (const knock of [...knocks.values()]) {
      if (now >= knock.until) remove(knock);
      else if (nextOf(knock) <= now) advance(knock, now);
    }
    for (const [subscription, until] of retryAt) if (until <= now) retryAt.delete(subscription);
    const next = Math.min(...[...knocks.values()].map(nextOf));
    if (!Number.isFinite(next)) return;
    const delay = Math.max(next - now, 0);
    const timers = [clock.after(delay, run)];
    // A short timer dies with the memory of an object.
    if (delay < ALARM) timers.push(clock.after(ALARM, run));
    cancelTimers = () => {
      for (const cancel of timers) cancel();
    };
  }

  /** A subscription that may be told. */
  const findFor = ({ answer }: PushKnockRecord, key: string) =>
    answer ? subscriptions.find(key, CHAT_GRANT) : subscriptions.find(key);

  function advance(knock: PushKnockRecord, now: number): void {
    if (knock.pending === null && parts.forward?.(newOf(knock))) {
      Object.assign(knock, { pending: [], told: [ELSEWHERE] });
      save(knock);
    } else if (knock.pending === null) {
      const own = knock.answer ?? knock.ends;
      const keys = own ? subscriptions.of(own) : subscriptions.keys();
      knock.pending = keys.map((subscription) => ({ subscription, attempts: 0, at: now }));
      save(knock);
    }
    for (const { subscription, at } of [...(knock.pending ?? [])]) {
      if (!busy.has(subscription) && Math.max(at, retryAt.get(subscription) ?? 0) <= now)
        void tell(knock, subscription);
    }
    closeIfDone(knock);
  }

  async function tell(knock: PushKnockRecord, subscription: string): Promise<void> {
    const to = findFor(knock, subscription);
    if (!to) return settle(knock, subscription);
    const { kind } = knock;
    busy.set(subscription, knock);
    const outcome = await parts.send({ ...knock }, to, end.signal).catch((error): Outcome => {
      log.debug(`a push message could not be sent: ${describeError(error)}`);
      return { result: 'later', wait: 0 };
    });
    busy.delete(subscription);
    if (!isRunning) return;
    if (outcome.result === 'gone') subscriptions.gone(subscription);
    if (outcome.result === 'later' && outcome.wait > 0) {
      retryAt.set(subscription, clock.now() + Math.min(outcome.wait, MAX_WAIT));
    }
    // A message that was read meanwhile is not tried again.
    if (outcome.result === 'later' && knock.kind === kind) postpone(knock, subscription, outcome.wait);
    else settle(knock, subscription);
    if (outcome.result === 'sent' && kind === 'message') {
      knock.told.push(subscription);
      // It was read while the knock was on its way.
      if (knock.kind === 'read') withdraw(knock);
    }
    closeIfDone(knock);
    if (knocks.get(knock.message_id) === knock) save(knock);
    run();
  }

  function settle(knock: PushKnockRecord, subscription: string): void {
    knock.pending = (knock.pending ?? []).filter((entry) => entry.subscription !== subscription);
  }

  function postpone(knock: PushKnockRecord, subscription: string, wait: number): void {
    const entry = knock.pending?.find((entry) => entry.subscription === subscription);
    const backoff = entry && BACKOFF[entry.attempts];
    if (entry && backoff !== undefined) {
      entry.attempts++;
      entry.at = clock.now() + Math.max(backoff, Math.min(wait, MAX_WAIT));
      retryAt.set(subscription, entry.at);
    } else settle(knock, subscription);
  }

  /** Has the devices that were told of a message take its notification away. */
  function withdraw(knock: PushKnockRecord): void {
    const at = clock.now();
    const told = knock.told.filter((subscription) => {
      const to = findFor(knock, subscription);
      return to !== undefined && parts.acceptsRead(to);
    });
    knock.told = [];
    knock.pending = [...(knock.pending ?? []), ...told.map((subscription) => ({ subscription, attempts: 0, at }))];
  }

  /** Removes a knock for which nothing is left to do. One that a device was told of waits until it is read. */
  function closeIfDone(knock: PushKnockRecord): void {
    const isUnderWay = knock.pending === null || knock.pending.length > 0;
    if (!isUnderWay && knock.told.length === 0) remove(knock);
  }

  return {
    /** Begins to send. */
    start(): void {
      isRunning = true;
      run();
    },

    /** Tells devices of a message when it is due. Stored in the same transaction as what the caller stores now. */
    add(knock: NewKnock): void {
      const [oldest] = knocks.values();
      if (oldest && knocks.size >= MAX_KNOCKS && !knocks.has(knock.message_id)) remove(oldest);
      knocks.delete(knock.message_id);
      const added: PushKnockRecord = { ...knock, seq: ++seq, kind: 'message', pending: null, told: [] };
      knocks.set(knock.message_id, added);
      save(added);
      run();
    },

    /** A message was read, or there is nothing to read any more. `by` are the subscriptions of the device that read it. */
    settled(messageId: string, by: readonly string[]): void {
      const knock = knocks.get(messageId);
      if (!knock || knock.kind === 'read') return;
      knock.kind = 'read';
      if (knock.told.includes(ELSEWHERE)) parts.settledThere?.(messageId, by);
      // A knock that is on its way is taken back once it has arrived.
      knock.pending = (knock.pending ?? []).filter(({ subscription }) => busy.get(subscription) === knock);
      knock.told = knock.told.filter((subscription) => !by.includes(subscription));
      withdraw(knock);
      closeIfDone(knock);
      if (knocks.has(messageId)) save(knock);
      run();
    },

    /** True if devices are told of this, or will be. */
    isWaiting: (messageId: string): boolean => knocks.get(messageId)?.kind === 'message',

    /** Number of stored notices. */
    size: (): number => knocks.size,

    /** The other relay was not reached with what was forwarded: this one tells the devices. */
    again(messageId: string): void {
      const knock = knocks.get(messageId);
      if (!knock?.told.includes(ELSEWHERE)) return;
      Object.assign(knock, { pending: null, told: [] });
      save(knock);
      run();
    },

    stop(): void {
      isRunning = false;
      cancelTimers();
      end.abort();
    },
  };
}

function newOf({ seq: _seq, kind: _kind, pending: _pending, told: _told, ...knock }: PushKnockRecord): NewKnock {
  return knock;
}

const [label, family] = [v.nullable(v.string()), v.string()];
const Stored: v.GenericSchema<unknown, { knock: PushKnockRecord }> = v.object({
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
