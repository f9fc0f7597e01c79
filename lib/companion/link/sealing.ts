import { describeError } from '../../errors.ts';
import type { PinnedOrigin } from '../../host/dial.ts';
import {
  type BoxKey,
  exportBoxKey,
  importBoxKey,
  keyIdOf,
  newBoxKey,
  open,
  readSealed,
  type Sealed,
  seal,
} from '../../kit/box.ts';
import { base64url, fromBase64url, utf8ToBytes } from '../../kit/bytes.ts';
import { isObject, parseObject } from '../../kit/json.ts';
import type { Log } from '../../log.ts';
import { contextOf, homeBoxText, SEALED_TEXT } from '../../phone/sealed.ts';
import type { Message, Payload } from '../../socket/envelope.ts';
import type { Endpoint } from './endpoints.ts';
import type { Pairing, PairingStore } from './settings.ts';

/** Messages that cannot be opened, until home gives its key. */
const MAX_UNOPENED = 100;
/** Messages that are being opened, or wait for one before them. */
const MAX_PENDING = 500;
/** Ids of messages that came without a seal. */
const MAX_PLAIN = 1000;

export interface SealingParts {
  store: Pick<PairingStore, 'pairing' | 'deviceId'>;
  log: Log;
  /** True if the key of a pinned origin has signed the bytes. Without it, nobody's signature counts. */
  isSignedBy?(origin: PinnedOrigin, bytes: Uint8Array, signature: Uint8Array): boolean;
}

export type Sealing = ReturnType<typeof createSealing>;

type SendOn = (channel: string, type: string, payload: Payload, id?: string) => void;

/**
 * A device's half of the sealed mailbox (contract 12 §4): it gives home its key and keeps home's, opens the messages of the
 * mailbox, and seals what it says there.
 */
export function createSealing({ store, log, isSignedBy }: SealingParts) {
  /** The key of a pairing that is not stored yet, or has none. */
  let made: BoxKey | undefined;
  let kept: { text: string; key: BoxKey } | undefined;
  const unopened = new Map<string, Message>();
  const plain = new Set<string>();

  async function ownKey(isPairing: boolean): Promise<BoxKey> {
    const box = isPairing ? undefined : store.pairing()?.box;
    if (!box) {
      made ??= await newBoxKey();
      return made;
    }
    if (kept?.text !== box.private_key) {
      const key = await importBoxKey(box.private_key, fromBase64url(box.public_key) ?? new Uint8Array());
      kept = { text: box.private_key, key };
    }
    return kept.key;
  }

  /** This device's key and home's; undefined until home has given it. */
  async function keys(): Promise<{ own: BoxKey; home: Uint8Array } | undefined> {
    const home = fromBase64url(store.pairing()?.box?.home ?? '');
    return home?.length === 65 ? { own: await ownKey(false), home } : undefined;
  }

  const purpose = (kind: 'message' | 'reply' | 'notification', id: string, home: Uint8Array) => ({
    kind,
    id,
    deviceId: store.deviceId,
    epoch: keyIdOf(home),
  });

  async function opened(payload: Payload, sealed: Sealed): Promise<Payload> {
    const found = await keys();
    if (!found) throw new RangeError('home has not given its key yet');
    const { own, home } = found;
    const id = String(payload.message_id);
    const context = contextOf({ direction: 'to-device', ...purpose('message', id, home) });
    const said = parseObject(new TextDecoder().decode(await open(sealed, own, { from: home, context })));
    if (said?.message_id !== id) throw new RangeError('what is in it is another message');
    const { sealed: _, ...outer } = payload;
    return { ...outer, ...said, sealed: true };
  }

  async function openMessage(message: Message): Promise<Message | undefined> {
    const { payload } = message;
    const sealed = readSealed(payload.sealed);
    try {
      if (!sealed) throw new RangeError('it is malformed');
      return { ...message, payload: await opened(payload, sealed) };
    } catch (error) {
      const [oldest] = unopened.keys();
      if (unopened.size >= MAX_UNOPENED && oldest !== undefined) unopened.delete(oldest);
      unopened.set(String(payload.message_id), message);
      log.error(`a sealed message of ${timeOf(payload)} cannot be opened: ${describeError(error)}`);
      return undefined;
    }
  }

  async function sealed(kind: 'reply' | 'notification', id: string, payload: Payload): Promise<Sealed | undefined> {
    const found = await keys();
    if (!found) return undefined;
    const { own, home } = found;
    const context = contextOf({ direction: 'to-home', ...purpose(kind, id, home) });
    return seal(utf8ToBytes(JSON.stringify(payload)), own, [{ point: home, context }]);
  }

  async function coveredReply(payload: Payload): Promise<Payload> {
    const { chat_id, reply_to, message_id, ts } = payload;
    // A caller that asked through the edge alone can open nothing.
    if (typeof reply_to === 'string' && plain.has(reply_to)) return payload;
    const text = await sealed('reply', String(message_id), payload);
    return text ? { text: SEALED_TEXT, chat_id, reply_to, message_id, ts, sealed: text } : payload;
  }

  async function coveredNotification(payload: Payload): Promise<Payload> {
    const id = crypto.randomUUID();
    const text = await sealed('notification', id, payload);
    return text ? { id, sealed: text } : payload;
  }

  /** Home's key by its name, to say to home that it is here; undefined without it. */
  function homeKeyId(): string | undefined {
    const home = fromBase64url(store.pairing()?.box?.home ?? '');
    return home?.length === 65 ? keyIdOf(home) : undefined;
  }

  /** Opens messages that could not be opened so far. */
  async function again(deliver: (message: Message) => void): Promise<void> {
    for (const message of [...unopened.values()]) {
      unopened.delete(String(message.payload.message_id));
      const found = await openMessage(message);
      if (found) deliver(found);
    }
  }

  /** The mailbox stays as it was. */
  function keyFailed(error: unknown): Record<string, never> {
    log.error(`the key for sealed messages cannot be used: ${describeError(error)}`);
    return {};
  }

  return {
    /** Member of the first frame to home: this device's key. Empty when that cannot be used. */
    async authMember(isPairing: boolean): Promise<Payload> {
      try {
        return { box_key: base64url((await ownKey(isPairing)).point) };
      } catch (error) {
        return keyFailed(error);
      }
    },

    /**
     * Change of the pairing for `home_box` of `auth.ok`. Where the pairing pins home's identity, that has to have signed it.
     */
    async taken(given: unknown, endpoints: readonly Endpoint[], isPairing: boolean): Promise<Pick<Pairing, 'box'>> {
      const before = isPairing ? undefined : store.pairing()?.box;
      try {
        const own = await ownKey(isPairing);
        const home = homeKey(given, endpoints) ?? before?.home;
        const uploads = isObject(given) && given.uploads === true;
        const box = {
          private_key: await exportBoxKey(own),
          public_key: base64url(own.point),
          ...(home && { home, ...(uploads && { uploads }) }),
        };
        if (before?.home !== undefined && before.home !== home) log.warn('home has a new key for sealed messages');
        return { box };
      } catch (error) {
        return keyFailed(error);
      }
    },

    homeKeyId,
    keys,
    again,

    /** A connection with home, which seals for this device from now on: it has got the key with the first frame. */
    online({ send, deliver }: { send: SendOn; deliver(message: Message): void }): void {
      const key = homeKeyId();
      if (key !== undefined) send('system', 'box.known', { key });
      void again(deliver).catch(keyFailed);
    },

    /** A connection with the mailbox. */
    guard({ send, deliver }: { send: SendOn; deliver(message: Message): void }) {
      let pending = 0;
      let tail = Promise.resolve();
      let sending: Promise<void> = Promise.resolve();
      /** In order, also behind one that is being opened. */
      function queue(message: Message): void {
        if (pending >= MAX_PENDING) {
          log.error('too many messages at once: one was not shown');
          return;
        }
        pending++;
        const isSealed = message.type === 'phone.message' && isObject(message.payload.sealed);
        tail = tail.then(async () => {
          const found = isSealed ? await openMessage(message) : message;
          pending--;
          if (found) deliver(found);
        });
      }
      return {
        receive(message: Message): void {
          const { type, payload } = message;
          const isMessage = message.channel === 'proactive' && type === 'phone.message';
          if (isMessage && !isObject(payload.sealed)) {
            plain.add(String(payload.message_id));
            if (plain.size > MAX_PLAIN) plain.delete(plain.values().next().value as string);
            const known = store.pairing()?.box?.home !== undefined;
            queue({ ...message, payload: { ...payload, sealed: known ? false : undefined } });
          } else if (isMessage || (message.channel === 'proactive' && pending > 0)) queue(message);
          else deliver(message);
        },

        send(channel: string, type: string, payload: Payload, id?: string): void {
          const isReply = channel === 'proactive' && type === 'proactive.reply';
          const isNotification = channel === 'notifications' && type === 'notification.posted';
          if (!isReply && !isNotification) {
            send(channel, type, payload, id);
            return;
          }
          const covered = isReply ? coveredReply(payload) : coveredNotification(payload);
          // A text that is sealed sooner must not overtake those before it.
          sending = Promise.all([covered, sending]).then(
            ([sealed]) => send(channel, type, sealed, id),
            // Not in plain: a reply is sent again with the next connection.
            (error) => log.error(`a ${isReply ? 'reply' : 'notification'} cannot be sealed: ${describeError(error)}`),
          );
        },
      };
    },
  };

  function homeKey(given: unknown, endpoints: readonly Endpoint[]): string | undefined {
    if (!isObject(given) || typeof given.key !== 'string') return undefined;
    const { key, signature } = given;
    if (fromBase64url(key)?.length !== 65) return undefined;
    const pinned = endpoints.flatMap((endpoint) => endpoint.pinned ?? []);
    if (pinned.length === 0) return key;
    const bytes = typeof signature === 'string' ? fromBase64url(signature) : null;
    const isSigned = bytes && pinned.some((origin) => isSignedBy?.(origin, utf8ToBytes(homeBoxText(key)), bytes));
    if (isSigned) return key;
    log.warn('home has not signed its key with the identity of the pairing link: the mailbox stays plain');
    return undefined;
  }
}

const timeOf = ({ sent_at: at }: Payload): string =>
  typeof at === 'number' && Math.abs(at) < 8e15 ? new Date(at).toISOString() : 'an unknown time';
