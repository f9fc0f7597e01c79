import { hmac } from '@noble/hashes/hmac.js';
import { sha256 } from '@noble/hashes/sha2.js';
import * as v from 'valibot';
import type { DeviceBoxRecord, PhoneMessage, Reply, SealedText } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import {
  type BoxKey,
  exportBoxKey,
  importBoxKey,
  keyIdOf,
  MAX_RECEIVERS,
  newBoxKey,
  open,
  type Receiver,
  readSealed,
  seal,
} from '../kit/box.ts';
import { base64url, fromBase64url, utf8ToBytes } from '../kit/bytes.ts';
import { isPoint } from '../kit/ece.ts';
import { asObject, type JsonObject, parseObject } from '../kit/json.ts';
import { unsealedReply } from '../phone/reply.ts';
import { contextOf, coveredMessage, homeBoxText, SEALED_TEXT, UNSEALED } from '../phone/sealed.ts';
import type { Session } from '../sessions/session.ts';
import type { Op } from './frames.ts';
import type { RecordDeps } from './records.ts';
import { MAX_NAMED, type PlainReason, type SealStatus } from './seal-status.ts';

const KEY = 'box';
const DEVICE = 'box:';
const Own = v.object({ box: v.object({ private_key: v.string(), public_key: v.string() }) });
const Device = v.object({
  key: v.string(),
  before: v.optional(v.string()),
  device_id: v.string(),
  knows_home: v.boolean(),
});

/** `home_box` of `auth.ok` (contract 12 §4). `uploads`: home opens sealed uploads. */
export type HomeBox = { key: string; uploads: true; signature?: string };

/** An op of the edge with its opened content; `isForged` if only the edge vouches for it. */
interface Opened {
  body: JsonObject;
  isForged?: boolean;
}

export interface SealsDeps extends Omit<RecordDeps, 'clock'> {
  /** All sessions, and those whose devices may get messages. */
  everySession(): Session[];
  sessions(): Session[];
  /** True if a device has shown that it has credentials for the edge. */
  hasMailbox(family: string): boolean;
  /** True if credentials for the edge were sent to a device. */
  mayHaveMailbox(family: string): boolean;
  /** The secret of this mirror, which the edge does not know. */
  secret(): string;
  /** Signs with the identity that pairing links pin; null without one. */
  sign(bytes: Uint8Array): Uint8Array | null;
  /** A message is sealed and can be offered. */
  ready(): void;
}

export type Seals = Awaited<ReturnType<typeof openSeals>>;

/**
 * The sealed mailbox at home (contract 12 §4). Home seals its content for the edge once every device with credentials for
 * the edge has sent a key and has home's. If one has not, everything is plain, since it could read nothing else. While
 * sealed, plain content from the edge does not count as a device's.
 */
export async function openSeals(deps: SealsDeps) {
  const { store, records, log } = deps;
  const own = await ownKey();
  const epoch = await keyIdOf(own.point);
  const key = base64url(own.point);
  /** Keyed by family. */
  const devices = records.below<DeviceBoxRecord>(DEVICE, Device);
  /** A message with its sealed form for the edge: the receivers, and the outcome, null on failure. */
  const covered = new WeakMap<PhoneMessage, { to: string; outcome?: PhoneMessage | null }>();
  /** Ops of the edge that are being opened, with their content. */
  const opening = new WeakMap<Op, Promise<void>>();
  const opened = new WeakMap<Op, Opened>();
  const failed = () => log.warn('the key of a device for its mailbox could not be stored');

  async function ownKey(): Promise<BoxKey> {
    const box = records.one(KEY, Own)?.box;
    const point = fromBase64url(box?.public_key ?? '');
    try {
      if (box && point) return await importBoxKey(box.private_key, point);
    } catch (error) {
      log.error(`home's key for sealed messages cannot be used, and a new one is made: ${describeError(error)}`);
    }
    const made = await newBoxKey();
    const record = { box: { private_key: await exportBoxKey(made), public_key: base64url(made.point) } };
    await store.setItem(KEY, record);
    return made;
  }

  function put(family: string, record: DeviceBoxRecord): void {
    devices.set(family, record);
    void store.setItem(DEVICE + family, record).catch(failed);
  }

  function forget(family: string): void {
    if (devices.delete(family)) void store.removeItem(DEVICE + family).catch(failed);
  }

  /**
   * A device that cannot read sealed texts may use the edge. One without a key counts from when its credentials were sent,
   * because home may end before it hears that they arrived; one with a key is about to get home's, and counts once it uses
   * them.
   */
  const needsPlain = (family: string): boolean =>
    devices.has(family) ? deps.hasMailbox(family) : deps.mayHaveMailbox(family);

  /** The devices that messages are sealed for; undefined while one needs them in plain. */
  function receivers(): DeviceBoxRecord[] | undefined {
    const found: DeviceBoxRecord[] = [];
    for (const { family } of deps.sessions()) {
      const device = devices.get(family);
      if (device?.knows_home) found.push(device);
      else if (needsPlain(family)) return undefined;
    }
    // Home keeps a copy for itself.
    return found.length > 0 && found.length < MAX_RECEIVERS ? found : undefined;
  }

  /** Devices that have a mailbox and cannot read sealed texts. */
  function plainDevices(): SealStatus['plain'] {
    return deps.sessions().flatMap(({ family, device: { name } }) => {
      const device = devices.get(family);
      if (device?.knows_home || !needsPlain(family)) return [];
      const reason: PlainReason = device ? 'no_home_key' : 'no_key';
      return [{ name, reason }];
    });
  }

  async function cover(message: PhoneMessage, to: DeviceBoxRecord[]): Promise<PhoneMessage> {
    const purpose = { direction: 'to-device', kind: 'message', id: message.message_id, epoch } as const;
    const copies = to.map(
      ({ key, device_id: deviceId }): Receiver => ({
        point: pointOf(key),
        context: contextOf({ ...purpose, deviceId }),
      }),
    );
    const home: Receiver = { point: own.point, context: contextOf({ ...purpose, deviceId: 'home' }) };
    const sealed = await seal(utf8ToBytes(JSON.stringify(message)), own, [...copies, home]);
    return coveredMessage(message, sealed);
  }

  /** The device of one of these sessions with this key id. */
  async function sender(
    by: string,
    among: Session[],
  ): Promise<{ session: Session; point: Uint8Array; deviceId: string } | undefined> {
    for (const session of among) {
      const { key, before, device_id: deviceId } = devices.get(session.family) ?? {};
      for (const text of [key, before]) {
        const point = text === undefined ? undefined : pointOf(text);
        if (point && deviceId !== undefined && (await keyIdOf(point)) === by) return { session, point, deviceId };
      }
    }
    return undefined;
  }

  /** Opens a text of a device for home. Rejects if it cannot be opened. */
  async function openFromDevice(sealed: SealedText, kind: 'reply' | 'notification' | 'upload', id: string) {
    // A device may send files without getting messages.
    const from = await sender(sealed.by, kind === 'upload' ? deps.everySession() : deps.sessions());
    if (!from) throw new RangeError('no device of home has its key');
    const { point, session, deviceId } = from;
    const context = contextOf({ direction: 'to-home', kind, id, deviceId, epoch });
    return { said: await open(sealed, own, { from: point, context }), session };
  }

  async function openOp({ kind, body }: Op): Promise<Opened> {
    const given = asObject(body[kind]) ?? {};
    const sealed = readSealed(given.sealed);
    const isPlain = given.sealed === undefined;
    if (kind === 'message') {
      if (isPlain) return { body: { ...body, message: receivers() ? unsealed(given) : given } };
      if (!sealed) throw new RangeError('it is malformed');
      const purpose = { direction: 'to-device', kind, id: String(given.message_id), deviceId: 'home', epoch } as const;
      const said = textOf(await open(sealed, own, { from: own.point, context: contextOf(purpose) }));
      return { body: { ...body, message: said } };
    }
    if (isPlain) return receivers() ? { body, isForged: true } : { body };
    if (!sealed) throw new RangeError('it is malformed');
    if (kind === 'reply') {
      const { said, session } = await openFromDevice(sealed, kind, String(given.message_id));
      // A reader there only got a placeholder.
      const isTaken = body.taken === true && given.text !== SEALED_TEXT;
      // A device that seals reports the words that it has shown. One that does not answers none of home's questions.
      return { body: { ...body, reply: { shown: '', ...textOf(said) }, device: session.device.name, taken: isTaken } };
    }
    const { said } = await openFromDevice(sealed, 'notification', String(given.id));
    return { body: { ...body, notification: textOf(said) } };
  }

  async function openSafely(op: Op): Promise<void> {
    try {
      const { body, isForged } = await openOp(op);
      opened.set(op, { body: isForged ? doubted(op, undefined) : body });
      if (isForged) log.error(`a ${op.kind} came from the edge without a seal: it counts as nobody's`);
    } catch (error) {
      log.error(`a sealed ${op.kind} from the edge cannot be opened: ${describeError(error)}`);
      opened.set(op, { body: doubted(op, 'It was sealed, and home cannot open it.') });
    }
  }

  return {
    /** Home's key for a device, with its signature. */
    homeBox(): HomeBox {
      const signature = deps.sign(utf8ToBytes(homeBoxText(key)));
      return { key, uploads: true, ...(signature && { signature: base64url(signature) }) };
    },

    /** A device has authenticated, with its key if it has one. Returns true if it gets home's. */
    device({ family, device }: Session, given: string | undefined): boolean {
      const before = devices.get(family);
      const point = given === undefined ? null : fromBase64url(given);
      if (point?.length !== 65 || point[0] !== 4) {
        if (before) log.warn(`${device.name} has no key any more: its mailbox is plain`);
        forget(family);
        return false;
      }
      const key = base64url(point);
      if (before?.key === key && before.device_id === device.id) return true;
      const earlier = before && before.key !== key ? { before: before.key } : {};
      if (before && before.key !== key)
        log.warn(`${device.name} has a new key: what waits for the earlier one cannot be opened`);
      put(family, { key, ...earlier, device_id: device.id, knows_home: false });
      return true;
    },

    /** A device reports that it has the key with this id. Resolves when that is settled. */
    async known({ family }: Session, epochThere: unknown): Promise<void> {
      const device = devices.get(family);
      if (!device || epochThere !== epoch || device.knows_home) return;
      if (!(await isPoint(pointOf(device.key)))) return;
      if (devices.get(family) === device) put(family, { ...device, knows_home: true });
    },

    /** Opens the head of an upload that a device has sealed. Rejects if it cannot be opened. */
    openHead: async (head: SealedText): Promise<Uint8Array> => (await openFromDevice(head, 'upload', '')).said,

    forget,
    families: (): string[] => [...devices.keys()],
    isOn: (): boolean => receivers() !== undefined,

    /** State of the mailbox: sealed, or the reason why it is not. */
    status(): SealStatus {
      const sealed = receivers() !== undefined;
      const plain = plainDevices();
      const isAnyKeyed = [...devices.values()].some(({ knows_home: knows }) => knows);
      const reason = sealed || plain.length > 0 ? {} : { reason: reasonOf(isAnyKeyed) };
      return { sealed, plain: plain.slice(0, MAX_NAMED), plain_count: plain.length, ...reason };
    },

    /**
     * The body of a message for the edge: sealed, or plain if a device needs that. Undefined while it is being sealed, until
     * `ready` is called; null if that failed.
     */
    body(message: PhoneMessage): JsonObject | undefined | null {
      const receiving = receivers();
      if (!receiving) return { message };
      const to = receiving.map(({ key, device_id }) => `${key} ${device_id}`).join('\n');
      const done = covered.get(message);
      if (done?.to === to) return done.outcome ? { message: done.outcome, mark: this.mark(message) } : done.outcome;
      const own: { to: string; outcome?: PhoneMessage | null } = { to };
      covered.set(message, own);
      void cover(message, receiving)
        .catch((error) => {
          // It stays at home, rather than readable at the edge.
          log.error(`a message could not be sealed: ${describeError(error)}`);
          return null;
        })
        .then((outcome) => {
          own.outcome = outcome;
          deps.ready();
        });
      return undefined;
    },

    /** Identifies a message to home only, which learns from it what the edge has stored. */
    mark: (message: PhoneMessage): string =>
      base64url(hmac(sha256, utf8ToBytes(deps.secret()), utf8ToBytes(JSON.stringify(message)))),

    /** An op of the edge has to wait for this before it can be applied. */
    busy(op: Op): Promise<void> | undefined {
      if (!/^(message|reply|notification)$/.test(op.kind) || opened.has(op)) return undefined;
      const wait = opening.get(op) ?? openSafely(op);
      opening.set(op, wait);
      return wait;
    },

    /** An op in the form that home applies. */
    opened: (op: Op): Op => {
      const found = opened.get(op);
      return found ? { ...op, body: found.body } : op;
    },
  };
}

const reasonOf = (isAnyKeyed: boolean): SealStatus['reason'] => (isAnyKeyed ? 'too_many_devices' : 'no_device');

const pointOf = (key: string): Uint8Array => fromBase64url(key) ?? new Uint8Array();

function textOf(bytes: Uint8Array): JsonObject {
  const said = parseObject(new TextDecoder().decode(bytes));
  if (!said) throw new RangeError('what is in it cannot be read');
  return said;
}

/** Marks a message that was sent to the edge only, for its device. */
const unsealed = (message: JsonObject): JsonObject => ({
  ...message,
  metadata: { ...asObject(message.metadata), sealed: false },
});

/**
 * Readers get this in place of unauthenticated content: never as an answer to a question, and never nothing. `lost` is the
 * reason why there is no text.
 */
function doubted({ kind, body }: Op, lost: string | undefined): JsonObject {
  const given = asObject(body[kind]) ?? {};
  const said = String(given.text ?? '');
  const text = lost ?? `${UNSEALED}${said}`;
  const metadata = { sealed: false };
  if (kind === 'notification') return { notification: { title: 'A notification from the edge', text, sealed: false } };
  if (kind === 'message') {
    const { message_id, sent_at, chat_id } = given;
    return { ...body, message: { message_id, sent_at, chat_id, text: `A message from the edge. ${text}`, metadata } };
  }
  const { message_id, ts } = given as Partial<Reply>;
  const content = unsealedReply({ text: said });
  const reply = { message_id, ts, ...content, ...(lost && { text: `A reply from the edge. ${lost}` }), metadata };
  return { ...body, reply, taken: false };
}
