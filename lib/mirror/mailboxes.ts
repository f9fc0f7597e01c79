import { hmac } from '@noble/hashes/hmac.js';
import { sha256 as sha256Bytes } from '@noble/hashes/sha2.js';
import type { MirrorPeerRecord, Store } from '../../storage/schema.ts';
import { bytesToHex, sha256, utf8ToBytes } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import type { JsonObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { refreshExpiry, refreshTokenOf } from '../sessions/refresh.ts';

/** Seconds for which a device that asks again gets the same credentials. */
const RENEW_AFTER = 10;
const ENTRY = 'mailbox:';

/** Credentials of a device for the edge: `mailbox` of `auth.ok` and of `routes.updated` (contract 12 §3). */
export type Mailbox = { url: string; session_token: string; refresh_token: string };

interface Entry {
  /** Number of the chain: higher than any before it, epoch seconds as a rule. */
  chain: number;
  /** Its credentials were sent to the device, which may have lost them or used them. */
  given: boolean;
  /** The device has shown that its credentials have come. */
  taken: boolean;
}

/** The socket of the edge on which devices reach their mailbox; undefined without an edge. */
export const mailboxUrl = (peer: MirrorPeerRecord | null): string | undefined =>
  peer?.url === undefined ? undefined : `${peer.url.replace(/^http/, 'ws')}/ws`;

/**
 * The chains of credentials that devices have for the edge (contract 12 §2, §3). A chain begins with credentials that are
 * derived from a secret of this mirror, so that home can give them again after a crash and stores no token; what the edge
 * has made of them since, home does not know.
 */
export function openMailboxes({
  store,
  stored,
  clock,
  log,
}: {
  store: Store<'mirror'>;
  stored: ReadonlyMap<string, unknown>;
  clock: Clock;
  log: Log;
}) {
  const entries = new Map<string, Entry>();
  for (const [key, value] of stored) {
    const entry = value as Entry | null;
    if (!key.startsWith(ENTRY) || typeof entry?.chain !== 'number') continue;
    entries.set(key.slice(ENTRY.length), { ...entry, given: entry.given !== false });
  }
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
    /** The hashes of a family's chain for the edge. A family without a chain gets one. */
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

    /** The credentials that begin a family's chain, and its number. */
    credentials(peer: MirrorPeerRecord, family: string): (Mailbox & { chain: number }) | undefined {
      const entry = entries.get(family);
      const url = mailboxUrl(peer);
      if (!entry || url === undefined) return undefined;
      const { token, refreshToken } = tokensOf(peer, family, entry.chain);
      return { url, session_token: token, refresh_token: refreshToken, chain: entry.chain };
    },

    /** The edge itself has begun the chain of a device that has paired there, and the device has it. */
    beganThere: (family: string, chain: number): void => void put(family, { chain, given: true, taken: true }),

    isTaken: (family: string): boolean => entries.get(family)?.taken === true,

    /** Its device may have credentials, though home may not have seen that they came. */
    mayHave(family: string): boolean {
      const entry = entries.get(family);
      return entry !== undefined && (entry.given || entry.taken);
    },

    /** The credentials of a family's chain are sent to its device. */
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
     * The device has no credentials: begins a new chain, with which those it may have had end; unless they are so new that
     * it gets the same ones. It may have used them at the edge although home saw no sign that they came.
     */
    renew(family: string): void {
      const entry = entries.get(family);
      if (!entry?.given) return;
      if (entry.chain + RENEW_AFTER <= seconds(clock)) begun(family);
      else put(family, { ...entry, taken: false });
    },

    /** The edge is of another state: what nobody has taken begins anew, since it may have been used there. */
    restart(): void {
      for (const [family, { taken }] of [...entries]) if (!taken) begun(family);
    },

    families: (): string[] => [...entries.keys()],

    forget(family: string): void {
      if (entries.delete(family)) void store.removeItem(ENTRY + family).catch(failed);
    },
  };
}

export type Mailboxes = ReturnType<typeof openMailboxes>;
