import type { Cancel, Clock } from '../kit/clock.ts';
import { Bag } from './bag.ts';
import type { Gate } from './gate.ts';

const AUTH_TIMEOUT = 30_000;
/** How long a refused client may take to go. Node drops it then; other runtimes keep it as long as it likes. */
const LEAVE_TIMEOUT = 2_000;
const PER_PEER = 16;
const TOTAL = 256;

export interface WaitingRoomParts {
  clock: Clock;
  /** Whether a pending timer would keep the process from sleeping (edge). */
  sleeps: boolean;
}

/** Sockets that have not authenticated: how many there may be, and how long each (contract 01 §3.1, 3.3). */
export class WaitingRoom {
  readonly #parts: WaitingRoomParts;
  readonly #gates = new Bag<Gate>();
  readonly #perPeer = new Map<string, number>();
  /** One timer for all of them: at several thousand sockets a second, one each would cost more than the rest. */
  #cancelTimer: Cancel | undefined;
  /** When that timer is due. */
  #due = Number.POSITIVE_INFINITY;

  constructor(parts: WaitingRoomParts) {
    this.#parts = parts;
  }

  hasRoomFor(key: string): boolean {
    return this.#gates.size < TOTAL && (this.#perPeer.get(key) ?? 0) < PER_PEER;
  }

  enter(gate: Gate): void {
    const { key } = gate.caller;
    this.#gates.add(gate);
    this.#perPeer.set(key, (this.#perPeer.get(key) ?? 0) + 1);
    gate.deadline = this.#parts.clock.monotonic() + AUTH_TIMEOUT;
    this.#lookBy(gate.deadline);
  }

  /** A refused one has to be gone soon. */
  refused(gate: Gate): void {
    gate.deadline = this.#parts.clock.monotonic() + LEAVE_TIMEOUT;
    this.#lookBy(gate.deadline);
  }

  leave(gate: Gate): void {
    if (!this.#gates.remove(gate)) return;
    const { key } = gate.caller;
    const left = (this.#perPeer.get(key) ?? 1) - 1;
    if (left > 0) this.#perPeer.set(key, left);
    else this.#perPeer.delete(key);
    if (this.#parts.sleeps && this.#gates.size === 0) this.#disarm();
  }

  closeAll(code: number, reason: string): void {
    this.#disarm();
    for (const gate of this.#gates.all()) gate.close(code, reason);
  }

  /** Has a look at `at`, on the monotonic clock, if not before. */
  #lookBy(at: number): void {
    if (at >= this.#due) return;
    this.#disarm();
    this.#due = at;
    this.#cancelTimer = this.#parts.clock.after(Math.ceil(at - this.#parts.clock.monotonic()), () => {
      this.#disarm();
      const now = this.#parts.clock.monotonic();
      for (const gate of this.#gates.all()) if (gate.deadline <= now) gate.expire();
      const deadlines = this.#gates.all().map(({ deadline }) => deadline);
      this.#lookBy(Math.min(...deadlines.filter((deadline) => deadline > now)));
    });
  }

  #disarm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#due = Number.POSITIVE_INFINITY;
  }
}
