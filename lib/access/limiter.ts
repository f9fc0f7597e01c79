import type { Clock } from '../kit/clock.ts';

export type Bucket = 'pairing' | 'session';

const WINDOW = 60_000;
const FAILURES: Record<Bucket, { threshold: number; block: number }> = {
  pairing: { threshold: 10, block: 120_000 },
  session: { threshold: 5, block: 300_000 },
};
const MINTS = 5;
const MAX_PEERS = 10_000;

interface Entry {
  pairing: number[];
  session: number[];
  mint: number[];
  blockedUntil: number;
}

export type Limiter = ReturnType<typeof createLimiter>;

/**
 * Failed authentications and code requests, per peer, in memory (contract 01 §4). Times are monotonic
 * milliseconds. At most 10,000 peers are remembered; the one not seen for longest is forgotten first.
 */
export function createLimiter(clock: Clock) {
  const peers = new Map<string, Entry>();

  function entryOf(peer: string): Entry {
    const entry = peers.get(peer) ?? { pairing: [], session: [], mint: [], blockedUntil: 0 };
    // A Map keeps insertion order: putting the entry back makes it the most recent.
    peers.delete(peer);
    peers.set(peer, entry);
    if (peers.size > MAX_PEERS) peers.delete(peers.keys().next().value as string);
    return entry;
  }

  const recent = (times: number[], now: number) => times.filter((time) => time > now - WINDOW);

  return {
    /** Whole seconds until the peer may try again; 0 when it is not blocked. */
    blockedFor(peer: string): number {
      const entry = peers.get(peer);
      return entry ? Math.max(0, Math.ceil((entry.blockedUntil - clock.monotonic()) / 1000)) : 0;
    },

    /** Counts a failure. True when it starts a block. */
    fail(peer: string, bucket: Bucket): boolean {
      const now = clock.monotonic();
      const entry = entryOf(peer);
      // An attempt that was already on its way when a block began does not lengthen it.
      if (entry.blockedUntil > now) return false;
      entry[bucket] = [...recent(entry[bucket], now), now];
      if (entry[bucket].length < FAILURES[bucket].threshold) return false;
      entry[bucket] = [];
      entry.blockedUntil = now + FAILURES[bucket].block;
      return true;
    },

    /** Counts a code request. Whole seconds to wait when there were too many, else 0. */
    mint(peer: string): number {
      const now = clock.monotonic();
      const entry = entryOf(peer);
      entry.mint = recent(entry.mint, now);
      if (entry.mint.length >= MINTS) return Math.ceil(((entry.mint[0] as number) + WINDOW - now) / 1000);
      entry.mint.push(now);
      return 0;
    },

    /** An authentication succeeded: the peer's failures are forgotten, a running block is not. */
    succeed(peer: string): void {
      const entry = peers.get(peer);
      if (!entry) return;
      entry.pairing = [];
      entry.session = [];
    },

    /** The host paired a device: everybody starts anew. Returns how many peers were remembered. */
    clear(): number {
      const count = peers.size;
      peers.clear();
      return count;
    },
  };
}
