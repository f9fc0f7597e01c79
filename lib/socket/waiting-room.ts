import type { Cancel, Clock } from '../clock.ts';
import { Bag } from './bag.ts';
import type { Gate } from './gate.ts';

const AUTH_TIMEOUT = 30_000;
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
    if (!this.#cancelTimer) this.#arm(AUTH_TIMEOUT);
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

  #arm(delay: number): void {
    this.#cancelTimer = this.#parts.clock.after(Math.ceil(delay), () => {
      this.#cancelTimer = undefined;
      const now = this.#parts.clock.monotonic();
      for (const gate of this.#gates.all()) if (gate.deadline <= now) gate.expire();
      const deadlines = this.#gates.all().map(({ deadline }) => deadline);
      const next = Math.min(...deadlines.filter((deadline) => deadline > now));
      if (Number.isFinite(next)) this.#arm(next - now);
    });
  }

  #disarm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }
}
