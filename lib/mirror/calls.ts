import type { PushNoticeRecord, PushSubscriptionRecord } from '../../storage/schema.ts';
import { isObject, type JsonObject } from '../kit/json.ts';
import type { NewPushNotice } from '../push/notices.ts';
import type { Push } from '../push/push.ts';
import type { Op } from './frames.ts';
import type { Side } from './side.ts';

const NOTICE = 'knock:';
const SUBSCRIPTION = 'subscription:';
const KEY_PAIR = 'vapid';

export interface CallsDeps extends Side {
  push: Push;
  /** At home, true if the edge must not read any text. */
  isSealed?(): boolean;
}

/**
 * Notices to devices, which the edge sends while home is linked (contract 12 §2): it has home's key for push services and
 * the subscriptions of home's devices. A notice that has not reached the edge when the link ends returns to home, under the
 * same id.
 */
export function createCalls({ side, push, outbox, log, isOn, isLinked, isSealed }: CallsDeps) {
  /** True if home's key is at the edge, or on its way, so that the edge may notify devices. */
  let hasKey = false;

  push.shared.join({
    call: (notice) =>
      side === 'home' &&
      isLinked() &&
      hasKey &&
      outbox.offer(NOTICE + notice.message_id, 'knock', { knock: isSealed?.() ? wordless(notice) : { ...notice } }),
    settled: (id, by) => void outbox.offer(NOTICE + id, 'knock', { settled: id, by: [...by] }),
    mayRead: () => isOn() && !isSealed?.(),
    subscribed(key, record) {
      // Home does not know the edge's own devices.
      if (!isOn() || (side === 'edge' && record && !record.home)) return;
      const op = subscriptionOp(key, record);
      outbox.offer(op.key, op.kind, op.body);
      if (side === 'home' && isLinked() && !hasKey) giveSafely();
    },
  });

  function applyNotice({ knock: notice, settled, by }: JsonObject): void {
    if (typeof settled === 'string' && Array.isArray(by)) push.shared.settled(settled, by.map(String));
    else if (isNotice(notice)) push.shared.add(notice);
    else log.warn('home gave a call to devices that cannot be read');
  }

  /** Home sends the edge the missing parts of its key and its subscriptions. */
  async function give(): Promise<void> {
    if (push.shared.subscriptions().length === 0) return;
    const pair = await push.shared.keyPair();
    if (!isLinked() || !pair) return;
    hasKey = [
      { key: KEY_PAIR, kind: 'vapid', body: { pair: { ...pair } } },
      ...push.shared.subscriptions().map(([key, record]) => subscriptionOp(key, record)),
    ].every(({ key, kind, body }) => isSame(outbox.body(key), body) || outbox.offer(key, kind, body));
  }

  const giveSafely = (): void =>
    void give().catch(() => log.warn('the key of push messages could not be given to the edge'));

  /** Notices that have not reached the edge are sent from here. */
  function withdraw(): void {
    for (const key of outbox.keys()) {
      if (!key.startsWith(NOTICE) || outbox.body(key)?.settled !== undefined) continue;
      outbox.forget(key);
      push.shared.again(key.slice(NOTICE.length));
    }
  }

  // The last process may have ended with some in flight.
  withdraw();

  return {
    /** Applies an op of the other side in this turn; undefined if it is already done, or not about notices. */
    apply({ kind, body }: Op): Promise<unknown> | undefined {
      switch (kind) {
        case 'knock':
          return void applyNotice(body);
        case 'vapid':
          return push.shared.adoptKeyPair(body.pair);
        case 'subscription':
          if (side === 'home' && !body.subscription) outbox.forget(SUBSCRIPTION + String(body.key));
          return push.shared.adopt(String(body.key), body.subscription ?? null, side === 'edge');
      }
    },

    /** The other side has stored an op. One that ended a subscription is no longer needed. */
    acknowledged(kind: string, body: JsonObject): void {
      if (kind === 'subscription' && !body.subscription) outbox.forget(SUBSCRIPTION + String(body.key));
    },

    linked(): void {
      if (side === 'home') giveSafely();
    },

    unlinked(): void {
      hasKey = false;
      withdraw();
    },
  };
}

const subscriptionOp = (key: string, record: PushSubscriptionRecord | null) => ({
  key: SUBSCRIPTION + key,
  kind: 'subscription',
  body: { key, subscription: record && { ...record } },
});

/** A notice that a message exists, without its content. */
function wordless({ answers: _, ...notice }: NewPushNotice): JsonObject {
  return { ...notice, title: null, text: '' };
}

const isSame = (a: JsonObject | undefined, b: JsonObject): boolean => JSON.stringify(a) === JSON.stringify(b);

function isNotice(value: unknown): value is NewPushNotice {
  if (!isObject(value)) return false;
  const { message_id: id, text, until, due } = value as Partial<PushNoticeRecord>;
  return typeof id === 'string' && typeof text === 'string' && typeof until === 'number' && typeof due === 'number';
}
