import type { Storage } from 'unstorage';
import type { LimiterRecord } from '../../storage/schema.ts';
import { sha256 } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import { createWriteBehind, loadAll } from '../kit/write-behind.ts';
import type { Log } from '../log.ts';

export type Bucket = 'pairing' | 'session';

const WINDOW = 60_000;
const FAILURES: Record<Bucket, { threshold: number; block: number }> = {
  pairing: { threshold: 10, block: 120_000 },
  session: { threshold: 5, block: 300_000 },
};
const MAX_BLOCK = Math.max(FAILURES.pairing.block, FAILURES.session.block);
const MINTS = 5;
const MAX_PEERS = 10_000;

/** Times are monotonic milliseconds. */
interface Entry {
  pairing: number[];
  session: number[];
  mint: number[];
  blockedUntil: number;
}

export interface LimiterParts {
  store: Storage<LimiterRecord>;
  clock: Clock;
  log: Log;
}

export type Limiter = Awaited<ReturnType<typeof openLimiter>>;

/**
 * Failed authentications and code requests, per peer (contract 01 §4). At most 10,000 peers are kept; the one not seen
 * for longest is dropped first. Times are monotonic in memory and wall-clock in the store: a process that slept has
 * another monotonic clock.
 */
export async function openLimiter({ store, clock, log }: LimiterParts) {
  const peers = new Map<string, Entry>();
  const persistence = createWriteBehind({ store, clock, log, name: 'the limiter' });

  /** The key is a hash: the name of an IPv6 network contains `:` and `/`. */
  function save(peer: string): void {
    persistence.save(sha256(peer), () => {
      const entry = peers.get(peer);
      return entry ? toRecord(peer, entry) : null;
    });
  }

  const wallTime = (): number => clock.now() - clock.monotonic();

  function toRecord(peer: string, { pairing, session, mint, blockedUntil }: Entry): LimiterRecord {
    const offset = wallTime();
    const wall = (times: number[]) => times.map((time) => time + offset);
    return {
      peer,
      pairing: wall(pairing),
      session: wall(session),
      mint: wall(mint),
      blocked_until: blockedUntil + offset,
    };
  }

  /** An entry as it was stored; a wall clock that was set back neither lengthens a block nor delays its end. */
  function fromRecord(value: unknown): [peer: string, entry: Entry] | undefined {
    if (!isObject(value) || typeof value.peer !== 'string' || typeof value.blocked_until !== 'number') return undefined;
    const offset = wallTime();
    const now = clock.monotonic();
    const times = (list: unknown): number[] =>
      recent(
        (Array.isArray(list) ? list : []).map((time) => Math.min(Number(time) - offset, now)),
        now,
      );
    const { peer, pairing, session, mint } = value;
    const blockedUntil = Math.min(value.blocked_until - offset, now + MAX_BLOCK);
    return [peer, { pairing: times(pairing), session: times(session), mint: times(mint), blockedUntil }];
  }

  function entryOf(peer: string): Entry {
    const entry = peers.get(peer) ?? { pairing: [], session: [], mint: [], blockedUntil: 0 };
    // A Map keeps insertion order: putting the entry back makes it the most recent.
    peers.delete(peer);
    peers.set(peer, entry);
    if (peers.size > MAX_PEERS) {
      const oldest = peers.keys().next().value as string;
      peers.delete(oldest);
      save(oldest);
    }
    return entry;
  }

  const recent = (times: number[], now: number) => times.filter((time) => time > now - WINDOW);

  const lastSeen = ({ pairing, session, mint, blockedUntil }: Entry): number =>
    Math.max(blockedUntil - MAX_BLOCK, ...pairing, ...session, ...mint);

  const loaded = await loadAll(store, log, fromRecord);
  for (const [key, [peer, entry]] of loaded.sort(([, [, a]], [, [, b]]) => lastSeen(a) - lastSeen(b))) {
    const { pairing, session, mint, blockedUntil } = entry;
    const isOver = blockedUntil <= clock.monotonic() && pairing.length + session.length + mint.length === 0;
    if (isOver) await store.removeItem(key);
    else peers.set(peer, entry);
  }

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
      save(peer);
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
      save(peer);
      return 0;
    },

    /** An authentication succeeded: clears the peer's failures, but not a running block. */
    succeed(peer: string): void {
      const entry = peers.get(peer);
      if (!entry || entry.pairing.length + entry.session.length === 0) return;
      entry.pairing = [];
      entry.session = [];
      save(peer);
    },

    /** The host paired a device: every peer starts anew. Returns how many there were. */
    clear(): number {
      const count = peers.size;
      peers.clear();
      if (count > 0) persistence.clear();
      return count;
    },
  };
}
