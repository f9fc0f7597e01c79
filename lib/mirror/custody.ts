import type { PhoneMessage } from '../../storage/schema.ts';
import { bytesToHex, randomBytes } from '../kit/bytes.ts';
import { asObject, isObject, type JsonObject } from '../kit/json.ts';
import type { Notifications } from '../notifications/notifications.ts';
import { givesAway, isStanding } from '../phone/custody.ts';
import { readGivenMessage } from '../phone/message.ts';
import type { PhoneMessaging } from '../phone/phone.ts';
import { readReply } from '../phone/reply.ts';
import { SEALED_TEXT } from '../phone/sealed.ts';
import { readShown } from '../phone/shown.ts';
import type { Op } from './frames.ts';
import { createItems } from './items.ts';
import type { Seals } from './sealed.ts';
import type { Side } from './side.ts';

const messageKey = (id: string) => `message:${id}`;
const stateKey = (id: string) => `state:${id}`;
const replyKey = (id: string) => `reply:${id}`;
const takenKey = (id: string) => `taken:${id}`;
const NOTIFICATION = 'notification:';
/** As many as a relay stores. */
const MAX_NOTIFICATIONS = 100;

export interface CustodyDeps extends Side {
  phone: PhoneMessaging;
  notifications: Notifications;
  /** Phones have started to listen at this relay, or none does any more. */
  onListening?(isHeard: boolean): void;
  /** At home, seals the content for the edge. */
  seals?: Pick<Seals, 'body' | 'mark' | 'isOn'>;
}

/**
 * Messages to the phone, which have one custodian (contract 12 §2): this relay hands waiting messages to the other one while
 * no phone listens here, and keeps its copy until the other one has stored it. Each side reports the progress of a message
 * to the other. Replies and notifications that arrive at the edge belong to home once home has stored them.
 */
export function createCustody(deps: CustodyDeps) {
  const { side, phone, notifications, outbox, log, isOn, isLinked, onListening, seals } = deps;
  /** Messages that this process has offered and that are not acknowledged, by id. */
  const offered = new Map<string, PhoneMessage>();
  const items = createItems({ side, phone, outbox, log, isOn, isSealed: () => seals?.isOn() ?? false });
  let isHeardThere = false;
  let isRecalling = false;
  let wasHeard: boolean | undefined;

  function handOver(): void {
    if (!isLinked()) return;
    const isHeardHere = isRecalling || phone.shared.isHeard();
    if (isHeardHere !== wasHeard) {
      wasHeard = isHeardHere;
      onListening?.(isHeardHere);
    }
    if (!givesAway({ side, isLinked: true, isHeardHere, isHeardThere })) return;
    for (const message of phone.shared.waiting()) {
      const { message_id: id } = message;
      if (offered.get(id) === message && outbox.isWaiting(messageKey(id))) continue;
      const body = seals ? seals.body(message) : { message };
      if (body === null) continue;
      // Keeps the order of messages.
      if (body === undefined) break;
      if (!outbox.offer(messageKey(id), 'message', { ...body, seq: phone.shared.offered(id) })) return;
      offered.set(id, message);
    }
  }

  /** The other side has a message, or may need it again, so an acknowledgement of the offered copy no longer counts. */
  function withdraw(id: string): void {
    offered.delete(id);
    outbox.forget(messageKey(id));
  }

  phone.shared.join({
    report(id, standing) {
      if (!isOn()) return false;
      withdraw(id);
      if (items.advanced(id, standing)) return true;
      return outbox.offer(stateKey(id), 'state', { message_id: id, standing });
    },
    replied(reply, device) {
      if (side === 'home' || !isOn()) return true;
      const key = replyKey(reply.message_id);
      const waiting = outbox.isWaiting(key) ? asObject(outbox.body(key)?.reply) : undefined;
      // A device must not replace another one's reply, not even after a reader here has taken that.
      if (waiting && JSON.stringify({ ...waiting, ts: reply.ts }) !== JSON.stringify(reply)) return false;
      return outbox.offer(key, 'reply', { reply, device });
    },
    onTaken(id) {
      const body = outbox.isWaiting(replyKey(id)) ? outbox.body(replyKey(id)) : undefined;
      // A reader here only got a placeholder, so home keeps the reply for its own readers.
      if (!body || asObject(body.reply)?.text === SEALED_TEXT) return;
      if (outbox.amend(replyKey(id), { ...body, taken: true })) return;
      outbox.offer(takenKey(id), 'taken', { message_id: id });
    },
    isEdge: () => side === 'edge' && isOn(),
    given: items.given,
    isFull: () => side === 'edge' && isOn() && outbox.isFull(),
    changed: handOver,
  });

  if (side === 'edge') {
    notifications.onPost((notification) => {
      if (!isOn()) return;
      const waiting = outbox.keys().filter((key) => key.startsWith(NOTIFICATION));
      for (const key of waiting.slice(0, Math.max(waiting.length - MAX_NOTIFICATIONS + 1, 0))) outbox.forget(key);
      outbox.offer(NOTIFICATION + bytesToHex(randomBytes(8)), 'notification', { notification });
    });
  }

  /** The message that the other side has stored. */
  function givenBy({ message, mark }: JsonObject): PhoneMessage | undefined {
    if (mark === undefined) return readGiven(message);
    const id = asObject(message)?.message_id;
    return phone.shared.waiting().find((own) => own.message_id === id && seals?.mark(own) === mark);
  }

  function takeReply({ reply, device, taken: wasTaken }: JsonObject): Promise<unknown> | undefined {
    const given = asObject(reply) ?? {};
    const read = typeof given.ts === 'number' ? readReply(given, given.ts) : undefined;
    if (!read) return void log.warn('the other side gave a reply that cannot be read');
    const done = phone.shared.takeReply(read, {
      device: String(device ?? ''),
      isTaken: wasTaken === true,
      shown: readShown(given),
    });
    items.numbered('reply', read.message_id, read.ts, phone.shared.replySeq(read.message_id));
    return done;
  }

  function take({ message, seq }: JsonObject): Promise<unknown> | undefined {
    const given = readGiven(message);
    if (!given) return void log.warn('the other side gave a message that cannot be read');
    // Both sides may have offered theirs, and neither must count as handed over.
    withdraw(given.message_id);
    const done = phone.shared.take(given);
    if (side === 'home' || !Number.isSafeInteger(seq) || Number(seq) < 1) return done;
    const numbered = phone.shared.numbered({
      kind: 'message',
      id: given.message_id,
      ts: given.sent_at,
      seq: Number(seq),
    });
    return Promise.all([done, numbered]);
  }

  function advance({ message_id: id, standing }: JsonObject): Promise<unknown> | undefined {
    if (typeof id !== 'string' || !isStanding(standing)) {
      return void log.warn('the other side said of a message what cannot be read');
    }
    if (standing !== 'queued') withdraw(id);
    return phone.shared.advance(id, standing);
  }

  return {
    /** Applies an op of the other side in this turn; undefined if it is already done, or not about messages. */
    apply({ kind, body }: Pick<Op, 'kind' | 'body'>): Promise<unknown> | undefined {
      switch (kind) {
        case 'message':
          return take(body);
        case 'state':
          return advance(body);
        case 'reply':
          return takeReply(body);
        case 'taken':
          // The edge must not remove replies that a device has sealed, or has given to home itself.
          return seals?.isOn() ? undefined : phone.shared.replyTaken(String(body.message_id));
        case 'notification':
          return void notifications.post(asObject(body.notification) ?? {});
        default:
          return items.apply({ kind, body });
      }
    },

    /** The other side has stored an op. */
    acknowledged(kind: string, body: JsonObject): void {
      if (kind === 'reply') phone.shared.replyTaken(String(asObject(body.reply)?.message_id));
      if (kind !== 'message') return;
      offered.delete(String(asObject(body.message)?.message_id));
      const given = givenBy(body);
      if (given) phone.shared.handedOver(given);
    },

    /** Hands over the messages that were sealed. */
    handOver,

    /** Makes the other side hand over all of its messages, as if a phone listened here, until this is called with false. */
    recall(begins: boolean): void {
      isRecalling = begins;
      handOver();
    },

    /** A link has started, or has survived a sleep; `isHeard` if a phone listens at the other side. */
    linked(isHeard: boolean): void {
      isHeardThere = isHeard;
      handOver();
    },

    unlinked(): void {
      isHeardThere = false;
      wasHeard = undefined;
    },

    /** The other side has another state. */
    resync(): void {
      outbox.together(() => {
        items.resync();
        // After the preceding items, which home may lack.
        for (const key of side === 'edge' ? outbox.keys() : []) {
          const waiting = key.startsWith(messageKey('')) && outbox.isWaiting(key) ? outbox.body(key) : undefined;
          if (waiting) outbox.offer(key, 'message', waiting);
        }
      });
      phone.shared.retell();
    },

    /** There was no other side, or another one, so its numbers are invalid. */
    begin: (): Promise<void> => phone.shared.unnumber(),
  };
}

/** The message of an op, as sent by the other side. */
function readGiven(value: unknown): PhoneMessage | undefined {
  if (!isObject(value) || typeof value.sent_at !== 'number') return undefined;
  try {
    return readGivenMessage(value, value.sent_at);
  } catch {
    return undefined;
  }
}
