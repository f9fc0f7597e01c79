import * as v from 'valibot';
import type { PushSubscriptionRecord, Store } from '../../storage/schema.ts';
import { RelayError } from '../errors.ts';
import { attempt } from '../kit/attempt.ts';
import { base64url, fromBase64url, timingSafeEqual } from '../kit/bytes.ts';
import { isPoint } from '../kit/ece.ts';
import { entriesOf } from '../kit/entries.ts';
import { asObject } from '../kit/json.ts';
import { sha256 } from '../kit/sha256.ts';
import type { Log } from '../log.ts';
import { onFamilyEnd } from '../sessions/family-end.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { ReceiverKeys } from './encrypt.ts';
import type { EndpointPolicy } from './endpoint.ts';

const MAX_PER_SESSION = 4;
const MAX_TOTAL = 64;
/** Characters of the longer key, 65 bytes in base64url, with room for padding. */
const MAX_KEY = 90;
const AUTH_BYTES = 16;
const PREFIX = 'subscription:';

export interface SubscriptionsDeps {
  store: Store<'push'>;
  sessions: Pick<Sessions, 'byFamily' | 'onEnd'>;
  policy: EndpointPolicy;
  /** The grant that a device needs to be notified at all. */
  grant: string;
  /** Epoch seconds. */
  now(): number;
  log: Log;
  /** A device has subscribed, or (null) no longer is. Called in the turn in which that is stored. */
  changed?(key: string, record: PushSubscriptionRecord | null): void;
}

export type Subscriptions = Awaited<ReturnType<typeof openSubscriptions>>;

/** The devices that want notifications. They are few, in memory, and written through. */
export async function openSubscriptions({ store, sessions, policy, grant, now, log, changed }: SubscriptionsDeps) {
  /** By key, in the order of subscription. */
  const records = new Map<string, PushSubscriptionRecord>();

  /** By key, the family of each ended subscription that could not be removed from the store. */
  const left = new Map<string, string>();

  const ofFamily = (family: string) => [...records].filter(([, record]) => record.family === family);

  /** Also repeats the removals that have failed. */
  async function remove(keys: readonly string[]): Promise<void> {
    await Promise.all([...keys, ...left.keys()].map(removeOne));
  }

  async function removeOne(key: string): Promise<void> {
    const family = records.get(key)?.family ?? left.get(key);
    if (records.delete(key)) changed?.(key, null);
    left.delete(key);
    try {
      await store.removeItem(PREFIX + key);
    } catch (error) {
      if (family !== undefined && !records.has(key) && left.size < MAX_TOTAL) left.set(key, family);
      throw error;
    }
  }

  function put(key: string, record: PushSubscriptionRecord): Promise<void> {
    records.delete(key);
    records.set(key, record);
    left.delete(key);
    return store.setItem(PREFIX + key, { subscription: record });
  }

  /** Takes back a record that could not be stored, in favour of the one before it. */
  function withdraw(key: string, record: PushSubscriptionRecord, before: PushSubscriptionRecord | undefined): void {
    if (records.get(key) !== record) return;
    records.delete(key);
    if (before) records.set(key, before);
    changed?.(key, before ?? null);
  }

  /**
   * The oldest subscriptions of a device, which end with another one under this key because there are four. Undefined if too
   * many devices have subscribed.
   */
  function surplusOf(family: string, key: string): string[] | undefined {
    const others = ofFamily(family).filter(([other]) => other !== key);
    const surplus = others.slice(0, Math.max(others.length - MAX_PER_SESSION + 1, 0)).map(([other]) => other);
    return records.has(key) || records.size - surplus.length < MAX_TOTAL ? surplus : undefined;
  }

  const removeSafely = (keys: readonly string[]): Promise<void> =>
    remove(keys).catch(() => log.warn('a subscription to push messages could not be removed'));

  // Other records of the store are not subscriptions and belong to other modules.
  const stored = await entriesOf(store, PREFIX);
  const keys = stored.map(([key]) => key);
  const loaded = stored.map(([, value]) => (v.is(Stored, value) ? value.subscription : undefined));
  const isSession = ({ family }: PushSubscriptionRecord) => sessions.byFamily(family) !== undefined;
  const valid = loaded.filter((record) => record !== undefined && isSession(record)) as PushSubscriptionRecord[];
  for (const record of valid.sort((a, b) => a.seq - b.seq)) records.set(sha256(record.endpoint), record);
  void removeSafely(keys.map((key) => key.slice(PREFIX.length)).filter((key) => !records.has(key)));
  let seq = valid.at(-1)?.seq ?? 0;

  onFamilyEnd(sessions, (family) => void removeSafely(ofFamily(family).map(([key]) => key)));

  return {
    /**
     * Subscribes a device, or renews its subscription. Over four of a device, its oldest one ends.
     * @throws RelayError `invalid` for a bad endpoint or key, `conflict` for the endpoint of another device, `unavailable`
     * if too many devices have subscribed, `unauthorized` if the session has ended.
     */
    async add(session: Session, body: Readonly<Record<string, unknown>>): Promise<void> {
      const endpoint = policy.read(body.endpoint).href;
      const keys = await readKeys(asObject(body.keys) ?? {});
      if (body.content !== undefined && typeof body.content !== 'boolean') {
        throw new RelayError('invalid', 'content must be true or false');
      }
      const { family } = session;
      // The session may have ended meanwhile, and nobody would remove the subscription.
      if (!sessions.byFamily(family)) throw new RelayError('unauthorized', 'this session is over');
      const key = sha256(endpoint);
      const known = records.get(key);
      // A browser that was paired again keeps its keys, which nobody else knows.
      const isOwn = known?.family === family || (known !== undefined && timingSafeEqual(known.auth, keys.auth));
      if (known && !known.edge && !isOwn) throw new RelayError('conflict', 'this endpoint belongs to another device');
      const surplus = surplusOf(family, key);
      if (!surplus) {
        throw new RelayError('unavailable', `${MAX_TOTAL} devices have subscribed to push messages: revoke one first`);
      }
      const isHome = session.mirrored === true;
      const record = {
        endpoint,
        ...keys,
        family,
        content: body.content === true,
        seq: ++seq,
        ...(isHome && { home: isHome }),
      };
      const stored = put(key, record);
      changed?.(key, record);
      await stored.catch((error) => {
        withdraw(key, record, known);
        throw error;
      });
      await removeSafely(surplus);
      log.info(`session ${session.prefix} subscribed to push messages at ${new URL(endpoint).host}`);
    },

    /** Ends a subscription of a device. Resolves with whether it existed. */
    async end(session: Session, endpoint: unknown): Promise<boolean> {
      if (typeof endpoint !== 'string') throw new RelayError('invalid', 'endpoint must be a string');
      const key = sha256(URL.canParse(endpoint) ? new URL(endpoint).href : endpoint);
      if ((records.get(key)?.family ?? left.get(key)) !== session.family) return false;
      await remove([key]);
      return true;
    },

    /** Removes ended subscriptions from the store that could not be removed before. Rejects if that fails again. */
    removeLeft: (): Promise<void> => remove([]),

    /**
     * The subscription of a device at the other relay of the mirror; null if it has ended there. Resolves once it is stored.
     * Home accepts from the edge only what a device could have asked for here.
     */
    async adopt(key: string, given: unknown, isHome: boolean): Promise<void> {
      const stored = { subscription: given };
      if (!v.is(Stored, stored)) {
        records.delete(key);
        return store.removeItem(PREFIX + key);
      }
      const { endpoint, p256dh, auth, family, content } = stored.subscription;
      const record = { endpoint, p256dh, auth, family, content, seq: ++seq };
      if (isHome) return put(key, { ...record, home: true });
      const session = sessions.byFamily(family);
      const url = attempt(() => policy.read(endpoint));
      const surplus = session && url && sha256(url.href) === key ? surplusOf(family, key) : undefined;
      if (!surplus) return log.warn('the edge gave a subscription to push messages that is not accepted');
      const known = records.get(key);
      const isSame = known?.family === family && known.p256dh === p256dh && known.auth === auth;
      const isVouched = !isSame || known.edge === true;
      await Promise.all([put(key, { ...record, ...(isVouched && { edge: true }) }), removeSafely(surplus)]);
      if (!isSame)
        log.info(`session ${session?.prefix} subscribed to push messages at ${url?.host}, by way of the edge`);
    },

    /** The mirror has ended: so do the subscriptions that only the edge has vouched for. */
    leave: (): Promise<void> => removeSafely([...records].flatMap(([key, { edge }]) => (edge ? key : []))),

    entries: (): [key: string, record: PushSubscriptionRecord][] => [...records],

    /** The push service no longer knows the subscription. */
    gone(key: string): void {
      void removeSafely([key]);
    },

    /** A subscription whose device may be notified of messages now and has a further required grant. */
    find(key: string, further = grant): PushSubscriptionRecord | undefined {
      const record = records.get(key);
      const session = record && sessions.byFamily(record.family);
      const isAllowed = session && [grant, further].every((name) => isGranted(session.grants, name, now()));
      return isAllowed ? record : undefined;
    },

    keys: (): string[] => [...records.keys()],

    /** Keys of a device's subscriptions. */
    of: ({ family }: Pick<Session, 'family'>): string[] => ofFamily(family).map(([key]) => key),
  };
}

/** The keys of a stored subscription. */
export const receiverKeys = ({ p256dh, auth }: PushSubscriptionRecord): ReceiverKeys => ({
  p256dh: fromBase64url(p256dh) ?? new Uint8Array(),
  auth: fromBase64url(auth) ?? new Uint8Array(),
});

/** Keys in their canonical spelling. @throws RelayError `invalid` for keys that messages cannot be encrypted with. */
async function readKeys(keys: Readonly<Record<string, unknown>>): Promise<{ p256dh: string; auth: string }> {
  const bytesOf = (value: unknown) =>
    typeof value === 'string' && value.length <= MAX_KEY ? fromBase64url(value) : null;
  const [p256dh, auth] = [bytesOf(keys.p256dh), bytesOf(keys.auth)];
  if (!p256dh || !(await isPoint(p256dh))) {
    throw new RelayError('invalid', 'keys.p256dh must be an uncompressed P-256 public key in base64url');
  }
  if (auth?.length !== AUTH_BYTES) throw new RelayError('invalid', 'keys.auth must be 16 bytes in base64url');
  return { p256dh: base64url(p256dh), auth: base64url(auth) };
}

const Stored: v.GenericSchema<{ subscription: PushSubscriptionRecord }> = v.object({
  subscription: v.object({
    ...v.entriesFromList(['endpoint', 'family'], v.string()),
    ...v.entriesFromList(['p256dh', 'auth'], v.pipe(v.string(), v.maxLength(MAX_KEY))),
    content: v.boolean(),
    seq: v.number(),
    ...v.entriesFromList(['home', 'edge'], v.exactOptional(v.literal(true))),
  }),
});
