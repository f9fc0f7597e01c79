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
import { asObject, isObject, parseObject } from '../../kit/json.ts';
import type { Log } from '../../log.ts';
import { contextOf, homeBoxText, SEALED_TEXT } from '../../phone/sealed.ts';
import type { Message, Payload } from '../../socket/envelope.ts';
import type { Endpoint } from './endpoints.ts';
import type { Pairing, PairingStore } from './settings.ts';

/** Maximum messages that wait for home's key. */
const MAX_UNOPENED = 100;
/** Maximum messages being opened, or queued behind one. */
const MAX_PENDING = 500;
/** Ids remembered of messages that came unsealed, and as many of opened ones. */
const MAX_IDS = 1000;

export interface SealingDeps {
  store: Pick<PairingStore, 'pairing' | 'deviceId'>;
  log: Log;
  /** True if the key of a pinned origin has signed the bytes. Without it, no signature is accepted. */
  isSignedBy?(origin: PinnedOrigin, bytes: Uint8Array, signature: Uint8Array): boolean;
  /** Default: in the pairing itself. */
  keys?: OwnKeys;
  /** Delivers a message that cannot be opened as it is. By default it waits for home's key. */
  deliversUnopened?: boolean;
}

/** The storage of a device's own key. */
export interface OwnKeys {
  /**
   * Returns the key of the stored pairing, or of the new one with `isPairing`. Makes a key if there is none. Rejects if
   * it cannot be read now.
   */
  own(isPairing: boolean): Promise<BoxKey>;
  /** Stores such a key. Resolves with the part of it that belongs in the pairing. */
  store(key: BoxKey, isPairing: boolean): Promise<{ private_key?: string }>;
}

/** An item of the mailbox's history (contract 09 §1). `sealed` is true once it is opened, false if it came unsealed. */
export interface SealedItem {
  kind: 'message' | 'reply';
  message_id: string;
  sealed?: unknown;
}

export type Sealing = ReturnType<typeof createSealing>;

type SendOn = (channel: string, type: string, payload: Payload, id?: string) => void;

/**
 * A device's side of the sealed mailbox (contract 12 §4): sends home its key and stores home's, opens the messages of
 * the mailbox, and seals its own.
 */
export function createSealing(deps: SealingDeps) {
  const { store, log, keys: ownKeys = keysInPairing(store, log) } = deps;
  const unopened = new Map<string, Message>();
  const plain = new Set<string>();
  const everOpened = new Set<string>();

  function homeKey(): Uint8Array | undefined {
    const home = fromBase64url(store.pairing()?.box?.home ?? '');
    return home?.length === 65 ? home : undefined;
  }

  /**
   * This device's key and home's; undefined until home has sent its key. Rejects if home has another key for this
   * device, or none.
   */
  async function keys(): Promise<{ own: BoxKey; home: Uint8Array } | undefined> {
    const home = homeKey();
    if (!home) return undefined;
    const own = await ownKeys.own(false);
    if (base64url(own.point) !== store.pairing()?.box?.public_key)
      throw new RangeError('the key of this device is lost');
    return { own, home };
  }

  const purpose = async (kind: 'message' | 'reply' | 'notification', id: string, home: Uint8Array) => ({
    kind,
    id,
    deviceId: store.deviceId,
    epoch: await keyIdOf(home),
  });

  /** Opens a message that home sealed for this device, or a reply that this device sealed for home and itself. */
  async function opened(kind: SealedItem['kind'], payload: Payload): Promise<Payload> {
    const { sealed: given, ...outer } = payload;
    const sealed = readSealed(given);
    if (!sealed) throw new RangeError('it is malformed');
    const found = await keys();
    if (!found) throw new RangeError('home has not given its key yet');
    const { own, home } = found;
    const id = idOf(payload);
    const [direction, from] = kind === 'message' ? (['to-device', home] as const) : (['to-home', own.point] as const);
    const context = contextOf({ direction, ...(await purpose(kind, id, home)) });
    const said = parseObject(new TextDecoder().decode(await open(sealed, own, { from, context })));
    if (said?.message_id !== id) throw new RangeError(`what is in it is another ${kind}`);
    if (kind === 'message') {
      plain.delete(id);
      remember(everOpened, id);
    }
    return { ...outer, ...said, sealed: true };
  }

  async function openMessage(message: Message): Promise<Message | undefined> {
    const { payload } = message;
    try {
      return { ...message, payload: await opened('message', payload) };
    } catch (error) {
      log.error(`a sealed message of ${timeOf(payload)} cannot be opened: ${describeError(error)}`);
      if (deps.deliversUnopened) return message;
      const [oldest] = unopened.keys();
      if (unopened.size >= MAX_UNOPENED && oldest !== undefined) unopened.delete(oldest);
      unopened.set(idOf(payload), message);
      return undefined;
    }
  }

  /** Otherwise the edge could obtain a plain answer to a sealed message by sending an unsealed one with the same id. */
  function notePlain(id: string): void {
    if (!everOpened.has(id)) remember(plain, id);
  }

  async function sealed(kind: 'reply' | 'notification', id: string, payload: Payload): Promise<Sealed | undefined> {
    const found = await keys();
    if (!found) return undefined;
    const { own, home } = found;
    const context = contextOf({ direction: 'to-home', ...(await purpose(kind, id, home)) });
    // The mailbox's history returns a reply to the device that sent it.
    const to = kind === 'reply' ? [home, own.point] : [home];
    return seal(
      utf8ToBytes(JSON.stringify(payload)),
      own,
      to.map((point) => ({ point, context })),
    );
  }

  async function coveredReply({ plain: isPlain, shown, ...payload }: Payload): Promise<Payload> {
    const { chat_id, reply_to, message_id, ts } = payload;
    // Sealed only: from a bare hash, the edge could guess the words.
    const text = await sealed('reply', String(message_id), { ...payload, shown });
    if (!text) return payload;
    const isToPlain = isPlain ?? (typeof reply_to === 'string' && plain.has(reply_to));
    // A caller at the edge cannot open a seal. The seal beside the plain text tells home who replied to which message.
    if (isToPlain === true) return { ...payload, sealed: text };
    return { text: SEALED_TEXT, chat_id, reply_to, message_id, ts, sealed: text };
  }

  async function coveredNotification(payload: Payload): Promise<Payload> {
    const id = crypto.randomUUID();
    const text = await sealed('notification', id, payload);
    return text ? { id, sealed: text } : payload;
  }

  /** The id of home's key, which tells home that this device has it; undefined without it. */
  async function homeKeyId(): Promise<string | undefined> {
    const home = homeKey();
    return home && keyIdOf(home);
  }

  /** Retries the messages that could not be opened so far. */
  async function again(deliver: (message: Message) => void): Promise<void> {
    for (const message of [...unopened.values()]) {
      unopened.delete(idOf(message.payload));
      const found = await openMessage(message);
      if (found) deliver(found);
    }
  }

  /** The mailbox is unchanged. */
  function keyFailed(error: unknown): Record<string, never> {
    log.error(`the key for sealed messages cannot be used: ${describeError(error)}`);
    return {};
  }

  return {
    /** The member of the first frame to home with this device's key. Empty if there is no usable key. */
    async authMember(isPairing: boolean): Promise<Payload> {
      try {
        return { box_key: base64url((await ownKeys.own(isPairing)).point) };
      } catch (error) {
        return keyFailed(error);
      }
    },

    /**
     * The change of the pairing for `home_box` of `auth.ok`. If the pairing pins home's identity, that must have signed
     * it.
     */
    async taken(given: unknown, endpoints: readonly Endpoint[], isPairing: boolean): Promise<Pick<Pairing, 'box'>> {
      const before = isPairing ? undefined : store.pairing()?.box;
      try {
        const own = await ownKeys.own(isPairing);
        const home = signedKey(given, endpoints, deps) ?? before?.home;
        const uploads = isObject(given) ? given.uploads === true : before?.uploads;
        const box = {
          ...(await ownKeys.store(own, isPairing)),
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

    /** Opens an item of the mailbox's history. Returns it unchanged if it cannot be opened. */
    async openItem<T extends SealedItem>(item: T): Promise<T> {
      const { kind, message_id: id, sealed } = item;
      if (!isObject(sealed)) {
        if (kind === 'message') notePlain(id);
        return { ...item, sealed: homeKey() && false };
      }
      try {
        const said = await opened(kind, { ...item } as Payload);
        const { title = null, sent_at: ts = said.ts, metadata } = said;
        return { ...item, ...said, title, ts, answers: asObject(metadata)?.answers };
      } catch (error) {
        log.error(`a sealed ${kind} of the history cannot be opened: ${describeError(error)}`);
        return item;
      }
    },

    /**
     * Starts a connection with home, which has the key `shown` from the first frame and seals for this device from now on.
     * Resolves with the change of the pairing if this device has another key now. Home's key stays, so that nothing goes
     * to the mailbox in plain until home has the new one.
     */
    async online({ shown, send, deliver }: { shown: unknown; send: SendOn; deliver(message: Message): void }) {
      try {
        if (base64url((await ownKeys.own(false)).point) !== shown) {
          const { home, uploads } = store.pairing()?.box ?? {};
          return { box: home === undefined ? undefined : { home, ...(uploads && { uploads }) } };
        }
        const key = await homeKeyId();
        if (key !== undefined) send('system', 'box.known', { key });
        await again(deliver);
      } catch (error) {
        // A key that cannot be read now is not lost.
        keyFailed(error);
      }
      return undefined;
    },

    /** Starts a connection with the mailbox. */
    guard({ send, deliver }: { send: SendOn; deliver(message: Message): void }) {
      let pending = 0;
      let tail = Promise.resolve();
      let sending: Promise<void> = Promise.resolve();
      /** Keeps the order, even behind a message that is being opened. */
      function queue(message: Message): void {
        if (pending >= MAX_PENDING) {
          log.error('too many messages at once: one was not shown');
          return;
        }
        pending++;
        const isSealed = message.type === 'phone.message' && isObject(message.payload.sealed);
        const show = async () => {
          const found = isSealed ? await openMessage(message) : message;
          pending--;
          if (found && isForged(found, everOpened)) log.error('a message came again without a seal: it was not shown');
          else if (found) deliver(found);
        };
        tail = tail.then(show).catch((error) => log.error(`a message was not shown: ${describeError(error)}`));
      }
      return {
        receive(message: Message): void {
          const { type, payload } = message;
          const isMessage = message.channel === 'proactive' && type === 'phone.message';
          if (isMessage && !isObject(payload.sealed)) {
            notePlain(idOf(payload));
            queue({ ...message, payload: { ...payload, sealed: homeKey() && false } });
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
          // A text that is sealed sooner must not overtake earlier ones.
          sending = Promise.all([covered, sending]).then(
            ([sealed]) => send(channel, type, sealed, id),
            // Never sent in plain: a reply is sent again with the next connection.
            (error) => log.error(`a ${isReply ? 'reply' : 'notification'} cannot be sealed: ${describeError(error)}`),
          );
        },
      };
    },
  };
}

/** Home's key from `auth.ok`. */
function signedKey(
  given: unknown,
  endpoints: readonly Endpoint[],
  { isSignedBy, log }: Pick<SealingDeps, 'isSignedBy' | 'log'>,
): string | undefined {
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

/** Stores the key of a device in its pairing. */
function keysInPairing(store: SealingDeps['store'], log: Log): OwnKeys {
  /** The key of a pairing that is not stored yet, or has no usable key. */
  let made: BoxKey | undefined;
  let cached: { text: string; key: BoxKey | null } | undefined;

  async function stored(text: string, point: string): Promise<BoxKey | null> {
    try {
      return await importBoxKey(text, fromBase64url(point) ?? new Uint8Array());
    } catch (error) {
      log.error(`the key for sealed messages cannot be used, and a new one is made: ${describeError(error)}`);
      return null;
    }
  }

  return {
    async own(isPairing) {
      const { private_key: text, public_key: point = '' } = (isPairing ? undefined : store.pairing()?.box) ?? {};
      if (text !== undefined && cached?.text !== text) cached = { text, key: await stored(text, point) };
      if (text !== undefined && cached?.key) return cached.key;
      made ??= await newBoxKey();
      return made;
    },
    store: async (key) => ({ private_key: await exportBoxKey(key) }),
  };
}

/** True for an unsealed message with the id of an opened one: a sealed reply would answer the opened one. */
const isForged = ({ type, payload }: Message, opened: ReadonlySet<string>): boolean =>
  type === 'phone.message' && payload.sealed === false && opened.has(idOf(payload));

/** The id of a message; '' for a malformed one, since `String` overflows the stack on a deep list. */
const idOf = ({ message_id: id }: Payload): string => (typeof id === 'string' ? id : '');

/** Adds an id, and removes the oldest one over the limit. */
function remember(ids: Set<string>, id: string): void {
  ids.add(id);
  if (ids.size > MAX_IDS) ids.delete(ids.values().next().value as string);
}

const timeOf = ({ sent_at: at }: Payload): string =>
  typeof at === 'number' && Math.abs(at) < 8e15 ? new Date(at).toISOString() : 'an unknown time';
