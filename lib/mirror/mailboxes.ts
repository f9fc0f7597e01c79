import * as v from 'valibot';
import type { MirrorPeerRecord } from '../../storage/schema.ts';
import { seconds } from '../kit/clock.ts';
import type { JsonObject } from '../kit/json.ts';
import { type ChainTokens, chainBody, chainTokens } from './chains.ts';
import { type RecordDeps, time } from './records.ts';

/** Seconds for which a device that asks again gets the same credentials. */
const RENEW_AFTER = 10;
const ENTRY = 'mailbox:';

/** Credentials of a device for the edge: `mailbox` of `auth.ok` and of `routes.updated` (contract 12 §3). */
export type Mailbox = ChainTokens & { url: string };

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
 * The chains of credentials that devices have for the edge (contract 12 §2, §3). Home does not know the credentials that the
 * edge has since issued in place of the first ones.
 */
export function openMailboxes({ store, records, clock, log }: RecordDeps) {
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

  const tokensOf = ({ mailbox_secret: secret = '' }: MirrorPeerRecord, family: string, chain: number) =>
    chainTokens(secret, 'mailbox', family, chain);

  return {
    /** The hashes of a family's chain for the edge. Starts a chain if there is none. */
    body(peer: MirrorPeerRecord, family: string): JsonObject {
      const { chain } = entries.get(family) ?? begun(family);
      return chainBody(tokensOf(peer, family, chain), chain);
    },

    /** The first credentials of a family's chain, and its number. */
    credentials(peer: MirrorPeerRecord, family: string): { mailbox: Mailbox; chain: number } | undefined {
      const { chain } = entries.get(family) ?? {};
      const url = mailboxUrl(peer);
      if (chain === undefined || url === undefined) return undefined;
      return { mailbox: { url, ...tokensOf(peer, family, chain) }, chain };
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
