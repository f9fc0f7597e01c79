import { attempt } from '../../../lib/kit/attempt.ts';
import { utf8Length } from '../../../lib/kit/text.ts';
import { MiB } from '../../../lib/kit/units.ts';
import type { Transport } from '../../../lib/socket/transport.ts';

/** The platform itself ends a connection at 32 MiB, with a reason that clients do not know. */
export const MAX_MESSAGE = 30 * MiB;
/** Bytes sent without a frame from the client in between, above which producers pause (contract 01 §12). */
const CREDIT = MiB;

/** Reported for a close frame without a code, and never sent. */
const NO_CODE = 1005;

/**
 * Answers a client's close frame, which the platform leaves to the object, and for which the client waits. Without effect
 * on a socket that has ended, or with a code that cannot be sent.
 */
export const answerClose = (socket: Pick<Closable, 'close'>, code: number, reason: string): void =>
  attempt(() => socket.close(code === NO_CODE ? 1000 : code, reason));

/** Time at which the platform last answered a constant ping of the client for the object, epoch ms; null for never. */
export type PingedAt = () => number | null;

/** The members that a peer of crossws and the platform's socket share. */
interface Closable {
  send(data: string | ArrayBuffer | ArrayBufferView): unknown;
  close(code: number, reason: string): void;
}

export interface EdgeTransport extends Transport {
  /** The client has sent a frame, so it is alive and has room again. */
  touch(): void;
}

/**
 * A Durable Object's socket. The platform itself answers pings and detects dead peers. It hides unsent bytes, so everything
 * since the client's last frame counts, up to just above the credit: a client that only listens for days is not a slow
 * consumer.
 */
export function createEdgeTransport(id: string, socket: Closable, pingedAt: PingedAt = () => null): EdgeTransport {
  let sent = 0;
  let lastSent = 0;
  return {
    id,
    send(data) {
      lastSent = Date.now();
      if (sent <= CREDIT) sent += typeof data === 'string' ? utf8Length(data) : data.byteLength;
      // Fails once it has closed: the close event follows or has passed.
      attempt(() => socket.send(data));
    },
    close: (code, reason) => attempt(() => socket.close(code, reason)),
    terminate: () => attempt(() => socket.close(1008, 'policy violation')),
    unsent() {
      // The client sent it, and got the answer after everything before, so it has room, as after any frame.
      if (sent > 0 && (pingedAt() ?? 0) > lastSent) sent = 0;
      return Math.min(sent, CREDIT + 1);
    },
    credit: CREDIT,
    touch() {
      sent = 0;
    },
    pause: () => false,
    resume: () => {},
  };
}
