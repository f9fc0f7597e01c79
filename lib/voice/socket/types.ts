import type { JsonObject } from '../../kit/json.ts';
import type { SocketEnd } from '../../socket/transport.ts';
import type { Activity, Rules } from './rules.ts';

/** Identifies a socket for the lifetime of the session. */
export type SocketId = string;

/**
 * `created`: no socket yet. `connecting`: the provider is being connected for the first socket. `attached`: a socket owns
 * the session. `detached`: it lost its socket and waits for a claim. `closed` is final.
 */
export type Phase = 'created' | 'connecting' | 'attached' | 'detached' | 'closed';

/** An event without the members that the session adds. `audio` events have a separate sequence. */
export interface EventBody extends JsonObject {
  type: string;
}

/** An input of the state machine. */
export type Input =
  /** A socket of the session's principal has opened. */
  | { type: 'opened'; socket: SocketId }
  | { type: 'text'; socket: SocketId; text: string }
  | { type: 'binary'; socket: SocketId }
  | { type: 'lost'; socket: SocketId; end: SocketEnd }
  /** The session has an event for its client. */
  | { type: 'publish'; event: EventBody; isAudio?: boolean }
  | { type: 'activity'; activity: Activity }
  /** The client has played audio up to this `audio_event_id`, as one of its other messages says. */
  | { type: 'played'; audioEventId: number }
  /** The provider of a session that connects is ready, or could not be reached. */
  | { type: 'connected' }
  | { type: 'connect-failed'; error: EventBody }
  /** From now on, the session waits so many milliseconds for a claim. */
  | { type: 'resume-ttl'; ttl: number }
  /** Ends the session from outside. */
  | { type: 'close'; code: number; reason: string; why: string }
  /** A deadline may have passed. */
  | { type: 'time' };

/** An effect of the state machine. */
export type Effect =
  | { type: 'send'; socket: SocketId; text: string }
  | { type: 'close'; socket: SocketId; code: number; reason: string }
  /** Stop or resume reading a socket. */
  | { type: 'reading'; socket: SocketId; paused: boolean }
  /** Connect the provider; answered by `connected` or `connect-failed`. */
  | { type: 'connect' }
  /** A message of the owner that the session does not handle itself. */
  | { type: 'deliver'; message: JsonObject }
  /** Pause or resume the producer of events. */
  | { type: 'producer'; paused: boolean }
  /** An event was made, for the event log. */
  | { type: 'made'; event: JsonObject }
  /** The session is over. */
  | { type: 'ended'; why: string };

export interface ResumableOptions {
  rules: Rules;
  sessionId: string;
  /** SHA-256 (hex) of the resume token. */
  tokenHash: string;
  /** Milliseconds that a detached session waits for a claim. */
  resumeTtl: number;
  /** Members of `voice.session.ready`, without those that the session adds. */
  ready(): JsonObject;
  /** Monotonic milliseconds. */
  now: number;
}
