import { RelayError } from '../../errors.ts';
import type { Clock } from '../../kit/clock.ts';
import { isSamePrincipal, type VoicePrincipal } from '../principal.ts';

const TOMBSTONE_TTL = 10 * 60_000;
const MAX_TOMBSTONES = 1024;
const BUSY_RETRY = 5;

/** Limits on the number of sessions, and the eviction policy. */
export interface SessionLimits {
  perPrincipal: number;
  total: number;
  /**
   * Sessions that are evicted for a new one, oldest first. `idle`: idle ones, first those without a socket. `unattached`:
   * those without a socket, first the idle ones.
   */
  evicts: 'idle' | 'unattached';
  /** Kind of the error if none can be evicted. */
  error: 'rate-limited' | 'unavailable';
}

/** A voice session, as far as the limits need it. */
export interface LimitedSession {
  readonly id: string;
  readonly principal: VoicePrincipal;
  /** True if it has ended, even if its timer is late. */
  readonly isOver: boolean;
  readonly isAttached: boolean;
  /** True if it renders. */
  readonly isBusy: boolean;
  close(code: number, reason: string, why: string): void;
}

/** The open sessions of one kind, within their limits, and the ids of closed ones for ten minutes (contract 05 §12). */
export class SessionTable<S extends LimitedSession> {
  readonly #clock: Clock;
  readonly #limits: SessionLimits;
  /** Oldest first. */
  readonly #open = new Map<string, S>();
  /** When to forget a closed session, in monotonic milliseconds; the oldest first. */
  readonly #tombstones = new Map<string, number>();

  constructor(clock: Clock, limits: SessionLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Number of sessions with a socket. */
  get attached(): number {
    return [...this.#open.values()].filter(({ isAttached }) => isAttached).length;
  }

  /**
   * Makes room for one more session of a principal.
   * @throws RelayError of the kind in the limits if there are too many and none can be evicted.
   */
  makeRoom(principal: VoicePrincipal): void {
    const own = [...this.#open.values()].filter((other) => isSamePrincipal(other.principal, principal));
    this.#evictFrom(own, this.#limits.perPrincipal);
    this.#evictFrom([...this.#open.values()], this.#limits.total);
  }

  /** Adds a session. @throws RelayError like `makeRoom` */
  add(session: S): void {
    this.makeRoom(session.principal);
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
    // Its runs may have outlived it.
    if (session || this.#tombstones.has(id)) throw new RelayError('gone', 'this voice session is closed');
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

  /** Closes the first session to evict if there are too many. */
  #evictFrom(sessions: S[], limit: number): void {
    const open = sessions.filter(({ isOver }) => !isOver);
    if (open.length < limit) return;
    const { evicts, error } = this.#limits;
    const canGive = ({ isBusy, isAttached }: S) => (evicts === 'idle' ? !isBusy : !isAttached);
    const first = ({ isBusy, isAttached }: S) => (evicts === 'idle' ? !isAttached : !isBusy);
    const candidates = open.filter(canGive);
    const oldest = candidates.find(first) ?? candidates[0];
    if (!oldest) throw new RelayError(error, 'too many voice sessions', { retryAfter: BUSY_RETRY });
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
