import { RelayError } from '../../errors.ts';
import type { Clock } from '../../kit/clock.ts';
import { isSamePrincipal, type VoicePrincipal } from '../principal.ts';

const MAX_PER_PRINCIPAL = 16;
const MAX_SESSIONS = 128;
const TOMBSTONE_TTL = 10 * 60_000;
const MAX_TOMBSTONES = 1024;
const BUSY_RETRY = 5;

/** A voice session, as far as its limits go. */
export interface LimitedSession {
  readonly id: string;
  readonly principal: VoicePrincipal;
  /** Whether it has ended, also when its timer is late. */
  readonly isOver: boolean;
  readonly isAttached: boolean;
  /** Whether it renders. */
  readonly isBusy: boolean;
  close(code: number, reason: string, why: string): void;
}

/** The open sessions of one kind, within their limits, and for ten minutes the ids of closed ones (contract 05 §12). */
export class SessionTable<S extends LimitedSession> {
  readonly #clock: Clock;
  /** Oldest first. */
  readonly #open = new Map<string, S>();
  /** When to forget a closed session, in monotonic milliseconds; the oldest first. */
  readonly #tombstones = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#open.size;
  }

  /** How many have a socket. */
  get attached(): number {
    return [...this.#open.values()].filter(({ isAttached }) => isAttached).length;
  }

  /** Adds a session. @throws RelayError `rate-limited` when there are too many and none of them is idle. */
  add(session: S): void {
    this.#makeRoom(
      [...this.#open.values()].filter((other) => isSamePrincipal(other.principal, session.principal)),
      MAX_PER_PRINCIPAL,
    );
    this.#makeRoom([...this.#open.values()], MAX_SESSIONS);
    this.#open.set(session.id, session);
  }

  /**
   * The open session of that id, for its principal.
   * @throws RelayError `not-found`; `gone` for a closed one; `forbidden` for that of another principal.
   */
  find(id: string, principal: VoicePrincipal): S {
    this.#forgetOld();
    const session = this.#open.get(id);
    if (session?.isOver === false) {
      if (isSamePrincipal(session.principal, principal)) return session;
      throw new RelayError('forbidden', 'this voice session belongs to another caller');
    }
    if (this.#tombstones.has(id)) throw new RelayError('gone', 'this voice session is closed');
    throw new RelayError('not-found', 'unknown voice session');
  }

  /** A session has ended. */
  ended(session: S): void {
    if (!this.#open.delete(session.id)) return;
    this.#tombstones.set(session.id, this.#clock.monotonic() + TOMBSTONE_TTL);
    this.#forgetOld();
  }

  /** Closes the sessions that match. */
  closeAll(code: number, reason: string, why: string, matches: (session: S) => boolean = () => true): void {
    for (const session of [...this.#open.values()]) if (matches(session)) session.close(code, reason, why);
  }

  /** Of too many sessions, closes the oldest idle one: first one without a socket, then one that does nothing on it. */
  #makeRoom(sessions: S[], limit: number): void {
    const open = sessions.filter(({ isOver }) => !isOver);
    if (open.length < limit) return;
    const idle = open.filter(({ isBusy }) => !isBusy);
    const oldest = idle.find(({ isAttached }) => !isAttached) ?? idle[0];
    if (!oldest) throw new RelayError('rate-limited', 'too many voice sessions', { retryAfter: BUSY_RETRY });
    oldest.close(1013, 'too many voice sessions', 'evicted');
  }

  #forgetOld(): void {
    const now = this.#clock.monotonic();
    for (const [id, until] of this.#tombstones) {
      if (until > now && this.#tombstones.size <= MAX_TOMBSTONES) return;
      this.#tombstones.delete(id);
    }
  }
}
