import { KiB, MINUTE, MiB } from '../../kit/units.ts';
import type { SocketEnd } from '../../socket/transport.ts';

/** Activity of a session for its client: none yet, a render or a run, or finished for good. */
export type Activity = 'idle' | 'busy' | 'done';

/** The differences between users of the resumable socket. */
export interface Rules {
  /** True if sessions outlive their sockets. Otherwise events have no ids, and a second socket replaces the first. */
  resumable: boolean;
  /** True if the first socket waits for a connection to the provider, unread until then (contract 06 §4.1). */
  connects: boolean;
  /** True if `session.start` is answered with another `voice.session.ready`. */
  answersStart: boolean;
  /** Limits on the events stored for a resume, counted in bytes of the frames' text. */
  ring: {
    events: number;
    bytes: number;
    /** Left free by the producer for events of other origin. */
    reserve: { events: number; bytes: number };
  };
  /** Policy of a full ring: the producer waits for acknowledgements, or the oldest events are evicted. */
  whenFull: 'wait' | 'evict';
  /** Unsent bytes beyond those of a replay above which the owner's socket counts as lost. */
  maxUnsent: number;
  /** Milliseconds that a session waits for its first socket. */
  unattachedTtl: number;
  /** True if the end of the owner's socket, without `session.close`, ends the session. */
  endsSession(end: SocketEnd, activity: Activity): boolean;
}

/** `/voice/output/{id}` (contract 05 §12). */
export const OUTPUT_RULES: Rules = {
  resumable: true,
  connects: false,
  answersStart: true,
  ring: { events: 4096, bytes: 8 * MiB, reserve: { events: 64, bytes: 256 * KiB } },
  whenFull: 'wait',
  maxUnsent: 8 * MiB,
  unattachedTtl: 5 * MINUTE,
  endsSession: ({ code }, activity) => activity === 'idle' || (code === 1000 && activity === 'done'),
};

/** `/voice/realtime/{id}` (contract 05 §14). */
export const LAB_RULES: Rules = {
  ...OUTPUT_RULES,
  resumable: false,
  endsSession: () => true,
};

/** Reasons in the close frame of a phone that leaves voice mode (contract 06 §4.1). */
const LEAVING = new Set(['session ended', 'done']);

/** `/voice/realtime-agent/{id}` (contract 06 §4.1). `busy` while a background run is alive. */
export const AGENT_RULES: Rules = {
  resumable: true,
  connects: true,
  answersStart: false,
  ring: { events: 256, bytes: 8 * MiB, reserve: { events: 0, bytes: 0 } },
  whenFull: 'evict',
  maxUnsent: 4 * MiB,
  unattachedTtl: 2 * MINUTE,
  endsSession: ({ code, reason }, activity) => code === 1000 && LEAVING.has(reason) && activity !== 'busy',
};
