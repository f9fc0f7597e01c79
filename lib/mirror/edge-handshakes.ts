import { base64url, randomBytes } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import type { SocketEvents, Transport } from '../socket/transport.ts';
import { encodeFrame, type Frame, parseFrame } from './frames.ts';

/** Milliseconds in which home has to prove its key. */
const HELLO_TIMEOUT = 10_000;
/** Maximum unproved sockets, in total and of one address. Over it, the oldest of them is closed. */
const MAX_UNPROVED = 64;
const MAX_UNPROVED_OF_ONE = 4;

export interface Challenge {
  nonce: string;
  /** The name under which the edge was called. */
  host: string;
  /** True once the socket has closed: then it must not become the link, whose end nothing would report any more. */
  isOver(): boolean;
}

export interface HandshakesDeps {
  clock: Clock;
  /** Links home if the answer to a challenge proves its key; else closes the socket and resolves with false. */
  prove(socket: Transport, answer: Frame, challenge: Challenge): Promise<boolean>;
  /** The events of a socket on which home has proved its key. */
  linkEvents(socket: Transport): SocketEvents;
}

/** The sockets at the edge that claim to be home and have yet to prove it (contract 12 §2). */
export function createHandshakes({ clock, prove, linkEvents }: HandshakesDeps) {
  /** Oldest first, with the address of each. */
  const unproved = new Map<Transport, string>();
  /** Home's last address, from which alone its next socket may be closed to make room. */
  let homeAddress: string | undefined;

  /** Closes the oldest unproved sockets if another one from `address` would be too many. */
  function makeRoom(address: string): void {
    const all = [...unproved];
    const own = all.filter(([, of]) => of === address);
    const others = all.filter(([, of]) => of !== homeAddress);
    const oldest = own.length >= MAX_UNPROVED_OF_ONE ? own[0] : all.length >= MAX_UNPROVED ? others[0] : undefined;
    if (!oldest) return;
    unproved.delete(oldest[0]);
    oldest[0].close(1013, 'too many connections, try again soon');
  }

  return {
    /**
     * A socket from `address` that claims to be home, called under `host`. It is never refused because of other unproved
     * ones, which could keep home out: the oldest of those is closed.
     */
    open(socket: Transport, { host, address }: { host: string; address: string }): SocketEvents {
      const nonce = base64url(randomBytes(32));
      const events = linkEvents(socket);
      let state: 'asked' | 'proving' | 'over' = 'asked';
      let isProved = false;
      makeRoom(address);
      unproved.set(socket, address);
      const settle = () => {
        cancel();
        if (state === 'over') return;
        state = 'over';
        unproved.delete(socket);
      };
      const cancel = clock.after(HELLO_TIMEOUT, () => {
        settle();
        socket.close(1008, 'home did not prove its key in time');
      });
      socket.send(encodeFrame({ type: 'challenge', nonce }));
      return {
        message(text) {
          if (isProved) return events.message(text);
          const frame = parseFrame(text);
          if (state !== 'asked' || !frame) {
            settle();
            socket.close(1008, 'frame out of turn');
            return;
          }
          state = 'proving';
          void prove(socket, frame, { nonce, host, isOver: () => state === 'over' })
            .then((proved) => {
              isProved = proved;
              if (proved) homeAddress = address;
            })
            .catch(() => socket.close(1011, 'the link could not be stored'))
            .finally(settle);
        },
        drained() {},
        pinged() {},
        closed() {
          settle();
          events.closed();
        },
      };
    },
  };
}
