import type { Clock } from '../kit/clock.ts';
import { type Log, REFUSED } from '../log.ts';

/** Milliseconds in which one line is logged for all refusals of a kind. */
const PERIOD = 60_000;
/** Maximum number of distinct kinds; further ones share a line. */
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
 * Logs refused requests: at most one line per peer and route in a minute, with the number of refusals since the last
 * one (contract 01 §9.1a). They have a separate ring in the log, so that a flood pushes out no other lines.
 */
export function createRefusals({ clock, log: all }: { clock: Clock; log: Log }) {
  const log = all.named(REFUSED);
  const kinds = new Map<string, Kind>();

  function write(kind: Kind): void {
    log.warn(kind.more > 0 ? `${kind.text} (and ${kind.more} times since the last such line)` : kind.text);
    Object.assign(kind, { more: 0, next: clock.monotonic() + PERIOD });
  }

  /** Logs the counted refusals of kinds whose minute is over. */
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
    /** Records a refused request. `text` is the line for the first one of this peer and route. */
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

    /** Logs every counted refusal, and forgets them. */
    stop(): void {
      flush(Number.POSITIVE_INFINITY);
      kinds.clear();
    },
  };
}
