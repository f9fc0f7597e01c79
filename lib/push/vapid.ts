import { SignJWT } from 'jose/jwt/sign';
import { importJWK } from 'jose/key/import';
import * as v from 'valibot';
import type { Store } from '../../storage/schema.ts';
import { RelayError } from '../errors.ts';
import { base64url, concatBytes, fromBase64url } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';

const ALGORITHM = 'ES256';
/** Seconds for which a token is valid; push services accept a day at most (RFC 8292 §2). */
const TOKEN_TTL = 12 * 3600;

/** The members of a private P-256 key as a JSON Web Key, base64url. */
export interface KeyPair {
  d: string;
  x: string;
  y: string;
}

export interface VapidDeps {
  store: Store<'push'>;
  clock: Clock;
  /** Contact of the operator for push services: a `mailto:` or `https:` URL. */
  contact: string;
  /**
   * Key of its record: its own pair, or one that home has given to the edge (contract 12 §2), which is never created here.
   */
  record: 'vapid' | 'vapid:home';
}

/** The identity of this relay for push services (RFC 8292). Its key is created on first use and stored. */
export function createVapid({ store, clock, contact, record }: VapidDeps) {
  let made: Promise<{ signing: Awaited<ReturnType<typeof importJWK>>; publicKey: string }> | undefined;

  /** Created once for concurrent callers; after a failure, the next call tries again. */
  function identity() {
    made ??= open().catch((error) => {
      made = undefined;
      throw error;
    });
    return made;
  }

  async function open() {
    const pair = readPair(await store.getItem(record)) ?? (await makePair());
    const point = concatBytes(Uint8Array.of(4), coordinate(pair.x), coordinate(pair.y));
    return {
      signing: await importJWK({ kty: 'EC', crv: 'P-256', ...pair }, ALGORITHM),
      publicKey: base64url(point),
    };
  }

  async function makePair(): Promise<KeyPair> {
    if (record === 'vapid:home')
      throw new RelayError('unavailable', 'home has not given its key for push messages yet');
    const algorithm = { name: 'ECDSA', namedCurve: 'P-256' };
    const { privateKey } = (await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])) as CryptoKeyPair;
    const { d, x, y } = (await crypto.subtle.exportKey('jwk', privateKey)) as Required<JsonWebKey>;
    // Stored durably before a device subscribes with it, since no other key may send to that subscription.
    await store.setItem(record, { vapid: { d, x, y } });
    return { d, x, y };
  }

  return {
    /** The pair, for the edge of this home. */
    async pair(): Promise<KeyPair | undefined> {
      await identity();
      return readPair(await store.getItem(record));
    },

    /** Stores the pair of home; null or an invalid pair removes it. */
    async adopt(pair: unknown): Promise<void> {
      const read = readPair({ vapid: pair });
      made = undefined;
      await (read ? store.setItem(record, { vapid: read }) : store.removeItem(record));
    },

    /** The public key that a device subscribes with: an uncompressed point in base64url. */
    publicKey: async (): Promise<string> => (await identity()).publicKey,

    /** The header `Authorization` for a call to a push service (RFC 8292 §3). */
    async authorization(endpoint: URL): Promise<string> {
      const { signing, publicKey } = await identity();
      const token = await new SignJWT({})
        .setProtectedHeader({ typ: 'JWT', alg: ALGORITHM })
        .setAudience(endpoint.origin)
        .setExpirationTime(Math.floor(seconds(clock)) + TOKEN_TTL)
        .setSubject(contact)
        .sign(signing);
      return `vapid t=${token}, k=${publicKey}`;
    },
  };
}

const coordinate = (text: string): Uint8Array => fromBase64url(text) ?? new Uint8Array();

const Part = v.pipe(
  v.string(),
  v.check((part) => fromBase64url(part)?.length === 32),
);
const Stored: v.GenericSchema<{ vapid: KeyPair }> = v.object({ vapid: v.object({ d: Part, x: Part, y: Part }) });

const readPair = (value: unknown): KeyPair | undefined => (v.is(Stored, value) ? value.vapid : undefined);
