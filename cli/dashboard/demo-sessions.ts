import { base64url, randomBytes, randomString, timingSafeEqual } from '../../lib/kit/bytes.ts';
import type { Clock } from '../../lib/kit/clock.ts';
import { sha256 } from '../../lib/kit/sha256.ts';

/** The one user of the demo. */
export const DEMO_USER = 'demo';

const PASSWORD_LETTERS = 'abcdefghjkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789';
const PASSWORD_LENGTH = 24;
/** Milliseconds. */
export const SESSION_LIFETIME = 12 * 3_600_000;
export const TICKET_LIFETIME = 30_000;
const FAILURE_WINDOW = 60_000;
const MAX_SESSIONS = 64;
const MAX_TICKETS = 256;
const MAX_FAILURES = 10;

/**
 * Sign-in of the demo dashboard: one user with a random password, sessions and single-use tickets, all in memory. Tokens
 * are kept as hashes.
 */
export function createDemoSessions(clock: Clock) {
  const password = randomString(PASSWORD_LETTERS, PASSWORD_LENGTH);
  const passwordHash = sha256(password);
  /** Ends of sessions and tickets by hash, oldest first; milliseconds of the monotonic clock. */
  const sessions = new Map<string, number>();
  const tickets = new Map<string, { until: number; session: string }>();
  let failures: number[] = [];

  const newToken = () => base64url(randomBytes(32));

  const isLive = (session: string): boolean => (sessions.get(session) ?? 0) > clock.monotonic();

  function bound<V>(map: Map<string, V>, max: number): void {
    for (const oldest of map.keys()) {
      if (map.size <= max) return;
      map.delete(oldest);
    }
  }

  return {
    /** Shown once when the demo starts, and stored nowhere. */
    password,

    /** A new session's token; `rejected` for wrong words, `limited` after too many of them in a minute. */
    signIn(user: unknown, given: unknown): { token: string } | 'rejected' | 'limited' {
      const now = clock.monotonic();
      failures = failures.filter((at) => now - at < FAILURE_WINDOW);
      if (failures.length >= MAX_FAILURES) return 'limited';
      const isRight = typeof given === 'string' && timingSafeEqual(sha256(given), passwordHash);
      if (user !== DEMO_USER || !isRight) {
        failures.push(now);
        return 'rejected';
      }
      const token = newToken();
      sessions.set(sha256(token), now + SESSION_LIFETIME);
      bound(sessions, MAX_SESSIONS);
      return { token };
    },

    /** True if a token is that of a live session. */
    isSignedIn: (token: string | undefined): boolean => token !== undefined && isLive(sha256(token)),

    signOut(token: string | undefined): void {
      if (token !== undefined) sessions.delete(sha256(token));
    },

    /** A ticket for one WebSocket of a session. */
    mintTicket(token: string): string {
      const ticket = newToken();
      tickets.set(sha256(ticket), { until: clock.monotonic() + TICKET_LIFETIME, session: sha256(token) });
      bound(tickets, MAX_TICKETS);
      return ticket;
    },

    /** Uses up a ticket. False for one that is unknown, used, too old, or of a session that has ended. */
    consumeTicket(ticket: string | null): boolean {
      const key = ticket === null ? '' : sha256(ticket);
      const known = tickets.get(key);
      tickets.delete(key);
      return known !== undefined && known.until > clock.monotonic() && isLive(known.session);
    },
  };
}
