import * as v from 'valibot';
import type { MirrorPeerRecord, Store } from '../../storage/schema.ts';
import { RelayError } from '../errors.ts';
import { base64url, randomBytes } from '../kit/bytes.ts';
import { type HomeKey, isPublicKey, newHomeKey } from './keys.ts';
import type { Records } from './records.ts';
import { createSideTurns } from './side.ts';

const KEY = 'peer';
const keys = { private_key: v.optional(v.string()), public_key: v.pipe(v.string(), v.check(isPublicKey)) };
const others = { url: v.optional(v.string()), mailbox_secret: v.optional(v.string()) };
const Peer = v.object({ ...keys, ...others });
/** Without what is damaged beside the keys: the mirror can be enabled again with the key that the edge has pinned. */
const PeerKeys = v.object({
  ...keys,
  url: v.fallback(others.url, undefined),
  mailbox_secret: v.fallback(others.mailbox_secret, undefined),
});
const newSecret = () => base64url(randomBytes(32));

export type HomePeer = ReturnType<typeof openHomePeer>;

/** Home's key for the mirror, the edge that has pinned it, if any, and the secret of the mailboxes there. */
export function openHomePeer({ store, records }: { store: Store<'mirror'>; records: Records }) {
  let peer: MirrorPeerRecord | null = records.one(KEY, Peer, PeerKeys) ?? null;

  async function put(next: MirrorPeerRecord): Promise<void> {
    await store.setItem(KEY, next);
    peer = next;
  }

  /** The record, with a new key if there is none yet. */
  async function ensure(): Promise<MirrorPeerRecord> {
    if (peer) return peer;
    const { privateKey, publicKey } = await newHomeKey();
    peer ??= { private_key: privateKey, public_key: publicKey };
    await store.setItem(KEY, peer);
    return peer;
  }

  return {
    /** Runs a change of the edge after the last one. If two overlapped, home would dial twice, or not at all. */
    inTurn: createSideTurns(),

    ensure,

    record: (): MirrorPeerRecord | null => peer,

    /** Origin of the edge; undefined without one. */
    url: (): string | undefined => peer?.url,

    /** The secret of which the credentials for the edge are derived; undefined without an edge. */
    secret: (): string | undefined => (peer?.url === undefined ? undefined : peer.mailbox_secret),

    /** The edge to dial, and the key to prove there; undefined without either. */
    dialled(): { url: string; key: HomeKey } | undefined {
      const { url, private_key: privateKey, public_key: publicKey = '' } = peer ?? {};
      return url === undefined || privateKey === undefined ? undefined : { url, key: { privateKey, publicKey } };
    },

    /** Adds the secret to a record that has none: earlier versions did not store it, or it was damaged. */
    async complete(): Promise<void> {
      if (peer?.url !== undefined && peer.mailbox_secret === undefined) {
        await put({ ...peer, mailbox_secret: newSecret() });
      }
    },

    /**
     * Returns whether the edge is a new one.
     * @throws RelayError `conflict` while there is another edge, `unavailable` if it cannot be stored.
     */
    async enable(origin: string): Promise<boolean> {
      const own = await ensure();
      if (own.url !== undefined && own.url !== origin) {
        throw new RelayError('conflict', `the mirror is at ${own.url}: disable it first`);
      }
      const isNew = own.url === undefined;
      await put({ ...own, url: origin, ...((isNew || !own.mailbox_secret) && { mailbox_secret: newSecret() }) });
      return isNew;
    },

    /** Leaves the edge, and stores the key for the next one. */
    async disable(): Promise<void> {
      const { url: _, mailbox_secret: __, ...rest } = await ensure();
      await put(rest);
    },
  };
}
