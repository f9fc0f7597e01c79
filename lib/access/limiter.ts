import type { Storage } from 'unstorage';
import * as v from 'valibot';
import type { LimiterRecord, PeerLimitRecord } from '../../storage/schema.ts';
import type { Clock } from '../kit/clock.ts';
import { listOf, loadAll, readAs } from '../kit/entries.ts';
import { sha256 } from '../kit/sha256.ts';
import { createWriteBehind } from '../kit/write-behind.ts';
import type { Log } from '../log.ts';
import { addressOf, allowancesOf } from './peer.ts';

export type Bucket = 'pairing' | 'session';

const WINDOW = 60_000;
const FAILURES: Record<Bucket, { threshold: number; block: number }> = {
  pairing: { threshold: 10, block: 120_000 },
  session: { threshold: 5, block: 300_000 },
};
const MAX_BLOCK = Math.max(FAILURES.pairing.block, FAILURES.session.block);
const MINTS = 5;
/** Peers with counts or a running block. */
const MAX_PEERS = 10_000;

/** Wrong codes in a window, over all peers together, and for how long one more of them restricts codes. */
const CODE_BUDGET = 60;
const RESTRICTION = 600_000;
/** Peers remembered because a device has paired from them. */
const MAX_PAIRED = 1_000;

/** Keys of records that belong to no single peer. */
const BUDGET_KEY = 'code-budget';
const PAIRED_KEY = 'paired-peers';

/** Times are monotonic milliseconds. */
interface Counts {
  pairing: number[];
  session: number[];
  mint: number[];
}

export interface LimiterDeps {
  store: Storage<LimiterRecord>;
  clock: Clock;
  log: Log;
}

export type Limiter = Awaited<ReturnType<typeof openLimiter>>;

const recent = (times: number[], now: number): number[] => times.filter((time) => time > now - WINDOW);

/**
 * Failed authentications and code requests, per peer, and wrong pairing codes over all peers (contract 01 §4). Keeps at
 * most 10,000 peers and evicts the least recently used one without a running block; a running block is never evicted.
 * While blocks fill the table, failures of other peers count only towards the budget of wrong codes.
 *
 * A page of a foreign origin is a separate peer. It also shares a limit with all other origins of its address, and is
 * refused while that address is blocked (contract 01 §1.4).
 *
 * Times are monotonic in memory and wall-clock in the store: a process that slept has another monotonic clock.
 */
export async function openLimiter({ store, clock, log }: LimiterDeps) {
  /** Least recently used first. */
  const counts = new Map<string, Counts>();
  /**
   * Ends of running blocks. All blocks of one map have the same length, so insertion order is the order of their ends.
   */
  const blocks: Record<Bucket, Map<string, number>> = { pairing: new Map(), session: new Map() };
  /** Peers from which a device has paired, the latest last. */
  const paired = new Set<string>();
  let wrongCodes: number[] = [];
  let restrictedUntil = 0;
  const persistence = createWriteBehind({ store, log, name: 'the limiter' });

  /** The key is a hash: the name of an IPv6 network contains `:` and `/`. */
  function save(peer: string): void {
    persistence.save(sha256(peer), () => toRecord(peer));
  }

  const savePaired = () => persistence.save(PAIRED_KEY, () => ({ paired_peers: [...paired] }));

  function saveBudget(): void {
    persistence.save(BUDGET_KEY, () => {
      const offset = wallTime();
      return { wrong_codes: wrongCodes.map((time) => time + offset), restricted_until: restrictedUntil + offset };
    });
  }

  const wallTime = (): number => clock.now() - clock.monotonic();

  const blockEnd = (key: string): number => Math.max(blocks.pairing.get(key) ?? 0, blocks.session.get(key) ?? 0);

  const blockedUntil = (peer: string): number =>
    Math.max(blockEnd(addressOf(peer)), ...allowancesOf(peer).map(({ key }) => blockEnd(key)));

  function toRecord(peer: string): PeerLimitRecord | null {
    const entry = counts.get(peer);
    const until = blockEnd(peer);
    if (!entry && until <= clock.monotonic()) return null;
    const offset = wallTime();
    const wall = (times: number[] = []) => times.map((time) => time + offset);
    return {
      peer,
      pairing: wall(entry?.pairing),
      session: wall(entry?.session),
      mint: wall(entry?.mint),
      blocked_until: until + offset,
    };
  }

  function dropEndedBlocks(now: number): void {
    for (const ends of [blocks.pairing, blocks.session]) {
      for (const [peer, until] of ends) {
        if (until > now) break;
        ends.delete(peer);
        save(peer);
      }
    }
  }

  const isFull = () => counts.size + blocks.pairing.size + blocks.session.size >= MAX_PEERS;

  /** Makes room for one more. Returns false if running blocks fill the table. */
  function makeRoom(): boolean {
    if (!isFull()) return true;
    dropEndedBlocks(clock.monotonic());
    if (!isFull()) return true;
    const oldest = counts.keys().next();
    if (oldest.done) return false;
    counts.delete(oldest.value);
    save(oldest.value);
    return true;
  }

  /** A peer's counts, marked as the most recently used. Undefined when there is no room for them. */
  function countsOf(peer: string): Counts | undefined {
    const known = counts.get(peer);
    if (!known && !makeRoom()) return undefined;
    const entry = known ?? { pairing: [], session: [], mint: [] };
    // A Map keeps insertion order.
    counts.delete(peer);
    counts.set(peer, entry);
    return entry;
  }

  function block(peer: string, bucket: Bucket, entry: Counts): void {
    entry[bucket] = [];
    if (entry.pairing.length + entry.session.length + entry.mint.length === 0) counts.delete(peer);
    makeRoom();
    // An ended block would keep the peer's old position in the order.
    blocks[bucket].delete(peer);
    blocks[bucket].set(peer, clock.monotonic() + FAILURES[bucket].block);
  }

  function countWrongCode(now: number): void {
    if (restrictedUntil > now) return;
    wrongCodes = [...recent(wrongCodes, now), now];
    if (wrongCodes.length > CODE_BUDGET) {
      wrongCodes = [];
      restrictedUntil = now + RESTRICTION;
      log.warn(
        `more than ${CODE_BUDGET} wrong pairing codes within a minute: for ten minutes, only codes that the host ` +
          'registered are accepted, and only from addresses that have paired before; registering a code ends this',
      );
    }
    saveBudget();
  }

  /** Restores the stored records and removes expired ones. A wall clock that was set back lengthens no block. */
  async function restore(records: [key: string, record: LimiterRecord][]): Promise<void> {
    const offset = wallTime();
    const now = clock.monotonic();
    const times = (stored: number[]): number[] => {
      const list = stored.map((time) => Math.min(time - offset, now));
      return recent(list, now);
    };
    const running: [peer: string, until: number][] = [];
    const counted: [peer: string, entry: Counts, last: number][] = [];
    for (const [key, record] of records) {
      if ('paired_peers' in record) {
        for (const peer of record.paired_peers) paired.add(peer);
      } else if ('wrong_codes' in record) {
        wrongCodes = times(record.wrong_codes);
        restrictedUntil = Math.min(record.restricted_until - offset, now + RESTRICTION);
      } else {
        const { peer } = record;
        const entry = { pairing: times(record.pairing), session: times(record.session), mint: times(record.mint) };
        const until = Math.min(record.blocked_until - offset, now + MAX_BLOCK);
        const all = [...entry.pairing, ...entry.session, ...entry.mint];
        if (until > now) running.push([peer, until]);
        if (all.length > 0) counted.push([peer, entry, Math.max(...all)]);
        if (until <= now && all.length === 0) await store.removeItem(key);
      }
    }
    for (const [peer, entry] of counted.sort(([, , a], [, , b]) => a - b)) counts.set(peer, entry);
    // A new block ends no earlier than these, so the map stays in order.
    for (const [peer, until] of running.sort(([, a], [, b]) => a - b)) blocks.session.set(peer, until);
  }

  await restore(await loadAll({ store, log, read: readAs(Stored) }));

  return {
    /** Whole seconds until the peer may try again; 0 when it is not blocked. */
    blockedFor(peer: string): number {
      return Math.max(0, Math.ceil((blockedUntil(peer) - clock.monotonic()) / 1000));
    },

    /**
     * Counts a failure. True when it starts a block. A wrong secret is not a guess at a code: it counts for its peer,
     * but not towards the restriction of codes for all peers.
     */
    fail(peer: string, bucket: Bucket, { isGuess = true } = {}): boolean {
      const now = clock.monotonic();
      if (bucket === 'pairing' && isGuess) countWrongCode(now);
      // An attempt that was already on its way when a block began does not lengthen it.
      if (blockedUntil(peer) > now) return false;
      let isBlocked = false;
      for (const { key, share } of allowancesOf(peer)) {
        const entry = countsOf(key);
        if (!entry) continue;
        entry[bucket] = [...recent(entry[bucket], now), now];
        if (entry[bucket].length >= FAILURES[bucket].threshold * share) {
          block(key, bucket, entry);
          isBlocked = true;
        }
        save(key);
      }
      return isBlocked;
    },

    /** Counts a code request. Returns the whole seconds to wait after too many, otherwise 0. */
    mint(peer: string): number {
      const now = clock.monotonic();
      for (const { key, share } of allowancesOf(peer)) {
        const entry = countsOf(key);
        if (!entry) return WINDOW / 1000;
        entry.mint = recent(entry.mint, now);
        if (entry.mint.length >= MINTS * share) return Math.ceil(((entry.mint[0] as number) + WINDOW - now) / 1000);
      }
      for (const { key } of allowancesOf(peer)) {
        countsOf(key)?.mint.push(now);
        save(key);
      }
      return 0;
    },

    /**
     * An authentication succeeded: a pairing clears the peer's failures, a token those of tokens only. If a token cleared
     * wrong codes too, a paired device could guess codes without end. Running blocks stay.
     */
    succeed(peer: string, by: 'code' | 'token'): void {
      if (by === 'code') {
        paired.delete(peer);
        paired.add(peer);
        if (paired.size > MAX_PAIRED) paired.delete(paired.values().next().value as string);
        savePaired();
      }
      const entry = counts.get(peer);
      if (!entry) return;
      const cleared = by === 'code' ? entry.pairing.length + entry.session.length : entry.session.length;
      if (cleared === 0) return;
      entry.session = [];
      if (by === 'code') entry.pairing = [];
      save(peer);
    },

    /**
     * Which codes may be used by a peer now: after too many wrong ones over all peers, only those that the host has
     * registered, and only by peers that have paired before.
     */
    codesFor(peer: string): 'all' | 'registered' | 'none' {
      if (restrictedUntil <= clock.monotonic()) return 'all';
      return paired.has(peer) ? 'registered' : 'none';
    },

    /**
     * Seconds until codes are no longer restricted; 0 if they are not. Rounded to tens: desktops take a reason that
     * contains 429 for a refusal by status, and wait for five minutes (contract 01 §3.6).
     */
    restrictedFor(): number {
      return Math.max(0, Math.ceil((restrictedUntil - clock.monotonic()) / 10_000) * 10);
    },

    /** The host registered a code: ends every block, count and restriction. Returns how many peers had one. */
    clear(): number {
      const peers = new Set([...counts.keys(), ...blocks.pairing.keys(), ...blocks.session.keys()]);
      for (const entries of [counts, blocks.pairing, blocks.session]) entries.clear();
      const isClear = peers.size === 0 && wrongCodes.length === 0 && restrictedUntil <= clock.monotonic();
      wrongCodes = [];
      restrictedUntil = 0;
      if (!isClear) {
        persistence.clear();
        savePaired();
      }
      return peers.size;
    },
  };
}

const times = v.array(v.number());
const Stored: v.GenericSchema<unknown, LimiterRecord> = v.union([
  v.object({ paired_peers: listOf(v.string()) }),
  v.object({ wrong_codes: times, restricted_until: v.number() }),
  v.object({ peer: v.string(), pairing: times, session: times, mint: times, blocked_until: v.number() }),
]);
