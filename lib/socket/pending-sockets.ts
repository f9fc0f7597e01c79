import { type Allowance, allowancesOf } from '../access/peer.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Handshake } from './handshake.ts';
import { IndexedSet } from './indexed-set.ts';

const AUTH_TIMEOUT = 30_000;
/** Milliseconds in which a refused client must disconnect. After that, Node drops it; other runtimes may keep it longer. */
const REFUSED_TIMEOUT = 2_000;
const MAX_PER_PEER = 16;
const MAX_TOTAL = 256;

export interface PendingSocketsDeps {
  clock: Clock;
  /** True if a pending timer would keep the process from sleeping (edge). */
  sleeps: boolean;
}

/** Unauthenticated sockets: limits their number, in total and per peer, and their time (contract 01 §3.1, 3.3). */
export class PendingSockets {
  readonly #deps: PendingSocketsDeps;
  readonly #handshakes = new IndexedSet<Handshake>();
  readonly #perPeer = new Map<string, number>();
  /** One timer for all: at several thousand sockets per second, one each would cost more than everything else. */
  #cancelTimer: Cancel | undefined;
  /** Time at which the timer fires, on the monotonic clock. */
  #due = Number.POSITIVE_INFINITY;

  constructor(deps: PendingSocketsDeps) {
    this.#deps = deps;
  }

  hasRoomFor(key: string): boolean {
    const hasRoom = (allowance: Allowance) => (this.#perPeer.get(allowance.key) ?? 0) < MAX_PER_PEER * allowance.share;
    return this.#handshakes.size < MAX_TOTAL && allowancesOf(key).every(hasRoom);
  }

  add(handshake: Handshake): void {
    this.#handshakes.add(handshake);
    for (const { key } of allowancesOf(handshake.caller.key)) this.#perPeer.set(key, (this.#perPeer.get(key) ?? 0) + 1);
    this.#expireAfter(handshake, AUTH_TIMEOUT);
  }

  /** Gives a refused client a short time to disconnect. It keeps its slot until then. */
  refused(handshake: Handshake): void {
    this.#expireAfter(handshake, REFUSED_TIMEOUT);
  }

  /** Frees the slot. Idempotent. */
  remove(handshake: Handshake): void {
    if (!this.#handshakes.remove(handshake)) return;
    for (const { key } of allowancesOf(handshake.caller.key)) {
      const left = (this.#perPeer.get(key) ?? 1) - 1;
      if (left > 0) this.#perPeer.set(key, left);
      else this.#perPeer.delete(key);
    }
    if (this.#deps.sleeps && this.#handshakes.size === 0) this.#disarm();
  }

  closeAll(code: number, reason: string): void {
    this.#disarm();
    for (const handshake of this.#handshakes.snapshot()) handshake.close(code, reason);
  }

  #expireAfter(handshake: Handshake, delay: number): void {
    handshake.deadline = this.#deps.clock.monotonic() + delay;
    this.#arm(handshake.deadline);
  }

  /** Makes sure the timer fires no later than `at`, on the monotonic clock. */
  #arm(at: number): void {
    if (at >= this.#due) return;
    this.#disarm();
    this.#due = at;
    this.#cancelTimer = this.#deps.clock.after(Math.ceil(at - this.#deps.clock.monotonic()), () => {
      this.#disarm();
      const now = this.#deps.clock.monotonic();
      for (const handshake of this.#handshakes.snapshot()) if (handshake.deadline <= now) handshake.expire();
      const deadlines = this.#handshakes.snapshot().map(({ deadline }) => deadline);
      this.#arm(Math.min(...deadlines.filter((deadline) => deadline > now)));
    });
  }

  #disarm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#due = Number.POSITIVE_INFINITY;
  }
}
