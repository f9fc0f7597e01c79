import { hmac } from '@noble/hashes/hmac.js';
import { sha256 as sha256Bytes } from '@noble/hashes/sha2.js';
import * as v from 'valibot';
import type { MirrorPeerRecord, Store } from '../../storage/schema.ts';
import { bytesToHex, utf8ToBytes } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import type { JsonObject } from '../kit/json.ts';
import { sha256 } from '../kit/sha256.ts';
import type { Log } from '../log.ts';
import { refreshExpiry, refreshTokenOf } from '../sessions/refresh.ts';
import { type Records, time } from './records.ts';

/** Seconds for which a device that asks again gets the same credentials. */
const RENEW_AFTER = 10;
const ENTRY = 'mailbox:';

/** Credentials of a device for the edge: `mailbox` of `auth.ok` and of `routes.updated` (contract 12 §3). */
export type Mailbox = { url: string; session_token: string; refresh_token: string };

const Entry = v.object({
  /** Number of the chain: higher than any before it, normally epoch seconds. */
  chain: time,
  /** Its credentials were sent to the device, which may have lost them or used them. Earlier versions did not store it. */
  given: v.optional(v.boolean(), true),
  /** True if the device has shown that its credentials arrived. */
  taken: v.boolean(),
});
type Entry = v.InferOutput<typeof Entry>;

/** The socket at the edge where devices reach their mailbox; undefined without an edge. */
export const mailboxUrl = (peer: MirrorPeerRecord | null): string | undefined =>
  peer?.url === undefined ? undefined : `${peer.url.replace(/^http/, 'ws')}/ws`;

/**
 * The chains of credentials that devices have for the edge (contract 12 §2, §3). A chain starts with credentials that derive
 * from a secret of this mirror, so that home stores no token and can send them again after a crash. Home does not know the
 * credentials that the edge has since issued in their place.
 */
export function openMailboxes({
  store,
  records,
  clock,
  log,
}: {
  store: Store<'mirror'>;
  records: Records;
  clock: Clock;
  log: Log;
}) {
  const entries = records.below(ENTRY, Entry);
  const failed = () => log.warn('the credentials of a device for the edge could not be stored');

  function put(family: string, entry: Entry): Entry {
    entries.set(family, entry);
    void store.setItem(ENTRY + family, { ...entry }).catch(failed);
    return entry;
  }

  const begun = (family: string): Entry => {
    const before = entries.get(family)?.chain ?? 0;
    return put(family, { chain: Math.max(before + 1, seconds(clock)), given: false, taken: false });
  };

  function tokensOf({ mailbox_secret: secret = '' }: MirrorPeerRecord, family: string, chain: number) {
    const derive = (what: string) =>
      hmac(sha256Bytes, utf8ToBytes(secret), utf8ToBytes(`svc-relay mailbox v1\n${what}\n${family}\n${chain}`));
    return {
      token: bytesToHex(derive('session')),
      refreshToken: refreshTokenOf(family, derive('refresh').subarray(0, 16), 'mailbox'),
    };
  }

  return {
    /** The hashes of a family's chain for the edge. Starts a chain if there is none. */
    body(peer: MirrorPeerRecord, family: string): JsonObject {
      const { chain } = entries.get(family) ?? begun(family);
      const { token, refreshToken } = tokensOf(peer, family, chain);
      return {
        token_sha256: sha256(token),
        token_prefix: token.slice(0, 8),
        refresh: {
          sha256: sha256(refreshToken),
          replaced: [],
          created_at: chain,
          last_used: chain,
          expires_at: refreshExpiry(chain),
        },
        chain,
      };
    },

    /** The first credentials of a family's chain, and its number. */
    credentials(peer: MirrorPeerRecord, family: string): (Mailbox & { chain: number }) | undefined {
      const entry = entries.get(family);
      const url = mailboxUrl(peer);
      if (!entry || url === undefined) return undefined;
      const { token, refreshToken } = tokensOf(peer, family, entry.chain);
      return { url, session_token: token, refresh_token: refreshToken, chain: entry.chain };
    },

    /** The edge itself has started the chain of a device that paired there, and the device has it. */
    beganThere: (family: string, chain: number): void => void put(family, { chain, given: true, taken: true }),

    isTaken: (family: string): boolean => entries.get(family)?.taken === true,

    /** True if its device may have credentials, even if home has not seen that they arrived. */
    mayHave(family: string): boolean {
      const entry = entries.get(family);
      return entry !== undefined && (entry.given || entry.taken);
    },

    /** The credentials of a family's chain are being sent to its device. */
    give(family: string): void {
      const entry = entries.get(family);
      if (entry && !entry.given) put(family, { ...entry, given: true });
    },

    /** The device has the credentials of a chain. */
    take(family: string, chain: number): void {
      const entry = entries.get(family);
      if (entry && entry.chain === chain && !entry.taken) put(family, { ...entry, taken: true });
    },

    /**
     * The device has no credentials: starts a new chain, which ends earlier ones, unless the present one is so new that it
     * gets the same again. It may have used them at the edge although home saw no sign of their arrival.
     */
    renew(family: string): void {
      const entry = entries.get(family);
      if (!entry?.given) return;
      if (entry.chain + RENEW_AFTER <= seconds(clock)) begun(family);
      else put(family, { ...entry, taken: false });
    },

    /** The edge has another state: restarts every chain that no device has confirmed, since it may have been used there. */
    restart(): void {
      for (const [family, entry] of [...entries]) if (!entry.taken) begun(family);
    },

    families: (): string[] => [...entries.keys()],

    forget(family: string): void {
      if (entries.delete(family)) void store.removeItem(ENTRY + family).catch(failed);
    },
  };
}

export type Mailboxes = ReturnType<typeof openMailboxes>;
