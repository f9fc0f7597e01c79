import type { Clock } from '../kit/clock.ts';
import { type Log, REFUSED } from '../log.ts';

/** Milliseconds for which one line stands for every refusal of its kind. */
const PERIOD = 60_000;
/** Kinds of refusals that are told apart; further ones share a line. */
const MAX_KINDS = 256;

const SHARED = 'refused further calls from other peers';

interface Kind {
  text: string;
  /** Refusals since the last line. */
  more: number;
  /** Monotonic milliseconds from which the next one is written. */
  next: number;
}

/**
 * Logs refused requests: one line per peer and route in a minute, with the number of those that came since the last one
 * (contract 01 §9.1a). They have a ring of their own in the log, so that a flood washes out nothing else.
 */
export function createRefusals({ clock, log: all }: { clock: Clock; log: Log }) {
  const log = all.named(REFUSED);
  const kinds = new Map<string, Kind>();

  function write(kind: Kind): void {
    log.warn(kind.more > 0 ? `${kind.text} (and ${kind.more} times since the last such line)` : kind.text);
    Object.assign(kind, { more: 0, next: clock.monotonic() + PERIOD });
  }

  /** Writes what was only counted, from kinds whose time is over. */
  function flush(now: number): void {
    for (const [key, kind] of kinds) {
      if (kind.next > now) continue;
      if (kind.more === 0) kinds.delete(key);
      else {
        kind.more--;
        write(kind);
      }
    }
  }

  return {
    /** A request was refused. `text` is the line for the first one of this peer and route. */
    note(peer: string, route: string, text: string): void {
      const now = clock.monotonic();
      let key = `${peer} ${route}`;
      if (!kinds.has(key) && kinds.size >= MAX_KINDS) flush(now);
      const isShared = !kinds.has(key) && kinds.size >= MAX_KINDS;
      if (isShared) key = SHARED;
      const kind = kinds.get(key) ?? { text: isShared ? SHARED : text, more: 0, next: now };
      kinds.set(key, kind);
      if (now >= kind.next) write(kind);
      else kind.more++;
    },

    sweep: (): void => flush(clock.monotonic()),

    /** Writes all that was only counted. Whatever comes after begins anew. */
    stop(): void {
      flush(Number.POSITIVE_INFINITY);
      kinds.clear();
    },
  };
}
