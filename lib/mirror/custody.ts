import type { PhoneMessage } from '../../storage/schema.ts';
import { isObject, type JsonObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { givesAway, isStanding } from '../phone/custody.ts';
import { readMessage } from '../phone/message.ts';
import type { PhoneMessaging } from '../phone/phone.ts';
import type { Op, Origin } from './frames.ts';
import type { Outbox } from './outbox.ts';

const messageKey = (id: string) => `message:${id}`;
const stateKey = (id: string) => `state:${id}`;

export interface CustodyParts {
  side: Origin;
  phone: PhoneMessaging;
  outbox: Outbox;
  log: Log;
  /** Whether there is another side. */
  isOn(): boolean;
  isLinked(): boolean;
  /** Sends what was offered. */
  flush(): void;
  /** Phones have begun to listen to this relay, or none does any more. */
  heard?(isHeard: boolean): void;
}

export type Custody = ReturnType<typeof createCustody>;

/**
 * Messages to the phone, which have one custodian (contract 12 §2): this relay gives the other one what waits here while no
 * phone listens, and keeps its copy until the other one has stored it. What becomes of a message is told both ways.
 */
export function createCustody({ side, phone, outbox, log, isOn, isLinked, flush, heard }: CustodyParts) {
  /** What was offered in this life of the process and is not acknowledged, by id. */
  const offered = new Map<string, PhoneMessage>();
  let isHeardThere = false;
  let wasHeard: boolean | undefined;

  function handOver(): void {
    const isHeardHere = phone.shared.isHeard();
    if (isLinked() && isHeardHere !== wasHeard) {
      wasHeard = isHeardHere;
      heard?.(isHeardHere);
    }
    if (!givesAway({ side, isLinked: isLinked(), isHeardHere, isHeardThere })) return;
    for (const message of phone.shared.waiting()) {
      const { message_id: id } = message;
      if (offered.get(id) === message && outbox.isWaiting(messageKey(id))) continue;
      if (!outbox.offer(messageKey(id), 'message', { message, seq: phone.shared.offered(id) })) return;
      offered.set(id, message);
    }
    flush();
  }

  /** The other side has a message, or may have to get it again: an acknowledgement of the copy that went counts no more. */
  function withdraw(id: string): void {
    offered.delete(id);
    outbox.forget(messageKey(id));
  }

  phone.shared.join({
    tell(id, standing) {
      if (!isOn()) return false;
      withdraw(id);
      const isTold = outbox.offer(stateKey(id), 'state', { message_id: id, standing });
      flush();
      return isTold;
    },
    changed: handOver,
  });

  function take({ message }: JsonObject): Promise<unknown> | undefined {
    const given = readGiven(message);
    if (!given) return void log.warn('the other side gave a message that cannot be read');
    // Both sides may have offered theirs: neither must count as having given it away.
    withdraw(given.message_id);
    return phone.shared.take(given);
  }

  function advance({ message_id: id, standing }: JsonObject): Promise<unknown> | undefined {
    if (typeof id !== 'string' || !isStanding(standing)) {
      return void log.warn('the other side said of a message what cannot be read');
    }
    if (standing !== 'queued') withdraw(id);
    return phone.shared.advance(id, standing);
  }

  return {
    /** Applies an op of the other side in this turn; undefined for one that is not of messages. */
    apply({ kind, body }: Op): Promise<unknown> | undefined {
      if (kind === 'message') return take(body);
      return kind === 'state' ? advance(body) : undefined;
    },

    /** The other side has stored an op. */
    acknowledged(kind: string, body: JsonObject): void {
      const given = kind === 'message' ? readGiven(body.message) : undefined;
      if (!given) return;
      offered.delete(given.message_id);
      phone.shared.handedOver(given);
    },

    /** A link has begun, or has outlived a sleep; `isHeard` when a phone listens to the other side. */
    linked(isHeard: boolean): void {
      isHeardThere = isHeard;
      handOver();
    },

    unlinked(): void {
      isHeardThere = false;
      wasHeard = undefined;
    },

    /** The other side is of another state. */
    resync: (): void => phone.shared.retell(),
  };
}

/** The message of an op, as its giver had it. */
function readGiven(value: unknown): PhoneMessage | undefined {
  if (!isObject(value) || typeof value.sent_at !== 'number') return undefined;
  try {
    return readMessage(value, value.sent_at);
  } catch {
    return undefined;
  }
}
